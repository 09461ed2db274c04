"""Background responses against processes: polled, streamed, cancelled, and taken over when their process dies."""

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from conformance.verdict import judge_stream
from harness.client import RESPONSES, Answer, client
from harness.upstream import Upstream
from integration.databases import DatabaseGateway
from integration.paced import FIRST, SECOND, Paced
from postgres import PostgresServer

pytestmark = pytest.mark.postgres
SETTINGS = {
    "storage.lease_seconds": "2",
    "background.heartbeat_seconds": "0.1",
    "background.poll_interval_seconds": "0.05",
    "server.drain_seconds": "0.2",
    "server.close_grace_seconds": "1",
}
LONG = 20.0
Json = dict[str, Any]


class Site:
    """Gateways on one database, in front of one paced server."""

    def __init__(self, database: str, folders: pytest.TempPathFactory, running: ExitStack) -> None:
        self.paced = Paced()
        self._upstream = running.enter_context(Upstream())
        self._upstream.otherwise(self.paced)
        self._database = database
        self._folders = folders
        self._running = running

    @property
    def upstream(self) -> Upstream:
        return self._upstream

    def start(self) -> DatabaseGateway:
        folder = self._folders.mktemp("background")
        gateway = DatabaseGateway(folder, self._upstream.url, self._database, SETTINGS)
        return self._running.enter_context(gateway)


