"""Shared by all commands: print tables, JSON, times and durations.

Tables are for people. On a terminal they are coloured and fit its width (see `terminal`). Piped tables are plain and
complete, unless COLUMNS limits their width. JSON is for programs: one value, indented on a terminal, or one object per
line. Times are local, with their UTC offset.

Commands print only through this module: the log contains untrusted text, and no output may contain control sequences of
terminals (`model.text`).
"""

import contextlib
import csv
import io
import math
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

import click
import msgspec

from arranger import clock
from arranger.model import text as model_text
from arranger.model.text import one_line, safe_json

_Command = TypeVar("_Command", bound=Callable[..., Any])

local_time = clock.local_time
duration = model_text.duration


class ToldTime(int):
    """A time in a table, in milliseconds since 1970; 0 means never. As text it has date, time and UTC offset."""

    def __str__(self) -> str:
        return local_time(self)


class Times(msgspec.Struct, frozen=True):
    """The format of several times: a heading shows the common date and UTC offset, and each time leaves them out."""

    #: The common parts in words, empty if there are none.
    heading: str
    #: The slice of the complete text that each time keeps.
    kept: tuple[int, int | None]

    @classmethod
    def of(cls, moments: Iterable[int]) -> "Times":
        """The format for these times, in milliseconds since 1970."""
        texts = [local_time(moment) for moment in moments if moment]
        days = {text[:10] for text in texts}
        offsets = {text[23:] for text in texts}
        if len(offsets) != 1:
            return cls("", (0, None))
        (offset,) = offsets
        if len(days) != 1:
            return cls(f"times are UTC{offset}", (0, 23))
        return cls(f"times are of {days.pop()}, UTC{offset}", (11, 23))

    def text(self, time_ms: int) -> str:
        first, end = self.kept
        return local_time(time_ms)[first:end] if time_ms else "-"


class FiniteRange(click.FloatRange):
    """A number between bounds. Click lets `nan` pass, which is beyond no bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not in the range {self._describe_range()}.", param, ctx)
        return number


def output_as(*formats: str, help: str) -> Callable[[_Command], _Command]:
    """Gives a command the option `-o/--output` with these formats, the first by default, as parameter `output`."""
    return click.option("-o", "--output", type=click.Choice(formats), default=formats[0], show_default=True, help=help)


output_option = output_as("table", "json", help="A table for people, or JSON for programs.")
csv_output_option = output_as(
    "table", "json", "csv", help="A table for people, JSON for programs, or CSV for spreadsheets."
)


#: The lines that are captured in place of being printed.
_CAPTURED: ContextVar[list[str] | None] = ContextVar("captured", default=None)


@contextlib.contextmanager
def captured() -> Iterator[list[str]]:
    """Inside a `with` block, `say` and what prints by it add lines to this list, as they are when they are piped."""
    lines: list[str] = []
    token = _CAPTURED.set(lines)
    try:
        yield lines
    finally:
        _CAPTURED.reset(token)


def say(text: str = "", *, err: bool = False) -> None:
    """Print one line to standard output, or with `err` to standard error."""
    lines = _CAPTURED.get()
    if lines is not None and not err:
        lines.append(one_line(text))
    else:
        click.echo(one_line(text), err=err)


def heading(text: str) -> None:
    """Print an empty line and a heading."""
    say()
    say(text)


def print_json(value: Any) -> None:
    """Print one JSON value: indented on a terminal, otherwise on one line."""
    content = safe_json(msgspec.json.encode(value, enc_hook=str))
    if sys.stdout.isatty():
        content = msgspec.json.format(content, indent=2)
    click.echo(content)


def print_json_lines(values: Iterable[Any]) -> None:
    """Print each value as a line of JSON, all of them at once, so that a pipe can follow."""
    if lines := [safe_json(msgspec.json.encode(value, enc_hook=str)) for value in values]:
        click.echo(b"\n".join(lines))


def yaml_document(value: Any, comment: str) -> str:
    """A value as a document of YAML under a comment of one line: texts of several lines as such, no anchors, and in
    ASCII, so that a terminal obeys nothing in it."""
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # the fast one if available
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return f"---\n# {one_line(comment)}\n{yaml.dump(value, Dumper=Dumper, sort_keys=False, width=118)}"


def print_yaml(documents: str) -> None:
    """Print documents of `yaml_document`."""
    click.echo(documents, nl=False)


def print_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows as CSV (RFC 4180), the names of the columns first."""
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([one_line(str(cell)) for cell in row] for row in rows)
    click.echo(content.getvalue(), nl=False)


def resource_columns(resources: Iterable[str]) -> tuple[str, ...]:
    """The resources of nodes as columns, each once, devices last."""
    return tuple(sorted(set(resources), key=lambda name: ("/" in name, name)))


