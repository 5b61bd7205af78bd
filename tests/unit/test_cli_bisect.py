"""`arranger bisect`, run as a user runs it on a log file."""

import json
from pathlib import Path

import pytest
import yaml

from arranger.cli.main import main
from arranger.events import kinds as k
from tests.commands import Run, to_file
from tests.unit.queue_table import queue
from tests.unit.replay_worlds import crowded
from tests.unit.test_cli_simulate_files import job
from tests.world import World, shape

DEMO = Path(__file__).parents[1] / "histories" / "demo.log"


@pytest.fixture
def log(tmp_path: Path) -> list[str]:
    return to_file(crowded().entries, tmp_path / "run.log")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    done = Run(capsys, "bisect", *arguments)
    return done.status, done.out, done.err


def test_what_blocks_a_job_is_shown_with_what_it_changed(log: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, *log, "--job", "big", "--blocked")
    assert status == 0
    assert out.startswith("the quorum of default/big doesn't fit since this event (searched: offsets 11 to 52)\n")
    row = next(line for line in out.splitlines() if "Placed" in line)
    assert "default/wide" in row and "accepted" in row
    assert any(line.startswith("node n2") and "3 of 4" in line and "0 of 4" in line for line in out.splitlines())


def test_the_answer_in_json_has_the_event_as_the_listing_has_it(
    log: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run(capsys, *log, "--node", "n2", "--free-gpu", "<4", "-o", "json")
    answer = json.loads(out)
    assert status == 0 and answer["condition"] == "node n2 has accelerators free < 4" and answer["starts"] == 1
    main(["events", *log, "--from", str(answer["found"]["event"]["offset"]), "-o", "json"], prog_name="arranger")
    listed = json.loads(capsys.readouterr().out.splitlines()[0])
    assert answer["found"]["event"] == listed
    assert {"subject": "node n2", "what": "nvidia.com/gpu free", "before": "4 of 4", "after": "3 of 4"} in (
        answer["found"]["changed"]
    )


@pytest.mark.parametrize(
    ("reason", "holds"),
    [
        ("Insufficient", True),
        ("insufficient GPU", True),
        ("cordoned", True),
        ("taint infra", True),
        ("insufficient cpu", False),
        ("quota", False),
        ("needs 4", False),
        ("nodes fit", False),
    ],
)
def test_a_reason_is_sought_by_its_kind_or_by_what_it_names_and_not_by_its_sentence(
    log: list[str], capsys: pytest.CaptureFixture[str], reason: str, holds: bool
) -> None:
    status, out, _ = run(capsys, *log, "--job", "big", "--reason", reason, "-o", "json")
    answer = json.loads(out)
    assert answer["condition"] == f"job default/big waits because of {reason!r}"
    assert (status, answer["found"] is not None) == ((0, True) if holds else (1, False))
    if holds:
        assert answer["found"]["event"]["kind"] == "Waits" and answer["found"]["event"]["job"] == "default/big"


def _waited_twice() -> tuple[World, list[int]]:
    """A job that found no room for a while, twice, and has its nodes in the end; the offsets at which room came and
    went. Room came and went once before the job was there."""
    world = World()
    world.node("n1", gpus=4)
    offsets = []
    for number in range(3):
        pod = world.pod(f"stranger-{number}", "n1", gpus=4, cpu=1)
        offsets.append(world.state.offset)
        if number == 1:
            world.job("train", leader=shape(gpus=4), created=world.now_ms)
        world.pass_time(1)
        world.pod_gone(pod)
        offsets.append(world.state.offset)
    world.settle()
    return world, offsets


def test_what_blocked_a_job_that_has_its_nodes_now_is_told_with_when_that_was_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, (_, _, since, over, again, at_last) = _waited_twice()
    log = to_file(world.entries, tmp_path / "run.log")
    _, out, _ = run(capsys, *log, "--job", "train", "--blocked", "--to", str(over))
    assert out.startswith(
        f"the quorum of default/train doesn't fit from this event to offset {over - 1}, but no longer from offset "
        f"{over} on (searched: offsets 11 to {over})\n\n"
    )
    assert "stranger-1" in out
    status, out, _ = run(capsys, *log, "--job", "train", "--blocked")
    head, times, *_ = out.splitlines()
    assert status == 0 and f"to offset {at_last - 1}, but no longer from offset {at_last} on" in head
    assert times == (
        f"it held 2 times, at offsets {since} to {over - 1} and {again} to {at_last - 1}; "
        f"this event began the last time"
    )
    assert "stranger-2" in out
    _, out, _ = run(capsys, *log, "--job", "train", "--blocked", "--to", str(again))
    head, times, *_ = out.splitlines()
    assert head.startswith("the quorum of default/train doesn't fit since this event (searched")
    assert times.startswith(f"it held 2 times, at offsets {since} to {over - 1} and from {again} on; this")
    answer = json.loads(run(capsys, *log, "--job", "train", "--blocked", "-o", "json")[1])
    assert answer["holds"] is False and answer["intervals"][-1] == {"first": again, "last": at_last - 1}


def test_what_was_over_before_the_job_came_does_not_block_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    world.node("n1", gpus=4)
    for uid in ("uid-one", "uid-two"):
        job = world.job("train", uid=uid, leader=shape(gpus=4), created=world.now_ms)
        came = world.state.offset
        world.settle()
        if uid == "uid-one":
            world.job_gone(job)
            world.pod_gone(next(iter(world.state.pods)))
    log = to_file(world.entries, tmp_path / "run.log")
    status, out, err = run(capsys, *log, "--job", "train", "--blocked")
    assert status == 1
    never = f"never since the job was created at offset {came} (it held before that"
    assert out.startswith(f"the quorum of default/train doesn't fit: {never}")
    assert err == (
        f"arranger: this is about the job train that was created at offset {came}, not about 1 earlier job of that "
        f"name; use --to {came - 1} for the one before\n"
    )
    _, out, _ = run(capsys, *log, "--job", "train", "--not", "--fits")
    row = next(line for line in out.splitlines() if "Placed" in line)
    assert "default/train (an earlier job of that name)" in row


def test_the_first_event_is_told_as_the_first_of_what_may_be_several(
    log: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, *log, "--node", "n2", "--free-gpu", "<4")
    first, last = out.splitlines()[0].split(" (searched: only offsets 1 to ")
    assert first.endswith("from this event on, the first such event") and last.endswith(")")


def _ended_unplaced() -> World:
    """A job that no state had room for, and that was given up; before it and after it one that always had room."""
    world = World()
    world.node("n1", gpus=4)
    world.job("first", leader=shape(gpus=1), created=world.now_ms)
    world.settle()
    world.job("never", leader=shape(gpus=8), created=world.now_ms)
    world.settle()
    world.pass_time(400)
    world.settle()
    world.job("last", leader=shape(gpus=1), created=world.now_ms)
    world.settle()
    return world


def test_room_is_not_asked_of_a_job_that_has_ended_nor_before_nodes_were_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = _ended_unplaced()
    log = to_file(world.entries, tmp_path / "run.log")
    (ended,) = [o for o, e in _events(world) if isinstance(e, k.StageDecided) and e.stage == "Failed"]
    (came,) = [o for o, e in _events(world) if isinstance(e, k.JobSeen) and e.name == "never"]
    status, out, _ = run(capsys, *log, "--job", "never", "--fits")
    assert status == 1 and f"fits: it never holds in offsets 11 to {ended - 1}\n" in out
    status, out, _ = run(capsys, *log, "--job", "never", "--blocked")
    assert status == 1 and f"it has been blocked since it was created at offset {came}\n" in out
    assert "doesn't fit even an empty cluster" in out and f"the job ended at offset {ended}" in out
    status, out, _ = run(capsys, *log, "--job", "last", "--blocked")
    assert status == 1 and "default/last doesn't fit: never since the job was created at offset " in out
    _, out, _ = run(capsys, *log, "--job", "never", "--fits", "--from", str(ended + 1))
    assert out.endswith("fits: this can't be checked in that range, because the job had ended\n")
    assert "the log has no job" in run(capsys, *log, "--job", "never", "--fits", "--to", "5")[2]
    answer = json.loads(run(capsys, *log, "--job", "never", "--fits", "--from", str(ended + 1), "-o", "json")[1])
    assert answer["asked"] is None and answer["found"] is None


def _events(world: World) -> list[tuple[int, k.Event]]:
    return [pair for entry in world.entries for pair in enumerate(entry.batch.events, start=entry.first)]


def test_what_never_starts_to_hold_is_said_and_is_exit_status_1(
    log: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run(capsys, *log, "--job", "big", "--placed")
    assert (status, out) == (1, "job default/big has nodes for its quorum: it never holds in offsets 1 to 52\n")
    status, out, _ = run(capsys, *log, "--node", "n5", "--cordoned", "--from", "20")
    assert (status, out) == (1, "node n5 is cordoned: it always holds in offsets 20 to 52\n")
    status, out, _ = run(capsys, *log, "--node", "n5", "--cordoned", "--not", "-o", "json")
    assert status == 1 and json.loads(out)["found"] is None


def test_unknown_names_are_answered_with_the_nearest(log: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, *log, "--job", "bigg", "--waits")
    assert status == 1 and "did you mean default/big" in err
    status, _, err = run(capsys, *log, "--node", "n11", "--cordoned")
    assert status == 1 and "there is no node 'n11' at offset 52 (did you mean n" in err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "name what to find"),
        (("--job", "big"), "--job needs a condition, usually --blocked: one of --stage"),
        (("--job", "big", "--cordoned"), "--cordoned is for --node"),
        (("--node", "n1", "--free-gpu", "two"), "'two' can't be used (allowed: < <= = >= or > and an amount"),
        (("--node", "n1", "--free", "memory<lots"), "'memory<lots' can't be used"),
        (("--job", "big", "--blocked", "--waits"), "--blocked can't be used with other conditions"),
        (("--job", "big", "--waits", "--queue-policy", "DRF"), "leave one out"),
        (("--policy", "Spread"), "pod_policy: 'Spread' can't be used, from flag --policy (allowed: one of"),
        (("--queue-policy", "Drf"), "can't be used, from flag --queue-policy (did you mean DRF? allowed: one of"),
    ],
)
def test_what_cannot_be_sought_is_one_line(
    log: list[str], capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], complaint: str
) -> None:
    status, _, err = run(capsys, *log, *arguments)
    assert status == 2 and complaint in err and err.count("\n") == 1


