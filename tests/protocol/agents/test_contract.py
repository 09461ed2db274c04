"""Two responses of trees, frame by frame, as clients expect them; the frames are in `examples`."""

import json
import re
from pathlib import Path
from typing import Any

from openai.types.beta.beta_responses_server_event import BetaResponsesServerEvent
from property.engine import Client, Json, added, completed, done, event, spell, text, whole
from property.trees import ALPHA, BETA, ROOT, action, mail, tree_client, tree_faults
from pydantic import BaseModel, TypeAdapter

from gateway.protocol import events
from gateway.protocol.agents.tree_round import TreeRound
from gateway.protocol.agents.turn import TreeTurn

EXAMPLES = Path(__file__).parent / "examples"
TOKEN = re.compile(r"enc_\w+|sealed\(.*")
TARGET = "resp_9"


def plain(value: Any, names: dict[str, str]) -> Any:
    """A value without what may differ: ids go by their first appearance, tokens are all alike, texts of JSON parsed."""
    if isinstance(value, dict):
        shown = {name: each for name, each in value.items() if name not in ("logprobs", "namespace")}
        if shown.get("type") == "response.function_call_arguments.done":
            shown.pop("name", None)
        if isinstance(shown.get("response"), dict):
            shown["response"] = {"status": shown["response"]["status"]}
        for name in ("id", "item_id"):
            if name in shown:
                shown[name] = names.setdefault(shown[name], f"{shown[name].partition('_')[0]} {len(names)}")
        return {name: plain(each, names) for name, each in shown.items()}
    if isinstance(value, list):
        return [plain(each, names) for each in value]
    if isinstance(value, str) and TOKEN.fullmatch(value):
        return "token"
    if isinstance(value, str) and value[:1] == "{":
        try:
            return plain(json.loads(value), names)
        except ValueError:
            return value
    return value


def started(client: Client, agent: str, *said: Json, end: bool = True) -> TreeRound:
    """A round of an agent in which its engine has said these items."""
    assert isinstance(client.turn, TreeTurn)
    round_ = client.turn.open_round(agent)
    for index, item in enumerate(said):
        for each in spell(item, index, whole, tag=agent):
            client.ingest(round_, each)
    if end:
        client.ingest(round_, completed())
    return round_


def message(content: str) -> Json:
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": content, "annotations": []}],
    }


def spawning(name: str, call_id: str) -> Json:
    return action("spawn_agent", call_id, f'{{"task_name":"{name}","fork_turns":"none","message":"assess {name}"}}')


def call(of: str) -> Json:
    return {
        "type": "function_call",
        "call_id": "call_p1",
        "name": "get_proposal",
        "arguments": f'{{"proposal":"{of}"}}',
    }


def conclude(client: Client, round_: TreeRound, at: int, output: Json, *messages: Any) -> None:
    client.hear(client.turn.conclude_action(round_, round_.slots[at], json.dumps(output), messages))


def listen_over_http() -> tuple[Client, Client]:
    """A response that waits for a subagent's call, and the one that continues it."""
    client = tree_client()
    round_ = started(client, ROOT, spawning("alpha", "call_s1"))
    conclude(client, round_, 0, {"task_name": ALPHA}, mail(ROOT, ALPHA))
    started(client, ALPHA, call("alpha"))
    round_ = started(client, ROOT, action("wait_agent", "call_w1", '{"timeout_ms":30000}'))
    parked = {"message": "Agents are waiting for client tool outputs.", "timed_out": False}
    conclude(client, round_, 0, parked)

    later = tree_client()
    started(later, ALPHA, message("alpha: 6 weeks, medium risk"))
    later.hear(later.turn.tell_messages([mail(ALPHA, ROOT, kind="FINAL_ANSWER")]))
    started(later, ROOT, message("Choose alpha."))
    return client.finish(), later.finish()


def listen_on_websocket() -> Client:
    """A response with an inject for one agent while another one speaks, and an inject that comes too late."""
    client = tree_client()
    round_ = started(client, ROOT, spawning("alpha", "call_s1"), spawning("beta", "call_s2"))
    conclude(client, round_, 0, {"task_name": ALPHA}, mail(ROOT, ALPHA))
    conclude(client, round_, 1, {"task_name": BETA}, mail(ROOT, BETA))
    started(client, ALPHA, call("alpha"))
    beta = started(client, BETA, end=False)
    place = {"item_id": "b", "output_index": 0, "content_index": 0}
    client.ingest(beta, added({**message(""), "id": "b", "content": []}, 0))
    client.ingest(beta, text("beta looks ", **place))
    client.hear(client.turn.tell(events.InjectCreated(response_id=TARGET)))
    started(client, ALPHA, message("alpha: 6 weeks"))
    client.ingest(beta, text("slow but safe", **place))
    client.ingest(beta, event("output_text.done", text="beta looks slow but safe", **place))
    client.ingest(beta, done({**message("beta looks slow but safe"), "id": "b"}, 0))
    client.ingest(beta, completed())
    finals = [mail(ALPHA, ROOT, kind="FINAL_ANSWER"), mail(BETA, ROOT, kind="FINAL_ANSWER")]
    client.hear(client.turn.tell_messages(finals))
    started(client, ROOT, message("Pick alpha."))
    client.finish()
    late = [{"type": "function_call_output", "call_id": "call_p1", "output": "late"}]
    words = f"Response '{TARGET}' has already completed."
    fault = events.ControlError(code="response_already_completed", message=words)
    client.hear(client.turn.tell(events.InjectFailed(response_id=TARGET, input=late, error=fault)))
    return client


def test_outputs_over_http_with_a_client_function_in_a_subagent():
    expected = [json.loads(line) for line in (EXAMPLES / "http.jsonl").read_text().splitlines()]
    for client, response in zip(listen_over_http(), expected, strict=True):
        assert plain(client.output, {}) == plain(response["output"], {})
        assert tree_faults(client.told) == []


def test_frames_of_a_websocket_with_an_inject_while_a_sibling_runs():
    lines = (EXAMPLES / "inject.txt").read_text().splitlines()
    frames = [json.loads(line[3:]) for line in lines if line.startswith("S> ")]
    client = listen_on_websocket()
    assert plain(client.told, {}) == plain(frames, {})
    assert tree_faults(client.told[:-1]) == []


def test_a_strict_reader_of_the_beta_api_reads_every_event():
    reader = TypeAdapter(BetaResponsesServerEvent)
    for client in (*listen_over_http(), listen_on_websocket()):
        for told in client.told:
            read = reader.validate_python(told)
            assert isinstance(read, BaseModel)
            assert read.to_dict(exclude_unset=True) == told
