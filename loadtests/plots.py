"""The plots of a load report, each one SVG without scripts or anything from elsewhere."""

import re
from collections.abc import Mapping, Sequence

import pygal
from pygal.style import Style

_STYLE = Style(
    background="white",
    plot_background="white",
    foreground="#444",
    foreground_strong="#111",
    foreground_subtle="#999",
    font_family="system-ui, sans-serif",
    title_font_size=15,
    label_font_size=11,
    major_label_font_size=11,
    legend_font_size=12,
    colors=("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#111827"),
)
Line = Sequence[tuple[float, float]]


def draw_lines(name: str, title: str, x_title: str, y_title: str, lines: Mapping[str, Line]) -> str:
    """Draw lines of points.

    Args:
        name: tells the plot from others of the same page.
        title, x_title, y_title: what is written beside it.
        lines: from their names to their points.
    """
    chart = pygal.XY(
        style=_STYLE,
        js=(),
        width=760,
        height=320,
        title=title,
        x_title=x_title,
        y_title=y_title,
        show_dots=False,
        stroke_style={"width": 2},
        legend_at_bottom=True,
        legend_at_bottom_columns=4,
        include_x_axis=False,
        disable_xml_declaration=True,
    )
    chart.uuid = name
    for label, points in lines.items():
        chart.add(label, list(points))
    return _strip(chart.render(is_unicode=True))


def _strip(svg: str) -> str:
    """Return an SVG without the script for tooltips and without the comments, which hold the day."""
    return re.sub(r"<!--.*?-->|<script.*?</script>", "", svg, flags=re.DOTALL)
