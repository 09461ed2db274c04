"""Each rule about the events of several agents finds what it is there for."""

import json

import pytest
from harness.agent_rules import check_run

ROOT = {"agent_name": "/root"}
CALL = {"type": "multi_agent_call", "id": "mac_1", "call_id": "call_1", "action": "list_agents", "agent": ROOT}
OUTPUT = {**CALL, "type": "multi_agent_call_output", "id": "maco_1"}
SENT = {"input": [{"type": "function_call_output", "call_id": "call_9", "output": "x"}]}
LATE = {"type": "response.inject.failed", **SENT, "error": {"code": "response_already_completed"}}


def sound():
    """A run: an action with its output, a batch that is taken, one that is refused and one that comes too late."""
    events = [
        {"type": "response.created", "response": {}},
        {"type": "response.in_progress", "response": {}},
        {"type": "response.inject.created"},
        *(
            {"type": f"response.output_item.{verb}", "output_index": place, "agent": ROOT, "item": item}
            for place, item in enumerate((CALL, OUTPUT))
            for verb in ("added", "done")
        ),
        {"type": "response.inject.failed", **SENT, "error": {"code": "invalid_input"}},
        {"type": "response.completed", "response": {"status": "completed", "output": [CALL, OUTPUT]}},
        LATE,
    ]
    return json.loads(json.dumps(renumbered(events)))


def renumbered(events):
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _set(place, **members):
    return lambda events: events[place].update(members)


MUTATIONS = {
    "A1": _set(3, sequence_number=9),
    "A2: the first": _set(1, type="response.queued"),
    "A2: ends": _set(8, type="response.inject.failed"),
    "A2: response.created behind": lambda events: events.append({**events[0], "sequence_number": 10}),
    "A3: item 5 behind": _set(3, output_index=5),
    "A3: response.output_item.done of item 7": _set(4, output_index=7),
    "A3: id of item": lambda events: events[4]["item"].update(id="mac_2"),
    "A3: response.output_item.delta names": _set(4, type="response.output_item.delta", item_id="other"),
    "A3: mac_1 is the id": lambda events: [events[place]["item"].update(id="mac_1") for place in (5, 6)],
    "A3: items": lambda events: events.pop(6),
    "A4": lambda events: events[8]["response"]["output"].reverse(),
    "A5: response.output_item.added names no": lambda events: events[3].pop("agent"),
    "A5: response.in_progress names an": _set(1, agent=ROOT),
    "A5: item": lambda events: events[3]["item"].update(agent={"agent_name": "/root/alpha"}),
    "A6: 2 answers": lambda events: events.pop(),
    "A6: the input": _set(7, input=[]),
    "A7: response.inject.failed": _set(9, error={"code": "invalid_input"}),
    "A8": lambda events: [item.update(call_id="call_2") for item in (events[8]["response"]["output"][0],)],
    "A9": lambda events: events[8]["response"]["output"][0].update(type="function_call", name="wait_agent"),
}


def test_a_sound_run_has_no_fault():
    assert check_run(sound(), [SENT] * 3) == []


@pytest.mark.parametrize("rule", MUTATIONS)
def test_each_fault_is_found(rule):
    events = sound()
    MUTATIONS[rule](events)
    if not rule.startswith("A1"):
        events = renumbered(events)
    faults = check_run(events, [SENT] * 3)
    assert any(fault.startswith(rule) for fault in faults), faults


def test_items_of_interrupted_agents_may_stay_open():
    events = sound()
    events.pop(6)
    events[7]["response"]["output"].pop()
    assert [fault[:2] for fault in check_run(renumbered(events), dropped=True)] == ["A8"]


def test_an_ending_without_a_response_is_an_end_too():
    events = [*sound()[:3], {"type": "error", "sequence_number": 3}]
    assert check_run(events) == []
