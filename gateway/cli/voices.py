"""Several voices at once on a console: columns that grow on a terminal, lines where there is none."""

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

_LINE_CHARACTERS = 60
_REFRESHES = 12
_FRAME = 4
"""Columns or lines that a panel takes for itself and what is around it."""


class Voices:
    """Shows what each of several speakers says and does while it happens.

    On a terminal every speaker has a column, and those that are speaking a bright frame; what is too long for the
    screen scrolls, and is there as a whole in the end. Elsewhere there is a line for every few words, behind the name.

    Args:
        console: where to print.
        colours: of the speakers, by name; nobody else may speak.
    """

    def __init__(self, console: Console, colours: Mapping[str, str]) -> None:
        self._console = console
        self._colours = colours
        self._said: dict[str, list[Text]] = {name: [] for name in colours}
        self._open: dict[str, str] = {}
        self._has_columns = console.is_terminal and not console.is_dumb_terminal
        self._live: Live | None = None
        if self._has_columns:
            self._live = Live(get_renderable=self._draw, console=console, refresh_per_second=_REFRESHES)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self._open):
            self.end(name)
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()

    def tell(self, name: str, words: str, style: str = "") -> None:
        """Show what a speaker does, as a line of its own."""
        self.end(name)
        self._add(name, Text(words, style))

    def write(self, name: str, piece: str) -> None:
        """Show the next piece of what a speaker says."""
        said = self._open.get(name, "") + piece
        if not self._has_columns and len(said) >= _LINE_CHARACTERS:
            line, _, said = said.rpartition(" ")
            self._add(name, self._paint(name, line))
        self._open[name] = said

    def end(self, name: str) -> None:
        """Have what a speaker said so far be all of it."""
        if said := self._open.pop(name, "").strip():
            self._add(name, self._paint(name, said))

    def _paint(self, name: str, words: str) -> Text:
        return Text(words.strip(), self._colours[name])

    def _add(self, name: str, line: Text) -> None:
        if self._has_columns:
            self._said[name].append(line)
            return
        width = max(map(len, self._colours))
        self._console.print(Text(f"  {name:{width}}  ", "bold") + line, soft_wrap=True)

    def _draw(self) -> RenderableType:
        table = Table.grid(expand=True)
        for _ in self._colours:
            table.add_column(ratio=1)
        table.add_row(*map(self._draw_column, self._colours))
        return table

    def _draw_column(self, name: str) -> Panel:
        open_ = self._open.get(name)
        said = [*self._said[name], *([self._paint(name, open_)] if open_ else [])]
        lines = Text("\n").join(said).wrap(self._console, max(1, self._console.width // len(self._colours) - _FRAME))
        # A live view that is higher than the screen cannot be drawn over.
        shown = lines if self._live is None else lines[-max(1, self._console.height - _FRAME) :]
        style = self._colours[name] if open_ else f"dim {self._colours[name]}"
        return Panel(Text("\n").join(shown), title=name, border_style=style)
