"""`arranger what-if`, run as a user runs it on a log file."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from arranger.events import kinds as k
from arranger.install import install_hint
from arranger.model.config import CycleConfig
from arranger.model.node import Taint
from arranger.model.pod import Phase
from arranger.model.queue import Preemption
from arranger.replay.what_if.hypothesis import node_copies
from tests.commands import Run, to_file
from tests.unit.queue_table import queue
from tests.unit.replay_worlds import contended, crowded
from tests.unit.test_cli_simulate_files import job, node
from tests.unit.test_replay_continuation import one_node
from tests.world import World, shape


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    done = Run(capsys, "what-if", *arguments)
    return done.status, done.out, done.err


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    status, out, err = run(capsys, *arguments, "-o", "json")
    assert status == 0, err
    return json.loads(out)


def test_with_nothing_otherwise_the_recorded_cycle_is_reproduced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = crowded()
    log = to_file(world.entries, tmp_path / "run.log")
    for entry in world.entries:
        if isinstance(entry.batch.events[0], k.CycleTaken):
            found = answer(capsys, *log, "--at", str(entry.last))
            assert (found["cycle"], found["reproduced"], found["differences"]) == (entry.first, True, [])
            assert found["asItWas"] == found["whatIf"]


def test_another_queue_policy_is_shown_beside_what_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = contended()
    log = to_file(world.entries, tmp_path / "run.log")
    cycle = next(entry for entry in world.entries if any(_places(e, "large") for e in entry.batch.events))
    status, out, _ = run(capsys, *log, "--at", str(cycle.first), "--queue-policy", "DRF")
    assert status == 0
    rows = out.splitlines()
    assert rows[0].startswith(f"the cycle at offset {cycle.first} on the state at offset {cycle.first - 1}, at ")
    assert "changes: queue_policy DRF" in rows
    at = next(number for number, row in enumerate(rows) if row.startswith("default/large"))
    assert rows[at].split()[1:] == ["as", "it", "was", "1", "0+1/1", "n1:", "learner"]
    assert rows[at + 1].split()[:5] == ["what", "if", "2", "0+0/1", "waits:"]


def _places(event: k.Event, name: str) -> bool:
    return isinstance(event, k.Placed) and event.job_uid == f"uid-{name}"


def test_manifests_add_and_change_and_names_remove(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = to_file(crowded().entries, tmp_path / "run.log")
    manifest = tmp_path / "more.yaml"
    manifest.write_text(yaml.safe_dump_all([node("n7", gpus="4"), job("extra", priority=10), job("other", workers=1)]))
    found = answer(capsys, *log, "--with", str(manifest), "--without", "big", "--without-node", "n6")
    jobs = {plan["job"]: plan for plan in found["whatIf"]["jobs"]}
    assert jobs["default/extra"]["queue"] == 1 and jobs["default/extra"]["placed"] == 3
    assert jobs["default/other"]["desired"] == 2, "it is an edit of the job that is there"
    assert "default/big" not in jobs
    assert "6 nodes" in jobs["default/never"]["waits"]


def test_a_copy_of_a_node_has_its_shape_and_takes_pods_though_the_node_takes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    taints = (Taint("team", "rl", "NoSchedule"), Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"))
    labels = {"kubernetes.io/hostname": "closed", "zone": "a"}
    world.node("closed", gpus=4, cordoned=True, labels=labels, taints=taints)
    copy, another = node_copies(world.state, ["closed", "closed"])
    assert (copy.name, another.name) == ("closed-copy-1", "closed-copy-2")
    facts = world.state.nodes.facts[world.state.nodes.rows["closed"]]
    assert copy.facts.allocatable == facts.allocatable
    assert (copy.facts.ready, copy.facts.cordoned, copy.facts.taints) == (True, False, taints[:1])
    assert copy.facts.labels == (("kubernetes.io/hostname", "closed-copy-1"), ("zone", "a"))

    log = to_file(crowded().entries, tmp_path / "run.log")
    before = answer(capsys, *log)["whatIf"]["pods"]
    found = answer(capsys, *log, *("--with-node", "n1") * 3)
    assert found["whatIf"]["pods"] > before == found["asItWas"]["pods"]
    assert any("n1-copy-1" in plan["nodes"] for plan in found["whatIf"]["jobs"])


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (("--with-node", "N1"), 1, "there is no node 'N1' at offset 52 (did you mean n1"),
        (("--without", "bgi"), 1, "there is no job 'bgi' at offset 52 (did you mean big?)"),
        (("--without-node", "N1"), 1, "there is no node 'N1' at offset 52 (did you mean n1"),
        (("--policy", "Binpack"), 2, "pod_policy: 'Binpack' can't be used"),
        (("--until", "soon"), 2, "'soon' is not an end; allowed: a duration such as 2h, drained, or an offset"),
        (("--lasting", "2h"), 2, "--lasting needs --until"),
        (("--until", "2h", "--lasting", "2 hours"), 2, "'2 hours' is not a duration"),
        (("--until", "9999"), 1, "--until: the log has no offset 9999 after the point"),
        (("--until", "2020-01-01T00:00:00"), 2, "is before the point"),
        (("--until", "2h", "--plot", "courses.pdf"), 2, "--plot: courses.pdf has no known ending"),
        (("--at", "3"), 1, "not everything had been listed yet at offset 3, so no cycle could run there"),
    ],
)
def test_what_cannot_be_asked_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], status: int, complaint: str
) -> None:
    log = to_file(crowded().entries, tmp_path / "run.log")
    found, _, err = run(capsys, *log, *arguments)
    assert found == status and complaint in err and err.count("\n") == 1


def test_a_manifest_that_is_invalid_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = to_file(crowded().entries, tmp_path / "run.log")
    manifest = tmp_path / "wrong.yaml"
    manifest.write_text(yaml.safe_dump(job("extra", priority=11)))
    status, _, err = run(capsys, *log, "--with", str(manifest))
    assert status == 2 and "TYJob default/extra is invalid: spec.priority" in err


def _at_first_job(world: World) -> str:
    entry = next(entry for entry in world.entries if any(isinstance(e, k.JobSeen) for e in entry.batch.events))
    return str(entry.last)


def test_both_go_on_until_nothing_happens_any_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = one_node().play()
    log = to_file(world.entries, tmp_path / "run.log")
    arguments = (*log, "--at", _at_first_job(world), "--queue-policy", "DRF", "--until", "drained")
    found = answer(capsys, *arguments)["until"]
    assert (found["asItWas"]["makespan_ms"], found["asItWas"]["wait_p50_ms"]) == (180_000, 90_000)
    assert (found["whatIf"]["makespan_ms"], found["whatIf"]["wait_p50_ms"]) == (180_000, 70_000)
    assert found["likenessToLog"] == {"common": 4, "equal": 4, "farthest_ms": 0, "only_log": 0, "only_here": 0}
    status, out, _ = run(capsys, *arguments)
    assert status == 0
    row = next(line for line in out.splitlines() if line.startswith("wait, mean"))
    assert row.split()[2:] == ["1m25s", "1m07s"]
    assert "4 of 4 starts differ by at most a second" in out


def test_the_horizon_may_be_a_span_an_offset_or_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timeline = one_node()
    world = timeline.play()
    log = to_file(world.entries, tmp_path / "run.log")
    tiny = next(
        entry for entry in world.entries if any(getattr(e, "uid", "") == "uid-tiny" for e in entry.batch.events)
    )
    for until, seconds in (("2m", 120), (str(tiny.last), 30), ("2023-11-14T22:14:20+00:00", 60)):
        found = answer(capsys, *log, "--at", _at_first_job(world), "--until", until)["until"]
        assert found["asItWas"]["end_ms"] == timeline.began_ms + seconds * 1000


@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_both_courses_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str, begins: bytes) -> None:
    pytest.importorskip("matplotlib")
    world = one_node().play()
    log = to_file(world.entries, tmp_path / "run.log")
    picture = tmp_path / f"courses.{ending}"
    status, _, err = run(capsys, *log, "--at", _at_first_job(world), "--until", "drained", "--plot", str(picture))
    assert status == 0, err
    assert picture.read_bytes().startswith(begins)


def test_without_matplotlib_a_picture_is_refused_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, _, err = run(capsys, "--log", "nowhere.log", "--until", "2h", "--plot", "courses.png")
    assert status == 2 and f"--plot needs matplotlib, which isn't installed ({install_hint('plot')})" in err


def _tainted_node(path: Path) -> list[str]:
    """A job that only a node with GPUs could take, and that one is tainted."""
    world = World()
    world.node("n1", cpu=8)
    world.node("n2", cpu=8, gpus=4, labels={"zone": "a"}, taints=[Taint("maintenance", "yes", "NoSchedule")])
    world.job("train", leader=shape(gpus=1))
    world.settle()
    return to_file(world.entries, path)


def _with(path: Path, item: dict[str, Any]) -> tuple[str, str]:
    path.write_text(yaml.safe_dump(item))
    return "--with", str(path)


def test_a_node_in_a_file_is_an_edit_that_keeps_what_it_does_not_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = _tainted_node(tmp_path / "run.log")
    manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2", "labels": {"gpu-type": "h100"}}}
    found = answer(capsys, *log, *_with(tmp_path / "n2.yaml", manifest))
    assert found["edits"] == ["node n2: label gpu-type: - → h100"]
    assert found["differences"] == [], "its taint is still there"
    manifest |= {"spec": {"taints": []}, "status": {"allocatable": {"nvidia.com/gpu": "2"}}}
    found = answer(capsys, *log, *_with(tmp_path / "n2.yaml", manifest))
    changes = "nvidia.com/gpu: 4 → 2; label gpu-type: - → h100; taints: maintenance=yes:NoSchedule → none"
    assert found["edits"] == [f"node n2: {changes}"]
    assert found["whatIf"]["jobs"][0]["nodes"] == {"n2": "learner"}
    status, out, _ = run(capsys, *log, *_with(tmp_path / "n2.yaml", manifest))
    assert status == 0 and f"\n  node n2: {changes}\n" in out


def test_a_node_as_an_api_server_gives_it_is_taken_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = _tainted_node(tmp_path / "run.log")
    manifest = node("n2", gpus="4")
    manifest["metadata"]["uid"] = "uid-n2"
    manifest["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    (edit,) = answer(capsys, *log, *_with(tmp_path / "n2.yaml", manifest))["edits"]
    assert "label zone: a → -" in edit and "taints: maintenance=yes:NoSchedule → none" in edit


def test_an_edit_of_a_job_is_told_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = to_file(crowded().entries, tmp_path / "run.log")
    found = answer(capsys, *log, *_with(tmp_path / "job.yaml", job("big", workers=1)))
    assert found["edits"] == ["job default/big: its spec is replaced by the one in the file"]
    assert answer(capsys, *log, *_with(tmp_path / "job.yaml", job("new", workers=1)))["edits"] == []


def test_a_job_is_changed_without_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = to_file(crowded().entries, tmp_path / "run.log")
    found = answer(capsys, *log, "--job", "never", "--priority", "9", "--gpus", "3")
    assert found["otherwise"] == "default/never with priority 9, GPUs a pod 3"
    (edit,) = found["edits"]
    assert edit.startswith("job default/never: priority 5 → 9, ") and edit.endswith("3 nvidia.com/gpu")
    never = next(plan for plan in found["whatIf"]["jobs"] if plan["job"] == "default/never")
    assert (never["queue"], never["priority"]) == (1, 9), "it goes before all others"
    before = next(plan for plan in found["asItWas"]["jobs"] if plan["job"] == "default/never")
    assert never["waits"] != before["waits"]


def test_fewer_gpus_or_another_queue_let_a_waiting_job_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    world.node("n1", gpus=4)
    world.queue("rl", capability=(("nvidia.com/gpu", 2),))
    world.queue("wide")
    for at, name in enumerate(("one", "two")):
        world.job(name, leader=shape(gpus=2), of_queue="rl", created=at)
    world.job("large", leader=shape(gpus=8), of_queue="wide", created=3)
    world.settle()
    log = to_file(world.entries, tmp_path / "run.log")

    def starts(*change: str) -> list[str]:
        found = answer(capsys, *log, *change)
        return [plan["job"] for plan in found["whatIf"]["jobs"] if plan["placed"]]

    assert starts("--job", "two", "--queue", "wide") == ["default/two"]
    assert starts("--job", "large", "--gpus", "2") == ["default/large"]
    assert starts("--job", "large", "--priority", "9") == []
    assert "asks for no nodes" not in run(capsys, *log, "--job", "large", "--priority", "9")[1]
    words = "default/one asks for no nodes at this point: it has them, or has ended"
    assert words in " ".join(run(capsys, *log, "--job", "one", "--gpus", "1")[1].split())


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (("--priority", "7"), 2, "--priority needs --job"),
        (("--job", "big"), 2, "--job needs --priority, --queue or --gpus"),
        (("--job", "big", "--priority", "11"), 2, "11 is not a whole number from 1 to 10"),
        (("--job", "never", "--gpus", str(1 << 63)), 2, "is not a whole number from 1 to 9007199254740992"),
        (("--job", "bgi", "--gpus", "1"), 1, "there is no job 'bgi' at offset"),
        (("--job", "big", "--queue", "rk"), 1, "there is no queue 'rk' at offset"),
        (("--job", "wrong", "--priority", "7"), 2, "job default/wrong has ended or is invalid there"),
        (("--job", "big", "--priority", "7", "--without", "big"), 2, "--with or --without changes this job too"),
    ],
)
def test_a_change_of_a_job_that_cannot_be_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], status: int, complaint: str
) -> None:
    log = to_file(crowded().entries, tmp_path / "run.log")
    found, _, err = run(capsys, *log, *arguments)
    assert found == status and complaint in err and err.count("\n") == 1


def test_why_nothing_goes_on_is_told_with_the_jobs_that_have_no_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = to_file(crowded().entries, tmp_path / "run.log")
    status, out, _ = run(capsys, *log, "--until", "drained")
    assert status == 0
    assert "the log shows no end of default/small, default/wide, so the nodes that they hold never become free" in out
    row = next(line for line in out.splitlines() if line.startswith("jobs ended"))
    assert row.split()[2:] == ["1", "1"], "the one that is given up for good, and none that had ended before"
    _, out, _ = run(capsys, *log, "--until", "drained", "--lasting", "1m")
    assert "never free again" not in out


def test_a_second_attempt_is_no_further_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timeline = one_node()
    world = timeline.world
    timeline.job(300, "restarted", runs=None, leader=shape(gpus=4))
    timeline.at(310, lambda: timeline.over("restarted", Phase.FAILED))
    timeline.play()
    log = to_file(world.entries, tmp_path / "run.log")
    _, out, _ = run(capsys, *log, "--at", _at_first_job(world), "--until", "drained")
    row = next(line for line in out.splitlines() if line.startswith("jobs started"))
    assert "5, and 1 again" in row


def test_a_run_is_not_told_as_what_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run without changes is supposed as well: its starts may differ from those of the log."""
    world = contended()
    log = to_file(world.entries, tmp_path / "run.log")
    _, out, _ = run(capsys, *log, "--at", _at_first_job(world), "--queue-policy", "DRF", "--until", "drained")
    plans, runs = out.split("\nFIGURE")
    assert "AS IT WAS" in plans and "as it was" not in runs.lower()
    assert runs.splitlines()[0].split() == ["WITHOUT", "CHANGES", "WHAT", "IF"]
    assert "the run without changes, compared with the log:" in runs


