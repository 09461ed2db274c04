"""A gateway process with a toy engine; its argument is a JSON object of options."""

import asyncio
import json
import sys
import threading
from contextlib import suppress
from urllib.parse import parse_qs

import msgspec

from gateway.app import Gateway, build_parts
from gateway.config import ConfigError, Finding
from gateway.config.schema import GatewayConfig
from gateway.config.secret import SecretUrl
from gateway.ports import UpstreamHealth
from gateway.protocol.errors import Unavailable
from gateway.server import serve
from gateway.storage.memory import MemoryStore
from gateway.telemetry.logs import configure_logging


class ToyUsage:
    """Counts nothing."""

    async def start(self):
        pass

    async def close(self):
        pass

    def list_largest(self, most):
        return []


class ToyEngine:
    """Streams as many chunks as the query asks for and counts the streams.

    One with `holds` stops before its end until another request, which is answered even in a drain, has `lets_go`.
    """

    def __init__(self):
        self.usage = ToyUsage()
        self.active = 0
        self.draining = False
        self.idle = asyncio.Event()
        self.cut = asyncio.Event()
        self.go_on = asyncio.Event()

    def begin_drain(self):
        self.draining = True
        self._look()

    def cut_off(self):
        self.cut.set()
        return self.active

    async def drained(self, timeout):
        try:
            await asyncio.wait_for(self.idle.wait(), timeout)
        except TimeoutError:
            return False
        return True

    def open_session(self):
        return ToySession()

    async def serve(self, scope, receive, send):
        if b"lets_go" in scope["query_string"]:
            self.go_on.set()
        if self.draining:
            raise Unavailable("The gateway is shutting down.")
        query = {name: float(values[0]) for name, values in parse_qs(scope["query_string"].decode()).items()}
        self.active += 1
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for number in range(int(query["chunks"])):
                await send({"type": "http.response.body", "body": b"%d\n" % number, "more_body": True})
                await self._pause(query["interval"])
                if self.cut.is_set():
                    break
            if "holds" in query:
                await self.go_on.wait()
            await send({"type": "http.response.body", "body": b"failed\n" if self.cut.is_set() else b"end\n"})
            await asyncio.sleep(query.get("lingers", 0))
        finally:
            self.active -= 1
            self._look()

    async def _pause(self, seconds):
        with suppress(TimeoutError):
            await asyncio.wait_for(self.cut.wait(), seconds)

    def _look(self):
        if self.draining and not self.active:
            self.idle.set()


class ToySession:
    """The memory of a WebSocket on which nothing is created."""

    def close(self):
        pass


class ToyUpstream:
    """Healthy from its n-th probe on."""

    def __init__(self, probes):
        self.probes = probes

    @property
    def health(self):
        return UpstreamHealth(healthy=self.probes <= 0, detail=f"{self.probes} to go", checked_at=0, dialect="vllm")

    def redact(self, text):
        return text.replace("s3cret", "[redacted]")

    async def probe(self):
        self.probes -= 1
        return self.health

    async def start(self):
        pass

    async def close(self):
        pass


async def hold():
    """Wait as for a database that does not answer: in a thread, which nobody can cancel."""
    await asyncio.to_thread(threading.Event().wait)


def main():
    options = json.loads(sys.argv[1])
    database = options.pop("database", None)
    probes = options.pop("probes", 0)
    holds_end = options.pop("holds_end", False)
    wait_upstream = options.pop("wait_upstream", None)
    sections = {"server": {"port": 0}, "admin": {"bind": "127.0.0.1:0"}, **options}
    config = msgspec.convert(sections, GatewayConfig)
    if database:
        config = msgspec.structs.replace(
            config, storage=msgspec.structs.replace(config.storage, url=SecretUrl(database), auto_migrate="never")
        )
    configure_logging("info", "json", sys.stderr)

    def load():
        raise ConfigError([Finding(path="server.port", message="is not what it was", source="--set")])

    def build(config):
        engine = ToyEngine()
        parts = build_parts(
            config,
            store=None if database else MemoryStore(),
            upstreams={"default": ToyUpstream(probes)},
            engine=engine,
            endpoint=engine.serve,
        )
        if holds_end:
            parts.store.close = hold
        return Gateway(parts)

    sys.exit(
        serve(
            config,
            load=load,
            announce=lambda line: print(line, flush=True),
            report=lambda line: print(line, file=sys.stderr, flush=True),
            wait_upstream=wait_upstream,
            build=build,
        )
    )
