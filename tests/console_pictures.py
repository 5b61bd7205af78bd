"""The pictures of docs/console.md, from a committed history, the animated one of docs/replay.html, and a page with all
views on busy logs to look at: `python -m tests.console_pictures` (`make pictures`)."""

import io

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from tests.browser import FLAGS, chromium
from tests.console_gallery import gallery
from tests.e2e.console.pages import answered, new_page, served
from tests.servers import REPOSITORY

FOLDER = REPOSITORY / "docs" / "pictures"
LOG = "room-for-what-matters.log"
#: File → view, width and scheme.
PICTURES = {
    "gantt": ("gantt", 1280, "light"),
    "job": ("job", 1280, "light"),
    "queues-dark": ("queues", 1280, "dark"),
    "cluster-narrow": ("cluster", 390, "light"),
}

REPLAY = REPOSITORY / "docs" / "replay.html"
#: The frames of the animated picture, the steps of the replay between two, how long each is shown, and its colours.
_FRAMES, _STEPS, _SHOWN_MS, _COLOURS = 50, 4, 160, 128


def draw(browser: Browser, address: str, name: str) -> None:
    view, width, scheme = PICTURES[name]
    page = new_page(browser, width=width, height=640, scheme=scheme)
    page.goto(f"{address}/#/{view}?at=242&job=default/train")
    answered(page)
    page.screenshot(path=FOLDER / f"{name}.png")
    page.context.close()


def animate(browser: Browser) -> None:
    """The replay from its beginning to its end, as a GIF."""
    page = new_page(browser, width=1100, height=660, offline=True)
    page.goto(REPLAY.as_uri())
    page.keyboard.press("Home")
    frames = []
    for _ in range(_FRAMES):
        page.wait_for_timeout(60)  # the chart follows in the next frame
        frames.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
        for _ in range(_STEPS):
            page.keyboard.press("ArrowRight")
    page.context.close()
    # One palette for all frames: then only what moves differs from one frame to the next.
    palette = frames[_FRAMES // 3].quantize(_COLOURS)
    first, *others = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    shown_ms = [_SHOWN_MS] * (_FRAMES - 1) + [12 * _SHOWN_MS]
    first.save(FOLDER / "replay.gif", save_all=True, append_images=others, duration=shown_ms, loop=0, optimize=True)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        for address in served(LOG):
            for name in PICTURES:
                draw(browser, address, name)
        animate(browser)
        print(f"all views on busy logs: {gallery(browser)}")
        browser.close()


if __name__ == "__main__":
    main()
