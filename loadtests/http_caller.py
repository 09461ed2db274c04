"""A caller that asks over HTTP, for JSON or for an event stream, and takes the times.

Events are read as they arrive, whatever they are packed in: what waits for a whole block of bytes, as Locust's
FastHttpUser does, sees the first token when many have come.
"""

import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

import msgspec
from witness import Witness, decode_event

PATH = "/v1/responses"
_READ_BYTES = 65_536
_ANSWER_SECONDS = 10.0
# A connection that rested for longer may be closed by the server at any moment, which is no fault.
_REST_SECONDS = 4.0
_EVENT_END = re.compile(rb"\r?\n\r?\n")
_DONE = b"[DONE]"


class NoModel(Exception):
    """A target names no model; says why."""


def find_model(url: str, api_key: str | None) -> str:
    """Return the first model that a target lists.

    Raises:
        NoModel: it lists none, or does not answer.
    """
    request = urllib.request.Request(f"{url}/v1/models", headers=authorize(api_key))
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
            return msgspec.json.decode(answer.read())["data"][0]["id"]
    except urllib.error.HTTPError as error:
        hint = "give it a key by LOAD_API_KEY" if error.code == 401 else "name one by request.model"
        raise NoModel(f"{url}/v1/models was answered with {error.code}; {hint}") from None
    except OSError as error:
        raise NoModel(f"{url} does not answer: {getattr(error, 'reason', error)}") from None
    except (ValueError, LookupError, TypeError) as error:
        raise NoModel(f"{url}/v1/models names no model ({error!r}); name one by request.model") from None


def authorize(api_key: str | None) -> dict[str, str]:
    """Return the headers of a caller with this key."""
    return {"authorization": f"Bearer {api_key}"} if api_key else {}


class HttpCaller:
    """Asks on one connection that is kept, one turn at a time.

    Args:
        url: base URL, without path.
        headers: of every request.
        timeout: seconds that a turn may take.
    """

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        parts = urlsplit(url)
        self._timeout = timeout
        self._headers = {"content-type": "application/json", **headers}
        self._connection: HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context()
            self._connection = HTTPSConnection(parts.netloc, timeout=timeout, context=context)
        else:
            self._connection = HTTPConnection(parts.netloc, timeout=timeout)
        self._rested = time.monotonic()

    def ask(self, body: Mapping[str, Any], witness: Witness) -> None:
        """Go through one turn; whatever goes wrong is the turn's fault and is told to its witness."""
        if time.monotonic() - self._rested > _REST_SECONDS:
            self._connection.close()
        try:
            self._connection.request("POST", PATH, msgspec.json.encode(body), self._headers)
            answer = self._connection.getresponse()
            if answer.status != 200:
                witness.blame("wrong status", f"{answer.status}: {answer.read(_READ_BYTES).decode(errors='replace')}")
                self._connection.close()
            elif body.get("stream"):
                self._read_events(answer, witness)
            else:
                document = answer.read()
                witness.take_document(document, time.perf_counter_ns())
        except TimeoutError:
            witness.blame("timeout", f"nothing for {self._timeout:g} s")
            self._connection.close()
        except (OSError, HTTPException) as error:
            witness.blame(*_name(error, witness))
            self._connection.close()
        self._rested = time.monotonic()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _read_events(self, answer: HTTPResponse, witness: Witness) -> None:
        kind = answer.headers.get_content_type()
        if kind != "text/event-stream":
            witness.blame("wrong content type", kind)
            self._connection.close()
            return
        for data, now in _split_events(answer):
            if data != _DONE and not _take(data, witness, now):
                self._connection.close()
                return
            if witness.expired(self._timeout):
                witness.blame("timeout", f"no end within {self._timeout:g} s")
                self._connection.close()
                return


def _split_events(answer: HTTPResponse) -> Iterator[tuple[bytes, int]]:
    """Yield the data of each event as soon as it has arrived, and when that was."""
    rest = b""
    while piece := answer.read1(_READ_BYTES):
        now = time.perf_counter_ns()
        *events, rest = _EVENT_END.split(rest + piece)
        for event in events:
            data = b"\n".join(line[5:].strip() for line in event.splitlines() if line.startswith(b"data:"))
            if data:
                yield data, now


def _take(data: bytes, witness: Witness, now: int) -> bool:
    """Hand an event on, and tell whether it could be read."""
    try:
        witness.take(decode_event(data), data, now)
    except msgspec.DecodeError as error:
        witness.blame("unreadable event", f"{error}: {data[:200].decode(errors='replace')}")
        return False
    return True


def _name(error: Exception, witness: Witness) -> tuple[str, str]:
    """Return the fault that an error of the connection is to a turn."""
    detail = f"{type(error).__name__}: {error}"
    return ("connection" if witness.ended or not witness.begun else "no terminal event", detail)
