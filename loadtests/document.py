"""A document of headings, paragraphs, tables and plots, as Markdown and as one HTML file."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from msgspec import Struct


class Heading(Struct, frozen=True):
    """A title; 1 is the document's own."""

    text: str
    level: int = 2


class Paragraph(Struct, frozen=True):
    """Plain text."""

    text: str


class Code(Struct, frozen=True):
    """Lines for a terminal."""

    text: str


class Table(Struct, frozen=True):
    """A table; columns after the first hold numbers unless it has only two."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


class Plot(Struct, frozen=True):
    """A drawing.

    Attributes:
        name: of its file, without suffix.
        title: what it shows.
        svg: itself.
    """

    name: str
    title: str
    svg: str


Block = Heading | Paragraph | Code | Table | Plot


def render_markdown(blocks: Iterable[Block], folder: str = "") -> str:
    """Return Markdown; plots are images in a folder beside it, named with a slash, or in the same."""
    return "\n\n".join(_mark_down(block, folder) for block in blocks) + "\n"


def render_html(title: str, blocks: Iterable[Block]) -> str:
    """Return one HTML page that needs no other file."""
    body = "\n".join(map(_mark_up, blocks))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def write_plots(folder: Path, blocks: Iterable[Block]) -> None:
    """Write the plots into a folder, which is made, each as a file."""
    folder.mkdir(exist_ok=True)
    for block in blocks:
        if isinstance(block, Plot):
            (folder / f"{block.name}.svg").write_text(block.svg + "\n")


def _mark_down(block: Block, folder: str) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Paragraph(text):
            return text
        case Code(text):
            return f"```text\n{text}\n```"
        case Plot(name, title, _):
            return f"![{title}]({folder}{name}.svg)"
        case Table(header, rows):
            lines = [header, ["---"] * len(header), *rows]
            return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _mark_up(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{escape(text)}</p>"
        case Code(text):
            return f"<pre>{escape(text)}</pre>"
        case Plot(_, title, svg):
            return f'<figure role="img" aria-label="{escape(title)}">{svg}</figure>'
        case Table(header, rows):
            facts = ' class="facts"' if len(header) == 2 else ""
            head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
            body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
            return f'<div class="wide"><table{facts}>\n<thead><tr>{head}</tr></thead>\n{body}\n</table></div>'


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2937; background: #fff }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2rem; border-bottom: 1px solid #e5e7eb }
.wide { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #e5e7eb; text-align: right; vertical-align: top }
th { color: #4b5563; font-weight: 600 } th:first-child, td:first-child, .facts td, .facts th { text-align: left }
.facts td:first-child { white-space: nowrap; color: #4b5563 }
figure { margin: 1rem 0; max-width: 760px } figure svg { width: 100%; height: auto }
pre { background: #f3f4f6; padding: .7rem; overflow-x: auto }
"""
