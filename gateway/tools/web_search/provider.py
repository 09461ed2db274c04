"""What a search provider is: how a question is worded for it, and how its answer is read."""

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol
from urllib.parse import urlencode

from msgspec import Struct

Depth = Literal["low", "medium", "high"]
"""How much of each page is wanted."""

_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
# Browsers take a backslash for a slash, and so another host than is checked.
_URL = re.compile(r"https?://[^\s<>\\\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LONGEST_URL = 2048
_LONGEST_TITLE = 300


class Question(Struct, frozen=True, kw_only=True):
    """One query, with what narrows it.

    Attributes:
        text: the query.
        count: how many results are wanted.
        depth: how much of each page is wanted.
        place: where the user is: `country`, `region`, `city` and `timezone`, as far as known.
        allowed: domains that results must be of; empty for all.
        blocked: domains that results must not be of.
    """

    text: str
    count: int
    depth: Depth = "medium"
    place: Mapping[str, str] = {}
    allowed: Sequence[str] = ()
    blocked: Sequence[str] = ()

    def with_operators(self) -> str:
        """Return the query with its domains in the words that search engines know."""
        allowed = " OR ".join(f"site:{domain}" for domain in self.allowed)
        if len(self.allowed) > 1:
            allowed = f"({allowed})"
        blocked = [f"-site:{domain}" for domain in self.blocked]
        return " ".join(part for part in (self.text, allowed, *blocked) if part)


class Call(Struct, frozen=True, kw_only=True):
    """What is sent to a provider.

    Attributes:
        method: of HTTP.
        target: path and query below the base URL.
        headers: by name; credentials among them.
        body: of the request.
    """

    method: Literal["GET", "POST"] = "GET"
    target: str
    headers: dict[str, str] = {}
    body: bytes = b""


class Found(Struct, frozen=True):
    """One result.

    Attributes:
        url: address of the page, http or https.
        title: its title, perhaps empty.
        snippet: what the provider quotes of it, perhaps empty.
    """

    url: str
    title: str
    snippet: str


class Provider(Protocol):
    """One search service."""

    @property
    def url(self) -> str:
        """Its base URL where the configuration names none; empty for none."""
        ...

    def ask(self, question: Question, key: str) -> Call:
        """Return what to send for a question.

        Args:
            question: the question.
            key: credential of the service; empty for none.
        """
        ...

    def read(self, answer: Any) -> Iterator[Found]:
        """Yield the results of an answer, decoded JSON of any form, in its order; what is no result is left out."""
        ...


def build_get(path: str, **fields: Any) -> str:
    """Return a path with the fields that have a value as its query."""
    return f"{path}?{urlencode({name: value for name, value in fields.items() if value})}"


def read_results(listed: Any, snippets: Sequence[str]) -> Iterator[Found]:
    """Yield the results of a list of objects with `url`, `title` and members that quote the page."""
    for entry in listed if isinstance(listed, list) else []:
        url = entry.get("url") if isinstance(entry, dict) else None
        if isinstance(url, str) and _URL.fullmatch(url) and len(url) <= _LONGEST_URL:
            quoted = [_read_text(entry.get(name)) for name in snippets]
            yield Found(
                url=url,
                title=_read_text(entry.get("title"))[:_LONGEST_TITLE],
                snippet=" ".join(filter(None, quoted)),
            )


def _read_text(value: Any) -> str:
    """Return a text, or a list of texts, as one line without markup."""
    if isinstance(value, list):
        return " ".join(filter(None, map(_read_text, value)))
    if not isinstance(value, str):
        return ""
    plain = html.unescape(_TAG.sub("", value)).encode("utf-8", "replace").decode()
    return " ".join(_CONTROL.sub(" ", plain).split())
