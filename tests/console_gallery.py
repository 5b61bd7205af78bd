"""All views of the console on busy logs, at three widths, light and dark, in one page to look at: `make pictures`.

The page and its pictures are written to `build/pictures`, and nothing of that is committed.
"""

import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path

from playwright.sync_api import Browser

from arranger.events.log import Entry
from tests.busy_log import Busy, large
from tests.e2e.console.pages import answered, new_page, served, written
from tests.servers import REPOSITORY

FOLDER = REPOSITORY / "build" / "pictures"
WIDTHS = (1440, 1280, 390)
SCHEMES = ("light", "dark")
#: Name → the address behind `#/`, and whether the picture has all of the page rather than a screen.
VIEWS = {
    "overview": ("overview", True),
    "cluster": ("cluster", True),
    "jobs": ("jobs", True),
    "gantt": ("gantt", True),
    "job that waits": ("job?job={waits}&at={end}", True),
    "job that runs": ("job?job={runs}&at={end}", True),
    "job that failed": ("job?job={failed}&at={end}", True),
    "queues": ("queues", True),
    "cycle": ("cycle", False),
    "what-if": ("what-if?at=4000&withNode=gpu-node-00.cluster.lab.example&until=1h", True),
}
#: Longer pages are cut off in the pictures.
_HIGHEST_PX = 4_000


def draw(
    browser: Browser, address: str, log: str, jobs: dict[str, str], views: Sequence[str]
) -> list[tuple[str, Path]]:
    """A picture of each view, width and scheme, with its title."""
    found = []
    for name in views:
        path, whole = VIEWS[name]
        for width in WIDTHS:
            for scheme in SCHEMES:
                page = new_page(browser, width=width, height=900, scheme=scheme)
                page.goto(f"{address}/#/{path.format(**jobs)}")
                answered(page)
                height = page.evaluate("document.documentElement.scrollHeight") if whole else 900
                page.set_viewport_size({"width": width, "height": max(900, min(height, _HIGHEST_PX))})
                page.wait_for_timeout(300)
                file = FOLDER / f"{log}-{name.replace(' ', '-')}-{width}-{scheme}.png"
                page.screenshot(path=file)
                found.append((f"{log}: {name}, {width} px, {scheme}", file))
                page.context.close()
    return found


def gallery(browser: Browser) -> Path:
    """Make the pictures and the page, and return the page's path."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    busy = Busy()
    hours = busy.entries()
    drawn = []
    with tempfile.TemporaryDirectory(prefix="arranger-pictures-") as folder:
        logs: dict[str, tuple[Sequence[Entry], dict[str, str], Sequence[str]]] = {
            "busy": (hours, busy.jobs() | {"end": str(hours[-1].last)}, [*VIEWS]),
            "5000 nodes": (large(), {}, ("overview", "cluster", "gantt")),
        }
        for name, (entries, jobs, views) in logs.items():
            file = Path(folder) / f"{name}.log"
            written(file, *entries, begun_ms=entries[0].batch.time_ms)
            for address in served(str(file)):
                drawn += draw(browser, address, name.replace(" ", "-"), jobs, views)
    page = FOLDER / "index.html"
    figures = "\n".join(
        f'<figure><a href="{escape(file.name)}"><img src="{escape(file.name)}" alt="" loading="lazy"></a>'
        f"<figcaption>{escape(title)}</figcaption></figure>"
        for title, file in drawn
    )
    page.write_text(
        "<!doctype html><meta charset=utf-8><title>The console, all views</title>"
        "<style>body{font:14px sans-serif;display:flex;flex-wrap:wrap;gap:20px;align-items:flex-start}"
        f"figure{{margin:0}}img{{max-width:560px;max-height:900px;border:1px solid #888}}</style>\n{figures}\n",
        encoding="utf-8",
    )
    return page
