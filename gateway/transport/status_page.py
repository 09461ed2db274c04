"""The status as one HTML page: no script, no other file, readable on a phone and in the dark."""

import hashlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import Final

from msgspec import structs

from gateway.telemetry.digest import (
    UseRow,
    find_troubles,
    list_agents,
    list_background,
    list_calls,
    list_clients,
    list_lanes,
    list_latencies,
    list_tools,
    list_writes,
    show_distribution,
)
from gateway.telemetry.distribution import Distribution
from gateway.telemetry.principals import PrincipalTokens
from gateway.telemetry.quantities import NOTHING, show_bytes, show_count, show_seconds, show_share, show_span, show_time
from gateway.telemetry.status import LastError, LimitUse, Outcome, Rejection, Status, StorageStatus, Tokens
from gateway.transport.charts import draw_buckets, draw_level

STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --muted: #666; --link: #0b62c4;
  --fill: #2f7ed8; --mark: #c4690b; --bad: #c22; --good: #178038; }
@media (prefers-color-scheme: dark) { :root { --muted: #aaa; --link: #7db7ff; --fill: #5aa0f0; --mark: #f0a850;
  --bad: #ff7b72; --good: #5cc98a; } }
* { box-sizing: border-box; }
body { font: 15px/1.45 system-ui, sans-serif; overflow-wrap: anywhere;
  max-width: 76rem; margin: 0 auto; padding: 0 1rem 3rem; }
a { color: var(--link); }
h1 { font-size: 1.4rem; margin: 1rem 0 .2rem; }
h2 { font-size: 1.05rem; margin: 0 0 .5rem; }
p { margin: .2rem 0; }
.muted, th, dt { color: var(--muted); }
.good { color: var(--good); } .bad { color: var(--bad); }
.troubles { border: 1px solid var(--bad); border-left-width: .4rem; border-radius: .3rem; margin: 1rem 0; }
.troubles ul { margin: .5rem; padding-left: 1.2rem; }
.cards { display: grid; gap: 1rem; margin-top: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(21rem, 100%), 1fr)); }
section { border: 1px solid var(--line); border-radius: .4rem; padding: .8rem; margin: 1rem 0 0; min-width: 0; }
.cards section { margin: 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { font-weight: normal; text-align: right; vertical-align: bottom; white-space: nowrap; padding-left: .8rem; }
td { text-align: right; border-top: 1px solid var(--line); padding: .25rem 0 .25rem .8rem; }
th:first-child, td:first-child, .texts td, .texts th { text-align: left; }
th:first-child, td:first-child { padding-left: 0; }
.chart { width: 22%; }
svg { display: block; width: 100%; }
.level { margin-top: .5rem; } .level svg { height: .45rem; margin-top: .15rem; }
.level p { display: flex; flex-wrap: wrap; justify-content: space-between; column-gap: 1rem; }
.level p > span { white-space: nowrap; } .level p > :last-child { margin-left: auto; }
.chart svg { height: 2rem; }
.track { fill: var(--line); } .fill { fill: var(--fill); } .over { fill: var(--bad); } .mark { fill: var(--mark); }
dl { display: grid; grid-template-columns: auto 1fr; gap: .1rem .8rem; margin: 0; } dd { margin: 0; }
code { font: .92em ui-monospace, monospace; } .numbers td + td { overflow-wrap: normal; }
.texts code { font-size: .8em; } .numbers th:last-child { text-align: left; }
@media (min-width: 60rem) { .texts td:first-child, .texts td:nth-child(2) { white-space: nowrap; } }
@media (max-width: 50rem) {
  .numbers thead, .texts thead { display: none; }
  .numbers tr, .texts tr { display: grid; gap: .1rem .8rem; border-top: 1px solid var(--line); padding: .5rem 0; }
  .numbers tr { grid-template-columns: repeat(4, 1fr); }
  .numbers td, .texts td { border: 0; padding: 0; text-align: left; }
  .numbers td:first-child, .numbers .chart { grid-column: 1 / -1; width: auto; }
  .numbers td[data-name]::before { content: attr(data-name); display: block; font-size: .85em; color: var(--muted); }
  .texts tr { grid-template-columns: auto 1fr; }
  .texts td { grid-column: 1 / -1; }
  .texts td[data-name]::before { content: attr(data-name) ": "; color: var(--muted); }
}
""".strip()

POLICY: Final = (
    "default-src 'none'; img-src data:; "
    f"style-src 'sha256-{b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy of the page: its own style and nothing else."""


def render_status(status: Status, *, refresh: int) -> str:
    """Return the page.

    Args:
        status: what it shows.
        refresh: seconds after which a browser asks again; 0 never does.
    """
    again = f'<meta http-equiv="refresh" content="{refresh}">' if refresh else ""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'{again}<link rel="icon" href="data:,">',
            f"<title>Responses Gateway: status</title><style>{STYLE}</style></head><body>",
            *_head(status, refresh),
            "<main>",
            *_troubles(status),
            '<div class="cards">',
            *_upstreams(status),
            _storage(status.storage),
            _card("Clients", _levels(list_clients(status.clients))),
            _card("WebSockets", _levels(list_lanes(status.lanes))),
            _card("Background", _levels(list_background(status.background))),
            _card("Tools", _levels(list_tools(status.tools))),
            _card("Agents", _levels(list_agents(status.agents))),
            _outcomes(status.responses),
            _rejections(status.rejections),
            "</div>",
            _latencies(status),
            _limits(status.limits),
            _tokens(status.tokens),
            _principals(status.principals),
            _last_errors(status.last_errors),
            "</main></body></html>\n",
        ]
    )


