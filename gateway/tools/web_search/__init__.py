"""Web search: declarations, the providers that can be asked, and what models and clients are told of the results.

A provider is a module that words a question and reads an answer, without any I/O; `client` moves the bytes.
"""
