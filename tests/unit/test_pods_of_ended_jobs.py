"""Of an ended job people are told how many pods it had in the end: those that had nodes, not those it asked for."""

from pathlib import Path

import msgspec
import pytest

from arranger.model.job import JobStatusSeen, Stage
from arranger.projections import snapshot
from arranger.projections.jobs.parts import LEADER
from arranger.replay.console.moment import moment
from tests.commands import Run, to_file
from tests.unit.test_lifecycle_workers import fail, later, running
from tests.world import World


def test_an_ended_job_had_the_pods_that_had_nodes_in_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    world.node("n1", cpu=2)
    job = world.job("part", workers=3, min_workers=0)
    world.settle()
    world.change_pod(job.bound[LEADER], phase="Succeeded", ready=False)
    world.settle()
    assert job.ended and [len(job.placements), job.pods_told()] == [0, 2]
    restored = snapshot.restore(snapshot.encode(world.state))
    assert restored.jobs[job.uid].pods_told() == 2 and moment(restored).jobs[0].pods_desired == 2
    log = to_file(world.entries, tmp_path / "run.log")
    assert "  pods      it had 2; the job has ended" in Run(capsys, "explain", "part", *log).out
    assert "  had 2" in Run(capsys, "replay", *log).out


def test_a_job_that_ends_without_nodes_after_an_attempt_is_not_said_to_have_had_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, job = running()
    world.change_pod(job.bound[LEADER], phase="Failed", ready=False)
    world.node("n1", cpu=8, cordoned=True)
    world.control()
    assert job.stage == Stage.RESCHEDULING
    world.say(msgspec.structs.replace(job.seen, spec=msgspec.structs.replace(job.valid_spec, terminating=True)))
    world.control()
    assert job.ended and job.pods_told() == 0
    log = to_file(world.entries, tmp_path / "run.log")
    assert "  pods      it had no nodes when it ended" in Run(capsys, "explain", "ppo", *log).out


def test_a_job_that_fails_because_its_workers_are_given_up_is_not_said_to_have_had_no_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, job = running(equals=True, success=(1,), workers=2, min_workers=2, restart_limit=0)
    fail(world, job, 0, 1)
    world.settle()
    later(world)
    assert (job.stage, job.attempt, job.pods_told()) == (Stage.FAILED, 0, 0), "given up: their slots have no nodes"
    log = to_file(world.entries, tmp_path / "run.log")
    assert "  pods      it had no nodes when it ended" in Run(capsys, "explain", "ppo", *log).out
    assert "  had none in the end" in Run(capsys, "replay", *log).out


def test_of_a_job_that_ended_in_an_earlier_epoch_no_number_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    status = JobStatusSeen("Succeeded", "ScheduledSucceed", 0, 0, "", (), start_ms=1, completion_ms=2)
    job = world.job("old", workers=3, status=status)
    assert job.ended and job.pods_told() is None and moment(world.state).jobs[0].pods_desired is None
    log = to_file(world.entries, tmp_path / "run.log")
    assert "  pods      the job has ended, its pods are gone" in Run(capsys, "explain", "old", *log).out
    assert " had " not in Run(capsys, "replay", *log).out
