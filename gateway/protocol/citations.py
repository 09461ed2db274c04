"""Finds in a finished text what it cites of the sources that the model was shown.

Nothing in the text is changed: a citation is a place in it, counted in code points, with the source it stands for.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

# Code first, for a number in brackets is an index there; a link covers its words, a bare URL itself.
_MARKS = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`"
    r"|\[[^\[\]\n]{0,300}\]\((?P<link>https?://[^\s()]+(?:\([^\s()]*\)[^\s()]*)*)\)"
    r"|\[(?P<numbers>\d{1,5}(?:\s?,\s?\d{1,5}){0,15})\]"
    r"|(?P<url>https?://[^\s<>\"'`\[\]{}|\\^]{1,2048})",
    re.DOTALL,
)
_TRAILING = ".,;:!?*_"


class Source(Struct, frozen=True):
    """A page the model was shown.

    Attributes:
        number: what the model cites it by, counted over the whole response.
        url: its address.
        title: its title, perhaps empty.
    """

    number: int
    url: str
    title: str


class Sources:
    """What a response may cite, by number and by address."""

    __slots__ = ("_by_number", "_by_url")

    def __init__(self) -> None:
        self._by_number: dict[int, Source] = {}
        self._by_url: dict[str, Source] = {}

    def add(self, sources: Iterable[Source]) -> None:
        """Let texts from now on cite these as well."""
        for source in sources:
            self._by_number[source.number] = source
            self._by_url.setdefault(source.url.rstrip("/"), source)

    def cite(self, text: str) -> list[dict[str, Any]]:
        """Return the `url_citation` annotations of a text, in its order.

        `[2]`, `[1, 3]`, links and bare addresses count where they name a source; those in code do not.
        """
        if not self._by_number or ("[" not in text and "://" not in text):
            return []
        return [
            {"type": "url_citation", "start_index": start, "end_index": end, "url": source.url, "title": source.title}
            for mark in _MARKS.finditer(text)
            for start, end, source in self._read(mark)
        ]

    def _read(self, mark: re.Match[str]) -> Iterator[tuple[int, int, Source]]:
        start, end = mark.span()
        if mark["numbers"]:
            for number in dict.fromkeys(map(int, mark["numbers"].split(","))):
                if number in self._by_number:
                    yield start, end, self._by_number[number]
            return
        url = mark["link"]
        if mark["url"]:
            url = _trim(mark["url"])
            end = start + len(url)
        if url and (source := self._by_url.get(url.rstrip("/"))) is not None:
            yield start, end, source


def _trim(url: str) -> str:
    """Return a bare URL without the punctuation of the sentence around it."""
    url = url.rstrip(_TRAILING)
    while url.endswith(")") and url.count(")") > url.count("("):
        url = url[:-1].rstrip(_TRAILING)
    return url
