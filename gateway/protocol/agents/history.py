"""What a model is shown of the items that only a tree of agents has."""

from collections.abc import Sequence

from gateway.protocol.agents.mail import Item


def recall_agents(items: Sequence[Item]) -> list[Item]:
    """Return items in which those of agents are calls of functions, their outputs, and messages of the user.

    Every output stands right behind its call, whenever it came, and a call that has none because its round was
    interrupted has a stand-in. Calls that were cut short are left out.
    """
    raise NotImplementedError
