"""Reads what the pages tell people to type."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SHELLS = ("sh", "bash", "console")
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

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