@pytest.fixture(scope="module")
def site(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as running:
        yield Site(postgres_server.create_database(), tmp_path_factory, running)


@pytest.fixture(scope="module")
def one(site: Site) -> DatabaseGateway:
    return site.start()


@pytest.fixture(scope="module")
def other(site: Site, one: DatabaseGateway) -> DatabaseGateway:
    return site.start()


@pytest.fixture(autouse=True)
def paused(site: Site) -> Iterator[None]:
    site.paced.go_on.clear()
    yield
    site.paced.go_on.set()


def create(gateway: DatabaseGateway, model: str, **fields: Any) -> Answer:
    with client(gateway.port) as caller:
        return caller.create({"model": model, "input": "hi", "background": True, **fields})


def read(gateway: DatabaseGateway, response_id: str, query: str = "") -> Answer:
    with client(gateway.port) as caller:
        return caller.get(f"{RESPONSES}/{response_id}{query}")


def cancel(gateway: DatabaseGateway, response_id: str) -> Answer:
    with client(gateway.port) as caller:
        return caller.call("POST", f"{RESPONSES}/{response_id}/cancel")


def await_status(gateway: DatabaseGateway, response_id: str, *wanted: str) -> Json:
    deadline = time.monotonic() + LONG
    while (found := read(gateway, response_id).json)["status"] not in wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


def begin_stream(gateway: DatabaseGateway, model: str) -> str:
    """Create a streamed response, read until there is output, and leave; returns its id."""
    with client(gateway.port) as caller:
        body = json.dumps({"model": model, "input": "hi", "background": True, "stream": True}).encode()
        connection = caller._connection
        connection.request("POST", RESPONSES, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        lines = iter(answer.readline, b"")
        first = next(json.loads(line[6:]) for line in lines if line.startswith(b"data:"))
        assert any(b"output_text.delta" in line for line in lines)
    return first["response"]["id"]


class Reading(threading.Thread):
    """Reads a stream to its end beside the test."""

    def __init__(self, gateway: DatabaseGateway, response_id: str, after: int) -> None:
        super().__init__(daemon=True)
        self._ask = gateway, response_id, f"?stream=true&starting_after={after}"
        self.start()

    @property
    def answer(self) -> Answer:
        self.join(LONG)
        assert not self.is_alive()
        return self._answer

    def run(self) -> None:
        self._answer = read(*self._ask)


def text_of(response: Json) -> str:
    return "".join(part["text"] for item in response["output"] for part in item["content"])


def numbers(answer: Answer) -> list[int]:
    return [event["sequence_number"] for event in answer.events]


@pytest.mark.checklist(501, 502, 516)
def test_it_is_queued_at_once_and_made_without_its_caller(site: Site, one: DatabaseGateway, other: DatabaseGateway):
    answer = create(one, "held")
    made = answer.json
    assert (answer.status, made["status"], made["background"], made["output"]) == (200, "queued", True, [])
    # What was answered is durable: another gateway knows it.
    assert read(other, made["id"]).json["created_at"] == made["created_at"]
    assert await_status(other, made["id"], "in_progress")["output"] == []
    with client(other.port) as caller:
        early = caller.create({"model": "m", "input": "on", "previous_response_id": made["id"]})
    assert (early.status, early.error["code"], early.error["param"]) == (
        400, "previous_response_in_progress", "previous_response_id",
    )  # fmt: skip
    site.paced.go_on.set()
    done = await_status(other, made["id"], "completed")
    assert (text_of(done), done["usage"]["total_tokens"]) == (FIRST + SECOND, 12)
    assert done["completed_at"] >= done["created_at"]
    with client(other.port) as caller:
        assert caller.create({"model": "m", "input": "on", "previous_response_id": made["id"]}).status == 200
        assert len(caller.get(f"{RESPONSES}/{made['id']}/input_items").json["data"]) == 1


@pytest.mark.checklist(504, 505, 506)
def test_a_stream_is_left_and_read_on_from_any_replica(site: Site, one: DatabaseGateway, other: DatabaseGateway):
    made = begin_stream(one, "half")
    readings = [Reading(gateway, made, after) for gateway in (one, other) for after in (0, 3)]
    site.paced.go_on.set()
    answers = [reading.answer for reading in readings]
    whole = read(other, made, "?stream=true")
    assert judge_stream(whole.body) == []
    assert numbers(whole) == list(range(len(whole.events)))
    assert [event["type"] for event in whole.events[:3]] == [
        "response.created", "response.queued", "response.in_progress",
    ]  # fmt: skip
    for answer, after in zip(answers, (0, 3, 0, 3), strict=True):
        assert answer.events == whole.events[after + 1 :]
        assert answer.body.endswith(b"data: [DONE]\n\n")
    assert whole.final == read(one, made).json
    assert whole.deltas() == FIRST + SECOND
    # Behind the last event there is nothing but the end.
    assert read(one, made, f"?stream=true&starting_after={whole.events[-1]['sequence_number']}").events == []


@pytest.mark.checklist(503, 507, 512)
def test_what_has_no_events_or_no_background_is_refused(one: DatabaseGateway):
    plain = create(one, "m").json["id"]
    await_status(one, plain, "completed")
    refused = read(one, plain, "?stream=true")
    assert (refused.status, refused.error["param"]) == (400, "stream")
    with client(one.port) as caller:
        foreground = caller.create({"model": "m", "input": "hi"}).json["id"]
    assert read(one, foreground, "?stream=true").status == 400
    assert read(one, "resp_none", "?stream=true").status == 404
    assert read(one, plain, "?stream=true&starting_after=x").error["param"] == "starting_after"
    answer = cancel(one, foreground)
    assert (answer.status, answer.error["message"]) == (400, "Cannot cancel a synchronous response.")
    assert cancel(one, "resp_none").error["code"] == "response_not_found"
    unstored = create(one, "m", store=False)
    assert (unstored.status, unstored.error["param"]) == (400, "store")


@pytest.mark.checklist(509, 510)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "on another replica"])
def test_a_cancel_ends_the_inference_and_keeps_what_there_is(
    site: Site, one: DatabaseGateway, other: DatabaseGateway, elsewhere: bool
):
    made = begin_stream(one, "half")
    inference = site.upstream.requests[-1]
    reading = Reading(other, made, 2)
    asked = other if elsewhere else one
    answer = cancel(asked, made)
    assert (answer.status, answer.json["status"], text_of(answer.json)) == (200, "cancelled", FIRST)
    assert inference.left.wait(LONG)
    assert cancel(one, made).json == cancel(other, made).json == read(other, made).json == answer.json
    told = reading.answer
    assert (told.events[-1]["type"], told.final) == ("response.incomplete", answer.json)
    assert told.body.endswith(b"data: [DONE]\n\n")
    assert numbers(told) == list(range(3, 3 + len(told.events)))


@pytest.mark.checklist(511)
def test_a_cancel_at_the_end_is_one_thing_or_the_other_for_everybody(site: Site, one: DatabaseGateway):
    site.paced.go_on.set()
    seen = set()
    for pause in (0.0, 0.002, 0.004, 0.006, 0.008, 0.012, 0.02):
        made = create(one, "m", stream=False).json["id"]
        time.sleep(pause)
        told = cancel(one, made).json
        assert told == read(one, made).json == cancel(one, made).json
        seen.add(told["status"])
    assert seen <= {"completed", "cancelled"}


