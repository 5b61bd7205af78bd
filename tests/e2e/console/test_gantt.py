"""The Gantt chart, the line of time and the colours of the console, in a real browser: with the mouse and by keys."""

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page, Route, expect

from tests.e2e.console.pages import AXE, SLIDER, Opener, expect_at, export, offset_of, ready, served, until, written
from tests.world import World, shape

pytestmark = pytest.mark.real

_END = 602
_MONTH_MS = 30 * 86_400_000
_CHART = re.compile("over time; the arrow keys")


def answer(address: str, question: str) -> Any:
    with urlopen(f"{address}/api/v1/{question}") as response:
        return json.load(response)


def zoom_of(page: Page) -> tuple[int, int] | None:
    found = re.search(r"zoom=(\d+)-(\d+)", page.url)
    return (int(found[1]), int(found[2])) if found else None


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[int], World]]:
    """The address of the console on a log of a month, the offsets of its decisions, and the world that made it. Most
    decisions are within one second."""
    world = World()
    for number in range(4):
        world.node(f"node-{number}", gpus=8)
    for number in range(30):
        world.job(f"early-{number}", leader=shape(gpus=1), created=world.now_ms, user=("ada", "tony")[number % 2])
        world.now_ms += 30
        world.cycle()
    world.now_ms += _MONTH_MS // 2
    world.job("mid-month", leader=shape(gpus=1), created=world.now_ms)
    world.cycle()
    world.now_ms += _MONTH_MS // 2
    world.job("late", leader=shape(gpus=1), created=world.now_ms)
    world.cycle()
    file = tmp_path_factory.mktemp("month") / "month.log"
    written(file, *world.entries)
    decisions = list[int]()
    serving = served(str(file))
    address = next(serving)
    while not answer(address, "timeline")["complete"]:
        time.sleep(0.1)
    after = 0
    while True:
        try:
            after = answer(address, f"decision?after={after}")["at"]
        except OSError:
            break
        decisions.append(after)
    yield address, decisions, world
    for _ in serving:
        pass


def test_an_export_has_the_time_and_no_name_that_was_pointed_at(room: str, opened: Opener, tmp_path: Path) -> None:
    page = opened(f"{room}/#/gantt?at=242")
    ready(page)
    log = answer(room, "timeline")
    (mark, *_) = [one for one in log["marks"] if one["kind"] == "preempted"]
    box = page.locator(SLIDER).bounding_box()
    assert box is not None
    share = (mark["time"] - log["firstTime"]) / (log["lastTime"] - log["firstTime"])
    page.mouse.move(box["x"] + share * box["width"], box["y"] + 4)
    expect(page.locator(SLIDER)).to_have_attribute("title", re.compile("preempted: default/"))
    time_shown = page.get_by_role("textbox", name="Time", exact=True).input_value()
    exported = export(page, tmp_path, "The same, with pseudonyms").read_text(encoding="utf-8")
    assert time_shown in exported
    for job in mark["subjects"]:
        assert job.partition("/")[2] not in exported.partition("</style>")[2]


