import pytest
from msgspec import structs

from gateway.protocol.limits import KIB, MIB, Limits


def test_the_defaults():
    assert structs.asdict(Limits()) == {
        "max_retained_bytes": 8 * MIB,
        "max_upstream_json_bytes": 16 * MIB,
        "max_upstream_sse_line_bytes": 16 * MIB,
        "max_stream_event_bytes": MIB,
    }
    assert MIB == 1024 * KIB == 1_048_576


@pytest.mark.parametrize("key", Limits.__struct_fields__)
def test_each_limit_is_raised_alone_and_named_when_exceeded(key):
    limits = Limits(**{key: 99})
    assert {**structs.asdict(Limits()), key: 99} == structs.asdict(limits)
    assert limits.exceeded(key).details == {"resource": key, "limit": 99}
