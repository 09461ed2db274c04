"""From the chunks of a chat stream to Responses events, without any I/O."""

from typing import Any, Final

from gateway.protocol import codec
from gateway.protocol.sse import DONE_DATA, Block, frame
from gateway.protocol.upstream_events import text_of
from gateway.upstream.chat.answers import (
    Object,
    read_calls,
    read_error,
    read_first_choice,
    read_function,
    read_logprobs,
    read_text,
    read_thought,
    write_ending,
)

_ITEMS: Final[dict[str, Object]] = {
    "reasoning": {"type": "reasoning", "summary": [], "content": []},
    "message": {"type": "message", "role": "assistant", "content": []},
}
# The place of a refusal in its message, behind the text.
_REFUSAL_INDEX: Final = 1
# Most arguments that wait for the name of their call; beyond that they are told, and count, without it.
_MAX_WAITING_CHARS: Final = 64 * 1024


class _Call:
    """A call while its pieces arrive; it is told once its name is known, or waited for long enough.

    Attributes:
        pieces: of its arguments, until it is known whether they are whole.
        size: of its arguments, in characters.
        index: of its item, once that is told.
        named: its name was told with it.
        judged: it is known whether its arguments are whole.
        closed: its item has ended.
    """

    __slots__ = ("closed", "id", "index", "judged", "name", "named", "pieces", "size")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.size = 0
        self.index: int | None = None
        self.named = self.judged = self.closed = False

    def item(self, arguments: str) -> Object:
        return {"type": "function_call", "call_id": self.id, "name": self.name, "arguments": arguments}


