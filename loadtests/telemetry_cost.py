"""What traces cost: processor time of a gateway that sends them to a collector on loopback, beside one that makes none.

Both run under the same comparison of two gateways, `compare.py`, whose path is given; it alternates between them. The
collector takes everything and keeps nothing. Prints a table, and ends with 1 when a cell costs more than allowed.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CELLS = {
    "sat-sse-16": "SSE, 16 streams, as fast as they come",
    "paced-sse": "SSE, 64 streams, one event per 10 ms each",
    "short-sse-16": "SSE, short answers, 16 at a time",
    "short-ws-16": "WebSocket, short answers, 16 connections",
}


class Sink(BaseHTTPRequestHandler):
    """Takes OTLP over HTTP and forgets it."""

    protocol_version = "HTTP/1.1"
    received = 0

    def do_POST(self) -> None:  # the library's name
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).received += 1
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve_sink() -> Iterator[str]:
    """Run the collector and give its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def compare(script: Path, endpoint: str, sampled: float, rounds: int) -> dict[str, dict[str, float]]:
    """Return by cell what a gateway with traces takes, as `gateway`, and one without, as `peer`."""
    gateway = shlex.quote(str(Path(sys.executable).with_name("gateway")))
    plain = (
        f"{gateway} serve --port {{port}} --upstream http://127.0.0.1:{{upstream}} --database sqlite:///{{db}} "
        "--set admin.enabled=false --set telemetry.log_level=error"
    )
    traced = (
        f"env OTEL_EXPORTER_OTLP_ENDPOINT={endpoint} OTEL_TRACES_SAMPLER=parentbased_traceidratio "
        f"OTEL_TRACES_SAMPLER_ARG={sampled} {plain}"
    )
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, str(script), "--gateway", traced, "--peer", plain, "--cells", ",".join(CELLS)]
        subprocess.run([*command, "--rounds", str(rounds), "--json", str(result)], check=True, stdout=sys.stderr)
        return json.loads(result.read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("compare", type=Path, help="path of compare.py")
    parser.add_argument("--sampled", type=float, default=0.01, help="share of traces that is recorded")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--allowed", type=float, default=1.1, help="highest ratio")
    options = parser.parse_args()
    with serve_sink() as endpoint:
        cells = compare(options.compare, endpoint, options.sampled, options.rounds)
    print("| cell | unit | with traces µs | without µs | ratio |\n|---|---|---|---|---|")
    for name, title in CELLS.items():
        cell, unit = cells[name], "response" if name.startswith("short") else "event"
        print(f"| {title} | {unit} | {cell['gateway_us']:.2f} | {cell['peer_us']:.2f} | {cell['ratio']:.2f} |")
    print(f"\n{options.sampled:.0%} of the traces recorded; the collector took {Sink.received} requests.")
    if not Sink.received:
        print("no trace arrived, so nothing was measured", file=sys.stderr)
        return 1
    return int(any(cell["ratio"] > options.allowed for cell in cells.values()))


if __name__ == "__main__":
    sys.exit(main())
