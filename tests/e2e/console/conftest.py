"""The console in a real browser, on committed histories, with pages that may report no error."""

import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.browser import FLAGS, chromium
from tests.e2e.console.pages import AXE, Opener, served, written
from tests.servers import REPOSITORY, ServersUnavailable, in_ci
from tests.world import World, shape

STATIC = REPOSITORY / "arranger" / "web" / "static"
# How long the page takes says nothing on a busy machine.
expect.set_options(timeout=30_000)


def _missing(problem: str) -> None:
    if in_ci():
        pytest.fail(f"NO BROWSER: {problem}", pytrace=False)
    pytest.skip(f"NO BROWSER: {problem}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not all(one.is_file() for one in (STATIC / "index.html", STATIC / "replay.js", AXE)):
        _missing("the page isn't built: run `make console`")
    try:
        path = chromium()
    except ServersUnavailable as problem:
        _missing(str(problem))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def waits() -> Iterator[str]:
    """The address of the console on the log of the demo, in which a job waits."""
    yield from served("a-job-that-waits.log")


@pytest.fixture(scope="module")
def room() -> Iterator[str]:
    """The same on a log with queues and preemption."""
    yield from served("room-for-what-matters.log")


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[tuple[str, Callable[[], int]]]:
    """The address of the console on a log that grows, and what adds an entry to it and returns its last offset."""
    world = World()
    for name in ("node-1", "node-2"):
        world.node(name, gpus=4)
    world.job("train", leader=shape(gpus=2))
    world.cycle()
    had = len(world.entries)
    world.node("node-3", gpus=4)
    world.node("node-2", gpus=4, ready=False)
    world.job("late", leader=shape(gpus=2))
    files = [tmp_path / f"{count}.log" for count in range(had, len(world.entries) + 1)]
    for count, file in enumerate(files, start=had):
        written(file, *world.entries[:count])
    later = [(file.read_bytes(), world.entries[had + place].last) for place, file in enumerate(files[1:])]

    def grow() -> int:
        content, last = later.pop(0)
        begun = files[0].stat().st_size
        assert content.startswith(files[0].read_bytes())
        with files[0].open("ab") as log:
            log.write(content[begun:])
        return last

    serving = served(str(files[0]))
    yield next(serving), grow
    for _ in serving:
        pass


@pytest.fixture
def replaced(tmp_path: Path) -> Iterator[tuple[str, Callable[[], int]]]:
    """The address of the console on a log, and what moves its file away and writes another log there, whose last offset
    it returns."""
    earlier, later = World(), World()
    for name in ("node-1", "node-2", "node-3"):
        earlier.node(name, gpus=4)
    earlier.job("train", leader=shape(gpus=2))
    earlier.cycle()
    later.node("node-9", gpus=4)
    later.job("other", leader=shape(gpus=2))
    later.cycle()
    file = tmp_path / "arranger.log"
    written(file, *earlier.entries)

    def replace() -> int:
        file.rename(tmp_path / "arranger.log.before")
        time.sleep(0.5)  # for a moment there is none
        written(file, *later.entries, begun_ms=2)
        return later.entries[-1].last

    serving = served(str(file))
    yield next(serving), replace
    for _ in serving:
        pass


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[str]:
    """The address of the console on a log that grows by 200 events a second, longer than a test takes."""
    world = World()
    world.node("node-1", gpus=4)
    world.job("train", leader=shape(gpus=2))
    world.cycle()
    had = len(world.entries)
    for number in range(24_000):
        world.node("node-2", gpus=4 + number % 2)
    file, whole = tmp_path / "busy.log", tmp_path / "whole.log"
    written(file, *world.entries[:had])
    written(whole, *world.entries)
    rest, ended = whole.read_bytes()[file.stat().st_size :], threading.Event()

    def write() -> None:
        begun = 0
        with file.open("ab", buffering=0) as log:
            while begun < len(rest) and not ended.wait(0.05):
                end = begun
                for _ in range(10):
                    payload, cursor = struct.unpack_from(">II", rest, end)
                    end += 40 + payload + cursor  # the head of a record has 40 bytes
                log.write(rest[begun:end])
                begun = end

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield from served(str(file))
    finally:
        ended.set()
        writer.join()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opener]:
    """Opens pages. At the end, none may have reported an error or asked another host for anything."""
    contexts: list[BrowserContext] = []
    said: list[str] = []

    def open_page(address: str, *, width: int = 1280, scheme: str = "light", away: bool = False) -> Page:
        """With `away`, the log may be away for a moment: a question then is refused, and asked again."""
        context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        host = address.partition("/#")[0]
        # The browser reports refused questions too; a what-if that can't be answered is one.
        page.on(
            "console",
            lambda one: (
                said.append(one.text)
                if one.type in ("error", "warning")
                and "/api/v1/what-if" not in one.location["url"]
                and not (away and ("status of 503" in one.text or "status of 404" in one.text))
                else None
            ),
        )
        page.on("pageerror", lambda one: said.append(str(one)))
        page.on(
            "request",
            lambda one: None if one.url.startswith((host, "data:", "blob:", "file:")) else said.append(one.url),
        )
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
