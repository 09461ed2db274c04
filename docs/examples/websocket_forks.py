"""Continue one response in two ways at the same time, on one WebSocket.

    python websocket_forks.py [http://127.0.0.1:9000/v1 [MODEL]]

Needs only the package `websockets`. Without arguments it talks to the gateway of `make demo`.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from websockets.sync.client import ClientConnection, connect

FORKS = {"left": "Say it to a child.", "right": "Say it to a mathematician."}


def send_create(socket: ClientConnection, **fields: Any) -> None:
    """Ask for a response; with `stream_id` on a lane of that name."""
    socket.send(json.dumps({"type": "response.create", **fields}))


def read_events(socket: ClientConnection) -> Iterator[dict[str, Any]]:
    """Yield what arrives, of all lanes."""
    for frame in socket:
        event = json.loads(frame)
        print(f"{event.get('stream_id', '-'):6} {event['type']:30} {event.get('delta', '')}")
        if event["type"] in ("error", "response.failed"):
            sys.exit(f"failed: {event}")
        yield event


def read_answers(socket: ClientConnection, count: int) -> dict[str | None, dict[str, Any]]:
    """Read until so many responses have ended, and return them by their lanes."""
    answers = {}
    for event in read_events(socket):
        if event["type"] in ("response.completed", "response.incomplete"):
            answers[event.get("stream_id")] = event["response"]
        if len(answers) == count:
            break
    return answers


def text_of(response: dict[str, Any]) -> str:
    """Return what the model said."""
    return "".join(part["text"] for item in response["output"] for part in item.get("content") or ())


def main(base_url: str = "http://127.0.0.1:9000/v1", model: str = "sim") -> None:
    """Make a parent, then two forks of it that arrive interleaved."""
    with connect(base_url.replace("http", "ws", 1) + "/responses", max_size=None) as socket:
        send_create(socket, model=model, input="There are infinitely many primes.")
        (parent,) = read_answers(socket, 1).values()
        for lane, words in FORKS.items():
            send_create(socket, stream_id=lane, model=model, input=words, previous_response_id=parent["id"])
        answers = read_answers(socket, len(FORKS))
    for lane in FORKS:
        print(f"\n{lane}: {text_of(answers[lane])}")


if __name__ == "__main__":
    main(*sys.argv[1:])
