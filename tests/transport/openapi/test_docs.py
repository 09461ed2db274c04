"""The document and the page as they are served."""

import re
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from html.parser import HTMLParser

import httpx
import pytest

from gateway.app import Gateway, build_parts
from gateway.config.schema import GatewayConfig, ServerConfig
from gateway.storage.memory import MemoryStore

PATHS = ["/openapi.json", "/docs"]
LOADING = {"src", "srcset", "data", "action", "background", "poster", "style"}
CLOSED_BY_THEMSELVES = {"meta"}


def serve(**server) -> httpx.AsyncClient:
    parts = build_parts(GatewayConfig(server=ServerConfig(**server)), store=MemoryStore())
    transport = httpx.ASGITransport(app=Gateway(parts).public)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with serve() as client:
        yield client


class Reader(HTMLParser):
    """Checks that elements are closed in order, and gathers what a page names and loads."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.elements: set[str] = set()
        self.loading: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.add(tag)
        if tag not in CLOSED_BY_THEMSELVES:
            self.open.append(tag)
        for name, value in attrs:
            self.ids += [value] if name == "id" else []
            self.links += [value] if name == "href" else []
            if name in LOADING or name.startswith("on"):
                self.loading.append((name, value))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize(
    ("path", "media"), [("/openapi.json", "application/json"), ("/docs", "text/html; charset=utf-8")]
)
async def test_both_are_served_with_a_tag_to_ask_again(client, path, media):
    answer = await client.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, media)
    assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-cache", "nosniff")
    tag = answer.headers["etag"]
    assert re.fullmatch(r'"[0-9a-f]{32}"', tag)
    for known in (tag, f'"other", W/{tag}'):
        again = await client.get(path, headers={"if-none-match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert (await client.get(path, headers={"if-none-match": '"other"'})).content == answer.content


async def test_the_document_is_what_programs_expect(client):
    document = (await client.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1.")


async def test_the_page_needs_nothing_but_itself(client):
    answer = await client.get("/docs")
    page = Reader(answer.text)
    assert page.open == []
    assert page.loading == []
    assert page.elements & {"script", "link", "img", "iframe", "object", "embed", "form", "base"} == set()
    assert {link for link in page.links if not link.startswith("#")} == {"/openapi.json"}
    assert "url(" not in answer.text
    assert "@import" not in answer.text
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in answer.text


async def test_the_policy_lets_the_pages_own_style_pass_and_nothing_else(client):
    answer = await client.get("/docs")
    (style,) = re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        "style-src": f"'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }


async def test_links_lead_to_what_is_on_the_page(client):
    page = Reader((await client.get("/docs")).text)
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    document = (await client.get("/openapi.json")).json()
    operations = {operation["operationId"] for methods in document["paths"].values() for operation in methods.values()}
    assert operations | {f"schema-{name}" for name in document["components"]["schemas"]} | {"schemas"} == set(page.ids)


@pytest.mark.parametrize("path", PATHS)
async def test_strangers_are_kept_out(client, path):
    for headers, code in (
        ({"host": "evil.example"}, "host_not_allowed"),
        ({"origin": "https://evil.example"}, "origin_not_allowed"),
    ):
        answer = await client.get(path, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, code)


@pytest.mark.parametrize("path", PATHS)
async def test_both_can_be_switched_off(path):
    async with serve(openapi=False) as client:
        answer = await client.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "route_not_found")


async def test_other_methods_are_refused(client):
    answer = await client.post("/docs")
    assert (answer.status_code, set(answer.headers["allow"].split(", "))) == (405, {"GET", "OPTIONS"})


def test_nothing_is_made_before_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Callable] = []
    monkeypatch.setattr(
        "gateway.transport.openapi.docs.build_document", lambda handlers, **_: asked.append(handlers) or {}
    )
    serve()
    assert asked == []
