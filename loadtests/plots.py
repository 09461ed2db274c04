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
    colors=("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#111827", "#9ca3af"),
)
Line = Sequence[tuple[float, float]]


def draw_lines(name: str, title: str, axes: tuple[str, str], lines: Mapping[str, Line], marks: Line = ()) -> str:
    """Draw lines of points.

    Args:
        name: tells the plot from others of the same page.
        title: what is written above.
        axes: what x and y are.
        lines: from their names to their points.
        marks: where the x axis has which number, if that is not its own scale.
    """
    chart = pygal.XY(
        style=_STYLE,
        js=(),
        width=860,
        height=340,
        title=title,
        x_title=axes[0],
        y_title=axes[1],
        show_dots=False,
        stroke_style={"width": 2},
        truncate_legend=-1,
        disable_xml_declaration=True,
    )
    chart.uuid = name
    if marks:
        chart.x_labels = [{"value": place, "label": f"{number:g}"} for place, number in marks]
    for label, points in lines.items():
        chart.add(label, list(points))
    return _strip(chart.render(is_unicode=True))


def _strip(svg: str) -> str:
    """Return an SVG without the script for tooltips and without the comments, which hold the day."""
    return re.sub(r"<!--.*?-->|<script.*?</script>", "", svg, flags=re.DOTALL)
