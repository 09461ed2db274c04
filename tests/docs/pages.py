"""Reads what the pages tell people to type."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SHELLS = ("sh", "bash", "console")
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"(<!-- (\w+): generated -->\n).*?(<!-- end -->)", re.DOTALL)

_ASSIGNMENTS = re.compile(r"^(?:[A-Z_]+=\S+ )+")


class Fence(NamedTuple):
    """One fenced block of a page."""

    page: Path
    language: str
    text: str

    def __str__(self) -> str:
        first = self.text.strip().partition("\n")[0]
        return f"{self.page.relative_to(ROOT)}: {first}"


class Command(NamedTuple):
    """One line of a shell block."""

    page: Path
    line: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {self.line}"


def find_fences(*languages: str, pages: list[Path] = PAGES) -> list[Fence]:
    """Return the fenced blocks in those languages."""
    return [
        Fence(page, language, text)
        for page in pages
        for language, text in _FENCE.findall(page.read_text())
        if language in languages
    ]


def find_commands(program: str = "", pages: list[Path] = PAGES) -> list[Command]:
    """Return the commands of all shell blocks that run the program; in a console block those behind the prompt."""
    return [
        Command(fence.page, command)
        for fence in find_fences(*SHELLS, pages=pages)
        for line in fence.text.splitlines()
        if line and (fence.language != "console" or line.startswith("$ "))
        # What is put into the environment of one command is no part of it.
        if (command := _ASSIGNMENTS.sub("", line.removeprefix("$ "))).split(maxsplit=1)[0] == program or not program
    ]


def fill_tables(page: str, tables: Mapping[str, Callable[[], Iterable[str]]]) -> str:
    """Return a page with its generated tables as they must be; each stands between two comments that name it.

    Args:
        page: the whole page.
        tables: the lines of each table.

    Raises:
        KeyError: the page has a table that nobody knows.
    """
    return _TABLE.sub(lambda found: found[1] + "\n".join(tables[found[2]]()) + "\n" + found[3], page)


def begin_table(*heads: str) -> Iterator[str]:
    """Yield the first two lines of a table."""
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