def test_a_log_that_has_ended_opens_where_most_happened_with_its_end_beside_it(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/jobs")
    busiest = answer(room, "timeline")["busiest"]
    assert 1 < busiest < _END
    expect_at(page, busiest)
    expect(page).to_have_url(re.compile(f"at={busiest}"))
    most = page.get_by_role("button", name="Where most happened")
    end = page.get_by_role("button", name="At the end")
    expect(most).to_have_attribute("aria-pressed", "true")
    end.click()
    expect_at(page, _END)
    expect(end).to_have_attribute("aria-pressed", "true")
    page.reload()
    expect_at(page, _END)
    page.keyboard.press("b")
    expect_at(page, busiest)


def test_a_log_file_of_this_minute_opens_where_most_happened_too(tmp_path: Path, opened: Opener) -> None:
    """As after the demo: nothing waits or runs at the end, and nobody writes to the file any more."""
    world = World()
    world.now_ms = round(time.time() * 1000) - 40_000
    world.node("node-1", gpus=4)
    world.job("train", leader=shape(gpus=4))
    world.settle()
    world.job("late", leader=shape(gpus=4))
    world.cycle()
    for name in ("late", "train"):
        world.pass_time(19)
        world.job_gone(world.state.jobs[f"uid-{name}"])
    file = tmp_path / "fresh.log"
    written(file, *world.entries)
    serving = served(str(file))
    address = next(serving)
    while not (log := answer(address, "timeline"))["complete"]:
        time.sleep(0.1)
    most = log["busiest"]
    page = opened(f"{address}/#/jobs")
    expect(page.get_by_role("button", name="At the end")).to_be_visible()
    expect_at(page, most)
    assert 0 < most < world.state.offset
    page.close()
    for _ in serving:
        pass


@pytest.mark.parametrize(
    ("typed", "hours"),
    [
        ("-2h", -2),
        ("2h ago", -2),
        ("yesterday 15:00", None),
        ("", None),
        ("#3", None),
        ("nonsense", None),
        ("999", None),
    ],
)
def test_a_time_is_typed(month: tuple[str, list[int], World], typed: str, hours: int | None, opened: Opener) -> None:
    address, _, world = month
    log = answer(address, "timeline?buckets=1")
    page = opened(f"{address}/#/jobs?at=end")
    expect_at(page, log["last"])
    page.keyboard.press("t")
    field = page.get_by_role("textbox", name="Time", exact=True)
    expect(field).to_be_focused()
    end = datetime.fromtimestamp(log["lastTime"]).astimezone()
    if typed == "":
        # In the midst of the second with most decisions, by an ISO time with an offset.
        wanted = datetime.fromtimestamp(world.entries[0].batch.time_ms / 1000 + 0.5, UTC).isoformat()
    else:
        wanted = typed
    field.fill(wanted)
    page.keyboard.press("Enter")
    if typed == "nonsense":
        expect(page.get_by_role("alert")).to_contain_text("“nonsense” is no time: try yesterday 15:00")
        expect_at(page, log["last"])
        return
    if typed == "999":
        expect(page.get_by_role("alert")).to_contain_text("“999” is after the log (events 1 to ")
        return
    if typed == "#3":
        expect_at(page, 3)
        return
    if hours is not None:
        there = end + timedelta(hours=hours)
    elif typed:
        there = (end - timedelta(days=1)).replace(hour=15, minute=0, second=0, microsecond=0)
    else:
        there = datetime.fromisoformat(wanted)
    exact = max(entry.last for entry in world.entries if entry.batch.time_ms <= there.timestamp() * 1000)
    expect_at(page, exact)


def test_an_event_beyond_the_log_is_said_in_the_address_and_where_it_is_typed(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/overview?at=99999", away=True)  # the question about that event is refused first
    beyond = page.locator("#unknown-time")  # until the page is at the end, its view has an alert of its own
    expect(beyond).to_contain_text(f"“99999” is after the log (events 1 to {_END}, ")
    expect_at(page, _END)
    beyond.get_by_role("button", name="Close").click()
    expect(beyond).to_be_hidden()
    page.get_by_role("textbox", name="Event", exact=True).fill("88888")
    page.keyboard.press("Enter")
    expect(beyond).to_contain_text("“88888” is after the log")


def test_in_a_quiet_stretch_a_step_moves_the_clock_and_ages_go_with_it(tmp_path: Path, opened: Opener) -> None:
    world = World()
    world.node("node-1", gpus=4)
    world.job("train", leader=shape(gpus=2), created=world.now_ms)
    world.cycle()
    here, here_ms = world.state.offset, world.state.time_ms
    world.pass_time(3_600)
    world.node("node-2", gpus=4)
    file = tmp_path / "quiet.log"
    written(file, *world.entries)
    for address in served(str(file)):
        while not answer(address, "timeline")["complete"]:
            time.sleep(0.1)
        page = opened(f"{address}/#/jobs?at={here}")
        expect_at(page, here)
        shown = page.get_by_role("textbox", name="Time", exact=True)
        row = page.get_by_role("row").filter(has_text="default/train")
        for step_s in (1_800, 3_000):
            shown.fill("+30m" if step_s == 1_800 else "+20m")
            shown.press("Enter")
            there = datetime.fromtimestamp(here_ms // 1000 + step_s).strftime("%Y-%m-%d %H:%M:%S")
            expect(shown).to_have_value(there)
            expect_at(page, here)
            expect(page).to_have_url(re.compile(f"at={here}(@|%40){here_ms + step_s * 1000}"))
            expect(row.get_by_role("cell", name=f"{2 * step_s / 3600:.2f}", exact=True)).to_be_visible()
            expect(row).to_contain_text(f"{step_s // 60} min")
        page.reload()
        expect(shown).to_have_value(there)
        page.locator(SLIDER).focus()
        page.keyboard.press("ArrowLeft")
        expect(shown).to_have_value(datetime.fromtimestamp(here_ms // 1000).strftime("%Y-%m-%d %H:%M:%S"))
        expect_at(page, here)
        page.close()


def test_after_the_last_decision_there_is_no_next_one(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/jobs?at=end")
    after, before = page.get_by_role("button", name="Decision ›"), page.get_by_role("button", name="‹ Decision")
    expect(after).to_be_disabled()
    held: list[Route] = []
    page.route("**/api/v1/decision?*", lambda one: held.append(one))  # noqa: PLW0108  # Playwright looks at its code
    before.click()
    before.click()  # before the answer to the first click: two steps all the same
    while not held:
        page.wait_for_timeout(20)
    page.unroute("**/api/v1/decision?*")  # the held questions go on
    expect(after).to_be_enabled()
    page.keyboard.press("Home")
    expect(before).to_be_disabled()
    expect(after).to_be_enabled()


def test_a_month_is_zoomed_to_a_second_and_no_decision_is_lost(
    month: tuple[str, list[int], World], opened: Opener
) -> None:
    address, decisions, world = month
    log = answer(address, "timeline?buckets=1")
    first_ms = world.entries[0].batch.time_ms
    page = opened(f"{address}/#/gantt?at={decisions[0]}&zoom={first_ms}-{first_ms + _MONTH_MS}")
    ready(page)
    expect_at(page, decisions[0])
    expect(page.locator(".time .legend")).to_contain_text("to")
    for _ in range(40):
        page.keyboard.press("+")
        zoom = zoom_of(page)
        assert zoom is not None
        if zoom[1] - zoom[0] <= 1000:
            break
    assert zoom is not None and zoom[1] - zoom[0] == 1000 and abs(zoom[0] - first_ms) < 40
    # The slider shows the part, in whose middle decisions are.
    part = answer(address, f"timeline?buckets=400&sinceMs={zoom[0]}&untilMs={zoom[1]}")
    within = [
        at
        for at in decisions
        if part["buckets"][0]["at"] - part["buckets"][0]["events"] < at <= part["buckets"][-1]["at"]
    ]
    assert sum(bucket["decisions"] for bucket in part["buckets"]) == len(within) >= 25
    expect(page.locator(".time .legend")).to_contain_text("to")
    box = page.locator(SLIDER).bounding_box()
    assert box is not None
    middle = [bucket["at"] for bucket in part["buckets"] if bucket["time"] * 1000 <= zoom[0] + 500][-1]
    for _ in range(100):  # until the answer about the part is there
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_timeout(200)
        if abs(offset_of(page) - middle) <= 3:
            break
    assert abs(offset_of(page) - middle) <= 3
    # Every decision is reached by its key, and the part follows.
    page.get_by_label("Event", exact=True).fill("1")
    page.keyboard.press("Enter")
    page.locator(SLIDER).focus()
    expect_at(page, 1)
    for at in decisions:
        page.keyboard.press("n")
        expect_at(page, at)
    expect(page).to_have_url(re.compile(f"zoom=.*-{round(log['lastTime'] * 1000)}"))
    last = zoom_of(page)
    assert last is not None and last[1] == round(log["lastTime"] * 1000) and last[1] - last[0] == 1000
    page.keyboard.press("0")
    expect(page).not_to_have_url(re.compile("zoom="))


def test_a_zoom_stays_while_the_line_of_time_is_asked_for(month: tuple[str, list[int], World], opened: Opener) -> None:
    address, decisions, world = month
    first_ms = world.entries[0].batch.time_ms
    page = opened(f"{address}/#/gantt?at={decisions[0]}&zoom={first_ms}-{first_ms + 60_000}")
    held: list[Route] = []
    page.route("**/api/v1/timeline?*", lambda one: held.append(one))  # noqa: PLW0108  # Playwright looks at its code
    page.reload()
    expect_at(page, decisions[0])
    while not held:
        page.wait_for_timeout(20)
    page.keyboard.press("+")  # all of the time isn't known yet
    assert zoom_of(page) == (first_ms, first_ms + 60_000)
    page.unroute("**/api/v1/timeline?*")  # the held questions go on
    expect(page.locator(".time .legend")).to_contain_text("to")
    page.keyboard.press("+")
    zoom = zoom_of(page)
    assert zoom is not None and zoom[1] - zoom[0] == 30_000


def test_an_address_names_a_zoom_beside_a_point_that_is_elsewhere(
    month: tuple[str, list[int], World], opened: Opener
) -> None:
    address, decisions, world = month
    zoom = f"{world.entries[0].batch.time_ms}-{world.entries[0].batch.time_ms + 60_000}"
    page = opened(f"{address}/#/gantt?at={decisions[-1]}&zoom={zoom}")
    ready(page)
    expect_at(page, decisions[-1])
    page.wait_for_timeout(500)
    assert f"zoom={zoom}" in page.url
    page.keyboard.press("p")
    expect_at(page, decisions[-2])
    until(page, f"!location.hash.includes('zoom={zoom}')")  # the part follows
    assert zoom_of(page) is not None


def test_the_zoom_and_what_is_looked_for_are_in_the_address(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/gantt?at=242")
    ready(page)
    chart = page.get_by_role("img", name=_CHART)
    box = chart.bounding_box()
    assert box is not None
    # Dragging chooses a part, and the wheel with a key zooms; neither opens a job.
    page.mouse.move(box["x"] + 400, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 800, box["y"] + 60, steps=4)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"#/gantt\?.*zoom=\d+-\d+"))
    first = zoom_of(page)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    until(page, f"!location.hash.includes('zoom={first[0]}-{first[1]}')")  # type: ignore[index]
    second = zoom_of(page)
    assert first and second and second[1] - second[0] < first[1] - first[0]
    page.get_by_label("Order").select_option("user")
    page.get_by_label("Show").select_option("waited")
    page.get_by_label("Search").fill("research")
    expect(page).to_have_url(re.compile("order=user.*only=waited.*find=research"))
    again = opened(page.url)
    expect(again.get_by_label("Order")).to_have_value("user")
    expect(again.get_by_label("Show")).to_have_value("waited")
    expect(again.get_by_label("Search")).to_have_value("research")
    assert zoom_of(again) == second
    page.get_by_label("Search").fill("no such job")
    expect(page.get_by_text("No job matches.").first).to_be_visible()


def rows_of(page: Page) -> list[str]:
    """The names of the rows in their order, as the keys walk through them."""
    chart = page.get_by_role("img", name=_CHART)
    chart.focus()
    said = page.locator("main [aria-live=polite]")
    found = list[str]()
    for _ in range(30):
        page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    while True:
        page.wait_for_timeout(60)
        name = said.text_content() or ""
        page.keyboard.press("ArrowDown")
        if found and found[-1] == name:
            return found
        found.append(name)


def test_jobs_that_wait_or_run_at_the_point_come_first_by_queue_and_start(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/gantt?at=422")
    ready(page)
    expect_at(page, 422)
    now = answer(room, "moment?at=422")
    lasting = {job["job"]: job["queue"] for job in now["jobs"] if job["waitCause"] or job["gpusHeld"]}
    begun = {job["job"]: job["bars"][0]["from"] for job in answer(room, "gantt")["jobs"]}
    rows = rows_of(page)
    assert len(lasting) >= 5 and len(rows) > len(lasting)
    assert rows[: len(lasting)] == sorted(lasting, key=lambda job: (lasting[job], begun[job]))
    page.get_by_label("Show").select_option("now")
    expect(page.get_by_role("img", name=f"{len(lasting)} jobs over time")).to_be_visible()
    page.get_by_label("Order").select_option("start")
    assert rows_of(page) == sorted(lasting, key=lambda job: begun[job])


_NAMES = """() => {
    const said = new Set(), drawn = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
        said.add(text);
        return drawn.call(this, text, ...rest);
    };
    window.said = said;
}"""


@pytest.mark.parametrize("namespaces", [1, 2])
def test_the_names_of_a_narrow_chart_have_one_form_unless_two_would_look_alike(
    namespaces: int, tmp_path: Path, opened: Opener
) -> None:
    world = World()
    world.node("node-1", gpus=4)
    for name in ("eval", "a-name-without-room"):
        world.job(name)
    if namespaces > 1:
        world.job("eval", uid="uid-other", namespace="other")
    world.settle()
    log = tmp_path / "names.log"
    written(log, *world.entries)
    serving = served(str(log))
    page = opened(f"{next(serving)}/#/gantt?at=end", width=390)
    ready(page)
    page.evaluate(_NAMES)
    page.get_by_label("Order").first.select_option("start")
    until(page, "window.said.size > 0")
    names = {one for one in page.evaluate("[...window.said]") if re.search("eval|room|default/|other/", one)}
    told_apart = {"default/eval", "other/eval"} if namespaces > 1 else {"eval"}
    assert {one for one in names if "…" not in one} == told_apart
    page.close()
    for _ in serving:
        pass


_COLOURS = """() => {
    const canvas = document.querySelector("main canvas"), pen = canvas.getContext("2d");
    const found = new Set();
    const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
    for (let at = 0; at < data.length; at += 4) {
        if (data[at + 3] === 255) found.add(data.slice(at, at + 3).join(","));
    }
    return [...found];
}"""


def legend(page: Page) -> dict[str, str]:
    """The names in the legend of the view, with their colours."""
    items = page.locator("main .legend li")
    colours = items.evaluate_all(
        "all => all.map(one => getComputedStyle(one.querySelector('.swatch')).backgroundColor)"
    )
    return dict(zip(items.all_text_contents(), colours, strict=True))


def test_a_job_has_one_colour_by_every_path(room: str, opened: Opener) -> None:
    """Whatever was seen before it, at whatever point, in whatever view."""
    direct = opened(f"{room}/#/gantt?rows=nodes&at=602")
    ready(direct)
    expect(direct.get_by_role("img", name="3 nodes over time")).to_be_visible()
    colours = legend(direct)
    assert len(colours) >= 10 and len(set(colours.values())) >= 8
    page = opened(f"{room}/#/cluster?at=242")
    ready(page)
    for at in (285, 188, 422, 602):
        page.get_by_label("Event", exact=True).fill(str(at))
        page.keyboard.press("Enter")
        expect_at(page, at)
    page.get_by_role("link", name="Gantt", exact=True).click()
    page.get_by_label("Rows").select_option("nodes")
    ready(page)
    expect(page.get_by_role("img", name="3 nodes over time")).to_be_visible()
    assert legend(page) == colours
    # In the cluster, the GPUs of the jobs that hold any have these colours.
    page.goto(f"{room}/#/cluster?at=242")
    ready(page)
    expect_at(page, 242)
    until(page, "performance.getEntriesByName('moment')[0]?.detail === 242")
    drawn = set(page.evaluate(_COLOURS))
    held = {job["job"] for job in answer(room, "moment?at=242")["jobs"] if job["gpusHeld"]}
    assert held
    for job in held:
        assert ",".join(re.findall(r"\d+", colours[job])[:3]) in drawn


def test_no_two_causes_look_alike(opened: Opener, tmp_path: Path) -> None:
    """In colour or in shape, so also to those who see few colours; and the most frequent ones differ in colour."""
    world = World()
    world.node("node-1", gpus=4)
    world.queue("capped", capability=(("nvidia.com/gpu", 0),))
    world.queue("closed", max_running=0)
    world.job("runs", leader=shape(gpus=4))
    world.job("room", leader=shape(gpus=4))
    world.job("never", leader=shape(gpus=40))
    world.job("capped", leader=shape(gpus=1), of_queue="capped")
    world.job("limited", leader=shape(gpus=1), of_queue="closed")
    world.job("nowhere", leader=shape(gpus=1), of_queue="missing")
    for _ in range(3):
        world.pass_time(60)
        world.cycle()
    written(tmp_path / "causes.log", *world.entries)
    serving = served(str(tmp_path / "causes.log"))
    page = opened(f"{next(serving)}/#/gantt?at=end")
    waits = page.get_by_role("listitem").filter(has_text="waits: ")
    expect(waits.nth(4)).to_be_visible()
    looks = [
        one.locator(".swatch").evaluate("of => [of.className, getComputedStyle(of).color].join()")
        for one in waits.all()
    ]
    assert len(set(looks)) == len(looks) >= 5
    page.close()
    for _ in serving:
        pass


def test_gpus_of_nodes_are_lanes_of_their_own(room: str, opened: Opener) -> None:
    """Bars of a node never overlap: at any time each job has as many lanes as GPUs."""
    page = opened(f"{room}/#/gantt?rows=nodes&at=242")
    ready(page)
    nodes = answer(room, "node-gantt")
    expect(page.get_by_role("img", name=f"{len(nodes['nodes'])} nodes over time")).to_be_visible()
    chart = page.locator("main .gantt canvas")
    high = json.loads(chart.evaluate("one => JSON.stringify(one.getBoundingClientRect().height)"))
    assert high == 22 + 3 * 32  # the axis, and rows of four lanes
    page.get_by_text("The same as a table").click()
    table = page.get_by_role("table", name="Which jobs had each node")
    expect(table.get_by_role("row")).to_have_count(1 + sum(len(node["bars"]) for node in nodes["nodes"]))


def test_failed_is_told_unlike_succeeded(tmp_path: Path, opened: Opener) -> None:
    world = World()
    world.node("node-1", gpus=4)
    for name, end in (("good", "Succeeded"), ("bad", "Failed")):
        job = world.job(name, leader=shape(gpus=1), restart_limit=0)
        world.settle()
        world.pass_time(30)
        world.change_pod(world.pods_of(job)[0, 0].uid, phase=end)
        world.settle()
    file = tmp_path / "ends.log"
    written(file, *world.entries)
    for address in served(str(file)):
        page = opened(f"{address}/#/gantt?at=end")
        ready(page)
        expect(page.locator("main .legend")).to_contain_text("runs, failed")
        colours = legend(page)
        assert colours["runs, failed"] != colours["runs, succeeded"]
        page.get_by_label("Show").select_option("failed")
        expect(page.get_by_role("img", name="1 job over time")).to_be_visible()
        page.get_by_text("The same as a table").click()
        expect(page.get_by_role("row").filter(has_text=re.compile("runs, first attempt, failed"))).to_have_count(1)
        page.close()


def test_in_a_quiet_cluster_the_clock_runs(tmp_path: Path, opened: Opener) -> None:
    world = World()
    world.now_ms = round(time.time() * 1000) - 20_000
    world.node("node-1", gpus=4)
    world.job("train", leader=shape(gpus=2), created=world.now_ms)
    world.cycle()
    world.node("node-2", gpus=4)
    file, whole = tmp_path / "quiet.log", tmp_path / "whole.log"
    written(file, *world.entries[:-1])
    written(whole, *world.entries)
    for address in served(str(file)):
        page = opened(f"{address}/#/jobs?at=end")
        ready(page)
        with file.open("ab") as log:  # a file that doesn't grow has ended
            log.write(whole.read_bytes()[file.stat().st_size :])
        age = page.get_by_role("row").filter(has_text="default/train")
        expect(page.get_by_role("button", name="Following · stay")).to_be_visible()
        shown = page.get_by_role("textbox", name="Time", exact=True)
        before, began = age.text_content() or "", shown.input_value()
        expect(age).not_to_have_text(before)
        expect(shown).not_to_have_value(began)
        assert shown.input_value() > began
        assert "at=" not in page.url
        page.get_by_role("link", name="default/train").click()
        lead, facts = page.locator(".lead"), page.locator("main dl.pairs")
        expect(facts).to_contain_text("ago")
        told = lead.text_content() or "", facts.text_content() or ""
        expect(lead).not_to_have_text(told[0])
        expect(facts).not_to_have_text(told[1])
        page.get_by_role("link", name="Jobs", exact=True).click()
        # As long as on this page, the table beside the chart says too.
        page.get_by_role("link", name="Gantt", exact=True).click()
        for rows in ("jobs", "nodes"):
            page.get_by_label("Rows").select_option(label=rows)
            page.get_by_text("The same as a table").click()
            lasts = page.get_by_role("row").filter(has_text="default/train").last
            began = lasts.text_content() or ""
            expect(lasts).not_to_have_text(began)
        page.get_by_role("link", name="Jobs", exact=True).click()
        # What is typed stays while the page changes.
        page.get_by_label("Event", exact=True).fill("3")
        page.wait_for_timeout(1_500)
        assert page.get_by_label("Event", exact=True).input_value() == "3"
        page.keyboard.press("Escape")
        page.locator(SLIDER).focus()
        page.keyboard.press("Space")  # who stays sees the point as it was
        expect(page).to_have_url(re.compile("at="))
        here = datetime.fromtimestamp(world.entries[-1].batch.time_ms // 1000).strftime("%Y-%m-%d %H:%M:%S")
        expect(shown).to_have_value(here)
        page.wait_for_timeout(1_500)
        assert shown.input_value() == here
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 1280, 390])
def test_the_gantt_is_accessible_and_fits(room: str, opened: Opener, width: int, scheme: str) -> None:
    page = opened(f"{room}/#/gantt?at=422", width=width, scheme=scheme)
    for view in ("gantt?at=422", "gantt?at=422&rows=nodes", "queues?at=422", "gantt?at=422&order=user&find=a"):
        page.goto(f"{room}/#/{view}")
        page.keyboard.press("+")
        ready(page)
        page.evaluate(AXE.read_text(encoding="utf-8"))
        report = json.loads(page.evaluate("axe.run().then((report) => JSON.stringify(report.violations))"))
        serious = [one for one in report if one["impact"] in ("serious", "critical")]
        assert [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in serious] == []
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, view
