from msgspec import structs

from gateway.config import GatewayConfig
from gateway.config.processes import describe_sharing, list_per_process
from gateway.config.schema import LimitsConfig, ServerConfig, UpstreamConfig

SEVERAL = structs.replace(GatewayConfig(), server=ServerConfig(workers=4))


def test_one_process_multiplies_nothing():
    assert describe_sharing(GatewayConfig()) is None


def test_several_are_told_what_they_multiply():
    line = describe_sharing(SEVERAL)
    assert line.startswith("4 workers count each for itself, and together allow 4 times ")
    assert "server.max_concurrent_requests, " in line


def test_what_bounds_nothing_is_not_multiplied():
    assert "limits.requests_per_minute" not in set(list_per_process(SEVERAL))
    bounded = structs.replace(SEVERAL, limits=LimitsConfig(requests_per_minute=5))
    assert "limits.requests_per_minute" in set(list_per_process(bounded))
    # Every process knows the same keys.
    assert "auth.keys_max" not in set(list_per_process(bounded))


def test_bounds_of_every_inference_server_are_listed():
    config = structs.replace(SEVERAL, upstreams={"a": UpstreamConfig(), "b": UpstreamConfig()})
    listed = set(list_per_process(config))
    assert {"upstreams.a.max_concurrent", "upstreams.b.max_concurrent", "storage.readers"} <= listed
    # One connection is served by one process whatever their number.
    assert "websocket.max_active" not in listed
