"""What the tests of the console share: how it is served on a committed history, and what is looked at on its page."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from arranger.events.log import Entry
from tests.commands import to_file
from tests.servers import REPOSITORY

HISTORIES = REPOSITORY / "tests" / "histories"
AXE = REPOSITORY / "console" / "node_modules" / "axe-core" / "axe.min.js"
SLIDER = "[role=slider]"
#: Opens an address, with a width in pixels and a scheme.
Opener = Callable[..., Page]


def written(file: Path, *entries: Entry, begun_ms: int = 1) -> None:
    """Write a log to a file."""
    with ThreadPoolExecutor(1) as other:  # the browser's driver has a loop in this thread
        other.submit(to_file, entries, file, begun_ms=begun_ms).result()


def served(history: str, *, port: int = 0) -> Iterator[str]:
    argv = [sys.executable, "-m", "arranger.cli.main", "ui", "--no-browser", f"--port={port}"]
    process = subprocess.Popen(
        [*argv, f"--log={HISTORIES / history}"], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found, "arranger ui printed no address"
    try:
        yield found[0].rstrip("/")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def new_page(browser: Browser, *, width: int, height: int, scheme: str = "light", offline: bool = False) -> Page:
    """A page for pictures, in a context of its own, which is to be closed: `page.context.close()`."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        timezone_id="UTC",
        offline=offline,
    )
    return context.new_page()


def until(page: Page, expression: str) -> None:
    """Wait until an expression holds in the page. `wait_for_function` evaluates it by a script of the page's own, which
    the page's policy forbids as soon as it isn't true at once."""
    for _ in range(200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"10 s went by, and it doesn't hold: {expression}")


def answered(page: Page) -> None:
    """Every answer that the view asks for is there: one may lead to another question."""
    for _ in range(3):
        page.wait_for_timeout(500)
        for busy in ("being worked out", "Working it out"):
            expect(page.get_by_text(busy)).to_have_count(0, timeout=120_000)


def offset_of(page: Page) -> int:
    return int(page.locator(SLIDER).get_attribute("aria-valuenow") or 0)


def expect_at(page: Page, offset: int) -> None:
    expect(page.locator(SLIDER)).to_have_attribute("aria-valuenow", str(offset))


def ready(page: Page) -> None:
    """Every answer that the view waits for is there."""
    expect(page.locator("main")).not_to_be_empty()
    expect(page.get_by_text("The answer is being worked out")).to_have_count(0, timeout=30_000)
    expect(page.locator(".note.bad")).to_have_count(0)


def export(page: Page, folder: Path, name: str) -> Path:
    page.get_by_text("Export", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("button", name=name).click()
    file = folder / "export.html"
    download.value.save_as(file)
    return file
