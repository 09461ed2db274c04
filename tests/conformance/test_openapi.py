"""A generator of requests follows the gateway's own document: whatever it sends, the answers are as described.

It tries every route with what the document allows and with what it forbids, and follows its links. The ordinary run
takes a few examples of each, always the same; `make conformance` sets `EVERY_CUT=1`, which takes many.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance import capture as captures
from conformance.description import description
from harness.client import RESPONSES, client
from harness.processes import Gateway, clean_environment
from harness.upstream import Reply, Request, Upstream

from gateway.protocol.requests import OPERATORS_FIELDS

FEW, MANY = 25, 200
EXAMPLES = MANY if os.environ.get("EVERY_CUT") == "1" else FEW
SEED = 20260424
SECONDS = 500
# That a request is described does not make it served: what it names must exist too, and no document can say that.
LEFT_OUT = "positive_data_acceptance"
# Else most requests would end at a field that is its operator's to allow.
SETTINGS = {"upstream.allow_fields": json.dumps(sorted(OPERATORS_FIELDS)), "upstream.remote_images": "forward"}

pytestmark = [pytest.mark.timeout(SECONDS + 50)]


async def answer(request: Request, reply: Reply) -> None:
    """Answer every model as a real engine did."""
    name = "vllm-0.32.0/reasoning_stream" if request.body.get("stream") else "vllm-0.32.0/text_nonstream"
    raw = captures.load(name).raw
    await (reply.stream(raw) if request.body.get("stream") else reply.whole(raw))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Upstream() as upstream:
        upstream.otherwise(answer)
        with Gateway(tmp_path_factory.mktemp("openapi"), upstream.url, SETTINGS) as running:
            yield running


def get(gateway: Gateway, path: str) -> Any:
    with client(gateway.port) as caller:
        return caller.get(path)


def steer(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with what the generator cannot know, and would often get wrong, taken out.

    That is names of things that must exist, and the choice of a tool. And OpenAPI 3.1 leaves open what the schema of an
    event stream is about: clients take it for the JSON in the events, the generator for the events themselves, of which
    that JSON is the data.
    """
    schemas = document["components"]["schemas"]
    schemas["CreateRequest"]["properties"]["previous_response_id"] = {"type": "null"}
    schemas["CreateRequest"]["anyOf"] = schemas["CreateRequest"]["anyOf"][:1]
    schemas["ToolChoice"] = {"enum": ["none", "auto"]}
    paths = document["paths"]
    streamed = paths[RESPONSES]["post"], paths[RESPONSES + "/{response_id}"]["get"]
    payload = {"contentMediaType": "application/json", "contentSchema": {"$ref": "#/components/schemas/StreamEvent"}}
    names = {"enum": list(schemas["StreamEvent"]["discriminator"]["mapping"])}
    event = {"required": ["event"], "properties": {"event": names, "data": {"type": "string", **payload}}}
    end = {"properties": {"event": False, "data": {"const": "[DONE]"}}}
    for operation in streamed:
        media = operation["responses"]["200"]["content"]["text/event-stream"]
        media["schema"] = {"if": end, "else": event, "type": "object", "required": ["data"]}
    return document


def generate(
    gateway: Gateway, document: Path, folder: Path, examples: int, *chosen: str
) -> subprocess.CompletedProcess[str]:
    program = [str(Path(sys.executable).with_name("schemathesis")), "run", str(document), "--url", gateway.url]
    options = [f"--max-examples={examples}", f"--seed={SEED}", f"--exclude-checks={LEFT_OUT}", "--continue-on-failure"]
    return subprocess.run(
        [*program, *options, *chosen, "--no-color"],
        cwd=folder,
        env={name: value for name, value in clean_environment().items() if not name.startswith("COVERAGE_")},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def test_every_answer_is_as_described(gateway: Gateway, tmp_path: Path) -> None:
    described = steer(get(gateway, "/openapi.json").json)
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(described))
    run = generate(gateway, document, tmp_path, EXAMPLES)
    assert run.returncode == 0, run.stdout + run.stderr
    operations = sum(map(len, described["paths"].values()))
    assert re.search(rf"Operations: +{operations} selected / {operations} total", run.stdout), run.stdout
    assert "unexpected error" not in gateway.log
    assert gateway.rows() > 0, "no response was made"


def test_a_wrong_description_is_noticed(gateway: Gateway, tmp_path: Path) -> None:
    """The generator's own trial: it must fail where the document lies about one event."""
    lying = steer(get(gateway, "/openapi.json").json)
    lying["components"]["schemas"]["OutputTextDelta"]["properties"]["delta"] = {"type": "integer"}
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(lying))
    run = generate(
        gateway, document, tmp_path, FEW, f"--include-path={RESPONSES}", "--include-method=POST", "--max-failures=1"
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert "SSE event violates schema" in run.stdout


@pytest.mark.parametrize("method", ["PUT", "PATCH", "TRACE", "HEAD", "PROPFIND"])
def test_other_methods_are_answered_with_those_there_are(gateway: Gateway, method: str) -> None:
    document = get(gateway, "/openapi.json").json
    for path, described in document["paths"].items():
        with client(gateway.port) as caller:
            answer = caller.call(method, path.replace("{response_id}", "resp_1").replace("{model_id}", "m"))
        assert answer.status == 405, path
        assert {name.upper() for name in described} <= set(answer.headers["allow"].split(", ")), path
        if method != "HEAD":
            assert description().check("ErrorEnvelope", answer.json) == []


def test_what_is_stored_is_listed_and_deleted_as_described(gateway: Gateway) -> None:
    item = {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    with client(gateway.port) as caller:
        made = caller.create({"model": "m", "input": [item, item]}).json
        one = f"{RESPONSES}/{made['id']}"
        assert description().check("Response", caller.get(one).json) == []
        page = caller.get(f"{one}/input_items?limit=1").json
        assert (description().check("ItemList", page), page["has_more"]) == ([], True)
        assert description().check("DeletedResponse", caller.call("DELETE", one).json) == []
        assert description().check("ErrorEnvelope", caller.get(one).json) == []


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/models", "ModelList"),
        ("/v1/models/scripted", "Model"),
        ("/livez", "Live"),
        ("/readyz", "Verdict"),
        ("/readyz?verbose", "Report"),
        ("/version", "Version"),
        ("/v1/responses", "ErrorEnvelope"),
        ("/nothing", "ErrorEnvelope"),
    ],
)
def test_other_answers_are_as_described(gateway: Gateway, path: str, name: str) -> None:
    assert description().check(name, get(gateway, path).json) == []
