"""The console of a long log in a real Chromium, by the browser's own clock.

The log is that of `replay`. `python -m benchmarks.browsing --keep DIR` makes it there unless it is there, as
`benchmarks.console --keep` does. The page itself measures how long a moment takes from the question until it is
painted (`performance.measure` in `console/src/store.ts`); here these measurements are read.
"""

import asyncio
import contextlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
from playwright.sync_api import Page, sync_playwright

from benchmarks.replay import EVENTS, Facts, make
from benchmarks.report import Figure
from tests.browser import FLAGS, chromium

_POINTS = 100
_SEED = 3
#: How long a browser goes on with its own start after it has opened a page, at most.
_STARTED_MS = 5_000
#: The whole log may have to be read first.
_PATIENCE_MS = 600_000
#: When the last moment was asked for and how long it took until it was painted, in ms since the page's beginning.
_PAINTED = """offset => {
    const [last] = performance.getEntriesByName("moment");
    return last && (offset === null || last.detail === offset) ? [last.startTime, last.duration] : false;
}"""
_COMPLETE = "async () => (await (await fetch('api/v1/timeline?buckets=1')).json()).complete !== false"


def run(*, quick: bool) -> list[Figure]:
    """The benchmark. Raises `ServersUnavailable` without a Chromium."""
    with tempfile.TemporaryDirectory(prefix="arranger-browsing-") as folder:
        return figures(Path(folder), 6_000 if quick else EVENTS, small=quick)


def figures(folder: Path, events: int, *, small: bool = False) -> list[Figure]:
    """All figures of a log of so many events, made in the folder unless it is there."""
    path = chromium()
    kept = folder / "facts.json"
    if not kept.exists():
        kept.write_bytes(msgspec.json.encode(asyncio.run(make(folder, events, small=small))))
    facts = msgspec.json.decode(kept.read_bytes(), type=Facts)
    with sync_playwright() as playwright:
        # The browser has been open for a while, as a user's has: its own start would compete with the console's.
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.wait_for_timeout(_STARTED_MS)
        page.set_default_timeout(_PATIENCE_MS)
        with _served(folder) as (address, started_s):
            answer = page.goto(f"{address}/#/cluster")
            if answer is None or not answer.ok:
                raise RuntimeError("the console has no page; `make console` builds it")
            first_s = sum(_painted(page, None)) / 1000
            while not page.evaluate(_COMPLETE):
                page.wait_for_timeout(500)
            moved_ms = [_moved(page, offset) for offset in _offsets(facts, 3 if small else _POINTS)]
            page.goto("about:blank")
        browser.close()
    late_ms = sorted(moved_ms)[min(len(moved_ms) * 95 // 100, len(moved_ms) - 1)]
    note = f"{facts.events:,} events"
    return [
        Figure(name="browsing: until the address is there", value=started_s, unit="s", note=note),
        Figure(name="browsing: from there to the first picture", value=first_s, unit="s"),
        Figure(name="browsing: opening, in all", value=started_s + first_s, unit="s", at_most=1.5),
        Figure(name="browsing: any point when warm, p50", value=statistics.median(moved_ms), unit="ms"),
        Figure(name="browsing: any point when warm, p95", value=late_ms, unit="ms", at_most=250.0),
    ]


def _offsets(facts: Facts, points: int) -> list[int]:
    chance = random.Random(_SEED)
    return [chance.randint(1, facts.events) for _ in range(points)]


@contextlib.contextmanager
def _served(folder: Path) -> Iterator[tuple[str, float]]:
    """The address of `arranger ui` on the log, and the seconds until it was printed."""
    began_s = time.monotonic()
    argv = [sys.executable, "-m", "arranger.cli.main", "ui", "--no-browser", "--port=0", f"--log={folder}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        started_s = time.monotonic() - began_s
        try:
            if found is None:
                raise RuntimeError("arranger ui printed no address")
            yield found[0].rstrip("/"), started_s
        finally:
            process.send_signal(signal.SIGTERM)


def _moved(page: Page, offset: int) -> float:
    """Milliseconds until the moment after this event was painted."""
    page.evaluate("offset => { location.hash = `#/cluster?at=${offset}`; }", offset)
    return _painted(page, offset)[1]


def _painted(page: Page, offset: int | None) -> tuple[float, float]:
    """When the moment was asked for and how long it took, in milliseconds."""
    asked_ms, took_ms = page.wait_for_function(_PAINTED, arg=offset).json_value()
    return float(asked_ms), float(took_ms)


@click.command()
@click.option("--events", default=EVENTS, show_default=True, help="The number of events.")
@click.option("--keep", type=click.Path(path_type=Path), required=True, help="The folder of the log.")
def main(events: int, keep: Path) -> None:
    """Measure the console in a browser on a log that is kept."""
    keep.mkdir(parents=True, exist_ok=True)
    for figure in figures(keep, events):
        click.echo(f"{figure.name}: {figure.value:,.3f} {figure.unit} {figure.target} {figure.note}")


if __name__ == "__main__":
    main()