def _head(status: Status, refresh: int) -> Iterator[str]:
    pause = '<a href="?refresh=0">stop that</a>' if refresh else '<a href="?refresh=5">every 5 seconds</a>'
    asked = f"asked again every {refresh} s, {pause}" if refresh else f"ask again {pause}"
    yield f"<header><h1>Responses Gateway {escape(status.version)}</h1>"
    yield f"<p>up {show_span(status.uptime)}, since {show_time(status.started)} UTC · Python {escape(status.python)} · "
    yield f"auth <code>{escape(status.auth)}</code> · {_processes(status)}</p>"
    yield f'<p class="muted">as of {show_time(status.time)} UTC, {asked} · for programs: '
    yield '<a href="/status.json">status.json</a>, <a href="/metrics">metrics</a>, <a href="/config">config</a></p>'
    yield "</header>"


def _processes(status: Status) -> str:
    pids = ", ".join(str(process.pid) for process in status.processes)
    return f"process {pids}" if len(status.processes) == 1 else f"{len(status.processes)} processes: {pids}"


def _troubles(status: Status) -> Iterator[str]:
    troubles = [f"<li>{escape(trouble)}</li>" for trouble in find_troubles(status)]
    if troubles:
        yield f'<div class="troubles" role="alert"><ul>{"".join(troubles)}</ul></div>'


def _upstreams(status: Status) -> Iterator[str]:
    for server in status.upstreams:
        checked = f"{show_span(status.time - server.checked_at)} ago" if server.checked_at else "not yet"
        closed = server.breaker == "closed"
        facts = _terms(
            ("state", _verdict(server.healthy, server.detail)),
            ("asked", checked),
            ("URL", f"<code>{escape(server.url)}</code>"),
            ("dialect", escape(server.dialect)),
            ("circuit breaker", _colour(server.breaker.replace("_", "-"), good=closed)),
        )
        yield _card(f"Inference server {escape(server.name)}", facts + _levels(list_calls(server)))


def _storage(storage: StorageStatus) -> str:
    facts = _terms(
        ("state", _verdict(storage.healthy, storage.detail)),
        ("database", f"<code>{escape(storage.database)}</code>"),
        ("not stored", _colour(show_count(storage.failures), good=not storage.failures)),
    )
    return _card("Storage", facts + _levels(list_writes(storage)))


