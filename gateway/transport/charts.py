"""Small charts for the status page, as inline SVG without a style of their own."""

from collections.abc import Callable
from html import escape
from itertools import pairwise
from math import log

from gateway.telemetry.distribution import Distribution
from gateway.telemetry.status import Use

_WIDTH = 100.0
_HEIGHT = 30.0
_MARK = 0.8


def draw_level(use: Use, label: str) -> str:
    """Return a bar of how much of a limit is in use, with a mark at the most there was.

    Without a limit the most there was is the whole bar.

    Args:
        use: the numbers.
        label: what it shows, in words.
    """
    whole = use.limit if use.limit is not None else use.high
    now, high = (min(1.0, part / whole) * _WIDTH if whole else 0.0 for part in (use.now, use.high))
    parts = [_bar(0, 0, _WIDTH, 10, "track"), _bar(0, 0, now, 10, "over" if now >= 0.9 * _WIDTH else "fill")]
    if use.limit is not None and use.high:
        parts.append(_bar(min(high, _WIDTH - _MARK), 0, _MARK, 10, "mark"))
    if use.limit is None and now:
        # There is nothing it could be too much of.
        parts[1] = _bar(0, 0, now, 10, "fill")
    return _svg(10, label, parts)


def draw_buckets(seen: Distribution, limit: float | None, show: Callable[[float], str]) -> str:
    """Return how many values each bucket holds, on a logarithmic scale, with a mark at the limit.

    Args:
        seen: values, at least one.
        limit: of the values; None where there is none.
        show: writes a value.
    """
    edges = _edges(seen, limit)
    low, high = log(edges[0]), log(edges[-1])

    def place(value: float) -> float:
        return (log(min(max(value, edges[0]), edges[-1])) - low) / (high - low) * _WIDTH

    most = max(seen.counts)
    parts = [_bar(0, _HEIGHT - 0.6, _WIDTH, 0.6, "track")]
    for (left, right), held in zip(pairwise(edges), seen.counts, strict=False):
        if held:
            # The root shows rare values beside frequent ones; the number is in the title.
            tall = max(1.5, (held / most) ** 0.5 * _HEIGHT)
            title = f"{show(left)} to {show(right)}: {held}"
            kind = "over" if limit is not None and left >= limit else "fill"
            parts.append(_bar(place(left), _HEIGHT - tall, place(right) - place(left) - 0.4, tall, kind, title))
    if limit is not None:
        parts.append(_bar(min(place(limit), _WIDTH - _MARK), 0, _MARK, _HEIGHT, "mark", f"limit {show(limit)}"))
    words = f"{seen.count} values, the largest {show(seen.max or 0)}"
    return _svg(_HEIGHT, words if limit is None else f"{words}, limit {show(limit)}", parts)


def _edges(seen: Distribution, limit: float | None) -> list[float]:
    """Return where the buckets begin and end, positive and ascending: the first begins, the last ends somewhere."""
    edges = [seen.bounds[0] / 4, *seen.bounds]
    end = max(edges[-1] * 4, seen.max or 0, limit or 0)
    return [*edges, end]


def _bar(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    named = f"<title>{escape(title)}</title>" if title else ""
    size = f'x="{x:.2f}" y="{y:.2f}" width="{max(0.0, width):.2f}" height="{height:.2f}"'
    return f'<rect class="{kind}" {size}>{named}</rect>'


def _svg(height: float, label: str, parts: list[str]) -> str:
    box = f'viewBox="0 0 {_WIDTH:g} {height:g}" preserveAspectRatio="none"'
    return f'<svg {box} role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
