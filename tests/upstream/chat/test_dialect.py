import pytest

from gateway.protocol.errors import UpstreamRefused
from gateway.upstream.chat.dialect import name_parameter
from gateway.upstream.dialects import find_dialect


@pytest.mark.parametrize(
    ("name", "bound"), [("vllm", "max_completion_tokens"), ("llamacpp", "max_tokens"), ("generic", "max_tokens")]
)
def test_each_kind_keeps_its_name_and_its_own_bound(name, bound):
    dialect = find_dialect(name, chat=True)
    assert dialect.name == name
    assert dialect.adapt({"model": "m", "input": "hi", "max_output_tokens": 5})[bound] == 5


def test_what_a_kind_refuses_is_mended_before():
    body = {"input": "hi", "service_tier": "galactic", "prompt_cache_retention": "24h"}
    assert find_dialect("vllm", chat=True).adapt(body) == {"messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("told", "named"), [("messages", "input"), ("max_tokens", "max_output_tokens"), ("seed", "seed"), (None, None)]
)
def test_a_refusal_names_what_the_caller_sent(told, named):
    refused = UpstreamRefused("no", upstream_status=400, code="invalid_request", type="x", param=told)
    assert name_parameter(refused).param == named
