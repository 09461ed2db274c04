"""What a prompt tells the `sim` models to do: calls of tools in rounds, and the words that end them.

@tool look_up {"city": "Paris"}
@tool look_up {"city": "Rome"}
@then
@tool add {"a": 1, "b": 2}
@say It is warm.
"""

from msgspec import Struct, field

_TOOL, _THEN, _SAY = "@tool", "@then", "@say"


class Wanted(Struct, frozen=True):
    """One call a prompt asks for.

    Attributes:
        name: of the tool.
        arguments: as they stand in the prompt, JSON or not; empty for made-up ones.
    """

    name: str
    arguments: str


class Directives(Struct, frozen=True):
    """All that a prompt asks for.

    Attributes:
        rounds: calls, those of one round at once.
        words: what is said after the last round, or None.
    """

    rounds: list[list[Wanted]] = field(default_factory=list)
    words: str | None = None

    def calls_after(self, outputs: int) -> list[Wanted]:
        """Return the calls of the round whose turn it is after so many outputs, none after the last round."""
        for calls in self.rounds:
            if outputs < len(calls):
                return calls
            outputs -= len(calls)
        return []


def read_directives(prompt: str) -> Directives:
    """Return what the lines of a prompt ask for; lines of another kind say nothing."""
    rounds: list[list[Wanted]] = [[]]
    words: list[str] = []
    for line in prompt.splitlines():
        word, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        if word == _TOOL and rest:
            name, _, arguments = rest.partition(" ")
            rounds[-1].append(Wanted(name, arguments.strip()))
        elif word == _THEN and rounds[-1]:
            rounds.append([])
        elif word == _SAY and rest:
            words.append(rest)
    return Directives([calls for calls in rounds if calls], "\n".join(words) or None)
