"""The console in a real browser, on committed histories: with the mouse, and with the keyboard alone."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from playwright.sync_api import Browser, Route, expect

from tests.e2e.console.pages import AXE, HISTORIES, SLIDER, Opener, expect_at, export, offset_of, ready, until
from tests.servers import REPOSITORY
from tests.unit.test_cli_simulate_files import job

VIEWS = ("cluster", "overview", "jobs", "gantt", "job", "queues", "cycle", "what-if")
SVG = "{http://www.w3.org/2000/svg}"

pytestmark = pytest.mark.real


def test_the_slider_moves_all_views_and_its_place_is_in_the_address(waits: str, opened: Opener) -> None:
    page = opened(f"{waits}/#/cluster?at=end")
    expect(page.get_by_role("button", name="At the end")).to_have_attribute("aria-pressed", "true")
    expect_at(page, 211)
    box = page.locator(SLIDER).bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.get_by_role("button", name="At the end")).to_have_attribute("aria-pressed", "false")
    here = offset_of(page)
    assert 1 < here < 211
    assert f"at={here}" in page.url
    again = opened(page.url)
    expect_at(again, here)
    ready(again)
    page.get_by_role("link", name="Jobs", exact=True).click()
    expect_at(page, here)
    page.get_by_role("button", name="At the end").click()
    expect_at(page, 211)
    expect(page).to_have_url(re.compile("at=end"))


def test_the_page_follows_the_log_and_a_paused_one_tells_of_new_events(
    growing: tuple[str, Callable[[], int]], opened: Opener
) -> None:
    address, grow = growing
    page = opened(f"{address}/#/cluster?at=end")
    expect(page.get_by_role("img", name="2 nodes")).to_be_visible()
    expect(page.get_by_role("button", name="At the end")).to_be_visible()  # the page knows where the log ended
    here = grow()
    expect_at(page, here)
    expect(page.get_by_role("img", name="3 nodes")).to_be_visible()
    new, lost = page.get_by_role("log"), page.locator(".time .legend").get_by_text("node lost")
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Follow the end")).to_be_visible()
    expect(new).to_be_empty()
    grow()
    expect(new).to_have_text("1 new event")
    end = grow()
    expect(new).to_have_text(f"{end - here} new events")
    expect_at(page, here)
    expect(lost).to_have_count(0)
    page.get_by_role("button", name="Follow the end").click()
    expect_at(page, end)
    expect(new).to_be_empty()
    expect(lost).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="not ready")).to_be_visible()


def test_a_file_that_grew_while_the_page_opened_has_not_ended(
    growing: tuple[str, Callable[[], int]], opened: Opener
) -> None:
    address, grow = growing
    page = opened(f"{address}/#/cluster?at=end")
    expect(page.get_by_role("button", name="At the end")).to_be_visible()
    held: list[Route] = []
    page.route("**/api/v1/live", lambda one: held.append(one))  # noqa: PLW0108  # Playwright looks at its code
    page.reload()
    expect(page.get_by_role("button", name="At the end")).to_be_visible()
    here = grow()
    expect(page.get_by_role("button", name="At the end")).to_be_visible()
    for one in held:
        one.continue_()
    expect(page.get_by_role("button", name="Following · stay")).to_be_visible()
    expect_at(page, here)
    page.unroute("**/api/v1/live")
    page.reload()  # the server knows it, too
    expect(page.get_by_role("button", name="Following · stay")).to_be_visible()


@pytest.mark.parametrize("point", ["end", "15"])
def test_a_page_whose_log_is_replaced_says_so_and_keeps_nothing_of_the_earlier_one(
    replaced: tuple[str, Callable[[], int]], opened: Opener, point: str
) -> None:
    address, replace = replaced
    page = opened(f"{address}/#/jobs?at={point}", away=True)
    expect(page.get_by_role("link", name="default/train")).to_be_visible()
    expect(page.get_by_text("This is another log now")).to_have_count(0)
    last = replace()
    expect(page.get_by_text("This is another log now")).to_be_visible()
    expect_at(page, last)
    expect(page.get_by_role("link", name="default/other")).to_be_visible()
    expect(page.get_by_role("link", name="default/train")).to_have_count(0)
    page.get_by_role("link", name="Cluster").click()
    expect(page.get_by_role("img", name="1 node")).to_be_visible()
    page.get_by_role("button", name="I see").click()
    expect(page.get_by_text("This is another log now")).to_have_count(0)


def test_a_waiting_job_is_explained_with_links_to_its_events(waits: str, opened: Opener) -> None:
    page = opened(f"{waits}/#/jobs?at=200")
    page.get_by_role("searchbox").fill("train")
    expect(page.get_by_role("status")).to_have_text("1 of 3 jobs")
    page.get_by_role("link", name="default/train").click()
    expect(page.get_by_role("heading", name="Why further pods wait")).to_be_visible()
    ready(page)
    explained = page.get_by_label("Explanation")
    expect(explained).to_contain_text("0 of 1 further pods of actors fit")
    expect(explained).to_contain_text("when default/sweep (8 nvidia.com/gpu on node-1 and node-2) ends")
    explained.get_by_role("link", name="#142").first.click()
    expect_at(page, 142)


def test_the_page_of_a_job_says_what_the_command_explains_of_it(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/job?at=285&job=default/train")
    explained = page.get_by_label("Explanation")
    expect(explained.get_by_role("heading", name="Why it takes no room from others")).to_be_visible()
    ready(page)
    for told in (
        "6 pods to default/answer, whose queue serving was below its share, at ",
        "25.296 GPU seconds of work lost, no restart counted; it waits again since 10 s",
        "scheduled again 2 times; counted against the limits: leader 0 of 3, actors 0 of 3",
        "node-1, node-2, start unknown, after the end of default/explore",
        "memory 24Gi used, share 48Gi; nvidia.com/gpu 6 used, share 12; 1 job with nodes.",
        "What keeps it waiting is room: no nodes have enough for it.",
        "preempted for job hotfix of namespace default, which has priority 8",
        "default/explore holds 3 nvidia.com/gpu since",
    ):
        expect(explained).to_contain_text(told)
    latest = explained.locator(".folds > li").first
    expect(latest).to_contain_text("waits for nodes for its quorum: insufficient nvidia.com/gpu (10 s)")
    latest.locator("summary").click()
    expect(latest.get_by_label("Events of the job").get_by_role("link", name="#266")).to_be_visible()
    latest.locator(".point").first.click()  # when it came into this state
    expect(explained.locator(".folds > li").first).to_contain_text("for 0 s so far")
    page.goto(f"{room}/#/job?at=284&job=default/train")  # before the end of answer, whose room comes anyway then
    expect(explained).to_contain_text(
        "default/answer: nothing is reclaimed, because its own queue would be above its share of nvidia.com/gpu"
    )
    page.goto(f"{room}/#/job?at=285&job=default/answer")
    expect(explained).to_contain_text("from default/train (6 pods, its queue was above its share, 25.296 GPU seconds")


def test_a_what_if_stands_beside_what_was(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/what-if?at=242")
    expect_at(page, 242)
    page.get_by_text("More to change").click()
    page.get_by_label("Preemption").select_option("Off")
    page.get_by_label("Run on until").fill("drained")
    page.get_by_role("button", name="Ask").click()
    result = page.get_by_role("region", name="What if")
    sums = result.get_by_role("table", name="Sums of the cycle that differ")
    given = sums.get_by_role("row", name="Given").get_by_role("cell")
    expect(given.nth(1)).to_contain_text("6 nvidia.com/gpu", timeout=60_000)
    expect(given.nth(2)).to_have_text("nothing")
    expect(sums.get_by_text("Queue policy")).to_have_count(0)  # only what differs
    expect(result.get_by_role("link", name="default/answer").first).to_be_visible()
    differs = result.get_by_role("table", name="Jobs for which it differs")
    expect(differs.get_by_role("row", name="default/answer")).to_contain_text("room from default/train (")
    pays = sums.get_by_role("row", name="Jobs that give room").get_by_role("cell")
    expect(pays.nth(1)).to_have_text("default/train")
    expect(pays.nth(2)).to_have_text("none")
    link = opened(page.url)  # whoever gets the link sees the same
    expect(link.get_by_label("Preemption")).to_have_value("Off")
    expect(link.get_by_role("region", name="What if").get_by_role("row", name="Given")).to_contain_text(
        "nothing", timeout=60_000
    )
    page.get_by_label("Reservations").fill("3")
    with page.expect_event("requestfailed", lambda one: "what-if" in one.url, timeout=5_000):
        page.get_by_role("button", name="Ask").click()
        page.get_by_role("link", name="Jobs", exact=True).click()  # whoever leaves doesn't wait for the answer


def test_a_what_if_with_a_node_and_a_job_more_has_the_numbers_of_the_command(
    room: str, opened: Opener, tmp_path: Path
) -> None:
    manifest = tmp_path / "extra.yaml"
    manifest.write_text(yaml.safe_dump(job("extra", priority=10)))
    options = ["--at=242", "--until=drained", "--with-node=node-3", f"--with={manifest}", "--output=json"]
    command = [sys.executable, "-m", "arranger.cli.main", "what-if", *options]
    log = f"--log={HISTORIES / 'room-for-what-matters.log'}"
    told = json.loads(subprocess.check_output([*command, log], cwd=REPOSITORY))
    page = opened(f"{room}/#/what-if?at=242", width=390)
    expect_at(page, 242)
    page.get_by_text("More to change").click()
    page.get_by_label("Added nodes").fill("node-3")
    page.get_by_label("Added or changed").fill(manifest.read_text())
    page.get_by_label("Run on until").fill("drained")
    page.get_by_role("button", name="Ask").click()
    result = page.get_by_role("region", name="What if")
    expect(result).to_contain_text("with standard input, with a copy of node node-3", timeout=60_000)
    before, after = told["asItWas"], told["whatIf"]
    assert before["pods"] != after["pods"]
    numbers = [
        ("Pods placed", before["pods"], after["pods"]),
        ("Jobs that wait after this cycle", before["waiting"], after["waiting"]),
        ("Jobs started by the end", told["until"]["asItWas"]["started"], told["until"]["whatIf"]["started"]),
        ("Jobs ended by the end", told["until"]["asItWas"]["ended"], told["until"]["whatIf"]["ended"]),
    ]
    sums = result.get_by_role("region", name=re.compile("^Sums of .* that differ")).get_by_role("listitem")
    for name, one, other in numbers:
        card = sums.filter(has_text=name)
        if one == other:
            expect(card).to_have_count(0)
        else:
            expect(card.locator("dd")).to_have_text([str(one), str(other)])
    expect(result.get_by_role("link", name="default/extra").first).to_be_visible()


def test_nodes_have_bars_of_their_jobs_and_the_cluster_a_course_over_time(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/gantt?at=242")
    page.get_by_label("Rows").select_option("nodes")
    chart = page.get_by_role("img", name="3 nodes over time")
    expect(chart).to_be_visible()
    page.get_by_text("The same as a table").click()
    table = page.get_by_role("table", name="Which jobs had each node")
    expect(table.get_by_role("row", name="node-1 default/explore").first).to_be_visible()
    chart.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#/job.*default(%2F|/)explore"))
    page.get_by_role("link", name="Cluster", exact=True).click()
    expect(
        page.get_by_role("img", name="GPUs used, idle, reserved, and free beside used ones over time")
    ).to_be_visible()


def test_a_cycle_is_verified_now(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/cycle?at=242")
    ready(page)
    expect(page.get_by_role("heading", name="The cycle at #241")).to_be_visible()
    page.get_by_role("button", name="Verify now").click()
    expect(page.get_by_text("give the same again, up to event 242")).to_be_visible(timeout=60_000)


def test_what_the_server_refuses_is_shown_in_its_words(room: str, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(f"{room}/#/job?at=242&job=default/nobody")
    expect(page.get_by_role("alert")).to_have_text("the log has no job 'default/nobody' up to that point")
    page.close()


def test_a_job_name_that_nobody_has_yet_or_that_is_mistyped_leads_on(room: str, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(f"{room}/#/job?at=242&job=default/hotfx")
    expect(page.get_by_role("alert")).to_have_text("the log has no job 'default/hotfx' up to that point")
    page.get_by_text("Did you mean default/hotfix?").get_by_role("link").click()
    expect(page.get_by_role("heading", name="default/hotfix")).to_be_visible()
    page.close()
    page = browser.new_page()
    page.goto(f"{room}/#/job?at=20&job=default/hotfix")
    page.get_by_text("It comes at ").get_by_role("button").click()
    expect(page.get_by_role("heading", name="default/hotfix")).to_be_visible()
    page.close()


def test_the_keyboard_alone_reaches_everything(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/cluster?at=242")
    expect_at(page, 242)
    expect(page.locator(SLIDER)).to_have_attribute("aria-valuemax", "602")  # it knows the end of the log
    for key, offset in (("ArrowRight", 243), ("ArrowLeft", 242), ("Home", 1), ("End", 602)):
        page.keyboard.press(key)
        expect_at(page, offset)
    page.keyboard.press("PageUp")
    expect(page.locator(SLIDER)).not_to_have_attribute("aria-valuenow", "602")
    page.keyboard.press("Home")
    expect_at(page, 1)
    page.keyboard.press("n")
    expect(page.locator(SLIDER)).not_to_have_attribute("aria-valuenow", "1")
    # Whoever has typed a time, or thought better of it, moves on by keys.
    field = page.get_by_role("textbox", name="Time", exact=True)
    for typed, key in (("#242", "Enter"), ("#250", "Escape")):
        page.keyboard.press("t")
        expect(field).to_be_focused()
        field.fill(typed)
        page.keyboard.press(key)
        expect(field).not_to_be_focused()
        expect_at(page, 242)
    expect(field).not_to_have_value("#250")
    page.keyboard.press("ArrowRight")
    expect_at(page, 243)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    # An answer about a point between would take the nodes away, and the focus with them.
    until(page, f"performance.getEntriesByName('moment')[0]?.detail === {offset_of(page)}")
    page.locator(".canvas canvas").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("[aria-live=polite]")).to_contain_text("node-2:")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=2)).to_contain_text("default/")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 1280, 390])
def test_every_view_is_accessible_and_fits(room: str, opened: Opener, width: int, scheme: str) -> None:
    page = opened(f"{room}/#/cluster?at=242&job=default/train", width=width, scheme=scheme)
    # The page's own policy allows no inline script, so the engine comes through the debugger.
    found: dict[str, list[str]] = {}
    for view in VIEWS:
        page.goto(f"{room}/#/{view}?at=242&job=default/train")
        ready(page)
        page.evaluate(AXE.read_text(encoding="utf-8"))
        report = json.loads(page.evaluate("axe.run().then((report) => JSON.stringify(report.violations))"))
        serious = [one for one in report if one["impact"] in ("serious", "critical")]
        if serious:
            found[view] = [f"{one['id']}: {node['html'][:120]}" for one in serious for node in one["nodes"]]
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, view
        if width < 760:
            assert page.evaluate("document.querySelector('header').offsetHeight") <= 120, view
            expect(page.locator("main table:not(.chart table)")).to_have_count(0)
            number = page.locator(".steps .typed").bounding_box()
            buttons = page.locator(".steps .buttons").bounding_box()
            assert number is not None
            assert buttons is not None
            assert number["x"] + number["width"] <= buttons["x"], "they overlap"
    assert found == {}


#: Of the element that has the focus: its name, and what hides a part of it or of its ring.
_HIDDEN = """() => {
    const one = document.activeElement;
    const box = one.getBoundingClientRect(), style = getComputedStyle(one), hidden = [];
    const ring = Math.max(0, parseFloat(style.outlineOffset) + parseFloat(style.outlineWidth)) - 0.5;
    if (style.outlineStyle === "none" && one !== document.body) hidden.push("no ring");
    for (let around = one.parentElement; around && around !== document.documentElement; around = around.parentElement) {
        const outer = around.getBoundingClientRect(), of = getComputedStyle(around);
        const cut = (from, to) => from < to - 1;
        if (of.overflowX !== "visible" && (cut(box.left - ring, outer.left) || cut(outer.right, box.right + ring)))
            hidden.push(`cut off at a side by ${around.className || around.tagName}`);
        if (of.overflowY !== "visible" && box.height < outer.height
            && (cut(box.top - ring, outer.top) || cut(outer.bottom, box.bottom + ring)))
            hidden.push(`cut off above or below by ${around.className || around.tagName}`);
    }
    const header = document.querySelector("header");
    if (!header.contains(one) && box.top < header.getBoundingClientRect().bottom - 1 && box.height < innerHeight / 2)
        hidden.push("below the header");
    const name = one.getAttribute("aria-label") || one.textContent.trim() || one.tagName;
    return [one.tagName, name.slice(0, 60), hidden, one === document.body];
}"""


@pytest.mark.parametrize("width", [1280, 390])
def test_the_keyboard_alone_walks_through_all_views_and_always_shows_where_it_is(
    room: str, opened: Opener, width: int
) -> None:
    """The walk: a waiting job is found, explained, and changed, with Tab, Enter, and typed text alone."""
    page = opened(f"{room}/#/overview?at=430", width=width)
    ready(page)

    def walk(until: str, *, most: int = 500) -> None:
        """Tab until the element of that name has the focus; each on the way is whole in sight."""
        for _ in range(most):
            page.keyboard.press("Tab")
            tag, name, hidden, _ = page.evaluate(_HIDDEN)
            assert hidden == [], (page.url, tag, name)
            if name == until:
                return
        raise AssertionError(f"{until} isn't reached at {page.url}")

    for view in ("Cluster", "Gantt", "Queues", "Jobs"):
        walk(view)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text(view)
        ready(page)
        walk("Overview", most=2_000)  # through the whole view, and on from the beginning of the page
    walk("default/wide")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Why it waits")).to_be_visible()
    ready(page)
    walk("What-if")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Job", exact=True)).to_have_value("default/wide")
    page.get_by_label("Its priority").focus()
    page.keyboard.type("9")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="What if")).to_contain_text("priority 9", timeout=60_000)


@pytest.mark.parametrize("pseudonyms", [False, True], ids=["names", "pseudonyms"])
def test_an_export_opens_from_disk_without_any_request(
    room: str, opened: Opener, tmp_path: Path, *, pseudonyms: bool
) -> None:
    page = opened(f"{room}/#/jobs?at=242")
    ready(page)
    file = export(page, tmp_path, "The same, with pseudonyms" if pseudonyms else "This view as an HTML file")
    text = file.read_text(encoding="utf-8")
    exported = opened(file.as_uri())
    expect(exported.get_by_role("row")).to_have_count(6)
    for name in ("explore", "hotfix", "train"):
        assert (f"default/{name}" in text) is not pseudonyms
    expect(page.get_by_text("default/explore")).to_be_visible()


@pytest.mark.parametrize(("at", "gone"), [(368, "train|explore|hotfix"), (6, r"vm-\w+|09ac8edf")])
def test_an_export_with_pseudonyms_names_no_job_that_is_gone_and_no_process(
    room: str, opened: Opener, tmp_path: Path, at: int, gone: str
) -> None:
    page = opened(f"{room}/#/cycle?at={at}")
    ready(page)
    expect(page.get_by_role("table").first).to_be_visible()
    expect(page.locator("main")).to_contain_text(re.compile(gone))
    assert not re.search(gone, export(page, tmp_path, "The same, with pseudonyms").read_text(encoding="utf-8"))


def test_the_page_of_a_deleted_job_says_so(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/job?job=default/explore&at=602")
    ready(page)
    expect(page.get_by_text("The job was deleted before this point.")).to_be_visible()
    expect(page.get_by_text("1970-01-01")).to_have_count(0)


@pytest.mark.parametrize(
    ("view", "charts", "names"),
    [
        (
            "cluster",
            2,
            {
                "node-1",
                "default/explore",
                "free beside used ones",
                "GPUs used, idle, reserved, and free beside used ones over time",
            },
        ),
        ("gantt", 1, {"default/notes", "default/explore", "runs"}),
    ],
)
def test_each_chart_is_saved_as_an_svg_file_in_light_colours(
    room: str, opened: Opener, tmp_path: Path, view: str, charts: int, names: set[str]
) -> None:
    page = opened(f"{room}/#/{view}?at=242", scheme="dark")
    ready(page)
    buttons = page.get_by_role("button", name="SVG")
    expect(buttons).to_have_count(charts)
    said: set[str] = set()
    for number in range(charts):
        with page.expect_download() as download:
            buttons.nth(number).click()
        file = tmp_path / f"{number}.svg"
        download.value.save_as(file)
        root = ElementTree.parse(file).getroot()
        colours = [one.get("fill") for one in root.iter(f"{SVG}rect")]
        assert (colours[0], len(colours) > 2) == ("#ffffff", True)
        assert root.find(f"{SVG}style") is not None
        said |= {(one.text or "").partition(" · ")[0] for one in root.iter(f"{SVG}text")}
        picture = opened(file.as_uri(), scheme="dark")
        assert picture.evaluate("document.documentElement.getBBox().width") > 480
    assert names <= said
    expect(page.locator("html")).to_have_attribute("data-scheme", "dark")


def test_a_token_is_never_in_the_address(room: str, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    asked: list[str | None] = []

    def refuse_without_token(route, request) -> None:  # type: ignore[no-untyped-def]
        asked.append(request.headers.get("authorization"))
        if request.headers.get("authorization") == "Bearer secret":
            route.continue_()
        else:
            route.fulfill(status=401, content_type="application/json", body='{"message": "who are you?"}')

    page.route("**/api/**", refuse_without_token)
    page.goto(f"{room}/#/cluster?at=242")
    page.get_by_label("Bearer token").fill("secret")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("GPUs used")).to_be_visible()
    assert "Bearer secret" in asked
    assert "secret" not in page.url
    context.close()
