"""Responses Gateway: the OpenAI Responses API in front of a vLLM server."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("responses-gateway")
except PackageNotFoundError:  # a source tree on the path, not installed
    __version__ = "0+unknown"
