"""What a model is told about notes: to write one, and that it has written one.

A change of these texts is a change of behaviour: raise the version with it.
"""

PROMPT_VERSION = 1

REQUEST = """\
This conversation is about to be shortened. Write a note to yourself from which you can carry on without anything else
but the user's own messages, which you will still have.

Put down what is wanted and why; what was decided; what you found out and from where; what has been done and what has
not, with the next step; which questions are open, and whether the user's last message has been answered. Quote exactly
what you will need again: ids, names, paths, numbers, commands, error texts. If other agents are at work, name each and
what it was asked to do. If there is an earlier note, keep of it what still counts.

Write plain text. Begin with the note itself and call no tools."""

PREAMBLE = """\
[What you and the user wrote here was replaced by this note of yours, to keep the conversation short. Carry on from it,
and answer the user's last message if it says that this is still to be done.]

"""