def test_the_first_cycle_of_another_pod_policy_is_told_with_both_decisions(
    log: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, out, _ = run(capsys, *log, "--policy", "LeaderFirst")
    assert status == 0 and "the cycle at offset 27, on the state at offset 26, is the first with another result" in out
    config = tmp_path / "other.toml"
    config.write_text('pod_policy = "LeaderFirst"\n')
    status, out, _ = run(capsys, *log, "--config", str(config), "-o", "json")
    answer = json.loads(out)
    assert status == 0 and answer["found"]["cycle"] == 27 and answer["other"] == {"pod_policy": "LeaderFirst"}
    status, out, _ = run(capsys, *log, "--policy", "BinPack")
    told = "each gives the same pods the same nodes (the order in the queue isn't compared)"
    assert (status, out) == (1, f"4 cycles compared: with pod_policy BinPack, {told}\n")


def test_the_plans_of_two_versions_are_compared(
    log: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for path in (one, other):
        assert main(["verify", *log, "--plans", str(path)], prog_name="arranger") == 0
    status, out, _ = run(capsys, "--plans", str(one), str(other))
    assert (status, out) == (1, "4 cycles are in both files, with the same plans\n")
    lines = other.read_text().splitlines()
    third = json.loads(lines[2])
    lines[2] = json.dumps({**third, "digest": "0" * 32})
    other.write_text("\n".join(lines) + "\n")
    status, out, _ = run(capsys, "--plans", str(one), str(other))
    assert status == 0 and out.startswith(f"the cycle at offset {third['cycle']} is the first of 4 in both files")
    other.write_text("something else\n")
    status, _, err = run(capsys, "--plans", str(one), str(other))
    assert status == 2 and f"{other} has no plans" in err


def test_a_change_of_queues_finds_the_first_cycle_that_it_would_have_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    world.node("n1", gpus=4)
    world.queue("rl", capability=(("nvidia.com/gpu", 2),))
    world.job("before", leader=shape(gpus=1), created=1)
    world.settle()
    decided = world.state.offset + 2
    for at, name in enumerate(("one", "two"), start=2):
        world.job(name, leader=shape(gpus=1 + at % 2), of_queue="rl", created=at)
    world.cycle()
    log, wider = to_file(world.entries, tmp_path / "run.log"), tmp_path / "queue.yaml"
    wider.write_text(yaml.safe_dump(queue("rl", capability={"nvidia.com/gpu": 3})))
    digest = world.digest()
    status, out, err = run(capsys, *log, "--with", str(wider), "-o", "json")
    answer = json.loads(out)
    assert (status, answer["queues"], answer["other"]) == (0, ["queue rl as in the file"], {}), err
    assert answer["found"]["job"] == "default/two" and answer["found"]["cycle"] > decided
    assert world.digest() == digest
    status, out, _ = run(capsys, *log, "--without-queue", "rl")
    assert status == 0 and "with without queue rl" not in out and "without queue rl" in out and "default/one" in out
    wider.write_text(yaml.safe_dump(queue("rl", capability={"nvidia.com/gpu": 2}, weight=7)))
    assert run(capsys, *log, "--with", str(wider))[0] == 1, "it makes no difference"
    assert "there is no queue 'rk'" in run(capsys, *log, "--without-queue", "rk")[2]
    wider.write_text(yaml.safe_dump(job("extra")))
    assert (
        "queue.yaml:1: this is a TYJob, and only Queues can be used here" in run(capsys, *log, "--with", str(wider))[2]
    )
    wider.write_text(yaml.safe_dump(queue("rl", weight=0)))
    assert "Queue rl is invalid: spec.weight" in run(capsys, *log, "--with", str(wider))[2]


def test_an_event_before_the_creation_of_the_job_is_said_to_be_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    world.node("n1", gpus=4)
    fitted = world.state.offset
    world.pod("other", "n1", gpus=4)
    world.job("late", leader=shape(gpus=4))
    created = world.state.offset
    log = to_file(world.entries, tmp_path / "run.log")
    status, out, _ = run(capsys, *log, "--job", "late", "--fits")
    assert status == 0 and f"\n{fitted:>6}  " in out
    assert f"the job was created at offset {created} only; this is what its first spec would have got before" in out
    assert "created at offset" not in run(capsys, *log, "--job", "late", "--blocked")[1]
    assert run(capsys, *log, "--job", "late", "--fits", "--from", str(created))[0] == 1


def test_a_deletion_shows_what_was_about_the_pod_after_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    """The node and the job of a deleted pod were shown as if they had gone with it."""
    answer = Run(capsys, "bisect", "--log", str(DEMO), "--job", "waits-its-turn", "--fits", "-o", "json").json
    found = answer["found"]
    assert found["event"]["kind"] == "PodGone"
    changed = {(one["subject"], one["what"]): (one["before"], one["after"]) for one in found["changed"]}
    assert changed["node node-2", "nvidia.com/gpu free"] == ("0 of 8", "8 of 8")
    assert all(after for _, after in changed.values())
