"""Secrets out of a recording, and nothing else: what makes the protocol stays as it was."""

import re
from collections.abc import Iterable, Mapping
from json import JSONDecodeError, JSONDecoder
from typing import Final
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

import msgspec

VERSION: Final = 1
MASK: Final = "***"

_SCHEME_HEADERS: Final = frozenset({"authorization", "proxy-authorization"})
_SECRET_HEADERS: Final = frozenset(
    {"cookie", "set-cookie", "x-api-key", "api-key", "openai-organization", "openai-project"}
)
_SECRET_QUERY: Final = re.compile(r"(?i)([?&;](?:[^=&;#]*[_-])?(?:key|token|sig|signature)=)[^&;#]+")
_KEYS: Final = (
    # What begins in the middle of a longer run of such characters is a part of an opaque value.
    re.compile(r"(?<![A-Za-z0-9_+/=-])()sk-[A-Za-z0-9_-]{8,}"),
    re.compile(r"(?<![A-Za-z0-9_+/=-])()eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]*"),
    re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/-]{8,}=*"),
    re.compile(r'("(?:authorization|api_key|x-api-key)"\s*:\s*")(?:\\.|[^"\\])+(?=")', re.IGNORECASE),
)
_MAYBE: Final = re.compile(r"(?i)sk-|eyJ|bearer|authorization|api[_-]key")
_PROTECTED: Final = re.compile(
    r'"(?:id|[a-z_]+_id|encrypted_content|obfuscation|sequence_number|error)"\s*:\s*(?=["{\[])'
)
_json: Final = JSONDecoder()


class Redactor:
    """Takes secrets out of what is recorded and counts them.

    Args:
        secrets: values that may stand nowhere, such as the key that is used.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets if secret for form in _spell(secret)}
        self._secrets = sorted(forms, key=len, reverse=True)
        self._secret_bytes = [form.encode() for form in self._secrets]

    def redact_text(self, text: str) -> tuple[str, int]:
        """Return a text without secrets, and how many there were.

        Ids, opaque content and error objects of JSON stay, but for the secrets that were named.
        """
        count = 0
        if _MAYBE.search(text):
            kept = _find_protected(text)
            for pattern in _KEYS:
                text, found = _mask(pattern, text, kept)
                if found:
                    kept, count = _find_protected(text), count + found
        text, found = self._redact_named(text)
        return text, count + found

    def redact_bytes(self, payload: bytes) -> tuple[bytes, int]:
        """Return bytes that are no text without the secrets that were named, and how many there were."""
        count = 0
        for secret in self._secret_bytes:
            count += payload.count(secret)
            payload = payload.replace(secret, MASK.encode())
        return payload, count

    def redact_headers(self, headers: Mapping[str, str]) -> tuple[dict[str, str], int]:
        """Return headers without secrets; of `Authorization` the scheme stays."""
        shown: dict[str, str] = {}
        total = 0
        for name, value in headers.items():
            lowered = name.lower()
            if lowered in _SCHEME_HEADERS:
                scheme, space, _ = value.partition(" ")
                shown[name], count = f"{scheme} {MASK}" if space else MASK, 1
            elif lowered in _SECRET_HEADERS:
                shown[name], count = MASK, 1
            else:
                shown[name], count = self._redact_named(value)
            total += count
        return shown, total

    def redact_url(self, url: str) -> tuple[str, int]:
        """Return a URL without a user, and without the values of keys, tokens and signatures in its query."""
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        count = int(host != parts.netloc)
        url = urlunsplit(SplitResult(parts.scheme, host, parts.path, parts.query, parts.fragment))
        url, queries = _SECRET_QUERY.subn(rf"\g<1>{MASK}", url)
        url, named = self._redact_named(url)
        return url, count + queries + named

    def _redact_named(self, text: str) -> tuple[str, int]:
        count = 0
        for secret in self._secrets:
            if secret in text:
                count += text.count(secret)
                text = text.replace(secret, MASK)
        return text, count


def fold_headers(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers by name; those of one name become one line."""
    folded: dict[str, str] = {}
    for name, value in pairs:
        folded[name] = f"{folded[name]}, {value}" if name in folded else value
    return folded


def _spell(secret: str) -> set[str]:
    """Return how a secret may be written: as it is, in a JSON string, in a JSON string within one, in a URL."""
    once = msgspec.json.encode(secret).decode()[1:-1]
    twice = msgspec.json.encode(once).decode()[1:-1]
    return {secret, once, twice, quote(secret, safe="")}


def _find_protected(text: str) -> list[tuple[int, int]]:
    """Return where the values stand that must not be touched."""
    spans: list[tuple[int, int]] = []
    for name in _PROTECTED.finditer(text):
        if spans and name.end() < spans[-1][1]:
            continue
        try:
            _, end = _json.raw_decode(text, name.end())
        except (JSONDecodeError, RecursionError):
            continue
        spans.append((name.end(), end))
    return spans


def _mask(pattern: re.Pattern[str], text: str, kept: list[tuple[int, int]]) -> tuple[str, int]:
    count = 0

    def replace(found: re.Match[str]) -> str:
        nonlocal count
        value = found.end(1)
        if found[0][value - found.start() :] == MASK or any(start <= value < end for start, end in kept):
            return found[0]
        count += 1
        return f"{found[1]}{MASK}"

    return pattern.sub(replace, text), count
