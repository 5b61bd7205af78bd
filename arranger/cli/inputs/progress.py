"""How far long work is, on standard error: a bar on a terminal, lines elsewhere, or lines of JSON for a program."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from arranger.cli.rendering.output import say
from arranger.cli.rendering.pager import Screen
from arranger.own_process import HowFar
from arranger.settings import PROGRESS_VARIABLE

#: Below this number of events, reading ends too soon for a progress bar.
_WORTH_A_BAR = 20_000
#: Where standard error is no terminal, long work says so often how far it is.
_A_LINE_S = 10
_A_JSON_LINE_S = 0.5


class _JsonLines:
    """Says on standard error how far long work is, for the program that started this one."""

    def __init__(self, total: int, first: int | None) -> None:
        self._total, self._first, self._done = total, first, 0
        self._next_s = 0.0

    def moved(self, count: int) -> None:
        self._done += count
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _A_JSON_LINE_S
            percent = min(100, 100 * self._done // self._total)
            told = HowFar(percent, self._first + self._done if self._first is not None else 0)
            say(msgspec.json.encode(told).decode(), err=True)


class _Lines:
    """Says on standard error how far long work is."""

    def __init__(self, doing: str, total: int) -> None:
        self._doing, self._total, self._done = doing, total, 0
        self._next_s = time.monotonic() + _A_LINE_S

    def moved(self, count: int) -> None:
        self._done += count
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _A_LINE_S
            say(f"arranger: {self._doing}: {self._done:,} of {self._total:,}", err=True)


@contextmanager
def progress(
    doing: str, total: int, *, worth: int = _WORTH_A_BAR, first: int | None = None
) -> Iterator[Callable[[int], object]]:
    """Show a progress bar on standard error for long work; where that is no terminal, a line every ten seconds. Yields
    a function that advances it by events. Work of a smaller total than `worth` ends too soon for that.

    If `doing` is empty, there is no bar: output that the caller prints meanwhile would mix with it. `first` is the
    event before those of a log that are read.
    """
    if total > 0 and os.environ.get(PROGRESS_VARIABLE):
        yield _JsonLines(total, first).moved
        return
    if not doing or total < worth:
        yield lambda count: None
        return
    if not sys.stderr.isatty():
        yield _Lines(doing, total).moved
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn(doing), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as bar:
        if isinstance(sys.stdout, Screen):
            sys.stdout.before_pager.append(bar.stop)
        task = bar.add_task(doing, total=total)
        yield lambda count: bar.advance(task, count)
