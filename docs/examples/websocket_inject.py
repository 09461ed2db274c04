"""Answer the call of one agent while another one still works.

    python websocket_inject.py [http://127.0.0.1:9000/v1 [MODEL]]

Needs only the package `websockets`. Without arguments it talks to the gateway of `make demo`, whose model does what the
prompt says line by line; another one may be asked in words.
"""

import json
import sys
from typing import Any

from websockets.sync.client import ClientConnection, connect

HEADERS = {"OpenAI-Beta": "responses_multi_agent=v1"}
TOOL = {
    "type": "function",
    "name": "get_proposal",
    "description": "Return one proposal.",
    "parameters": {"type": "object", "properties": {"proposal": {"type": "string"}}, "required": ["proposal"]},
}
ALPHA = '@tool get_proposal {"proposal": "alpha"}\n@say Alpha takes six weeks.'
BETA = "@say " + "Beta is slow but safe. " * 8


def spawn(name: str, message: str) -> str:
    """Return the line that has the simulator start an agent."""
    return f"@tool spawn_agent {json.dumps({'task_name': name, 'message': message, 'fork_turns': 'none'})}"


PROMPT = "\n".join([spawn("alpha", ALPHA), spawn("beta", BETA), "@then", "@tool wait_agent {}", "@say Take alpha."])


def send_output(socket: ClientConnection, response_id: str, call: dict[str, Any]) -> None:
    """Hand what a call returned to the response that runs."""
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": '{"weeks": 6}'}
    socket.send(json.dumps({"type": "response.inject", "response_id": response_id, "input": [output]}))


def main(base_url: str = "http://127.0.0.1:9000/v1", model: str = "sim-slow-0.02") -> None:
    """Have two agents work, and answer the first call as soon as it comes."""
    create: dict[str, Any] = {"type": "response.create", "model": model, "input": PROMPT, "tools": [TOOL]}
    create["multi_agent"] = {"enabled": True}
    url = base_url.replace("http", "ws", 1) + "/responses"
    with connect(url, additional_headers=HEADERS, max_size=None) as socket:
        socket.send(json.dumps(create))
        for frame in socket:
            event = json.loads(frame)
            agent = event.get("agent", {}).get("agent_name", "")
            print(f"{event['sequence_number']:4} {event['type']:34} {agent:12} {event.get('delta', '')}")
            if event["type"] in ("error", "response.failed"):
                sys.exit(f"failed: {event}")
            if event["type"] == "response.created":
                response_id = event["response"]["id"]
            if event["type"] == "response.output_item.done" and event["item"]["type"] == "function_call":
                send_output(socket, response_id, event["item"])
            if event["type"] == "response.inject.failed":
                # It came too late: the outputs go into a create that continues the response.
                follow = {"previous_response_id": response_id, "input": event["input"]}
                socket.send(json.dumps({**create, **follow}))
            if event["type"] == "response.completed" and text_of(event["response"]):
                print(f"\n{text_of(event['response'])}")
                return


def text_of(response: dict[str, Any]) -> str:
    """Return what the first agent said in the end."""
    return "".join(
        part["text"]
        for item in response["output"]
        if item["type"] == "message" and item["agent"]["agent_name"] == "/root" and item["phase"] == "final_answer"
        for part in item["content"]
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
