"""What a report says of the machine and of what the gateway used."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from facts import Gauge, Usage, describe_machine, hash_plan, read_metrics, scrape
from harness.processes import free_port
from msgspec.structs import replace
from plan import Plan

METRICS = """\
# HELP process_cpu_seconds_total Total.
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total {cpu}
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes {resident}
# TYPE gateway_storage_reads_total counter
gateway_storage_reads_total{{query="history"}} {reads}
gateway_storage_reads_total{{query="items"}} 1
gateway_storage_reads_total{{query="probe"}} 1000
# TYPE gateway_build_info gauge
gateway_build_info{{python="3.11.7",version="0.1.0"}} 1
"""


class Admin(BaseHTTPRequestHandler):
    """Serves metrics that grow with each look."""

    looks = 0

    def do_GET(self) -> None:
        Admin.looks += 1
        body = METRICS.format(cpu=10 + Admin.looks, resident=(9 - Admin.looks) * 2**20, reads=5 * Admin.looks).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def admin() -> Iterator[str]:
    Admin.looks = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), Admin) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


def test_what_a_gateway_counts_is_read_without_probes() -> None:
    seen = read_metrics(METRICS.format(cpu=1.5, resident=1024, reads=4))
    assert (seen.cpu, seen.resident, seen.reads, seen.build) == (1.5, 1024, 5, "0.1.0 on Python 3.11.7")


def test_what_was_never_counted_is_nothing_and_what_is_not_told_is_unknown() -> None:
    seen = read_metrics("# TYPE gateway_storage_reads_total counter\n")
    assert (seen.reads, seen.cpu, seen.build) == (0.0, None, None)


def test_a_gauge_looks_before_and_after(admin: str) -> None:
    with Gauge(admin) as gauge:
        pass
    seen = replace(gauge.usage, machine=None)
    assert seen == Usage(cpu=1, reads=5, resident=7 * 2**20, peak=8 * 2**20, build="0.1.0 on Python 3.11.7")


def test_a_machine_that_works_is_busy() -> None:
    with Gauge(None) as gauge:
        end = time.process_time() + 0.1
        while time.process_time() < end:
            pass
    assert 0 < gauge.usage.machine <= 1


@pytest.mark.parametrize("known", [True, False])
def test_without_an_admin_listener_nothing_is_known(known: bool) -> None:
    admin = f"http://127.0.0.1:{free_port()}" if known else None
    with Gauge(admin) as gauge:
        pass
    assert replace(gauge.usage, machine=None) == Usage()
    assert admin is None or scrape(admin) is None


def test_a_machine_has_processors_and_memory() -> None:
    assert " CPUs, " in describe_machine()
    assert " GiB, " in describe_machine()


def test_the_hash_tells_plans_apart(plan: Plan) -> None:
    assert hash_plan(plan) == hash_plan(plan.vary())
    assert hash_plan(plan) != hash_plan(plan.vary(run={"users": 17}))