def _levels(rows: Iterable[UseRow]) -> str:
    """Return each level in words, above a bar."""
    levels = []
    for row in rows:
        use, show = row.use, row.show
        bound = show(use.now) if use.limit is None else f"{show(use.now)} of {show(use.limit)}"
        words = f'{bound} <span class="muted">· high {show(use.high)}</span>'
        chart = draw_level(use, f"{row.name}: {bound}, at most {show(use.high)} so far")
        levels.append(f'<div class="level"><p><span>{escape(row.name)}</span><span>{words}</span></p>{chart}</div>')
    return "".join(levels)


def _outcomes(outcomes: Iterable[Outcome]) -> str:
    rows = [(escape(one.transport), escape(one.status), show_count(one.count)) for one in outcomes]
    return _card("Responses", _table(("transport", "ended as", "responses"), rows))


def _rejections(rejections: Iterable[Rejection]) -> str:
    rows = [(f"<code>{escape(one.key)}</code>", show_count(one.count)) for one in rejections]
    return _card("Refused because of", _table(("", "times"), rows))


def _tokens(tokens: Iterable[Tokens]) -> str:
    rows = [(escape(one.model), *map(show_count, structs.astuple(one)[1:])) for one in tokens]
    return _card("Tokens", _table(("", "input", "cached", "output", "reasoning"), rows, kind="numbers"))


def _principals(principals: Iterable[PrincipalTokens]) -> str:
    rows = [(escape(one.principal), *map(show_count, structs.astuple(one)[1:])) for one in principals]
    head = ("", "responses", "input", "cached", "output", "reasoning")
    return _card("Tokens of principals", _table(head, rows, kind="numbers"))


def _latencies(status: Status) -> str:
    rows = [(name, *show_distribution(seen), _chart(seen, None, show_seconds)) for name, seen in list_latencies(status)]
    return _card("Times", _table(("", "count", "p50", "p99", "longest", "chart"), rows, kind="numbers"))


def _limits(limits: Iterable[LimitUse]) -> str:
    rows = [
        (
            f"<code>{escape(one.key)}</code>",
            *show_distribution(one.seen, show_bytes),
            show_bytes(one.limit),
            NOTHING if one.seen.max is None else escape(show_share(one.seen.max, one.limit)),
            _colour(show_count(one.breaches), good=not one.breaches),
            _chart(one.seen, one.limit, show_bytes),
        )
        for one in limits
    ]
    head = ("", "count", "p50", "p99", "largest", "limit", "used", "breaches", "chart")
    return _card("Limits", _table(head, rows, kind="numbers"))


def _last_errors(errors: Iterable[LastError]) -> str:
    rows = [
        (
            show_time(one.time),
            escape(one.route),
            str(one.status),
            f"<code>{escape(one.code)}</code>",
            f"<code>{escape(one.request_id) or NOTHING}</code>",
            f"<code>{escape(one.response_id or NOTHING)}</code>",
        )
        for one in errors
    ]
    head = ("time (UTC)", "where", "status", "code", "request", "response")
    return _card("Last errors", _table(head, rows, kind="texts"))


def _chart(seen: Distribution, limit: float | None, show: Callable[[float], str]) -> str:
    return draw_buckets(seen, limit, show) if seen.count else ""


def _card(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>{content}</section>"


def _verdict(healthy: bool, detail: str) -> str:
    return f"{_colour('well' if healthy else 'not well', good=healthy)}: {escape(detail)}"


def _colour(word: str, *, good: bool) -> str:
    return f'<span class="{"good" if good else "bad"}">{word}</span>'


def _terms(*terms: tuple[str, str]) -> str:
    return f"<dl>{''.join(f'<dt>{name}</dt><dd>{value}</dd>' for name, value in terms)}</dl>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    """Return a table of cells that are HTML; where the screen is narrow, its kind says what becomes of a row."""
    if not rows:
        return "<p>none yet</p>"
    names = "".join(f'<th scope="col">{name}</th>' for name in head)
    body = "".join(f"<tr>{''.join(map(_cell, head, row))}</tr>" for row in rows)
    return f'<table class="{kind}"><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>'


def _cell(name: str, content: str) -> str:
    return f'<td class="chart">{content}</td>' if name == "chart" else f'<td data-name="{name}">{content}</td>'
