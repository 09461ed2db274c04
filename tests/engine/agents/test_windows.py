"""What agents' models are shown of their histories."""

from engine.agents.bench import ROOT, TreeBench
from harness.agents import say

from gateway.engine.agents.windows import Windows


def user(text):
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def mail(text):
    return {"type": "agent_message", "kind": "MESSAGE", "author": "/root/alpha", "recipient": "/root", "payload": text}


async def windows(keep_bytes=None):
    bench = TreeBench({ROOT: [[say("x")]]})
    return Windows(await bench.plan(), bench.engine.compaction, 1000, keep_bytes)


async def test_a_note_takes_the_place_of_everything_but_what_the_user_wrote():
    history = [
        user("one"),
        {"type": "multi_agent_call", "call_id": "a", "action": "list_agents", "arguments": "{}"},
        # Interrupted, and shown as such: what still comes is told by itself.
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
        {"type": "multi_agent_call_output", "call_id": "a", "action": "list_agents", "output": "[]"},
        mail("two"),
        user("three"),
    ]
    found = await windows()
    assert found.compact(history, "NOTE") == [user("one"), user("three"), {"type": "compaction", "note": "NOTE"}]
    again = found.compact([*found.compact(history, "NOTE"), mail("four"), user("five")], "NEWER")
    assert again == [user("one"), user("three"), user("five"), {"type": "compaction", "note": "NEWER"}]


async def test_of_long_messages_the_newest_stay():
    found = await windows(keep_bytes=200)
    history = [user("x" * 150), user("y" * 150), mail("z")]
    assert found.compact(history, "NOTE") == [user("y" * 150), {"type": "compaction", "note": "NOTE"}]


async def test_what_is_summarized_is_in_the_form_of_the_engine_and_whole():
    found = await windows()
    history = [
        user("one"),
        {"type": "compaction", "note": "OLD"},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
        mail("two"),
    ]
    shown = found.summarize(history).summarized()
    assert [item["type"] for item in shown] == [
        "message",
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert "OLD" in shown[1]["content"][0]["text"]


async def test_tools_that_a_conversation_has_brought_outlive_the_note():
    found = await windows()
    tools = [{"type": "function", "name": name, "parameters": {}} for name in ("f", "g")]
    listing = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": []}
    history = [
        listing,
        {"type": "tool_search_call", "call_id": "a", "arguments": {}, "execution": "client"},
        {"type": "tool_search_output", "call_id": "a", "tools": tools[:1], "execution": "client"},
        user("one"),
    ]
    kept = found.compact(history, "NOTE")
    assert kept == [
        user("one"),
        {"type": "additional_tools", "role": "developer", "tools": tools[:1]},
        listing,
        {"type": "compaction", "note": "NOTE"},
    ]
    more = {"type": "additional_tools", "role": "developer", "tools": tools[1:]}
    again = found.compact([*kept, more], "NEWER")
    assert [item["tools"] for item in again if item["type"] == "additional_tools"] == [tools]
    assert found.read(again).carry(lambda items: items).show()[-1]["content"][0]["text"].endswith("NEWER")
