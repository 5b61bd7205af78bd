"""The page of `arranger export --html` in a real browser without a network: it plays, and says why a job waits."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from arranger.cli.rendering.playback_page import document, facts, facts_of
from tests.e2e.console.pages import AXE, SLIDER
from tests.servers import REPOSITORY
from tests.unit.test_playback import moved, play
from tests.world import World, shape

PAGE = REPOSITORY / "docs" / "replay.html"

pytestmark = pytest.mark.real


@pytest.fixture
def offline(browser: Browser) -> Iterator["_Offline"]:
    """Opens files in a browser without a network. At the end, none may have reported an error or asked for anything."""
    opener = _Offline(browser)
    yield opener
    assert opener.said == []


class _Offline:
    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.said: list[str] = []

    def __call__(self, file: Path, words: str = "", *, width: int = 1280, scheme: str = "light") -> Page:
        context = self._browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme="dark" if scheme == "dark" else "light",
            timezone_id="UTC", offline=True,
        )  # fmt: skip
        page = context.new_page()
        page.on("console", lambda one: self.said.append(one.text) if one.type in ("error", "warning") else None)
        page.on("pageerror", lambda one: self.said.append(str(one)))
        page.on(
            "request", lambda one: None if one.url.startswith((file.as_uri(), "data:")) else self.said.append(one.url)
        )
        page.goto(file.as_uri() + words)
        return page


def seconds(page: Page) -> int:
    return int(page.locator(SLIDER).get_attribute("aria-valuenow") or 0)


def test_the_committed_page_has_the_console_of_today() -> None:
    committed = PAGE.read_bytes()
    assert document(facts_of(committed)) == committed, "run make replay"


def test_it_opens_where_a_job_waits_and_says_why_and_what_would_help(offline: _Offline) -> None:
    page = offline(PAGE)
    job = page.get_by_label("The chosen job")
    expect(job.get_by_role("heading", level=2)).to_contain_text("default/waits-its-turn Pending")
    expect(job.locator(".reason")).to_contain_text("Waits for nodes for its quorum: insufficient nvidia.com/gpu.")
    expect(job.locator(".reason")).to_contain_text("0 of 2 required pods fit; learner: 0 of 4 nodes fit")
    expect(job.get_by_role("heading", name="What would give it nodes")).to_be_visible()
    point = re.search(r"at=(\d+)", page.url)
    assert point is not None
    expect(job).to_contain_text(f"As of event {point[1]}, 0")
    expect(job.locator(".shell")).to_contain_text(f"arranger explain default/waits-its-turn --at {point[1]} ")
    expect(page.get_by_label("Who waits now")).to_contain_text(
        "default/never-fits waits for nodes for its quorum, which no cluster"
    )


def test_it_plays_to_the_end_and_begins_again(offline: _Offline) -> None:
    page = offline(PAGE)
    page.keyboard.press("Home")
    page.get_by_label("Speed").select_option("30")
    page.get_by_role("button", name="Play").click()
    expect(page.get_by_role("button", name="Play")).to_be_visible(timeout=30_000)
    end = int(page.locator(SLIDER).get_attribute("aria-valuemax") or 0)
    assert seconds(page) == end > 20
    expect(page.get_by_label("The chosen job")).to_contain_text("Succeeded")
    page.get_by_label("Speed").select_option("0.25")
    page.get_by_role("button", name="Play").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    assert seconds(page) < end // 2


def test_the_keyboard_alone_moves_time_and_chooses_jobs(offline: _Offline) -> None:
    page = offline(PAGE)
    page.keyboard.press("Home")
    assert seconds(page) == 0
    expect(page.get_by_label("The chosen job")).to_contain_text("It wasn't there yet.")
    happened = page.get_by_label("Events up to this moment").locator("li").first
    page.keyboard.press("n")
    expect(happened).to_contain_text(re.compile("placed|waits"))
    earlier = page.url
    page.keyboard.press("n")
    assert page.url != earlier
    page.keyboard.press("p")
    expect(page).to_have_url(earlier)
    page.keyboard.press("End")
    page.get_by_role("link", name="default/goes-first").first.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("The chosen job")).to_contain_text("default/goes-first Succeeded")
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Play")).to_be_visible()


def test_a_link_is_a_moment_and_a_job(offline: _Offline) -> None:
    page = offline(PAGE, "#/gantt?at=100&job=default/never-fits")
    job = page.get_by_label("The chosen job")
    expect(job).to_contain_text("default/never-fits Pending")
    expect(job).to_contain_text("Ahead of it in the queue")
    as_of, reason = job.get_by_text("As of event ").bounding_box(), job.locator(".reason").bounding_box()
    assert as_of is not None and reason is not None and as_of["y"] < reason["y"]
    assert "at=100" in page.url
    page.get_by_label("What happened").get_by_role("link", name="#62").click()
    assert "at=62" in page.url


def test_a_link_to_a_job_that_is_not_there_says_so(offline: _Offline) -> None:
    page = offline(PAGE, "#/gantt?at=100&job=default/never-fitz")
    expect(page.get_by_text("There is no job default/never-fitz in this replay.")).to_be_visible()


def test_a_link_to_what_the_replay_does_not_have_says_so_until_another_moment_is_chosen(offline: _Offline) -> None:
    for words, said in (
        ("#/nosuch", "There is no view named nosuch in a replay"),
        ("#/gantt?at=abc", "There is no event abc"),
        ("#/gantt?at=99999", "The replay ends with event 229: this is its end."),
    ):
        page = offline(PAGE, words)
        expect(page.get_by_text(said)).to_be_visible()
        page.keyboard.press("Home")
        expect(page.get_by_text(said)).to_have_count(0)
    page = offline(PAGE, "#/gantt?at=100@5")
    expect(page.get_by_text("There is no")).to_have_count(0)
    assert "at=100" in page.url


def test_a_failed_job_says_what_helps(offline: _Offline) -> None:
    page = offline(PAGE, "#/gantt?at=229&job=default/never-fits")
    job = page.get_by_label("The chosen job")
    expect(job).to_contain_text("default/never-fits Failed")
    expect(job).to_contain_text("What helps")
    expect(job).to_contain_text(
        "request less for a pod (a node offers at most 8 nvidia.com/gpu), need fewer pods at once"
    )


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_use_it_on_a_telephone_too(width: int, scheme: str, offline: _Offline) -> None:
    page = offline(PAGE, width=width, scheme=scheme)
    expect(page.get_by_label("The chosen job")).to_be_visible()
    assert page.locator("html").get_attribute("data-scheme") == scheme
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # Not as an element: the page's policy forbids scripts of others.
    page.evaluate(AXE.read_text())
    report = json.loads(page.evaluate("axe.run().then((report) => JSON.stringify(report.violations))"))
    assert [(one["id"], one["nodes"][0]["html"]) for one in report if one["impact"] in ("serious", "critical")] == []


def test_a_job_has_the_queue_and_the_priority_of_the_moment(offline: _Offline, tmp_path: Path) -> None:
    playback, told = play(moved().entries)
    file = tmp_path / "moved.html"
    file.write_bytes(document(facts(playback, told)))
    page = offline(file, "#/gantt?job=default/train")
    job = page.get_by_label("The chosen job")
    page.keyboard.press("Home")
    expect(job).to_contain_text("It wasn't there yet.")
    expect(job).not_to_contain_text("Queue")
    of = playback.texts
    said = {f"Queue {of[step.queue]}, priority {step.priority}": step for step in playback.jobs[0].steps}
    assert {"Queue a, priority 5", "Queue a, priority 6", "Queue b, priority 2"} <= said.keys()
    for words, step in said.items():
        page.goto(f"{file.as_uri()}#/gantt?at={step.at}&job=default/train")
        expect(job).to_contain_text(words)


def test_names_are_text_whatever_they_are(offline: _Offline, tmp_path: Path) -> None:
    world, hostile = World(), "x</script><img src=x onerror=alert(1)><!--"
    world.node("node-1", gpus=1)
    world.job(hostile, leader=shape(gpus=2))
    world.cycle()
    world.pass_time(10)
    world.cycle()
    file = tmp_path / "hostile.html"
    file.write_bytes(document(facts(*play(world.entries))))
    page = offline(file)
    expect(page.get_by_label("The chosen job").get_by_role("heading", level=2)).to_contain_text(hostile)
    assert page.locator("img").count() == 0