@pytest.mark.checklist(521)
def test_it_holds_its_conversation_until_it_ends(site: Site, one: DatabaseGateway, other: DatabaseGateway):
    with client(other.port) as caller:
        talk = caller.call("POST", "/v1/conversations", b"{}").json["id"]

        def items() -> list[str]:
            return [item["role"] for item in caller.get(f"/v1/conversations/{talk}/items?order=asc").json["data"]]

        made = create(one, "held", conversation=talk).json
        assert made["conversation"] == {"id": talk}
        locked = caller.create({"model": "m", "input": "hi", "conversation": talk})
        assert (locked.status, locked.error["code"]) == (400, "conversation_locked")
        assert cancel(other, made["id"]).json["status"] == "cancelled"
        assert items() == []
        made = create(one, "held", conversation=talk).json
        site.paced.go_on.set()
        await_status(other, made["id"], "completed")
        assert items() == ["user", "assistant"]
        assert caller.create({"model": "m", "input": "on", "conversation": talk}).status == 200
        assert items() == ["user", "assistant"] * 2


@pytest.mark.checklist(517)
def test_a_delete_ends_the_inference(site: Site, one: DatabaseGateway, other: DatabaseGateway):
    made = begin_stream(one, "half")
    inference = site.upstream.requests[-1]
    with client(other.port) as caller:
        assert caller.call("DELETE", f"{RESPONSES}/{made}").json["deleted"]
    assert inference.left.wait(LONG)
    assert read(one, made).status == read(other, made).status == 404


@pytest.mark.checklist(515)
def test_a_replica_that_stops_hands_over_what_it_has_told_nothing_of(site: Site, other: DatabaseGateway):
    leaving = site.start()
    untold = create(leaving, "held-stop").json["id"]
    await_status(leaving, untold, "in_progress")
    told = begin_stream(leaving, "half")
    leaving.signal(signal.SIGTERM)
    assert leaving.wait() == 0
    failed = read(other, told).json
    assert (failed["status"], failed["error"]["code"], text_of(failed)) == ("failed", "server_is_overloaded", FIRST)
    site.paced.go_on.set()
    assert text_of(await_status(other, untold, "completed")) == FIRST + SECOND


@pytest.mark.full
@pytest.mark.checklist(519)
def test_the_librarys_polling_and_reading_on(site: Site, one: DatabaseGateway):
    from openai import OpenAI

    library = OpenAI(base_url=f"{one.url}/v1", api_key="unused", max_retries=0)
    response = library.responses.create(model="half", input="hi", background=True)
    assert response.status == "queued"
    last = -1
    with library.responses.create(model="half", input="hi", background=True, stream=True) as stream:
        for event in stream:
            last = event.sequence_number
            if event.type == "response.output_text.delta":
                streamed = event
                break
    assert streamed.delta == FIRST
    site.paced.go_on.set()
    while response.status in {"queued", "in_progress"}:
        time.sleep(0.02)
        response = library.responses.retrieve(response.id)
    assert (response.status, response.output_text) == ("completed", FIRST + SECOND)
    listed = [row[0] for row in one.query("SELECT response_id FROM background_runs ORDER BY response_id DESC LIMIT 1")]
    rest = list(library.responses.retrieve(listed[0], stream=True, starting_after=last))
    assert [event.sequence_number for event in rest] == list(range(last + 1, last + 1 + len(rest)))
    assert (rest[-1].type, rest[-1].response.output_text) == ("response.completed", FIRST + SECOND)
    assert library.responses.cancel(response.id).status == "completed"


@pytest.mark.checklist(513, 514)
def test_a_killed_replica_leaves_nothing_unfinished(site: Site, one: DatabaseGateway, other: DatabaseGateway):
    """The last one that `one` serves."""
    untold = create(one, "held-kill").json["id"]
    await_status(one, untold, "in_progress")
    told = begin_stream(one, "half")
    reading = Reading(other, told, 0)
    asked = create(one, "held-cancel").json["id"]
    with client(other.port) as caller:
        talk = caller.call("POST", "/v1/conversations", b"{}").json["id"]
    spoken = create(one, "held-talk", conversation=talk).json["id"]
    one.kill()
    other.change(f"UPDATE background_runs SET cancel_requested_at = 1 WHERE response_id = '{asked}'")
    failed = await_status(other, told, "failed")
    assert failed["error"]["code"] == "server_error"
    assert (reading.answer.events[-1]["type"], reading.answer.final) == ("response.failed", failed)
    assert numbers(reading.answer) == list(range(1, 1 + len(reading.answer.events)))
    assert await_status(other, asked, "cancelled")["output"] == []
    site.paced.go_on.set()
    done = await_status(other, untold, "completed")
    assert (text_of(done), done["id"], site.paced.calls["held-kill"]) == (FIRST + SECOND, untold, 2)
    assert await_status(other, spoken, "completed")["conversation"] == {"id": talk}
    with client(other.port) as caller:
        assert len(caller.get(f"/v1/conversations/{talk}/items").json["data"]) == 2
