import pytest
from msgspec import structs
from telemetry.status_samples import make_status

from gateway.telemetry.digest import find_troubles, group_uses, list_latencies, show_use
from gateway.telemetry.status import Use

WELL = make_status()


def with_server(**fields):
    return structs.replace(WELL, upstreams=(structs.replace(WELL.upstreams[0], **fields),))


def with_storage(**fields):
    return structs.replace(WELL, storage=structs.replace(WELL.storage, **fields))


def with_clients(**fields):
    return structs.replace(WELL, clients=structs.replace(WELL.clients, **fields))


def test_nothing_is_wrong_with_what_is_well():
    assert list(find_troubles(WELL)) == []


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        (structs.replace(WELL, draining=True), "The gateway is shutting down."),
        (with_storage(healthy=False, detail="The disk is full."), "The database is not well: The disk is full."),
        (with_server(healthy=False, detail="No."), "Inference server default is not well: No."),
        (with_server(breaker="half_open"), "The circuit breaker of inference server default is half-open."),
        (with_server(breaker="open"), "The circuit breaker of inference server default is open."),
        (
            with_clients(responses=Use(now=90, high=95, limit=100)),
            "Clients: responses in the making, 90 of 100 (90 %).",
        ),
        (
            with_storage(queue_bytes=Use(now=1024, high=1024, limit=1024)),
            "Storage: bytes waiting, 1 KiB of 1 KiB (100 %).",
        ),
    ],
)
def test_what_somebody_should_look_at_is_said(status, trouble):
    assert list(find_troubles(status)) == [trouble]


def test_what_has_no_limit_is_never_too_much():
    status = with_clients(delivery_bytes=Use(now=10**9, high=10**9))
    assert list(find_troubles(status)) == []
    (row,) = (row for _, rows in group_uses(status) for row in rows if row.name == "bytes to be sent")
    assert (row.share, show_use(row)) == (None, "954 MiB")


def test_every_level_and_every_time_of_a_status_is_listed():
    """A number that is added to the status must be shown as well."""
    shown = [row.use for _, rows in group_uses(WELL) for row in rows] + [seen for _, seen in list_latencies(WELL)]
    parts = (
        WELL.clients,
        WELL.lanes,
        WELL.background,
        WELL.tools,
        WELL.agents,
        WELL.storage,
        WELL.latency,
        *WELL.upstreams,
    )
    told = [value for part in parts for value in structs.astuple(part) if isinstance(value, structs.Struct)]
    assert len(shown) == len(told)
    assert all(any(value is one for one in shown) for value in told)
