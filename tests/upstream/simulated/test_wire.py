"""The stand-in against captures of vLLM 0.32.0."""

import json
from pathlib import Path

import pytest

CAPTURES = Path(__file__).parent.parent / "captures"
TOOLS = [
    {"type": "function", "name": name, "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    for name in ("get_time", "get_weather")
]


def shape(value: object) -> object:
    """Return the members of an object with theirs, values left out."""
    if isinstance(value, dict):
        return {key: shape(member) for key, member in value.items() if key not in {"tools", "output", "parameters"}}
    return None


def shapes(events: list[dict]) -> dict[str, object]:
    """Return one shape per event and item type."""
    found = {}
    for event in events:
        kind = (event.get("item") or event.get("part") or {}).get("type", "")
        found[f"{event['type']} {kind}"] = shape(event)
    return found


@pytest.mark.parametrize(
    ("capture", "model", "more"),
    [
        ("text_stream", "sim", {}),
        ("reasoning_stream", "sim-think", {}),
        ("tool_tools2_stream", "sim-tools2", {"tools": TOOLS}),
    ],
)
async def test_events_have_the_members_of_real_ones(stream, parse_events, capture, model, more):
    real = shapes(parse_events((CAPTURES / f"{capture}.raw").read_bytes()))
    simulated = shapes(await stream(model, **more))
    assert simulated
    for name, members in simulated.items():
        assert members == real[name], name


async def test_json_has_the_members_of_a_real_one(create):
    real = json.loads((CAPTURES / "text_nonstream.raw").read_bytes())
    _, simulated = await create()
    assert shape(simulated) == shape(real)
    assert shape(simulated["output"][0]) == shape(real["output"][0])
    assert shape(simulated["output"][0]["content"][0]) == shape(real["output"][0]["content"][0])


async def test_numbers_deltas_and_snapshots_agree(stream):
    events = await stream("sim-think")
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    final = events[-1]["response"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert final["output"] == done
    for item in done:
        deltas = [event["delta"] for event in events if event.get("item_id") == item["id"] and "delta" in event]
        assert "".join(deltas) == item["content"][0]["text"]
    usage = final["usage"]
    assert usage["output_tokens"] == sum("delta" in event for event in events)
    assert usage["output_tokens_details"]["reasoning_tokens"] > 0
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


async def test_incomplete_is_called_completed(stream):
    last = (await stream("sim-incomplete"))[-1]
    assert last["type"] == "response.completed"
    assert last["response"]["status"] == "incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"]["output"][0]["status"] == "completed"


async def test_reasoning_has_no_status_in_json(create):
    _, response = await create("sim-think")
    assert [item["status"] for item in response["output"]] == [None, "completed"]


async def test_refusal_events(stream):
    events = await stream("sim-refuse")
    kinds = [event["type"] for event in events]
    assert kinds.count("response.refusal.done") == 1
    assert (
        "".join(event["delta"] for event in events if event["type"] == "response.refusal.delta")
        == (events[-1]["response"]["output"][0]["content"][0]["refusal"])
    )
