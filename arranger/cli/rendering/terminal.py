"""Tables and lines that fit a terminal's width, so that the terminal itself doesn't break rows.

A row takes one line if it fits. Otherwise its last column is wrapped, or the columns that don't fit continue on
indented lines below. Nothing is ever cut.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from arranger.model.text import one_line

#: Cells between two columns.
_GAP = 2
#: The maximum indentation of further lines of a row. If the first column is narrow, they begin under the second.
_INDENT = 8
#: The minimum width of the last column beside others; with less room it moves below them.
_LEAST_LAST = 30


class Layout:
    """The layout of a table: columns of these content widths on lines of at most `width` cells."""

    def __init__(self, widths: Sequence[int], *, width: int, right: Collection[int] = ()) -> None:
        self._widths = widths
        self._width = width
        self._right = right
        self._indent = min(widths[0] + _GAP, _INDENT)
        #: The columns of each line of a row; those after the first line are indented.
        self.lines: list[list[int]] = [[]]
        taken = 0
        for column, each in enumerate(widths):
            needed = min(each, _LEAST_LAST) if column == len(widths) - 1 else each
            if self.lines[-1] and taken + _GAP + needed > width:
                self.lines.append([])
            taken = taken + _GAP + each if self.lines[-1] else self._indent * (len(self.lines) > 1) + each
            self.lines[-1].append(column)

    def room_for_last(self) -> int:
        """The cells that a row on one line has for its last column."""
        return self._width - sum(self._widths[:-1]) - _GAP * (len(self._widths) - 1)

    def row(self, cells: Sequence[str]) -> Iterator[str]:
        """The lines of one row; empty further lines are left out."""
        for number, columns in enumerate(self.lines):
            indent = " " * self._indent if number else ""
            if not number or any(cells[column] for column in columns):
                yield from self._line(indent, columns, cells)

    def _line(self, indent: str, columns: Sequence[int], cells: Sequence[str]) -> Iterator[str]:
        line = indent
        for column in columns:
            text = cells[column]
            line += " " * _GAP if line != indent else ""
            gap = " " * (self._widths[column] - cell_len(text))
            if column == columns[-1]:
                yield from self._last(line, gap + text if column in self._right else text)
            else:
                line += gap + text if column in self._right else text + gap

    def _last(self, line: str, text: str) -> Iterator[str]:
        """The line with its last cell, which is wrapped if it is too long."""
        at = cell_len(line)
        if at + cell_len(text) <= self._width:
            yield (line + text).rstrip()
            return
        if self._width - at < _LEAST_LAST and at > self._indent:
            # An earlier cell is wider than its column. This is possible if rows are printed one at a time.
            yield line.rstrip()
            line, at = " " * self._indent, self._indent
        for part in folded(text, self._width - at):
            yield line + part
            line = " " * at


def folded(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` cells, broken between words if possible."""
    console = Console(width=max(width, 1), no_color=True)
    return [line.plain.rstrip() for line in Text(text).wrap(console, max(width, 1), overflow="fold")]


def terminal_width() -> int:
    """The width of the terminal in cells; COLUMNS overrides it."""
    return Console().width


def print_lines(lines: Iterable[str], *, style: str, coloured: bool) -> None:
    """Print lines that already fit, in a rich style ("bold", "red")."""
    console = Console(no_color=not coloured, highlight=False)
    for line in lines:
        console.print(Text(one_line(line), style), soft_wrap=True)


def fitting_layout(
    columns: Sequence[str], full: list[int], widths: Sequence[int], right: Collection[str], optional: Sequence[str]
) -> tuple[list[int], Layout]:
    """The columns that a row has room for, and where they are: without optional ones where that saves lines."""
    kept, tried = full, list[tuple[int, list[int], Layout]]()
    for name in ("", *optional):
        kept = [column for column in kept if columns[column] != name]
        aligned = [number for number, column in enumerate(kept) if columns[column] in right]
        layout = Layout([widths[column] for column in kept], width=terminal_width(), right=aligned)
        # A text in the last column is wrapped anyway, so it may be below.
        last = [] if columns[kept[-1]] in (*right, *optional) else [len(kept) - 1]
        tried.append((len([line for line in layout.lines[1:] if line != last]), kept, layout))
    _, _, best = min(tried, key=lambda one: one[0])
    return next((kept, layout) for _, kept, layout in tried if len(layout.lines) <= len(best.lines))


def shown_columns(rows: Sequence[Sequence[str]], count: int) -> list[int]:
    """The columns that aren't empty, and always the first."""
    return [column for column in range(count) if not column or any(row[column] for row in rows)]
