"""What is typed as a point of the log means the same to the console as to the commands."""

import subprocess
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from arranger.replay.reading.history import END, Point
from tests.servers import REPOSITORY
from tests.typed_points import FOR_CONSOLE, NOW_MS, SHOWN_MS, ZONE

SOURCES = REPOSITORY / "console"


@pytest.fixture(scope="module")
def reader(browser: Browser) -> Iterator[Page]:
    """A page with what reads a point that is typed."""
    [bundler] = SOURCES.glob("node_modules/@esbuild/*/bin/esbuild")
    command = [str(bundler), "src/when.ts", "--bundle", "--format=iife", "--global-name=typed"]
    context = browser.new_context(timezone_id=ZONE)
    page = context.new_page()
    page.add_script_tag(content=subprocess.check_output(command, cwd=SOURCES, text=True))
    yield page
    context.close()


@pytest.mark.parametrize(("typed", "point"), FOR_CONSOLE)
def test_the_console_reads_the_points_of_the_table(typed: str, point: Point | None, reader: Page) -> None:
    found = reader.evaluate("(given) => typed.when(...given)", [typed, SHOWN_MS / 1000, NOW_MS / 1000])
    if found is None or found == "end":
        assert point == (END if found else None)
    elif "at" in found:
        assert point == Point(offset=found["at"])
    else:
        assert point == Point(time_ms=round(found["time"] * 1000))