class ChatStream:
    """Translates one stream, chunk by chunk.

    An item ends where another begins, so that a client sees the next one grow. A call ends then if its arguments are
    whole, for servers may send pieces of several calls in turns.

    Attributes:
        ended: the answer is at its end, and what may follow says nothing.
    """

    def __init__(self) -> None:
        self.ended = False
        self._begun = False
        self._last: Object = {}
        self._finish: str | None = None
        self._usage: Any = None
        self._items = 0
        # Kind and index of the text that grows.
        self._open: tuple[str, int] | None = None
        self._calls: dict[Any, _Call] = {}
        self._latest: Any = None

    def feed(self, block: Block) -> bytes:
        """Return the events that one event of the server's stands for, none or several."""
        name, data = block
        if self.ended or not (said := data.strip()):
            return b""
        if said == DONE_DATA:
            return self._end() if self._begun else b""
        try:
            chunk = codec.decode(data)
        except ValueError:
            chunk = None
        if not isinstance(chunk, dict):
            # Others refuse it, in their words; its line breaks stand between JSON's words, if it is JSON at all.
            return frame(name, data.replace(b"\n", b" "))
        error = read_error(chunk) or (chunk if name == b"error" else None)
        if error is not None:
            self.ended = True
            return _write("error", error=error if isinstance(error, dict) else {"message": error})
        return self._take(chunk)

    def end(self) -> bytes:
        """Return the last event at the clean end of a stream, if the answer was finished before it."""
        return self._end() if self._finish is not None and not self.ended else b""

    def _take(self, chunk: Object) -> bytes:
        self._usage = chunk.get("usage") or self._usage
        choice = read_first_choice(chunk)
        if choice is None:
            return b""
        # The first chunk says that the server has taken the call, whatever becomes of it.
        out: list[bytes] = [] if self._begun else [_write("response.created")]
        self._begun = True
        self._last = chunk
        self._finish = text_of(choice.get("finish_reason")) or self._finish
        given = choice.get("delta")
        delta: Object = given if isinstance(given, dict) else {}
        if thought := read_thought(delta):
            index = self._begin(out, "reasoning")
            out.append(_write_delta("reasoning_text", index, 0, thought))
        self._take_text(out, delta, choice)
        if refusal := text_of(delta.get("refusal")):
            index = self._begin(out, "message")
            out.append(_write_delta("refusal", index, _REFUSAL_INDEX, refusal))
        for call in read_calls(delta):
            self._take_call(out, call)
        return b"".join(out)

    def _take_text(self, out: list[bytes], delta: Object, choice: Object) -> None:
        text, logprobs = read_text(delta), read_logprobs(choice)
        # Tokens without text are the beginnings of characters, and belong to a text only where one has begun.
        grows = self._open is not None and self._open[0] == "message" and not self._finish
        if text or (logprobs and grows):
            index = self._begin(out, "message")
            more = {"logprobs": logprobs} if logprobs else {}
            out.append(_write_delta("output_text", index, 0, text, **more))

    def _take_call(self, out: list[bytes], given: Object) -> None:
        name, arguments = read_function(given)
        call_id = text_of(given.get("id")) or ""
        call = self._find_call(out, given.get("index"), call_id, name)
        call.id = call.id or call_id
        call.name = call.name or name
        call.size += len(arguments)
        if arguments and not call.judged:
            call.pieces.append(arguments)
        if call.index is not None:
            if arguments and not call.closed:
                out.append(_write_arguments(call.index, arguments))
        elif call.name or call.size > _MAX_WAITING_CHARS:
            self._tell_call(out, call)

    def _find_call(self, out: list[bytes], index: Any, call_id: str, name: str) -> _Call:
        """Return the call a piece belongs to.

        Some servers number no call, and some give every call the same number; then it is a name that begins one.
        """
        key = index if type(index) is int else None if name else self._latest
        call = self._calls.get(key)
        if call is None or (name and call.name and call_id != call.id):
            self._leave_call(out)
            call = self._calls[key] = _Call()
        self._latest = key
        return call

    def _tell_call(self, out: list[bytes], call: _Call) -> None:
        self._close(out)
        call.index = self._number()
        call.named = bool(call.name)
        out.append(_write("response.output_item.added", output_index=call.index, item=call.item("")))
        if call.pieces:
            out.append(_write_arguments(call.index, "".join(call.pieces)))

    def _leave_call(self, out: list[bytes]) -> None:
        """End the latest call if its arguments are whole, before another begins; what may still come says nothing."""
        call = self._calls.get(self._latest)
        if call is None or call.judged:
            return
        if call.index is None:
            self._tell_call(out, call)
        arguments = "".join(call.pieces)
        call.pieces.clear()
        call.judged = True
        if call.name and _is_json(arguments):
            call.closed = True
            out.append(_write("response.output_item.done", output_index=call.index, item=call.item(arguments)))

    def _begin(self, out: list[bytes], kind: str) -> int:
        """Return the index of the open item of a kind, which is opened if need be and ends one of another kind."""
        if self._open is not None and self._open[0] == kind:
            return self._open[1]
        self._close(out)
        index = self._number()
        self._open = (kind, index)
        out.append(_write("response.output_item.added", output_index=index, item=_ITEMS[kind]))
        return index

    def _close(self, out: list[bytes]) -> None:
        if self._open is not None:
            kind, index = self._open
            out.append(_write("response.output_item.done", output_index=index, item=_ITEMS[kind]))
            self._open = None

    def _number(self) -> int:
        self._items += 1
        return self._items - 1

    def _end(self) -> bytes:
        self.ended = True
        out: list[bytes] = []
        for call in self._calls.values():
            if call.index is None:
                # Without a name nobody could answer it; others say so.
                self._tell_call(out, call)
            elif call.name and not call.named:
                late = {"type": "function_call", "name": call.name}
                out.append(_write("response.output_item.done", output_index=call.index, item=late))
        out.append(_write("response.completed", response=write_ending(self._last, self._finish, self._usage)))
        return b"".join(out)


def _is_json(text: str) -> bool:
    try:
        codec.decode(text.encode("utf-8", "surrogatepass"))
    except ValueError:
        return False
    return True


def _write_arguments(index: int, delta: str) -> bytes:
    return _write("response.function_call_arguments.delta", output_index=index, delta=delta)


def _write_delta(kind: str, index: int, part: int, delta: str, **more: Any) -> bytes:
    return _write(f"response.{kind}.delta", output_index=index, content_index=part, delta=delta, **more)


def _write(kind: str, **fields: Any) -> bytes:
    return frame(kind.encode(), codec.encode({"type": kind, **fields}))
