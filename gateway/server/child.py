"""A worker process as its parent sees it."""

import asyncio
import socket
import sys
from contextlib import suppress
from itertools import count

import msgspec

from gateway.server.messages import MESSAGE_LIMIT, Answer, Ask, Failed, Order, Serving, Task, Topic, Word

# -P: a folder named `gateway` where the gateway was started is not the gateway.
_COMMAND = (sys.executable, "-P", "-c", "from gateway.server.worker import main; main()")
_OPEN_QUESTIONS = 16
_END_SECONDS = 10.0
_WORDS = msgspec.json.Decoder(Word)


class Child:
    """One run of a worker.

    Attributes:
        number: which worker it is.
        pid: its process id.
        code: how it ended, negative for a signal; None while it runs.
        failure: why it could not start, in its own words.
    """

    def __init__(
        self,
        number: int,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.number = number
        self.pid = process.pid
        self.code: int | None = None
        self.failure = ""
        self._process = process
        self._writer = writer
        self._serving_since: float | None = None
        self._started = asyncio.Event()
        self._numbers = count()
        self._questions: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._life = asyncio.create_task(self._attend(reader), name=f"worker-{number}")

    @classmethod
    async def start(cls, task: Task, listener: socket.socket) -> "Child":
        """Start the process.

        Args:
            task: what it is to do; its descriptors are filled in.
            listener: the bound public socket.

        Raises:
            OSError: there is no process or no memory to be had, or the socket was closed.
        """
        inherited = listener.dup()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=MESSAGE_LIMIT)
        try:
            with theirs, inherited:
                process = await asyncio.create_subprocess_exec(
                    *_COMMAND,
                    stdin=asyncio.subprocess.PIPE,
                    pass_fds=(theirs.fileno(), inherited.fileno()),
                    # Ctrl-C is for the parent alone.
                    start_new_session=True,
                )
                given = msgspec.structs.replace(task, control=theirs.fileno(), listener=inherited.fileno())
        except BaseException:
            writer.close()
            raise
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(given))
        process.stdin.close()
        return cls(task.number, process, reader, writer)

    @property
    def serving(self) -> bool:
        """Whether it accepts connections."""
        return self._serving_since is not None and self.code is None

    @property
    def served_seconds(self) -> float | None:
        """How long it has served, None when it never did."""
        return None if self._serving_since is None else asyncio.get_running_loop().time() - self._serving_since

    async def started(self, timeout: float) -> bool:
        """Wait until it serves or has ended, and tell which; one that takes longer is killed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._started.wait()
            return self.serving
        self.failure = f"it did not serve within {timeout:g} seconds"
        self.kill()
        await self.ended()
        return False

    async def ended(self) -> int:
        """Wait for its end and return how that was, as `code` tells."""
        return await asyncio.shield(self._life)

    def tell(self, order: Order) -> None:
        """Tell it something; one that has ended does not hear it."""
        if not self._writer.is_closing():
            self._writer.write(msgspec.json.encode(order) + b"\n")

    async def ask(self, about: Topic, timeout: float) -> msgspec.Raw | None:
        """Return its answer as JSON, or None when there is none in time."""
        # One that does not answer must not pile up questions.
        if not self.serving or len(self._questions) >= _OPEN_QUESTIONS:
            return None
        number = next(self._numbers)
        answer: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self._questions[number] = answer
        self.tell(Ask(number, about))
        await asyncio.wait({answer}, timeout=timeout)
        return answer.result() if answer.done() and not answer.cancelled() else None

    def kill(self) -> None:
        """End it without any chance to clean up."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def _attend(self, reader: asyncio.StreamReader) -> int:
        try:
            while line := await reader.readline():
                self._hear(_WORDS.decode(line))
        except (OSError, ValueError, msgspec.MsgspecError):
            self.kill()
        self._writer.close()
        # Who has no more to say is about to end.
        await asyncio.wait({ending := asyncio.create_task(self._process.wait())}, timeout=_END_SECONDS)
        self.kill()
        self.code = await ending
        self._started.set()
        for answer in self._questions.values():
            answer.cancel()
        return self.code

    def _hear(self, word: Word) -> None:
        match word:
            case Serving():
                self._serving_since = asyncio.get_running_loop().time()
                self._started.set()
            case Failed(reason):
                self.failure = reason
            case Answer(number, body) if (answer := self._questions.pop(number, None)) and not answer.done():
                answer.set_result(body)
