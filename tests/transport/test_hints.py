"""Hints for those who got the base URL wrong, or want what only the inference server has."""

import httpx
import pytest

from gateway.app import Gateway, build_parts
from gateway.config.schema import GatewayConfig
from gateway.storage.memory import MemoryStore
from gateway.transport.hints import find_hint

ROUTES = [["v1", "responses"], ["health"]]
UNDER = "The same path exists under /v1: the base URL must end in /v1."
ENGINES = "If the inference server has it, the operator can list it in upstream.passthrough."
ABOVE = "The same path exists without the leading /v1: leave it out."


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/responses", UNDER),
        ("/responses/", UNDER),
        ("/responses/resp_1", UNDER),
        ("/responses/resp_1/input_items", UNDER),
        ("/models", UNDER),
        ("/models/org/name", UNDER),
        ("/v1/v1/responses", ABOVE),
        ("/v1/health", ABOVE),
        ("/v1/openapi.json", ABOVE),
        ("/responses/resp_1/nothing", ""),
        ("/v1/chat/completions", ENGINES),
        ("/v1/embeddings", ENGINES),
        ("/v1/responses/resp_1/nothing", ""),
        ("/v1", ""),
        ("/v1/", ""),
        ("/", ""),
        ("/v1responses", ""),
    ],
)
async def test_an_unknown_path_is_answered_with_the_way_to_the_right_one(path: str, hint: str) -> None:
    gateway = Gateway(build_parts(GatewayConfig(), store=MemoryStore()))
    transport = httpx.ASGITransport(app=gateway.public)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get(path)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (404, "route_not_found")
    assert error["message"] == f"There is no such route. {hint}".strip()


def test_only_whole_paths_count() -> None:
    assert find_hint("/responses", ROUTES) != ""
    assert find_hint("/responses/x", ROUTES) == ""
    assert find_hint("/respons", ROUTES) == ""
