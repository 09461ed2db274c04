"""Say something while an answer is being made, and see the next response begin with it.

    python websocket_steer.py [http://127.0.0.1:9000/v1 [MODEL]]

Needs only the package `websockets`. Without arguments it talks to the gateway of `make demo`.
"""

import json
import sys
from typing import Any

from websockets.sync.client import connect

FAILURES = ("error", "response.failed", "response.steer.failed")


def main(base_url: str = "http://127.0.0.1:9000/v1", model: str = "sim-slow-0.02") -> None:
    """Ask, interrupt at the first word, and read on until the successor has ended."""
    answers: list[dict[str, Any]] = []
    steered = False
    with connect(base_url.replace("http", "ws", 1) + "/responses", max_size=None) as socket:
        socket.send(json.dumps({"type": "response.create", "model": model, "input": "Tell me about cats."}))
        while len(answers) < 2:
            event = json.loads(socket.recv())
            print(f"{event['type']:30} {event.get('delta', '')}")
            if event["type"] in FAILURES:
                sys.exit(f"failed: {event}")
            if event["type"] == "response.created":
                running = event["response"]["id"]
            if event["type"] == "response.output_text.delta" and not steered:
                steered = True
                steer = {"type": "response.steer", "previous_response_id": running, "input": "No, about dogs."}
                socket.send(json.dumps(steer))
            if event["type"] in ("response.completed", "response.incomplete"):
                answers.append(event["response"])
    for response in answers:
        said = "".join(part["text"] for item in response["output"] for part in item.get("content") or ())
        print(f"\n{response['id']} continues {response['previous_response_id']}: {said}")


if __name__ == "__main__":
    main(*sys.argv[1:])
