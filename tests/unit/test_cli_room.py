"""The commands about room that jobs take, keep and wait for, run as a user runs them on a log file."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from arranger.events import kinds as k
from tests.commands import Run, to_file
from tests.unit.replay_worlds import entry_with, gpu_job, preempting, with_room_rules
from tests.unit.test_cli_simulate_files import node
from tests.world import World

GPU = "nvidia.com/gpu"


@pytest.fixture
def world() -> World:
    return preempting()


@pytest.fixture
def log(world: World, tmp_path: Path) -> list[str]:
    return to_file(world.entries, tmp_path / "run.log")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    done = Run(capsys, *arguments)
    assert done.status == 0, done.err
    return done.out


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(run(capsys, *arguments, "-o", "json"))


def offset(world: World, kind: type) -> str:
    return str(world.entries[entry_with(world.entries, kind)].first)


# --- replay, top -------------------------------------------------------------------------------------------------


def test_no_node_has_more_used_than_it_has_while_pods_leave_and_those_that_leave_are_named(
    world: World, log: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    at = ("--at", offset(world, k.Preempted))
    [node] = answer(capsys, "replay", *at, *log)["nodes"]
    assert (node["used"][GPU], node["leaving"][GPU], node["allocatable"][GPU]) == (7, 3, 4)
    assert "4/4 and 3 leaving" in run(capsys, "replay", "--all", *at, *log)
    shown = run(capsys, "top", "--by", "job", *at, *log)
    leaving = answer(capsys, "top", "--by", "job", *at, *log)["holders"][-1]
    assert (leaving["name"], leaving["leaving"], leaving["amounts"][GPU]) == ("", True, 3)
    assert "(pods that leave)" in shown and "100%" not in shown


# --- explain, what-if, bisect, diff, simulate ---------------------------------------------------------------------


def test_explain_tells_both_sides_of_a_preemption(log: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    high, low = run(capsys, "explain", "high", *log), run(capsys, "explain", "low", *log)
    assert "  took room at " in high and "default/low (2 pods, lower priority, 200 GPU seconds of work lost)" in high
    assert "it began 7.0s later" in high
    assert "  gave room 2 pods at " in low and "no restart counts; it waits again since 7.0s" in low
    assert answer(capsys, "explain", "high", *log)["takings"][0]["victims"][1]["job"] == "default/low"


@pytest.mark.parametrize(("flag", "value", "gets"), [("--preemption", "Off", 0), ("--preemption", "surplus=Never", 3)])
def test_what_if_with_other_rules_of_preemption(
    flag: str, value: str, gets: int, world: World, log: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(capsys, "what-if", *log, "--at", offset(world, k.Preempted), flag, value)
    assert found["reproduced"] is True
    plans = {side: {of["job"]: of for of in found[side]["jobs"]}["default/high"] for side in ("asItWas", "whatIf")}
    assert (plans["asItWas"]["placed"], plans["whatIf"]["placed"]) == (3, gets)
    assert len(plans["asItWas"]["room_from"]) == 2


def test_what_if_counts_the_jobs_that_give_room_among_those_that_wait(
    world: World, log: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("what-if", *log, "--at", offset(world, k.Preempted), "--preemption", "Off")
    found = answer(capsys, *options)
    assert sorted(found["asItWas"]["preempted"]) == ["default/low", "default/wide"] and not found["whatIf"]["preempted"]
    assert (found["asItWas"]["waiting"], found["whatIf"]["waiting"]) == (2, 1)
    [row] = [line for line in run(capsys, *options).splitlines() if line.startswith("jobs that give room")]
    assert "default/low" in row and row.endswith("nothing")


def test_what_if_goes_on_without_preemption(world: World, log: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    at = ("--at", offset(world, k.Preempted), "--until", "drained", "--lasting", "10m")
    found = answer(capsys, "what-if", *log, *at, "--preemption", "Off")["until"]
    assert (found["asItWas"]["started"], found["whatIf"]["started"]) == (2, 1)


def test_preemption_can_be_switched_on_for_a_log_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of = with_room_rules(preemption=None, room_bound_ms=0, reservations=0, reservation_refresh_ms=0)
    gpu_job(of, "low", 4, priority=1)
    of.settle()
    gpu_job(of, "high", 4, priority=9)
    of.cycle()
    log = to_file(of.entries, tmp_path / "run.log")
    on = answer(capsys, "what-if", *log, "--preemption", "On")
    assert [plan["placed"] for plan in on["whatIf"]["jobs"]] == [4] and on["asItWas"]["pods"] == 0
    out = run(capsys, "what-if", *log, "--reservations", "2")
    assert "changes: reservations 2" in out


def test_backfill_off_lets_a_later_job_go_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of = with_room_rules(preemption=None)
    gpu_job(of, "first", 2, expected_s=100)
    of.settle()
    gpu_job(of, "large", 4, priority=9)
    of.settle()
    gpu_job(of, "small", 1, priority=1)
    of.cycle()
    log = to_file(of.entries, tmp_path / "run.log")
    last = str(of.entries[entry_with(of.entries, k.CycleTaken, last=True)].first)
    found = answer(capsys, "what-if", *log, "--at", last, "--backfill", "Off")
    assert (found["asItWas"]["pods"], found["whatIf"]["pods"]) == (0, 1)
    at = answer(capsys, "bisect", *log, "--job", "large", "--reserved")["found"]["event"]
    assert at["kind"] == "Reserved"
    cycle = answer(capsys, "bisect", *log, "--backfill", "Off")["found"]
    assert cycle is not None


@pytest.mark.parametrize("reservations", [1, 3])
def test_backfill_known_keeps_a_job_without_an_expected_end_out_of_reserved_room(
    reservations: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = with_room_rules(preemption=None, guests=True, reservations=reservations)
    gpu_job(of, "first", 2, expected_s=100)
    of.settle()
    gpu_job(of, "large", 4, priority=9)
    of.settle()
    gpu_job(of, "small", 1, priority=1)
    of.cycle()
    log = to_file(of.entries, tmp_path / "run.log")
    last = str(of.entries[entry_with(of.entries, k.CycleTaken, last=True)].first)
    found = answer(capsys, "what-if", *log, "--at", last, "--backfill", "Known")
    assert (found["asItWas"]["pods"], found["whatIf"]["pods"]) == (1, 0)
    assert found["otherwise"] == "backfill Known", "how many have a reservation stays as recorded"
    assert [one["job"] for one in found["differences"]] == ["default/small"]
    found = answer(capsys, "what-if", *log, "--at", last, "--backfill", "Guests")
    assert found["otherwise"] == "backfill Guests" and not found["differences"]
    found = answer(capsys, "what-if", *log, "--at", last, "--backfill", "Off", "--reservations", "2")
    assert found["otherwise"] == "backfill Off, reservations 0" and found["whatIf"]["pods"] == 1
    found = answer(capsys, "what-if", *log, "--at", last, "--backfill", "Known", "--reservations", "0")
    assert found["otherwise"] == "backfill Known, reservations 0" and found["whatIf"]["pods"] == 1
    bisected = answer(capsys, "bisect", *log, "--backfill", "Known")
    assert bisected["other"] == {"backfill": "Known"} and bisected["found"]["job"] == "default/small"


def test_backfill_where_there_were_no_reservations_makes_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = with_room_rules(preemption=None, reservations=0, reservation_refresh_ms=0)
    gpu_job(of, "first", 2, expected_s=100)
    of.settle()
    gpu_job(of, "large", 4, priority=9)
    gpu_job(of, "small", 1, priority=1)
    of.cycle()
    log = to_file(of.entries, tmp_path / "run.log")
    last = str(of.entries[entry_with(of.entries, k.CycleTaken, last=True)].first)
    for backfill, pods in (("Known", 0), ("Guests", 1), ("Off", 1)):
        found = answer(capsys, "what-if", *log, "--at", last, "--backfill", backfill)
        assert (found["asItWas"]["pods"], found["whatIf"]["pods"]) == (1, pods), backfill
        assert found["otherwise"] == f"backfill {backfill}"


def test_bisect_finds_when_a_job_was_preempted(log: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "bisect", *log, "--job", "low", "--preempted")
    assert (found["condition"], found["found"]["event"]["kind"]) == ("job default/low is preempted", "Preempted")


def test_a_simulation_takes_room_unless_told_not_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all([node("n1", gpus=1)]))
    for flags in (["--preemption", "Off"], ["--preemption", "On", "--backfill", "Off"], ["--reservations", "3"]):
        assert "n1" in run(capsys, "simulate", str(file), *flags)


# --- preemptions and waits ----------------------------------------------------------------------------------------


def test_preemptions_are_listed_with_their_sums(log: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "preemptions", *log)
    row = next(line for line in out.splitlines() if "default/high" in line)
    assert "default/wide (Surplus)" in row and "default/low (Priority)" in row and "0.083" in row and "7.0s" in row
    assert (
        "1 preemption, none of them needless as far as is known; of 1 it isn't known yet. Needless means: without it, "
        "the job would have got nodes within 10m" in out
    )
    found = answer(capsys, "preemptions", *log)
    assert found["queues"] == [
        {"queue": "default", "taken": 1, "gave": 2, "lost_ms": 300_000, "again_ms": 0, "guest_ms": 0}
    ]
    assert (found["preemptions"][0]["gained_ms"], found["preemptions"][0]["needless"]) == (7_000, False)
    rows = run(capsys, "preemptions", *log, "-o", "csv").splitlines()
    assert rows[0].startswith("offset,time,beneficiary,") and len(rows) == 3


def test_a_log_without_preemptions_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = to_file(with_room_rules().entries, tmp_path / "run.log")
    assert run(capsys, "preemptions", *log) == "no job gave room to another one in this part of the log\n"
    assert run(capsys, "waits", *log) == "no job waited in this part of the log\n"
    assert answer(capsys, "waits", *log)["rows"] == []
    assert run(capsys, "waits", *log, "-o", "csv") == "queue,cause,held_by_queue,wait_ms,gpu_ms\n"


def test_waits_are_grouped_and_sum_to_the_whole(log: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for by in ("queue", "user", "namespace", "day", "job"):
        found = answer(capsys, "waits", *log, "--by", by)
        assert sum(row["wait_ms"] for row in found["rows"]) == found["wait_ms"] > 0
        assert sum(row["gpu_ms"] for row in found["rows"]) == found["gpu_ms"] > 0
    out = run(capsys, "waits", *log, "--by", "job", "--held-by", "job")
    assert "others to leave its nodes" in out and "in all " in out
    assert run(capsys, "waits", *log, "--by", "day", "-o", "csv").splitlines()[1].startswith("2023-11-14,")


def test_waiting_for_what_no_cluster_could_give_has_no_gpu_hours(capsys: pytest.CaptureFixture[str]) -> None:
    log = ("--log", "tests/histories/demo.log", "--by", "job")
    never = [row for row in answer(capsys, "waits", *log)["rows"] if row["group"] == "default/never-fits"]
    assert {row["gpu_ms"] for row in never} == {0} and sum(row["wait_ms"] for row in never) > 10_000
    out = run(capsys, "waits", *log)
    [row] = [line.split() for line in out.splitlines() if "no cluster of these nodes has room" in line]
    assert row[-3:] == ["-", "-", "10.0s"] and "10.0s of it jobs waited that these nodes can't hold" in out


def test_a_slot_that_got_its_node_again_is_counted_with_the_decision_that_it_has_it_by(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = Path(__file__).parents[1] / "histories" / "room-for-what-matters.log"
    done = Run(capsys, "explain", "default/train", "--log", str(log), "--at", "285", "-o", "json")
    held = [(one["offset"], one["held"]) for one in done.json["waiting"]["takers"] if one["job"] == "default/explore"]
    gpu = "nvidia.com/gpu"
    assert held == [(51, {gpu: 3}), (125, {gpu: 1}), (140, {gpu: 2})], "it has 6, and got 9"


def test_a_preemption_has_the_name_of_its_kind_in_every_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tables called it TookRoom, and bisect, the API and --kind's list of what is allowed Preempted."""
    world = preempting()
    log = to_file(world.entries, tmp_path / "run.log")
    for kind in ("Preempted", "TookRoom"):  # the second is what tables called it
        run = Run(capsys, "events", "--kind", kind, *log)
        [row] = [line for line in run.out.splitlines() if "room from" in line]
        assert " Preempted " in row and " default/high " in row and "TookRoom" not in run.out
        assert Run(capsys, "events", "--kind", kind, *log, "-o", "json").json["kind"] == "Preempted"
    for job in ("high", "low"):
        told = Run(capsys, "explain", job, *log).out
        assert "  Preempted  " in told and "TookRoom" not in told