def fitting() -> bool:
    """Whether output must fit a width: that of the terminal, or the one in COLUMNS."""
    if _CAPTURED.get() is not None:
        return False
    named = os.environ.get("COLUMNS", "")
    return sys.stdout.isatty() or (named.isdecimal() and int(named) > 0)


def screen_lines() -> int:
    """The number of lines of the terminal; LINES overrides it, and without a terminal it is 24."""
    return shutil.get_terminal_size().lines


def coloured() -> bool:
    """Whether to print colours: on a terminal, unless NO_COLOR (no-color.org) is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Collection[str] = (),
    styles: Callable[[Sequence[object]], str] | None = None,
    empty: str = "",
    times: Times | None = None,
    optional: Sequence[str] = (),
    cut: bool = False,
) -> Sequence[str]:
    """Print a table under upper-case column names; those in `right` are aligned to the right. Returns the columns.

    On a terminal, or with COLUMNS set, rows fit the width, empty columns are left out, `times` is the format of times
    (`ToldTime`), and `styles` gives a row its rich style ("red"). If a row has no room on a line, columns of `optional`
    are left out too, the first ones first, as long as that saves lines; a line below says which. With `cut`, a text in
    the last column that is too long for the line is cut, instead of wrapped. `empty` is printed if there are no rows.
    """
    cells = [(row, ["" if cell is None else one_line(str(cell)) for cell in row]) for row in rows]
    columns = [one_line(column) for column in columns]
    if not cells and empty:
        say(empty)
        return columns
    if not fitting():
        _print_plain(columns, [texts for _, texts in cells], right)
        return columns
    if times is not None:
        cells = [(row, _with_times(row, texts, times)) for row, texts in cells]
    return _print_fitting(columns, cells, right, styles, optional, cut=cut)


def print_text(text: str, *, indent: int = 0) -> None:
    """Print a line for people. On a terminal, or with COLUMNS set, it is wrapped between words, and the further lines
    are indented by `indent`."""
    text = one_line(text)
    if not fitting():
        say(text)
        return
    from arranger.cli.rendering.terminal import folded, terminal_width

    width = terminal_width()
    first, *_ = folded(text, width) or [""]
    say(first)
    for line in folded(text[len(first) :].lstrip(), width - indent) if len(text) > len(first) else ():
        say(" " * indent + line)


def _print_plain(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str]) -> None:
    from rich.cells import cell_len

    heads = [column.upper() for column in columns]
    widths = [max(cell_len(row[i]) for row in [heads, *rows]) for i in range(len(columns))]
    for row in [heads, *rows]:
        parts = []
        for column, text, width in zip(columns, row, widths, strict=True):
            gap = " " * (width - cell_len(text))
            parts.append(gap + text if column in right else text + gap)
        say("  ".join(parts).rstrip())


def _with_times(row: Sequence[object], texts: Sequence[str], times: Times) -> list[str]:
    return [times.text(cell) if isinstance(cell, ToldTime) else text for cell, text in zip(row, texts, strict=True)]


def _print_fitting(
    columns: Sequence[str],
    rows: Sequence[tuple[Sequence[object], Sequence[str]]],
    right: Collection[str],
    styles: Callable[[Sequence[object]], str] | None,
    optional: Sequence[str],
    *,
    cut: bool,
) -> Sequence[str]:
    from rich.cells import cell_len

    from arranger.cli.rendering.terminal import fitting_layout, print_lines, shown_columns

    full = shown_columns([texts for _, texts in rows], len(columns)) if rows else list(range(len(columns)))
    heads = [column.upper() for column in columns]
    widths = [max(cell_len(texts[i]) for texts in [heads, *(t for _, t in rows)]) for i in range(len(columns))]
    kept, layout = fitting_layout(columns, full, widths, right, optional)
    heads = [heads[column] for column in kept]
    shown = [[texts[column] for column in kept] for _, texts in rows]
    _cut_last(shown, layout.room_for_last(), cut=cut)
    print_lines(layout.row(heads), style="bold", coloured=coloured())
    for (row, _), texts in zip(rows, shown, strict=True):
        print_lines(layout.row(texts), style=styles(row) if styles else "", coloured=coloured())
    if dropped := [columns[column].upper() for column in full if column not in kept]:
        print_text(f"(a wider terminal shows {', '.join(dropped)} too)")
    return [columns[column] for column in kept]


def _cut_last(rows: Iterable[list[str]], width: int, *, cut: bool) -> None:
    """With `cut`, cut the last text of each row to a width in cells."""
    from rich.cells import cell_len, set_cell_size

    for texts in rows:
        if cut and 1 < width < cell_len(texts[-1]):
            texts[-1] = f"{set_cell_size(texts[-1], width - 1)}…"