def queues_log(tmp_path: Path) -> tuple[list[str], str]:
    """4 GPUs; the queue rl has 2 of them at most, so its first job runs and its second one waits. The offset is that
    before the queue is seen again with another weight."""
    world = World()
    world.node("n1", gpus=4)
    world.queue("rl", capability=(("nvidia.com/gpu", 2),))
    for at, name in enumerate(("one", "two")):
        world.job(name, leader=shape(gpus=2), of_queue="rl", created=at)
    world.settle()
    before = world.state.offset
    world.pass_time(5)
    world.queue("rl", weight=2, capability=(("nvidia.com/gpu", 2),))
    return to_file(world.entries, tmp_path / "run.log"), str(before)


def file_of(tmp_path: Path, *objects: Any) -> str:
    path = tmp_path / "objects.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def test_queues_are_changed_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, _ = queues_log(tmp_path)
    wider = file_of(tmp_path, queue("rl", weight=3, maxRunning=9))
    found = answer(capsys, *log, "--with", wider)
    assert found["edits"] == [
        "queue rl: weight 2 → 3, capability 2 nvidia.com/gpu → unset, maxRunning unset → 9",
    ]
    assert (found["asItWas"]["queues"], found["whatIf"]["queues"]) == ({}, {"rl": "2 nvidia.com/gpu"})
    page = run(capsys, *log, "--with", wider)[1]
    assert "by queue rl" in page
    without = answer(capsys, *log, "--without-queue", "rl")
    assert without["otherwise"] == "without queue rl"
    [differs] = without["differences"]
    assert differs["job"] == "default/two" and differs["other"]["waits"].startswith("waits for queue rl, which doesn't")
    assert "there is no queue 'rk' at offset" in run(capsys, *log, "--without-queue", "rk")[2]


