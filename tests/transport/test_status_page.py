"""The status page, read as a browser reads it."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from msgspec import structs
from telemetry.status_samples import HOSTILE, make_status, spoil

from gateway.telemetry.status import Process
from gateway.transport.status_page import POLICY, render_status


class Page(HTMLParser):
    """Tags, links and text of a page; every tag must be closed where it was opened."""

    VOID = ("meta", "link")

    def __init__(self, html):
        super().__init__()
        self.tags, self.links, self.words, self.metas, self.handlers, self._open = set(), [], [], {}, [], []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        named = dict(attrs)
        self.links += [value for name, value in attrs if name in {"href", "src", "action", "data"}]
        self.handlers += [name for name in named if name.startswith("on") or name == "style"]
        if tag == "meta":
            self.metas[named.get("http-equiv") or named.get("name") or "charset"] = named.get("content")
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def read(status=None, refresh=0):
    return Page(render_status(status or make_status(), refresh=refresh))


def test_what_a_person_looks_for_is_there():
    text = read().text
    for words in (
        "Responses Gateway 0.1.0",
        "up 1 d 1 h",
        "process 7",
        "Inference server default",
        "well : ok",
        "sqlite:///responses.db",
        "responses in the making 3 of 100 · high 40",
        "responses.max_retained_bytes 131 745 B 15.9 KiB 1016 KiB 1 MiB 99 % 2",
        "first token 61 35.2 ms",
        "sse completed 1 200",
        "server.max_concurrent_requests 17",
        "qwen-0.6b 120 000 90 000 4 321 0",
        "2027-01-16 09:00:00 sse 502 response_resource_limit_exceeded req_0123456789abcdef0123456789abcdef",
    ):
        assert words in text, (words, text)


def test_no_text_becomes_markup():
    plain, spoiled = read(), read(spoil(structs.replace(make_status(), upstreams=())))
    assert spoiled.tags <= plain.tags
    assert spoiled.handlers == []
    assert HOSTILE in " ".join(spoiled.words)
    with_server = make_status()
    server = structs.replace(with_server.upstreams[0], name=HOSTILE, url=HOSTILE, detail=HOSTILE, dialect=HOSTILE)
    assert read(structs.replace(with_server, upstreams=(server,))).tags <= plain.tags


def test_nothing_comes_from_elsewhere_and_nothing_runs():
    page = read(refresh=5)
    assert {link for link in page.links if not link.startswith("?")} == {
        "data:,",
        "/status.json",
        "/metrics",
        "/config",
    }
    assert "script" not in page.tags
    assert page.handlers == []


def test_the_policy_allows_the_style_of_the_page_and_nothing_else():
    style = re.search("<style>(.*?)</style>", render_status(make_status(), refresh=0), re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in POLICY
    assert "default-src 'none'" in POLICY
    assert "unsafe" not in POLICY
    assert "url(" not in style


@pytest.mark.parametrize(("refresh", "content", "way_out"), [(0, None, "?refresh=5"), (30, "30", "?refresh=0")])
def test_a_browser_asks_again_until_it_is_told_not_to(refresh, content, way_out):
    page = read(refresh=refresh)
    assert page.metas.get("refresh") == content
    assert way_out in page.links


def test_troubles_stand_at_the_top():
    html = render_status(structs.replace(make_status(), draining=True), refresh=0)
    assert html.index("The gateway is shutting down.") < html.index("Inference server default")
    assert 'role="alert"' not in render_status(make_status(), refresh=0)


def test_a_gateway_that_has_done_nothing_has_a_page_too():
    fresh = structs.replace(make_status(), responses=(), last_errors=(), limits=(), upstreams=())
    assert "none yet" in read(fresh).text


def test_several_processes_are_counted():
    processes = tuple(Process(pid=pid, started=1, responses=0) for pid in (7, 8))
    assert "2 processes: 7, 8" in read(structs.replace(make_status(), processes=processes)).text
