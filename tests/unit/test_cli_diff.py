"""`arranger diff`: two points of a log, and two plans."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from arranger.model.queue import QueueState
from arranger.projections.state import State
from arranger.replay.reading.difference import ChangedFact, Difference, difference, picture
from tests.commands import Run, to_file
from tests.unit.replay_worlds import crowded
from tests.unit.test_cli_simulate_files import job, node
from tests.world import World, shape


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    done = Run(capsys, *arguments)
    return done.status, done.out, done.err


def changes_of(found: Difference, name: str) -> dict[str, tuple[str, str]]:
    """What changed about a job or node, by name."""
    groups = [group for group in (*found.jobs, *found.nodes) if name in group.names]
    return {change.what: (change.before, change.after) for group in groups for change in group.changes}


def between(world: World, happens: Any) -> Difference:
    before = picture(world.state, world.config)
    happens()
    return difference(before, picture(world.state, world.config), {})


# --- points --------------------------------------------------------------------------------------------------


def test_nothing_differs_between_a_state_and_itself() -> None:
    found = between(crowded(), lambda: None)
    assert (found.jobs, found.nodes, found.moved) == ((), (), ())


def test_a_job_that_got_nodes_and_the_nodes_that_it_took_are_told() -> None:
    world = World()
    world.node("n1", gpus=4)
    world.node("n2", gpus=4)
    one = shape(cpu=1, gpus=1)
    world.job("train", leader=one, workers=4, worker=one, min_workers=4)
    found = between(world, world.settle)
    changes = changes_of(found, "default/train")
    assert changes["stage"] == ("Pending", "Running")
    assert changes["pods with nodes"] == ("0 of 5", "5 of 5")
    assert changes["gets"] == ("", "n1: learner, actors 0-2; n2: actors 3")
    assert changes_of(found, "n1")["nvidia.com/gpu used"] == ("0", "4")
    assert (found.queue_before, found.queue_after) == (("default/train",), ())


def test_nodes_about_which_the_same_changed_stand_together() -> None:
    world = World()
    for number in range(4):
        world.node(f"n{number}", gpus=4)

    def cordon() -> None:
        for number in (3, 1, 2):
            world.node(f"n{number}", gpus=4, cordoned=True)
        world.node_gone("n0")

    found = between(world, cordon)
    assert [group.names for group in found.nodes] == [("n0",), ("n1", "n2", "n3")]
    assert found.nodes[1].changes == (ChangedFact("cordoned", "", "yes"),)
    assert found.nodes[0].changes[0] == ChangedFact("it", "there", "not there")


def test_queues_are_compared_once_there_are_any(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.node("n1", gpus=8)
    world.queue("a", weight=2)
    world.queue("b")
    world.job("train", leader=shape(gpus=1), workers=2, of_queue="a")
    start = world.state.offset

    def change() -> None:
        world.settle()
        world.queue("b", parent="a", deserved=(("nvidia.com/gpu", 2),), max_running=3)
        world.queue("c", state=QueueState.CLOSED)

    found = {group.names: group.changes for group in between(world, change).queues}
    assert found["a",] == (
        ChangedFact("waiting jobs", "1", "0"), ChangedFact("running jobs", "0", "1"),
        ChangedFact("used", "", "3 nvidia.com/gpu"),
    )  # fmt: skip
    parent, deserved, most = found["b",]
    assert (parent, deserved) == (ChangedFact("parent", "", "a"), ChangedFact("deserved", "", "2 nvidia.com/gpu"))
    assert most == ChangedFact("maxRunning", "", "3")
    assert found["c",][:3] == (ChangedFact("it", "not there", "there"), ChangedFact("state", "", "Closed"),
                               ChangedFact("problem", "", "closed"))  # fmt: skip
    log = to_file(world.entries, tmp_path / "run.log")
    status, out, _ = run(capsys, "diff", str(start), str(world.state.offset), *log)
    assert status == 0 and "\na      waiting jobs  1" in out
    assert between(crowded(), lambda: None).queues == ()


def test_only_jobs_that_changed_places_with_each_other_are_told_as_moved() -> None:
    world = World()
    world.node("n1", gpus=1)
    for name, priority in (("first", 9), ("second", 5), ("third", 4)):
        world.job(name, leader=shape(gpus=2), priority=priority)
    found = between(world, lambda: world.job_gone(world.state.jobs["uid-first"]))
    assert found.moved == () and found.queue_after == ("default/second", "default/third")
    found = between(world, lambda: world.job("third", leader=shape(gpus=2), priority=8, generation=2))
    assert set(found.moved) == {"default/second", "default/third"}
    assert changes_of(found, "default/third") == {"priority": ("4", "8")}


def test_two_points_of_a_log_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = to_file(crowded().entries, tmp_path / "run.log")
    status, out, err = run(capsys, "diff", "26", "43", *log)
    assert status == 0, err
    rows = out.splitlines()
    assert rows[0].startswith("before  offset 26, ") and rows[1].startswith("after   offset 43, ")
    assert rows[2].startswith("between 17 events: 11 PodSeen, ")
    assert any(row.split()[:4] == ["default/wide", "stage", "Pending", "Running"] for row in rows)
    assert any(row.split()[:5] == ["n3,", "n4", "cpu", "used", "0"] for row in rows)
    status, out, _ = run(capsys, "diff", "43", "26", *log, "-o", "json")
    back = json.loads(out)
    assert status == 0 and back["before"][0] == 43 and sum(back["events"].values()) == 17
    gone = next(group for group in back["jobs"] if "default/big" in group["names"])
    assert gone["changes"][0] == {"what": "it", "before": "there", "after": "not there"}


def test_a_time_before_now_is_no_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = to_file(crowded().entries, tmp_path / "run.log")
    for flags in (["-2h30m", "-1.5h"], ["-1h", "end"], ["2h ago", "1h ago"]):
        status, out, err = run(capsys, "diff", *flags, *log)
        assert status == 0 and out.startswith("before  offset 52, "), err
    status, _, err = run(capsys, "diff", "-5y", "end", *log)
    assert status == 2 and "'5y ago' is not a point in the log" in err
    assert "No such option '-x'" in run(capsys, "diff", "-x", "end", *log)[2]


def test_a_state_without_anything_can_be_compared_too() -> None:
    world = crowded()
    found = difference(picture(State(), world.config), picture(world.state, world.config), {})
    assert {name for group in found.nodes for name in group.names} == {f"n{number}" for number in range(1, 7)}


# --- plans ---------------------------------------------------------------------------------------------------


def test_two_what_ifs_are_compared_by_their_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = to_file(crowded().entries, tmp_path / "run.log")
    files = []
    for policy in ("BinPack", "LeaderFirst"):
        _, out, _ = run(capsys, "what-if", *log, "--at", "29", "--policy", policy, "-o", "json")
        files.append(tmp_path / f"{policy}.json")
        files[-1].write_text(out)
    status, out, _ = run(capsys, "diff", *map(str, files))
    rows = [row.split() for row in out.splitlines()]
    assert status == 0 and ["default", "pod", "policy", "BinPack", "LeaderFirst"] in rows
    assert any(row[:2] == ["default/wide", "A"] and "learner," in row for row in rows)
    _, out, _ = run(capsys, "diff", *map(str, files), "-o", "json")
    assert [one["differs"] for one in json.loads(out)["differences"]] == [["nodes"]]
    _, out, _ = run(capsys, "diff", str(files[0]), str(files[0]))
    assert "the plans don't differ" in out


def test_two_simulations_are_compared_by_their_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for name, nodes in (("small", 1), ("large", 2)):
        cluster = tmp_path / f"{name}.yaml"
        cluster.write_text(yaml.safe_dump_all([*(node(f"n{n}", cpu="2") for n in range(nodes)), job("train")]))
        _, out, _ = run(capsys, "simulate", str(cluster), "-o", "json")
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(out)
    _, out, _ = run(capsys, "diff", *map(str, files), "-o", "json")
    (found,) = json.loads(out)["differences"]
    assert found["one"]["nodes"] == {} and found["one"]["waits"]
    assert found["other"]["nodes"] == {"n0": "train-learner-0, train-actors-0", "n1": "train-actors-1"}


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (("some.json", "5"), "some.json is a file, and the other isn't one (name two points, or two files)"),
        (("5", "none.json"), "none.json is no file, and the other isn't one"),
        (("5", "soon"), "'soon' is not a point in the log"),
        (("some.json", "some.json"), "some.json has no plan"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    names: tuple[str, str],
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("some.json").write_text("{}")
    log = to_file(crowded().entries, tmp_path / "run.log")
    status, _, err = run(capsys, "diff", *names, *log)
    assert status == 2 and complaint in err and err.count("\n") == 1