def test_a_changed_queue_stays_changed_in_the_recorded_future(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, before = queues_log(tmp_path)
    tighter = file_of(tmp_path, queue("rl", capability={"nvidia.com/gpu": 1}))
    for change in (("--with", tighter), ("--without-queue", "rl")):
        found = answer(capsys, *log, "--at", before, *change, "--until", "drained", "--lasting", "10s")["until"]
        assert (found["asItWas"]["waiting_at_end"], found["whatIf"]["waiting_at_end"]) == (0, 1)


def test_jobs_that_are_not_in_the_order_are_counted_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    world.node("n1", gpus=4)
    world.queue("vision")
    world.job("first", leader=shape(gpus=1), of_queue="vision")
    world.job("lost", leader=shape(gpus=1), of_queue="nope")
    world.settle()
    log = to_file(world.entries, tmp_path / "run.log")
    why = "waits for queue nope, which doesn't exist: create it, or name another in spec.queue"
    found = answer(capsys, *log, "--job", "lost", "--priority", "9")
    assert (found["asItWas"]["waiting"], found["whatIf"]["waiting"]) == (1, 1)
    assert [(one["job"], one["queue"], one["waits"]) for one in found["whatIf"]["jobs"]] == [("default/lost", 0, why)]
    _, out, _ = run(capsys, *log, "--job", "lost", "--priority", "9")
    assert "the plans don't differ" in out
    [row] = [line for line in out.splitlines() if line.startswith("default/lost ")]
    assert row.split()[1:4] == ["both", "-", "0+0/1"] and row.endswith(f"waits: {why}")


@pytest.mark.parametrize(("flag", "given", "meant"), [("--queue-policy", "drf", "DRF"), ("--policy", "gang", "Gang")])
def test_a_policy_in_the_wrong_case_is_suggested_in_the_right_one(
    flag: str, given: str, meant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = to_file(crowded().entries, tmp_path / "run.log")
    status, _, err = run(capsys, *log, flag, given)
    assert status == 2 and f"did you mean {meant}? allowed: " in err
    assert "did you mean" not in run(capsys, *log, flag, "none")[2]


def test_at_the_end_it_has_the_last_cycles_rules_also_where_the_newest_snapshot_is_behind_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(config=CycleConfig(preemption=Preemption()))
    world.node("n1", gpus=4)
    world.job("low", leader=shape(gpus=4), priority=1)
    world.settle()
    world.job("high", leader=shape(gpus=4), priority=9)
    log = to_file(world.entries, tmp_path / "run.log", snapshot_after=len(world.entries))
    at_end = answer(capsys, *log, "--with-node", "n1")
    [plan] = at_end["asItWas"]["jobs"]
    assert plan["room_from"], "with the defaults nobody would give room"
    assert at_end == answer(capsys, *log, "--with-node", "n1", "--at", str(world.state.offset))
