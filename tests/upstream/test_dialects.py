import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.dialects import find_dialect

NAMES = ["vllm", "llamacpp", "generic"]


def adapt(name: str, **body):
    return find_dialect(name).adapt(body)


def mend(name: str, *items: dict) -> list[dict]:
    return adapt(name, input=list(items))["input"]


def test_names():
    assert [find_dialect(name).name for name in NAMES] == NAMES
    assert find_dialect("auto").name == "generic"
    with pytest.raises(ValueError, match="auto, vllm, llamacpp, generic"):
        find_dialect("sglang")


@pytest.mark.parametrize("name", NAMES)
def test_plain_request_is_unchanged(name):
    body = {"model": "m", "input": "hi", "store": False, "stream": True, "temperature": 0.5, "text": {"format": {}}}
    assert adapt(name, **body) == body


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("status", ["in_progress", "incomplete"])
def test_open_items_are_closed(name, status):
    item = {
        "type": "message",
        "role": "assistant",
        "id": "msg_1",
        "status": status,
        "content": [{"type": "output_text", "text": "a", "annotations": []}],
    }
    assert mend(name, item) == [{**item, "status": "completed"}]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("choice", [{}, {"tool_choice": "auto"}, {"tool_choice": "none"}])
def test_empty_tools_are_left_out(name, choice):
    assert adapt(name, input="hi", tools=[], **choice) == {"input": "hi"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "f"}])
def test_a_forced_choice_without_tools_stays_the_callers_error(name, choice):
    assert adapt(name, input="hi", tools=[], tool_choice=choice) == {"input": "hi", "tool_choice": choice}


@pytest.mark.parametrize("name", NAMES)
def test_tools_are_kept(name):
    body = {"input": "hi", "tools": [{"type": "function", "name": "f"}], "tool_choice": "auto"}
    assert adapt(name, **body) == body


def test_generic_passes_everything_else():
    body = {
        "input": [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "blob", "content": None}],
        "include": ["web_search_call.results"],
        "service_tier": "fast",
        "prompt": {"id": "p"},
        "metadata": None,
    }
    assert adapt("generic", **body) == body


# ---------------------------------------------------------------- vLLM


def test_vllm_leaves_out_what_it_would_refuse():
    adapted = adapt(
        "vllm",
        input="hi",
        include=["web_search_call.results", "reasoning.encrypted_content", {}],
        service_tier="ultrafast",
        prompt={"id": "p"},
        prompt_cache_options={},
        prompt_cache_retention="24h",
        prompt_cache_key="kept",
        user=None,
    )
    assert adapted == {"input": "hi", "include": ["reasoning.encrypted_content"], "prompt_cache_key": "kept"}


def test_vllm_leaves_out_what_became_empty():
    adapted = adapt("vllm", input="hi", include=["web_search_call.results"], reasoning={"mode": "pro", "effort": None})
    assert adapted == {"input": "hi"}


def test_vllm_keeps_effort_and_summary():
    reasoning = {"effort": "low", "summary": "auto"}
    assert adapt("vllm", input="hi", reasoning={**reasoning, "context": "auto"})["reasoning"] == reasoning


@pytest.mark.parametrize("tier", ["auto", "default", "flex", "scale", "priority"])
def test_vllm_keeps_known_tiers(tier):
    assert adapt("vllm", input="hi", service_tier=tier)["service_tier"] == tier


def test_vllm_gets_plain_reasoning():
    sealed = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "blob"}
    assert mend("vllm", sealed) == []
    parts = [{"type": "reasoning_text", "text": "a"}, {"type": "reasoning_text", "text": "b"}]
    assert mend("vllm", {**sealed, "content": parts, "status": None}) == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "ab"}],
            "status": "completed",
        }
    ]


def test_vllm_reads_the_summary_where_there_is_no_content():
    (item,) = mend(
        "vllm", {"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}], "content": None}
    )
    assert item["content"] == [{"type": "reasoning_text", "text": "short"}]
    assert isinstance(item["id"], str)


def test_vllm_merges_the_parts_of_an_answer():
    parts = [
        {"type": "output_text", "text": "a", "annotations": [{"type": "url_citation"}], "logprobs": None},
        {"type": "refusal", "refusal": "b"},
    ]
    message = {"type": "message", "id": "msg_1", "role": "assistant", "content": parts, "agent": {}, "phase": None}
    assert mend("vllm", message) == [
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "ab", "annotations": []}],
        }
    ]
    assert mend("vllm", {"role": "assistant", "content": parts}) == [{"role": "assistant", "content": "ab"}]
    assert mend("vllm", {**message, "content": []})[0]["content"][0]["text"] == ""


def test_vllm_leaves_user_messages_alone():
    message = {
        "role": "user",
        "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:x"}],
    }
    assert mend("vllm", message) == [message]


def test_vllm_gets_calls_without_unknown_members():
    call = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "ok"}
    noisy = {**call, "output_index": 3, "sequence_number": -1, "async": None, "caller": None, "status": "incomplete"}
    assert mend("vllm", noisy, {**output, "id": None, "status": None}) == [{**call, "status": "completed"}, output]


def test_vllm_is_told_how_closely_to_look_at_pictures_of_tools():
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:x"}]
    output = {"type": "function_call_output", "call_id": "c", "output": parts}
    (mended,) = mend("vllm", output)
    assert mended["output"] == [parts[0], {**parts[1], "detail": "auto"}]
    looked = {**output, "output": [{**parts[1], "detail": "low"}]}
    assert mend("vllm", looked) == [looked]


# ---------------------------------------------------------------- llama.cpp


def test_llamacpp_gets_readable_reasoning_or_none():
    summary = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}], "content": None}
    assert mend("llamacpp", summary) == [
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "s"}]}
    ]
    assert mend("llamacpp", {**summary, "summary": [], "encrypted_content": "blob"}) == []


def test_llamacpp_never_gets_a_previous_response():
    assert adapt("llamacpp", input="hi", previous_response_id="resp_1", include=["x"]) == {
        "input": "hi",
        "include": ["x"],
    }


# ---------------------------------------------------------------- all

keys = st.sampled_from(
    [
        "type",
        "role",
        "content",
        "summary",
        "status",
        "id",
        "text",
        "tools",
        "tool_choice",
        "include",
        "reasoning",
        "service_tier",
        "input",
        "encrypted_content",
        "previous_response_id",
        "arguments",
        "output",
    ]
)
words = st.sampled_from(["message", "reasoning", "function_call", "assistant", "user", "incomplete", "auto", "x"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=20,
)


@pytest.mark.parametrize("name", NAMES)
@given(body=st.dictionaries(keys, values, max_size=6))
def test_adapting_never_raises_never_mutates_and_is_stable(name, body):
    before = copy.deepcopy(body)
    adapted = find_dialect(name).adapt(body)
    assert body == before
    assert find_dialect(name).adapt(adapted) == adapted


def test_an_item_whose_type_is_null_is_a_message_to_vllm():
    item = {"type": None, "role": "user", "content": "hi", "summary": []}
    assert find_dialect("vllm").adapt({"input": [item]})["input"] == [{"role": "user", "content": "hi"}]
