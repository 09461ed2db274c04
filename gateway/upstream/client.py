"""The inference server behind HTTP."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from msgspec import structs

from gateway import __version__
from gateway.ports import Dialect, RelayedAnswer, RelayedCall, UpstreamCall, UpstreamExchange, UpstreamHealth
from gateway.protocol.errors import UpstreamError, UpstreamRefused, UpstreamTimeout, UpstreamUnavailable
from gateway.telemetry.metrics import Metrics
from gateway.timing.limit import SharedTimer, TimeLimit
from gateway.upstream.breaker import Breaker, State
from gateway.upstream.chat import ChatExchange
from gateway.upstream.chat.dialect import name_parameter
from gateway.upstream.connection import Connection, write_head, write_lines
from gateway.upstream.control import ControlClient
from gateway.upstream.exchange import HttpExchange
from gateway.upstream.failures import ConnectTimeout, NoRoom, NotConnected
from gateway.upstream.health import HealthMonitor
from gateway.upstream.models import ModelList
from gateway.upstream.pool import ConnectionPool
from gateway.upstream.refusals import MAX_ERROR_BODY_BYTES, read_refusal, redact
from gateway.upstream.retries import RetryBudget, choose_wait
from gateway.upstream.settings import UpstreamSettings
from gateway.upstream.tasks import end_task
from gateway.upstream.tls import open_context

_log = logging.getLogger("gateway.upstream")
_CONTROL_CONNECTIONS = 4
_NOT_COMPRESSED = frozenset({"", "identity"})
_RESPONSES: Final = "/v1/responses"
_CHAT_COMPLETIONS: Final = "/v1/chat/completions"
# The client frames the message and names the host itself; a forwarded copy could contradict it.
_FRAMING_HEADERS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "expect", "upgrade"}
)

# What a caller says of itself is not what the gateway says of itself.
_OWN_HEADERS = frozenset({"authorization", "user-agent"})
_NO_ROUTE: Final = (
    "If the inference server has no /v1/responses, but /v1/chat/completions, the operator must set "
    'api = "chat_completions" for this upstream.'
)
_ABOUT_THE_KEY: Final = frozenset({401, 403})

# Said by a server, or a proxy before it, that cannot work at all. 500 may be the fault of one request, which must not
# keep the others out; 429 and the rest of 4xx come from a server that is well.
_FAILING_STATUSES: Final = frozenset({502, 503, 504})


class HttpUpstream:
    """One inference server; see `ports.Upstream`.

    A call is sent once: when its connection breaks an inference may have begun, and only the caller can know whether
    two are wanted. Only the opening of a connection is tried again.

    Args:
        settings: how to reach the server.
        name: the upstream's name in logs and metrics.
        now: Unix seconds.
        metrics: what is counted.
        clock: seconds that never go back.

    Raises:
        CertificateFileError: the file of certificate authorities cannot be used.
    """

    def __init__(
        self,
        settings: UpstreamSettings,
        *,
        name: str = "default",
        now: Callable[[], float] = time.time,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        metrics = metrics or Metrics()
        self._settings = settings
        self._patience = _time_patience(settings)
        self._tls = open_context(settings.url, ca_file=settings.ca_file, verify=settings.tls_verify)
        self._name = name
        self._now = now
        self._chat = settings.api == "chat_completions"
        self._target = _CHAT_COMPLETIONS if self._chat else _RESPONSES
        pool = self._open_pool(1)
        self._address = pool.address
        self._base_path = pool.base_path
        self._headers = {
            "Host": pool.host_header,
            "User-Agent": f"responses-gateway/{__version__}",
            "Accept-Encoding": "identity",
        }
        # The beginning of a call's head that is always the same, by whether it asks for a stream.
        self._heads: dict[bool, bytes] = {}
        self._former_key: str | None = None
        self._advised = False
        self._authorize(settings.api_key)
        self._pool: ConnectionPool | None = None
        self._loop: asyncio.AbstractEventLoop
        self._watch: asyncio.Task[None] | None = None
        self._control = ControlClient(
            lambda: self._open_pool(_CONTROL_CONNECTIONS),
            self._headers,
            timeout=settings.probe_timeout,
            max_bytes=settings.max_json_bytes,
        )
        self._breaker = Breaker(
            name,
            failures=settings.breaker_failures,
            open_seconds=settings.breaker_open,
            clock=clock,
            tell=self._log_breaker,
        )
        metrics.watch(metrics.upstream_breaker_state, lambda: self._breaker.state, name)
        self._retry_budget = RetryBudget(settings.retry_share, clock)
        self._retries = metrics.upstream_connect_retries_total.labels(upstream=name)
        self._monitor = HealthMonitor(
            self._control,
            dialect=settings.dialect,
            chat=self._chat,
            interval=settings.health_interval,
            now=now,
            name=name,
            on_healthy=self._note_healthy,
        )
        metrics.watch(metrics.upstream_healthy, lambda: self._monitor.health.healthy, name)
        self._models = ModelList(self._control, fresh_seconds=settings.models_cache, now=now, secret=settings.api_key)

    def reconfigure(self, settings: UpstreamSettings) -> None:
        """Use another key, other timeouts and other bounds of answers and retries for every call from now on.

        Whatever else the settings say stays as it is, and calls that run go on as they began.
        """
        if settings.api_key != self._settings.api_key:
            self._former_key = self._settings.api_key
            self._authorize(settings.api_key)
        self._settings = settings
        self._patience = _time_patience(settings)
        self._control.reconfigure(timeout=settings.probe_timeout, max_bytes=settings.max_json_bytes)
        self._monitor.reconfigure(interval=settings.health_interval)
        self._models.reconfigure(fresh_seconds=settings.models_cache, secret=settings.api_key)
        if self._pool is not None:
            self._pool.reconfigure(connect_timeout=settings.connect_timeout)

    @property
    def dialect(self) -> Dialect:
        """The dialect in use; generic until the server is recognised."""
        return self._monitor.dialect

    @property
    def address(self) -> tuple[str, int]:
        """The server's host and port."""
        return self._address

    @property
    def health(self) -> UpstreamHealth:
        """The last known health, without asking; the detail tells when calls are refused or tried."""
        health = self._monitor.health
        if self._breaker.state is State.CLOSED:
            return health
        return structs.replace(health, detail=f"{health.detail}; {_describe(self._breaker.state)}")

    async def start(self) -> None:
        """Open the pools and begin to probe; does not wait for the server."""
        self._loop = asyncio.get_running_loop()
        self._pool = self._open_pool(self._settings.max_connections)
        self._control.start()
        self._watch = asyncio.create_task(self._monitor.watch(), name=f"upstream-{self._name}-health")

    async def close(self) -> None:
        """Stop probing and close every connection. Idempotent."""
        if self._watch is not None:
            await end_task(self._watch)
            self._watch = None
        await self._models.close()
        await self._control.close()
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    async def probe(self) -> UpstreamHealth:
        """Ask for the health now and remember it. Never raises."""
        return await self._monitor.probe()

    async def models(self) -> dict[str, Any]:
        """Return the model list, a few seconds old at most.

        Raises:
            UpstreamError: as `open`.
        """
        return await self._models.get()

    def serves(self, model: str) -> bool:
        """Tell whether the model is in the list as it was last read; if it is not, the list is read again behind it."""
        return self._models.holds(model)

    def length_of(self, model: str) -> int | None:
        """Return how many tokens the model reads and writes at most, if the list tells, as `serves` reads it."""
        return self._models.length_of(model)

    def redact(self, text: str) -> str:
        """Return a text of the server's without the gateway's own key in it."""
        # A call that began before the key was changed may tell the former one.
        return str(redact(redact(text, self._settings.api_key), self._former_key))

    async def open(self, call: UpstreamCall) -> UpstreamExchange:
        """Send the call and return once the server answered 200.

        Raises:
            Unavailable: the server failed repeatedly and is left alone.
            UpstreamRefused: any other status.
            UpstreamUnavailable: no connection, or it broke before the status line.
            UpstreamTimeout: no connection or no status line in time.
            UpstreamError: the answer is not HTTP, or compressed although that was declined.
        """
        exchange = await self._begin(self._compose_head(call), call.body)
        status, headers = exchange.status, exchange.named_headers
        if status == 200 and headers.get("content-encoding", "").strip().lower() in _NOT_COMPRESSED:
            return self._translate(exchange) if self._chat else exchange
        try:
            if status == 200:
                raise UpstreamError("The inference server compressed its answer although that was declined.")
            body = await _read_error_body(exchange)
            refused = read_refusal(status, headers, body, now=self._now(), secret=self._settings.api_key)
            raise name_parameter(refused) if self._chat else self._advise(refused)
        finally:
            await exchange.close()

    async def relay(self, call: RelayedCall) -> RelayedAnswer:
        """Pass a call on as it is and return its answer, whatever it says about the call.

        Raises:
            Unavailable: the server failed repeatedly and is left alone.
            UpstreamRefused: the gateway's own key was refused, or the server redirects.
            UpstreamUnavailable: no connection, or it broke before the status line.
            UpstreamTimeout: no connection or no status line in time.
            UpstreamError: the answer is not HTTP.
        """
        exchange = await self._begin(self._compose_relay_head(call), call.body)
        status = exchange.status
        if status < 600 and status // 100 != 3 and status not in _ABOUT_THE_KEY:
            return exchange
        await exchange.close()
        raise read_refusal(status, exchange.named_headers, None, now=self._now(), secret=self._settings.api_key)

    async def _begin(self, head: bytes, body: bytes) -> HttpExchange:
        """Send a request, return when the head of its answer is there, and let the breaker know what became of it."""
        pool = self._pool
        if pool is None:
            raise UpstreamUnavailable("The client of the inference server is not started.")
        settings, patience = self._settings, self._patience
        deadline = self._loop.time() + settings.total_timeout
        round_ = self._breaker.admit()
        self._retry_budget.note_call()
        answered: bool | None = None
        try:
            with TimeLimit(patience.seconds, patience):
                connection = pool.take() or await self._connect(pool)
                try:
                    await connection.call(head, body)
                except BaseException:
                    pool.release(connection)
                    raise
            answered = connection.status not in _FAILING_STATUSES
        except TimeoutError as error:
            answered = False
            raise UpstreamTimeout(
                f"The inference server did not begin to answer within {patience.seconds:g} seconds "
                "(first_byte_timeout_seconds)."
            ) from error
        except NoRoom:
            raise
        except UpstreamError:
            answered = False
            raise
        finally:
            self._breaker.settle(round_, answered)
        return HttpExchange(connection, pool, idle=settings.idle_timeout, deadline=deadline)

    async def _connect(self, pool: ConnectionPool) -> Connection:
        """Return the first connection that can be had."""
        settings = self._settings
        attempt = 1
        while True:
            try:
                return await pool.acquire()
            except (NotConnected, ConnectTimeout):
                if attempt > settings.connect_retries or not self._retry_budget.take():
                    raise
            self._retries.inc()
            await asyncio.sleep(choose_wait(attempt, settings.longest_retry_wait))
            attempt += 1

    def _advise(self, refused: UpstreamRefused) -> UpstreamRefused:
        """Return the refusal, with what the operator may do where the server seems to have no such route at all."""
        if refused.upstream_status == 404 and refused.code == "not_found":
            refused.message = f"{refused.message} {_NO_ROUTE}"
            if not self._advised:
                self._advised = True
                _log.warning("upstream %s answered 404. %s", self._name, _NO_ROUTE)
        return refused

    def _translate(self, exchange: HttpExchange) -> ChatExchange:
        settings = self._settings
        return ChatExchange(exchange, max_line_bytes=settings.max_line_bytes, max_json_bytes=settings.max_json_bytes)

    def _compose_head(self, call: UpstreamCall) -> bytes:
        head = self._heads.get(call.stream)
        if head is None:
            headers = {
                **self._headers,
                "Accept": "text/event-stream" if call.stream else "application/json",
                "Content-Type": "application/json",
                "Content-Length": "",
            }
            whole = write_head("POST", self._base_path + self._target, headers)
            head = self._heads[call.stream] = whole.removesuffix(b"\r\n\r\n")
        head = b"%b%d\r\n" % (head, len(call.body))
        if not call.headers:
            return head + b"\r\n"
        further = [f"{name}: {value}" for name, value in call.headers.items() if name.lower() not in self._own]
        return head + write_lines([*further, ""])

    def _compose_relay_head(self, call: RelayedCall) -> bytes:
        headers = {name.lower(): value for name, value in self._headers.items()}
        ours = _FRAMING_HEADERS | _OWN_HEADERS
        headers |= {name: value for name, value in call.headers.items() if name not in ours}
        headers["content-length"] = str(len(call.body))
        return write_head("POST", self._base_path + call.target, headers)

    def _authorize(self, key: str | None) -> None:
        self._heads.clear()
        # The control client sends the same headers.
        self._headers.pop("Authorization", None)
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        # What a call cannot say otherwise.
        self._own = _FRAMING_HEADERS.union(name.lower() for name in self._headers)

    def _open_pool(self, connections: int) -> ConnectionPool:
        settings = self._settings
        return ConnectionPool(
            settings.url,
            tls=self._tls,
            limit=connections,
            keepalive=settings.keepalive,
            connect_timeout=settings.connect_timeout,
            buffer_bytes=settings.read_slice_bytes,
            max_header_bytes=settings.max_header_bytes,
        )

    def _note_healthy(self) -> None:
        self._breaker.note_healthy()
        # So that what is counted by model has its name from the first response on.
        self._models.prime()

    def _log_breaker(self, state: State) -> None:
        level = logging.WARNING if state is State.OPEN else logging.INFO
        _log.log(level, "upstream %s: %s", self._name, _describe(state))


def _time_patience(settings: UpstreamSettings) -> SharedTimer:
    """Return what times the calls up to the heads of their answers."""
    return SharedTimer(min(settings.first_byte_timeout, settings.total_timeout))


def _describe(state: State) -> str:
    return f"circuit breaker {state.name.lower().replace('_', '-')}"


async def _read_error_body(exchange: HttpExchange) -> bytes | None:
    """Return the body of a refusal, or None when it is too large or breaks off: the status alone says enough."""
    try:
        return await exchange.read_whole(MAX_ERROR_BODY_BYTES)
    except UpstreamError:
        return None
