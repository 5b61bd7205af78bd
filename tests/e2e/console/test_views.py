"""What the views of the console say, beside what the commands print on the same histories."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from arranger.model.pod import ContainerEnd, PodShape
from arranger.model.queue import QueueState
from tests.e2e.console.pages import HISTORIES, Opener, expect_at, export, offset_of, ready, served, written
from tests.servers import REPOSITORY
from tests.world import World, shape

pytestmark = pytest.mark.real

LOG = "room-for-what-matters.log"


def said(*words: str) -> bytes:
    """What a command prints for programs."""
    command = [sys.executable, "-m", "arranger.cli.main", *words, f"--log={HISTORIES / LOG}", "--output=json"]
    return subprocess.check_output(command, cwd=REPOSITORY)


def said_as_text(*words: str) -> str:
    """What a command prints for people, without its lines."""
    command = [sys.executable, "-m", "arranger.cli.main", *words, f"--log={HISTORIES / LOG}"]
    return " ".join(subprocess.check_output(command, cwd=REPOSITORY, text=True).split())


def told(*words: str) -> Any:
    return json.loads(said(*words))


def test_the_overview_sums_up_disturbances_waits_and_preemptions(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/overview?at=250")
    ready(page)
    expect(page.get_by_text("250 events")).to_be_visible()
    wrong = page.get_by_role("table", name="What disturbed nodes and jobs")
    expect(wrong.get_by_role("row", name="#242")).to_contain_text("preempteddefault/train")
    waits = told("waits", "--to=250", "--by=job", "--held-by=job")
    assert waits["rows"]
    page.get_by_label("Of each").select_option("job")
    page.get_by_label("Held by each").select_option("job")
    rows = page.get_by_role("table", name="What jobs waited for").get_by_role("row")
    expect(rows).to_have_count(1 + len(waits["rows"]))
    for row, of in zip(rows.all()[1:], waits["rows"], strict=True):
        expect(row).to_contain_text(of["group"])
        expect(row).to_contain_text(of["holder"] or "–")
        expect(row).to_contain_text(f"{of['gpu_ms'] / 3_600_000:.3f}")
    given = told("preemptions", "--to=250")["preemptions"]
    rows = page.get_by_role("table", name="Preemptions").get_by_role("row")
    expect(rows).to_have_count(1 + len(given))
    for row, of in zip(rows.all()[1:], reversed(given), strict=True):
        for name in (of["job"], *[victim["job"] for victim in of["victims"]]):
            expect(row.get_by_role("link", name=name)).to_be_visible()
    rows.nth(1).get_by_role("link", name="#242").click()
    expect_at(page, 242)
    page.goto(f"{room}/#/overview?at=250")
    expect_at(page, 250)
    rows.nth(1).get_by_role("link", name="default/train").click()
    expect_at(page, 242)
    expect(page.get_by_role("heading", name="default/train")).to_be_visible()


def test_the_history_says_who_took_room_and_who_was_preempted(room: str, opened: Opener) -> None:
    for job, kind in (("default/answer", "took room"), ("default/train", "preempted")):
        page = opened(f"{room}/#/job?job={job}&at=250")
        event = page.locator(".story li").filter(has_text="#242")
        expect(event.locator(".kind")).to_have_text(kind)
        moments = {one["offset"]: one["kind"] for one in told("explain", job, "--at=250")["timeline"]}
        assert moments[242] == "Preempted" and " Preempted " in said_as_text("explain", job, "--at=250", "--all")
        page.close()


def test_jobs_are_found_by_what_the_overview_says_that_they_waited_for(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/overview?at=end")
    ready(page)
    rows = page.get_by_role("table", name="What jobs waited for").get_by_role("row")
    expect(rows.nth(1)).to_be_visible()
    causes = {row.get_by_role("cell").nth(1).inner_text() for row in rows.all()[1:]}
    page.goto(f"{room}/#/gantt?at=end")
    held = [cause for cause in causes if cause.startswith("room that")]
    assert len(held) == 2
    for cause in held:
        page.get_by_label("Search").fill(cause)
        expect(page.get_by_role("listitem").filter(has_text=f"waits: {cause}")).to_be_visible()


def test_the_overview_counts_deleted_jobs(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/overview?at=602")
    ready(page)
    expect(page.get_by_text("Jobs deleted").locator("xpath=following-sibling::dd")).to_have_text("2")


@pytest.fixture
def again(tmp_path: Path) -> Iterator[str]:
    """The address of the console on a log with three jobs of one name, of which two were deleted."""
    world = World()
    world.node("node-1", gpus=4)
    for uid in ("u1", "u2", "u3"):
        job = world.job("train", uid=uid)
        world.settle()
        world.pass_time(5)
        if uid != "u3":
            world.job_gone(job)
    file = tmp_path / "again.log"
    written(file, *world.entries)
    yield from served(str(file))


def test_a_deleted_job_counts_though_another_one_has_its_name(again: str, opened: Opener) -> None:
    page = opened(f"{again}/#/overview?at=end")
    ready(page)
    expect(page.get_by_text("Jobs deleted").locator("xpath=following-sibling::dd")).to_have_text("2")
    page.goto(f"{again}/#/jobs?at=end")
    page.get_by_label("deleted jobs too").check()
    expect(page.get_by_role("link", name="default/train", exact=True)).to_have_count(3)


def test_the_number_of_an_event_may_be_typed(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/jobs?at=100")
    ready(page)
    page.get_by_label("Event", exact=True).fill("189")
    page.keyboard.press("Enter")
    expect_at(page, 189)
    page.get_by_label("Event", exact=True).fill("nothing")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Event", exact=True)).to_have_value("189")


def test_why_its_pods_got_these_nodes_says_why_no_others(waits: str, opened: Opener) -> None:
    page = opened(f"{waits}/#/job?at=142&job=default/sweep")
    ready(page)
    expect(page.get_by_text("2 of 3 nodes could take it; the others: 1 cordoned").first).to_be_visible()


def test_deleted_jobs_are_listed_on_request(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/jobs?at=602")
    ready(page)
    link = page.get_by_role("link", name="default/explore", exact=True)
    expect(link).to_have_count(0)
    page.get_by_label("deleted jobs too").check()
    page.get_by_label("Stage").select_option("Deleted")
    expect(page.get_by_role("row").filter(has=link).get_by_role("cell", name="research", exact=True)).to_be_visible()


def test_the_table_of_jobs_has_what_a_user_looks_for_in_an_order_of_choice(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/jobs?at=430")
    ready(page)
    table = page.get_by_role("table", name="Jobs")
    said = told("replay", "--at=430")["jobs"]
    waiting = {f"{one['namespace']}/{one['name']}": one["queue"] for one in said if one["queue"]}
    assert waiting
    assert [one.inner_text() for one in table.get_by_role("columnheader").all()] == [
        *(
            "Job",
            "Stage",
            "Position",
            "Starts",
            "Queue",
            "User",
            "Priority",
            "Pods",
            "GPUs asked",
            "GPU hours",
            "Attempt",
        ),
        *("Age", "Waits for, or lacks"),
    ]
    for job, position in waiting.items():
        row = table.get_by_role("row").filter(has=page.get_by_role("link", name=job, exact=True))
        expect(row.get_by_role("cell").nth(2)).to_have_text(str(position))
        expect(row.get_by_role("cell").nth(5)).to_have_text("default")
    first = table.get_by_role("row").nth(1).get_by_role("link")
    expect(first).to_have_text(next(job for job, position in waiting.items() if position == 1))
    table.get_by_role("button", name="GPU hours").click()
    most = [float(row.get_by_role("cell").nth(9).inner_text()) for row in table.get_by_role("row").all()[1:]]
    assert most == sorted(most, reverse=True) and most[0] > 0
    table.get_by_role("button", name="Position").click()
    expect(first).to_have_text(next(job for job, position in waiting.items() if position == 1))


def test_a_start_whose_time_is_over_is_overdue_as_on_the_page_of_the_job(room: str, opened: Opener) -> None:
    def late(route: Route) -> None:
        answer = route.fetch().json()
        for one in answer["jobs"]:
            one["expected"], one["guess"] = 1, False
        route.fulfill(json=answer)

    page = opened(f"{room}/#/queues?at=430")
    ready(page)
    page.route("**/api/v1/standings*", late)
    page.get_by_role("link", name="Jobs", exact=True).click()
    row = page.get_by_role("table", name="Jobs").get_by_role("row").nth(1)
    expect(row.get_by_role("cell").nth(3)).to_have_text("overdue")


def test_a_job_is_changed_by_a_form_and_only_what_differs_is_shown(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/what-if?at=430&job=default/endless")
    ready(page)
    expect(page.get_by_label("Job", exact=True)).to_have_value("default/endless")
    page.get_by_label("Its priority").fill("7")
    page.get_by_label("GPUs of each of its pods").fill("2")
    page.get_by_role("button", name="Ask").click()
    answer = told("what-if", "--at=430", "--job=default/endless", "--priority=7", "--gpus=2")
    result = page.get_by_role("region", name="What if")
    expect(result).to_contain_text(answer["otherwise"], timeout=60_000)
    rows = result.get_by_role("table", name="Jobs for which it differs").get_by_role("row")
    expect(rows).to_have_count(1 + sum(set(one["differs"]) != {"queue"} for one in answer["differences"]))
    assert "changedJob=default" in page.url


def test_jobs_that_get_the_same_nodes_either_way_are_folded(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/what-if?at=474")
    ready(page)
    page.get_by_text("More to change").click()
    page.get_by_label("Added nodes").fill("node-3")
    page.get_by_role("button", name="Ask").click()
    result = page.get_by_role("region", name="What if")
    differs = result.get_by_role("table", name="Jobs for which it differs")
    expect(differs).to_contain_text("default/endless", timeout=60_000)
    expect(differs).not_to_contain_text("default/wide")  # it waits for other numbers
    result.get_by_text("1 job with the same nodes in both").click()
    expect(result.get_by_role("table", name="Jobs with the same nodes in both")).to_contain_text("default/wide")


def test_what_differs_never_looks_alike_and_a_position_is_told_in_both(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/what-if?at=430&changedJob=default/wide&priority=2")
    answer = told("what-if", "--at=430", "--job=default/wide", "--priority=2")
    assert [(one["job"], one["differs"]) for one in answer["differences"]] == [
        ("default/wide", ["queue"]),
        ("default/endless", ["queue"]),
    ]
    result = page.get_by_role("region", name="What if")
    changed = result.get_by_role("table", name="Jobs for which it differs").get_by_role("row").nth(1)
    expect(changed.get_by_role("cell").first).to_have_text("default/wide", timeout=60_000)
    result.get_by_text("1 job with the same nodes in both").click()
    other = result.get_by_role("table", name="Jobs with the same nodes in both").get_by_role("row").nth(1)
    for row, of in zip((changed, other), answer["differences"], strict=True):
        for place, plan in ((1, of["one"]), (2, of["other"])):
            expect(row.get_by_role("cell").nth(place)).to_contain_text(f"position {plan['queue']}; 0 of ")


def test_of_many_nodes_those_come_first_in_which_two_plans_differ(room: str, opened: Opener) -> None:
    def on_five_nodes(route: Route) -> None:
        answer = route.fetch().json()
        (one,) = (of for of in answer["differences"] if of["job"] == "default/wide")
        for plan, last in ((one["one"], "east"), (one["other"], "west")):
            plan["queue"], plan["nodes"] = 1, {f"node-{name}": "a pod" for name in (*"1234", last)}
        one["differs"] = ["nodes"]
        route.fulfill(json=answer)

    page = opened(f"{room}/#/what-if?at=430")
    ready(page)
    page.route("**/api/v1/what-if?*", on_five_nodes)
    page.get_by_label("Job", exact=True).fill("default/wide")
    page.get_by_label("Its priority").fill("2")
    page.get_by_role("button", name="Ask").click()
    cells = page.get_by_role("table", name="Jobs for which it differs").get_by_role("row").nth(1).get_by_role("cell")
    expect(cells.nth(1)).to_contain_text("node-east: a pod; node-1: a pod", timeout=60_000)
    expect(cells.nth(2)).to_contain_text("node-west: a pod; node-1: a pod")
    expect(cells.nth(2)).to_contain_text("1 more node")


def test_long_texts_of_a_what_if_are_whole_and_the_opened_text_of_a_last_row_is_not_clipped(
    room: str, opened: Opener
) -> None:
    page = opened(f"{room}/#/what-if?at=430&changedJob=default/endless&priority=7", width=800)
    table = page.get_by_role("table", name="Jobs for which it differs")
    cell = table.get_by_role("row").last.get_by_role("cell").nth(2)
    expect(cell).to_contain_text("GPU seconds of work lost", timeout=60_000)
    cut = "(one) => [one, ...one.querySelectorAll('.text')].some((of) => of.scrollWidth > of.clientWidth)"
    clipped = "(one) => one.scrollHeight > one.clientHeight + 1"
    assert not cell.evaluate(cut)
    assert not page.get_by_role("region", name="Jobs for which it differs").evaluate(clipped)
    page.goto(f"{room}/#/queues?at=189")
    page.get_by_role("button", name="research").click()
    table = page.locator(".rows", has=page.get_by_role("table", name="Waiting jobs of research"))
    table.locator("button.text").last.click()
    opened_text = table.locator("td.opened .text")
    expect(opened_text).to_have_count(1)
    assert opened_text.evaluate("(one) => one.getClientRects()[0].height") > 40  # it has several lines
    assert not table.evaluate(clipped)


def test_the_form_says_what_is_wrong_in_its_own_words(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/what-if?at=242")
    ask, problem = page.get_by_role("button", name="Ask"), page.get_by_role("alert")
    page.get_by_label("Its priority").fill("33")
    ask.click()
    expect(problem).to_have_text("Choose a job: its priority, GPUs or queue are to change.")
    page.get_by_label("Job", exact=True).fill("default/train")
    ask.click()
    expect(problem).to_have_text("Its priority: 33 is not a whole number from 1 to 10")
    page.get_by_label("Its priority").fill("")
    ask.click()
    expect(problem).to_have_text("Say what of default/train changes: its priority, GPUs or queue.")
    page.get_by_label("Job", exact=True).fill("")
    page.get_by_label("Queue policy").fill("drf")
    ask.click()
    expect(problem).to_contain_text("Queue policy: 'drf' can't be used (did you mean DRF? allowed: ")
    page.get_by_label("Queue policy").fill("DRF")
    held: list[Route] = []
    page.route("**/api/v1/what-if?*", lambda one: held.append(one))  # noqa: PLW0108  # Playwright looks at its code
    ask.click()
    expect(page.get_by_role("button", name="Working it out …")).to_be_disabled()
    expect(problem).to_have_count(0)
    for one in held:
        one.continue_()
    page.unroute("**/api/v1/what-if?*")
    expect(page.get_by_role("region", name="What if")).to_contain_text("taken on the state at")
    page.get_by_text("More to change").click()
    page.get_by_label("Added or changed jobs").fill("a: [\nb")
    ask.click()
    expect(problem).to_contain_text("Line 3 of the added or changed objects: not valid YAML")


def test_the_overview_comes_first_and_jobs_that_run_or_wait_before_those_that_ended(room: str, opened: Opener) -> None:
    page = opened(f"{room}/")
    ready(page)
    views = page.get_by_role("navigation", name="Views").get_by_role("link")
    expect(views).to_have_text(["Overview", "Cluster", "Jobs", "Gantt", "Queues", "Cycle", "What-if"])
    expect(views.first).to_have_attribute("aria-current", "page")
    page.goto(f"{room}/#/jobs?at=285")
    ready(page)
    expect_at(page, 285)
    rows = page.get_by_role("table", name="Jobs").get_by_role("row")
    expect(rows.nth(1)).to_be_visible()
    stages = page.locator("table .stage").all_text_contents()
    ended = [stage in ("Succeeded", "Failed") for stage in stages]
    assert ended == sorted(ended) and any(ended) and not all(ended)
    page.get_by_role("table", name="Jobs").get_by_role("link").first.click()
    expect(views).to_have_count(8)


def test_a_queue_says_why_its_jobs_wait_and_who_holds_what_it_uses(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/queues?at=189")
    ready(page)
    button = page.get_by_role("button", name="research")
    expect(page.get_by_role("row").filter(has=button)).to_contain_text("Open, 1 below its share")
    button.click()
    queue = page.get_by_role("region", name="Queue research")
    detail = told("queue", "show", "research", "--at=189")
    for one in detail["waiting"]:
        expect(queue.get_by_role("row", name=one["job"])).to_contain_text(one["message"])
    for one in detail["holders"]:
        expect(queue.get_by_role("row", name=one["name"])).to_contain_text(
            f"{one['amounts']['nvidia.com/gpu']} nvidia.com/gpu"
        )
    assert (len(detail["waiting"]), len(detail["holders"])) == (1, 2)


def test_a_what_if_says_which_jobs_start_at_other_times(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/what-if?at=188&preemption=Off&until=drained")
    rows = page.get_by_role("table", name="Starts that differ").get_by_role("row")
    starts = told("what-if", "--at=188", "--preemption=Off", "--until=drained")["until"]["starts"]
    expect(rows).to_have_count(1 + len(starts), timeout=60_000)
    expect(rows.nth(1)).to_contain_text("default/answer")
    assert (starts[0]["job"], starts[0]["whatIfMs"] - starts[0]["asItWasMs"]) == ("default/answer", 7236)
    assert (starts[0]["asItWasWaitMs"], starts[0]["whatIfWaitMs"]) == (0, 7236)
    expect(rows.nth(1)).to_contain_text("7.2 s0 s7.2 s")
    assert (starts[1]["job"], starts[1]["whatIfMs"]) == ("default/train", None)
    expect(rows.nth(2)).to_contain_text("no such start")
    runs = page.get_by_role("table", name="Sums of the runs that differ")
    expect(runs.get_by_role("columnheader")).to_have_text(["What", "Without changes", "What if"])
    expect(runs.get_by_role("row", name="Mean wait")).to_be_visible()
    # Both cycles are alike here: only of a cycle is anything as it was.
    expect(page.get_by_role("table", name="Sums of the cycle that differ")).to_have_count(0)
    expect(page.get_by_role("region", name="What if").get_by_text("As it was", exact=True)).to_have_count(0)


def test_the_history_of_a_job_begins_when_its_first_sentence_does(opened: Opener) -> None:
    """Also where the first interval was short: it waited 30 ms for the first cycle, and then for room."""
    serving = served("demo.log")
    page = opened(f"{next(serving)}/#/job?at=97&job=default/waits-its-turn")
    expect(page.get_by_text("Pending for 0.6 s").first).to_be_visible(timeout=60_000)
    expect(page.locator(".folds > li").last).to_contain_text("Pending for 0.6 s so far")
    page.close()
    for _ in serving:
        pass


def test_the_page_of_an_ended_job_says_for_how_long_it_waited_and_ran(room: str, opened: Opener) -> None:
    told = said_as_text("explain", "default/hotfix")
    assert "the leader has finished; it waited 406ms and ran 8.0s" in told
    page = opened(f"{room}/#/job?at=end&job=default/hotfix")
    expect(page.locator(".lead")).to_contain_text("the leader has finished; it waited 0.4 s and ran 8 s")
    page.goto(f"{room}/#/job?at=196&job=default/hotfix")
    expect_at(page, 196)
    expect(page.locator(".lead")).to_contain_text("Running for")
    expect(page.locator(".lead")).not_to_contain_text("and ran")


def test_the_overview_says_when_the_log_ends_only_where_it_does(
    room: str, growing: tuple[str, Callable[[], int]], opened: Opener
) -> None:
    page = opened(f"{room}/#/overview?at=250")
    ready(page)
    expect(page.locator(".lead")).to_contain_text("The log ends at")
    page.close()
    address, grow = growing
    page = opened(f"{address}/#/overview?at=end")
    ready(page)
    here = grow()
    expect_at(page, here)
    expect(page.get_by_role("button", name="Following · stay")).to_be_visible()
    expect(page.locator(".lead")).not_to_contain_text("The log")
    page.goto(f"{address}/#/overview?at=2")
    expect_at(page, 2)
    expect(page.locator(".lead")).to_contain_text("The log goes on; its last event so far is of")
    page.close()


def test_a_question_in_a_link_is_about_the_point_at_which_the_page_opens(room: str, opened: Opener) -> None:
    """A log that has ended opens where most happened: at its end, nothing waits any more."""
    page = opened(f"{room}/#/what-if?withoutNode=node-1")
    result = page.get_by_role("region", name="What if")
    expect(result).to_be_visible(timeout=60_000)
    there = told("what-if", f"--at={offset_of(page)}", "--without-node=node-1")
    assert [one.inner_text() for one in result.locator(".lead .point").all()][-1] == f"#{there['base']}"


def test_a_job_that_crashes_within_its_pods_looks_ill_in_every_view(tmp_path: Path, opened: Opener) -> None:
    world = World()
    world.node("node-1", gpus=4)
    job = world.job("crashes", workers=4, min_workers=2)
    world.job("well")
    world.settle()
    for index in range(4):
        killed = ContainerEnd("main", 137, 0, "OOMKilled")
        world.change_pod(job.bound[1, index], restarts=3, ended=killed, ready=False)
    log = tmp_path / "crashes.log"
    written(log, *world.entries)
    serving = served(str(log))
    address = next(serving)
    words = "running below its quorum: 0 of 2 workers are ready; pod crashes-actors-0 and 3 more on node-1"
    page = opened(f"{address}/#/jobs?at=end")
    rows = page.get_by_role("table", name="Jobs").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("default/crashes")
    expect(rows.nth(1)).to_contain_text("5/5: 1 ready")
    expect(rows.nth(1)).to_contain_text(words)
    expect(rows.nth(2)).to_contain_text("1/1")
    expect(rows.nth(2)).not_to_contain_text("ready")
    page.goto(f"{address}/#/overview?at=end")
    ill = page.get_by_role("table", name="Jobs whose pods are in trouble")
    expect(ill.get_by_role("row")).to_have_count(2)
    expect(ill.get_by_role("row").nth(1)).to_contain_text(words)
    expect(page.get_by_role("table", name="What disturbed nodes and jobs")).to_contain_text(
        "below quorumdefault/crashes"
    )
    page.close()
    for _ in serving:
        pass


def test_tables_fit_a_small_screen_and_names_keep_their_ends(tmp_path: Path, opened: Opener) -> None:
    world = World()
    world.node("node-1", gpus=4)
    for number in range(3):
        world.job(
            f"rlhf-reward-model-with-a-very-long-name-{number}", leader=shape(gpus=4), user="barbara.liskov@lab.example"
        )
    world.settle()
    written(tmp_path / "names.log", *world.entries)
    serving = served(str(tmp_path / "names.log"))
    page = opened(f"{next(serving)}/#/jobs?at=end", width=1280)
    links = page.get_by_role("table", name="Jobs").get_by_role("link")
    expect(links).to_have_count(3)
    expect(
        page.get_by_role("link", name="default/rlhf-reward-model-with-a-very-long-name-2", exact=True)
    ).to_be_visible()
    assert page.locator(".rows").evaluate("of => of.scrollWidth <= of.clientWidth")
    ends = "of => of.lastChild.getBoundingClientRect().right <= of.closest('td').getBoundingClientRect().right"
    assert all(one.evaluate(ends) for one in links.all())
    page.close()
    for _ in serving:
        pass


def test_on_a_phone_it_shows_that_more_views_follow(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/overview?at=242", width=390)
    views = page.get_by_role("navigation", name="Views")
    expect(views).to_have_class("after")
    views.evaluate("of => of.scrollTo({left: 1000})")
    expect(views).to_have_class("before")
    page.set_viewport_size({"width": 1280, "height": 800})
    expect(views).to_have_class("")


@pytest.mark.parametrize("view", ["overview", "cluster"])
def test_on_a_phone_the_words_for_jobs_that_have_nodes_take_one_line(view: str, room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/{view}?at=242", width=390)
    word, other = page.get_by_text("Jobs running or starting"), page.get_by_text("Jobs waiting", exact=True)
    expect(word).to_be_visible()
    height = "of => of.getBoundingClientRect().height"
    assert word.evaluate(height) == other.evaluate(height)


def test_names_are_offered_for_the_last_of_a_list(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/what-if?at=188")
    ready(page)
    page.get_by_text("More to change").click()
    field = page.get_by_label("Without nodes")
    field.press_sequentially("node-1, n")
    offered = page.locator(f"#{field.get_attribute('list')} option")
    assert [one.get_attribute("value") for one in offered.all()] == [f"node-1, node-{number}" for number in (1, 2, 3)]


def test_the_events_are_chosen_by_kind_and_by_what_they_are_about(room: str, opened: Opener) -> None:
    page = opened(f"{room}/#/cycle?at=602")
    ready(page)
    page.get_by_label("Among").select_option("all of the log")
    page.get_by_label("Kind").select_option("PodGone")
    page.get_by_label("About").select_option("node")
    page.get_by_label("Its name").fill("node-2")
    page.keyboard.press("Enter")
    command = [sys.executable, "-m", "arranger.cli.main", "events", "--kind=PodGone", "--node=node-2"]
    lines = subprocess.check_output(
        [*command, f"--log={HISTORIES / LOG}", "--output=json"], cwd=REPOSITORY
    ).splitlines()
    expect(page.get_by_role("status").last).to_have_text(f"{len(lines)} events")
    events = page.get_by_role("table", name="Events, the newest first")
    newest = json.loads(lines[-1])
    expect(events.get_by_role("row").nth(1)).to_contain_text(newest["subject"])
    expect(events.get_by_role("link", name=newest["subject"])).to_have_attribute(
        "href", re.compile(f"#/job.*{newest['job'].partition('/')[2]}")
    )


def test_an_address_past_the_end_shows_the_end(room: str, browser: Browser) -> None:
    page = browser.new_page()  # which may report that this point was not found
    page.goto(f"{room}/#/jobs?at=603")
    expect_at(page, 602)
    ready(page)
    expect(page.get_by_role("row").first).to_be_visible()
    page.close()


@pytest.fixture
def created(tmp_path: Path) -> Iterator[str]:
    """The address of the console on a log with a job whose creator is known."""
    world = World()
    world.node("node-1", gpus=4)
    world.job("train", leader=shape(gpus=2), created_by=("ada@lab.example", ""))
    world.cycle()
    file = tmp_path / "created.log"
    written(file, *world.entries)
    yield from served(str(file))


def test_an_export_with_pseudonyms_names_no_user(created: str, opened: Opener, tmp_path: Path) -> None:
    page = opened(f"{created}/#/job?job=default/train")
    ready(page)
    expect(page.get_by_text("ada@lab.example")).to_be_visible()
    exported = export(page, tmp_path, "The same, with pseudonyms")
    assert "ada@lab" not in exported.read_text(encoding="utf-8")
    expect(opened(exported.as_uri()).get_by_text("are pseudonyms")).to_be_visible()


def test_pages_that_follow_a_busy_log_show_the_latest_answer_that_is_done(busy: str, opened: Opener) -> None:
    page = opened(f"{busy}/#/job?at=end&job=default/train")
    expect(page.get_by_role("heading", name="default/train")).to_be_visible(timeout=15_000)
    expect(page.get_by_role("region", name="Explanation")).to_be_visible(timeout=15_000)
    points = list[int]()
    while len(points) < 5:
        of = page.get_by_role("region", name="Explanation").locator(".as-of .point").first
        expect(of).to_be_visible()
        point = int((of.text_content() or "#0")[1:])
        if point not in points:
            points.append(point)
    assert points == sorted(points)
    for view in ("overview", "cycle"):
        page.goto(f"{busy}/#/{view}?at=end")
        expect(page.locator("main")).not_to_be_empty()
        expect(page.get_by_text("The answer is being worked out")).to_have_count(0, timeout=60_000)


@pytest.mark.parametrize("at", ["end", "242"])
def test_a_stopped_server_is_noticed_and_the_page_goes_on_when_it_is_back(
    at: str, browser: Browser, tmp_path: Path
) -> None:
    """The numbers of a followed log are marked as old; those of a point in the past are as they were."""
    log = tmp_path / "run.log"
    shutil.copy(HISTORIES / LOG, log)
    serving = served(str(log))
    address = next(serving)
    page = browser.new_page()
    page.goto(f"{address}/#/cluster?at={at}")
    ready(page)
    expect(page.get_by_role("alert")).to_have_count(0)
    serving.close()
    alert = page.get_by_role("alert").filter(has_text="Retrying")  # a panel that was loading says its own
    expect(alert).to_contain_text("Nothing new is known, since" if at == "242" else "The numbers are old, since")
    expect(alert).to_contain_text("the server can't be reached. Retrying")
    expect(page.locator("main.old")).to_have_count(0 if at == "242" else 1)
    page.get_by_role("link", name="Overview", exact=True).click()
    again = served(str(log), port=int(address.rpartition(":")[2]))
    next(again)
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator("main.old")).to_have_count(0)
    ready(page)
    page.close()
    again.close()


def test_the_page_of_a_job_that_no_tried_change_helps_says_so(tmp_path: Path, opened: Opener) -> None:
    world = World()
    world.node("node-1", gpus=4)
    world.watch_queues()
    world.queue("rl", capability=(("nvidia.com/gpu", 0),))
    world.job("stuck", leader=PodShape((("cpu", 1000), ("nvidia.com/gpus", 1))), of_queue="rl")
    world.queue("shut", state=QueueState.CLOSED)
    world.job("kept-out", leader=shape(gpus=8), of_queue="shut")
    world.settle()
    log = tmp_path / "stuck.log"
    written(log, *world.entries)
    serving = served(str(log))
    address = next(serving)
    command = [sys.executable, "-m", "arranger.cli.main", "explain", "stuck", f"--log={log}"]
    printed = " ".join(subprocess.check_output(command, cwd=REPOSITORY, text=True).split())
    words = "None of the 3 changes that a cycle tried at this point gives it nodes"
    assert words in printed
    page = opened(f"{address}/#/job?job=default/stuck")
    expect(page.get_by_role("region", name="Explanation")).to_contain_text(words)
    page.close()
    page = opened(f"{address}/#/job?job=default/kept-out")
    expect(page.get_by_role("heading", name="What would put it into the queue")).to_be_visible()
    page.close()
    for _ in serving:
        pass


def test_a_view_that_is_named_a_little_differently_is_shown_and_an_unknown_one_is_named(
    room: str, opened: Opener
) -> None:
    for name, title in (("whatif", "What-if"), ("What-If", "What-if"), ("queue", "Queues"), ("nodes", "Overview")):
        page = opened(f"{room}/#/{name}?at=end")
        ready(page)
        expect(page.get_by_role("navigation", name="Views").locator("[aria-current]")).to_have_text(title)
        note = page.get_by_text(f"There is no view named {name}")
        expect(note).to_have_count(int(title == "Overview"))
    page.get_by_role("link", name="Jobs", exact=True).click()
    page.get_by_role("link", name="Overview", exact=True).click()
    expect(note).to_have_count(0)
