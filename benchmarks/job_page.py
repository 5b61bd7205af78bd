"""The Job page of the console beside a log that grows by 200 events a second, in a real Chromium.

The log is that of `tests/busy_log`: two hours of 16 nodes with more than a hundred jobs, without snapshots. The page is
opened again and again, for a job that waits and one that runs in turn, while the page and the server follow the log.
`python -m benchmarks.job_page` measures only this. To compare two checkouts, run it in each by turns.
"""

import contextlib
import itertools
import resource
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import click
from playwright.sync_api import Page, sync_playwright

from benchmarks.report import Figure
from tests.browser import FLAGS, chromium
from tests.busy_log import Busy
from tests.commands import to_file
from tests.e2e.console.pages import served

_EVENTS_A_SECOND = 200
_OPENINGS = 12
_PATIENCE_MS = 120_000
#: Before the page is opened, another view is looked at, in milliseconds.
_ELSEWHERE_MS = 700
#: The head of a record in a log file, in bytes.
_HEAD_BYTES = 40


def run(*, quick: bool) -> list[Figure]:
    """The benchmark. Raises `ServersUnavailable` without a Chromium."""
    path, openings = chromium(), 2 if quick else _OPENINGS
    with tempfile.TemporaryDirectory(prefix="arranger-job-page-") as folder:
        busy, log = Busy(), Path(folder) / "busy.log"
        had = len(busy.entries(150) if quick else busy.entries())
        jobs = busy.jobs()
        for number in range(_EVENTS_A_SECOND * (5 if quick else 60)):
            busy.world.node("gpu-node-15.cluster.lab.example", cpu=96, gpus=8, labels={"n": str(number)})
        begun_ms = busy.world.entries[0].batch.time_ms
        to_file(busy.world.entries[:had], log, begun_ms=begun_ms)
        whole = log.with_name("whole.log")
        to_file(busy.world.entries, whole, begun_ms=begun_ms)
        rest = whole.read_bytes()[log.stat().st_size :]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
            page = browser.new_page()
            page.set_default_timeout(_PATIENCE_MS)
            began_s = _children_s()
            for address in served(str(log)):
                answer = page.goto(address)
                if answer is None or not answer.ok:
                    raise RuntimeError("the console has no page; `make console` builds it")
                page.wait_for_timeout(3000)  # the index
                with _growing(log, rest):
                    opened = [
                        _opened(page, address, job)
                        for job in itertools.islice(itertools.cycle((jobs["runs"], jobs["waits"])), openings)
                    ]
            spent_s = _children_s() - began_s
            browser.close()
    heads, whys = zip(*opened, strict=True)
    return [
        Figure(name="job page: until the job is there, median", value=statistics.median(heads), unit="s"),
        Figure(name="job page: until it is explained, median", value=statistics.median(whys), unit="s", at_most=2.0),
        Figure(name="job page: until it is explained, longest", value=max(whys), unit="s", at_most=2.0),
        Figure(
            name="job page: processor time of the server and its processes, each opening",
            value=spent_s / openings, unit="s", note=f"{had:,} entries and {_EVENTS_A_SECOND} events/s more",
        ),
    ]  # fmt: skip


def _opened(page: Page, address: str, job: str) -> tuple[float, float]:
    """Seconds until the page shows the job, and until it is explained."""
    page.goto(f"{address}/#/jobs")
    page.wait_for_timeout(_ELSEWHERE_MS)
    began_s = time.monotonic()
    page.goto(f"{address}/#/job?job={job}")
    page.locator(".column h2").filter(has_text=job).wait_for()
    head_s = time.monotonic() - began_s
    page.locator("[aria-label=Explanation] .lead").wait_for()
    return head_s, time.monotonic() - began_s


@contextlib.contextmanager
def _growing(log: Path, rest: bytes) -> Iterator[None]:
    """Append the records of `rest`, one event each, at their rate."""
    ended = threading.Event()

    def write() -> None:
        begun, due_s = 0, time.monotonic()
        with log.open("ab", buffering=0) as file:
            while begun < len(rest) and not ended.wait(max(0.0, due_s - time.monotonic())):
                end = begun
                for _ in range(_EVENTS_A_SECOND // 20):
                    payload, cursor = struct.unpack_from(">II", rest, end)
                    end += _HEAD_BYTES + payload + cursor
                file.write(rest[begun:end])
                begun, due_s = end, due_s + 0.05

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


def _children_s() -> float:
    """Processor time of ended children: the server waits for its own."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@click.command()
def main() -> None:
    """Measure the Job page."""
    for figure in run(quick=False):
        click.echo(f"{figure.name}: {figure.value:,.3f} {figure.unit} {figure.target} {figure.note}")


if __name__ == "__main__":
    main()
