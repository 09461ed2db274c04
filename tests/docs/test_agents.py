"""What the page on agents shows is what a client is told."""

import re

from docs.pages import ROOT as PROJECT
from docs.pages import find_fences
from property.engine import Client, Json, completed, spell, whole
from property.trees import ALPHA, ROOT, action, mail, tree_client

from gateway.protocol.items import TREE_TYPES

PAGE = PROJECT / "docs/explanation/agents.md"


def message(words: str) -> Json:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": words}]}


def say(client: Client, agent: str, said: Json, text: str | None = None, **more: object) -> None:
    round_ = client.turn.open_round(agent)
    for event in [*spell(said, 0, whole), completed()]:
        client.ingest(round_, event)
    if said["type"] == "function_call":
        client.hear(client.turn.conclude_action(round_, round_.slots[0], text, **more))


def draw(told: list[Json]) -> str:
    """Return what was told of items as a Mermaid sequence diagram."""
    lines = ["sequenceDiagram", "    participant client"]
    lines += [f"    participant {path.rpartition('/')[2]} as {path}" for path in (ROOT, ALPHA)]
    for event in told:
        if event["type"].startswith("response.output_item."):
            path, item = event["agent"]["agent_name"], event["item"]
            words = [item["type"], event["type"].rpartition(".")[2]]
            phase = f", {item['phase']}" if "phase" in item else ""
            lines.append(f"    {path.rpartition('/')[2]}->>client: {' '.join(words)}{phase}")
    return "\n".join(lines)


def test_the_diagram_is_drawn_from_a_response():
    client = tree_client()
    say(client, ROOT, action("spawn_agent", "call_1", "{}"), "{}", messages=[mail(ROOT, ALPHA)])
    say(client, ROOT, action("wait_agent", "call_2", "{}"))
    say(client, ALPHA, message("six weeks"))
    client.hear(client.turn.tell_action_output(ROOT, "call_2", "wait_agent", "{}"))
    client.hear(client.turn.tell_messages([mail(ALPHA, ROOT, kind="FINAL_ANSWER")]))
    say(client, ROOT, message("alpha"))
    diagrams = [fence.text.strip() for fence in find_fences("mermaid", pages=[PAGE])]
    assert draw(client.told) in diagrams


def test_every_type_of_a_tree_has_a_row():
    assert set(re.findall(r"^\| `(\w+)` \| who ", PAGE.read_text(), re.MULTILINE)) == TREE_TYPES
