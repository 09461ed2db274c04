"""What holds of the events of every response of several agents, whatever its agents do: rules A1 to A9."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

LIFECYCLE = frozenset(
    {
        "response.created",
        "response.in_progress",
        "response.queued",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "response.inject.created",
        "response.inject.failed",
        "error",
    }
)
TERMINALS = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
ACTIONS = frozenset({"spawn_agent", "send_message", "followup_task", "wait_agent", "interrupt_agent", "list_agents"})


def check_run(events: Sequence[Json], injected: Sequence[Json] | None = None, *, dropped: bool = False) -> list[str]:
    """Return what is wrong with the events of one response, acknowledgements behind its end included.

    Args:
        events: what the client was told, in order.
        injected: the outputs that the client sent, one frame each, if it is to be checked that each has its answer.
        dropped: whether items may be left open, because agents were interrupted.
    """
    ended = next((place for place, event in enumerate(events) if event["type"] in TERMINALS), len(events) - 1)
    faults = _check_order(events, ended)
    faults += _check_items(events, ended, dropped=dropped)
    faults += _check_agents(events)
    faults += _check_actions(events[ended])
    if injected is not None:
        faults += _check_injected(events, ended, injected)
    return faults


def _check_order(events: Sequence[Json], ended: int) -> list[str]:
    """A1 and A2."""
    faults = []
    if (numbers := [event["sequence_number"] for event in events]) != list(range(len(events))):
        faults.append(f"A1: numbers {numbers}")
    if [event["type"] for event in events[:2]] != ["response.created", "response.in_progress"]:
        faults.append("A2: the first events are others")
    terminals = [event["type"] for event in events if event["type"] in TERMINALS]
    if len(terminals) != 1:
        faults.append(f"A2: ends {terminals}")
    late = [event["type"] for event in events[ended + 1 :] if event["type"] != "response.inject.failed"]
    return faults + [f"A2: {type_} behind the end" for type_ in late]


def _check_items(events: Sequence[Json], ended: int, *, dropped: bool) -> list[str]:
    """A3 and A4: each item begins, goes on and ends, in its place; the output holds what ended."""
    faults: list[str] = []
    added: dict[int, Json] = {}
    done: dict[int, Json] = {}
    for event in events[:ended]:
        place = event.get("output_index")
        if place is None:
            continue
        if event["type"] == "response.output_item.added":
            if place != len(added):
                faults.append(f"A3: item {place} behind {len(added)} others")
            added[place] = event["item"]
        elif place not in added or place in done:
            faults.append(f"A3: {event['type']} of item {place}, which is not open")
        elif event["type"] == "response.output_item.done":
            done[place] = event["item"]
            faults += [
                f"A3: {name} of item {place} changed"
                for name in ("id", "type")
                if event["item"][name] != added[place][name]
            ]
        elif event.get("item_id", added[place]["id"]) != added[place]["id"]:
            faults.append(f"A3: {event['type']} names another item than {place}")
    ids = Counter(item["id"] for item in added.values())
    faults += [f"A3: {id_} is the id of {times} items" for id_, times in ids.items() if times > 1]
    response = events[ended].get("response") or {"status": "failed", "output": None}
    if response["status"] == "completed":
        if not dropped and added.keys() != done.keys():
            faults.append(f"A3: items {sorted(added.keys() - done.keys())} never ended")
        if response["output"] != [done[place] for place in sorted(done)]:
            faults.append("A4: the output is not what ended, in order")
    return faults


def _check_agents(events: Sequence[Json]) -> list[str]:
    """A5."""
    faults = []
    for event in events:
        named = "agent" in event
        if named == (event["type"] in LIFECYCLE):
            faults.append(f"A5: {event['type']} {'names an agent' if named else 'names no agent'}")
        if "item" in event and event["item"].get("agent") != event.get("agent"):
            faults.append(f"A5: item and event name {event['item'].get('agent')} and {event.get('agent')}")
    return faults


def _check_actions(terminal: Json) -> list[str]:
    """A8 and A9: each action has one output, and the client is never asked for it."""
    if (response := terminal.get("response")) is None:
        return []
    output = response["output"]
    faults = [
        f"A9: the client is asked for {item['name']}"
        for item in output
        if item["type"] == "function_call" and item["name"] in ACTIONS
    ]
    if response["status"] != "completed":
        return faults
    calls = Counter((item["call_id"], item["action"]) for item in output if item["type"] == "multi_agent_call")
    outputs = Counter((item["call_id"], item["action"]) for item in output if item["type"] == "multi_agent_call_output")
    if calls != outputs:
        faults.append(f"A8: calls {sorted(calls.items())}, outputs {sorted(outputs.items())}")
    return faults


def _check_injected(events: Sequence[Json], ended: int, injected: Sequence[Json]) -> list[str]:
    """A6 and A7: each batch has one answer, on the right side of the end; refused ones come back as they were."""
    faults = []
    answers = [(place, event) for place, event in enumerate(events) if event["type"].startswith("response.inject.")]
    if len(answers) != len(injected):
        return [f"A6: {len(answers)} answers to {len(injected)} batches"]
    for (place, event), sent in zip(answers, injected, strict=True):
        taken = event["type"] == "response.inject.created"
        if not taken and event["input"] != sent["input"]:
            faults.append("A6: the input came back changed")
        late = not taken and event["error"]["code"] == "response_already_completed"
        if (taken and place > ended) or late != (place > ended):
            faults.append(f"A7: {event['type']} on the wrong side of the end")
    return faults
