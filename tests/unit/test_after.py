"""Jobs that wait for others: what they hold and say, and what the end, the loss or the lack of those means."""

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.events.facts import FailedJob
from arranger.kube.translate import job_status_seen
from arranger.lifecycle.desired import desired_status
from arranger.messages.decisions import stage_text
from arranger.model.job import Dependency, JobStatusSeen, OnFailure, PlacedPods, ScheduleState, Stage
from arranger.model.stages import StageReason
from arranger.model.tyjob import job_spec
from arranger.projections import snapshot
from arranger.projections.consistency import InconsistentState, validate
from arranger.projections.jobs.records import JobRecord
from arranger.replay.explain.awaited import What, awaited
from arranger.replay.reading.describe import message_of
from tests.unit.replay_worlds import explained
from tests.unit.tyjob_table import tyjob_with
from tests.world import Edited, World

PREP = Dependency("prep")


def world() -> World:
    made = World()
    made.node("n1", cpu=4)
    return made


def ended(there: World, name: str = "prep", *, phase: str = "Succeeded") -> JobRecord:
    """A job of that name, which has run and ended."""
    job = there.job(name, workers=0, min_workers=0, restart_limit=0)
    there.settle()
    end(there, job, phase)
    return job


def end(there: World, job: JobRecord, phase: str = "Succeeded") -> None:
    there.change_pod(job.bound[0, 0], phase=phase, ready=False)
    there.settle()
    assert job.stage == phase


def message(there: World, job: JobRecord) -> str:
    return str(desired_status(there.state, job)["message"])


def test_the_spec_names_the_jobs_and_not_how_they_ended() -> None:
    spec = job_spec(tyjob_with({"spec/after": [{"name": "a"}, {"name": "b", "onFailure": "Ignore"}]}))
    assert spec.after == (Dependency("a"), Dependency("b", OnFailure.IGNORE))
    assert job_spec(tyjob_with({})).after == ()


@pytest.mark.parametrize("workers", [False, True], ids=["leader", "workers"])
def test_a_job_behind_gets_no_room_of_a_job_before_those_that_wait_for_that(workers: bool) -> None:
    """The pods of the one in front show its success, and no decision says so yet."""
    there = World()
    there.node("n1", cpu=1)
    first = there.job("prep", workers=1, equals=True) if workers else there.job("prep", workers=0, min_workers=0)
    there.settle()
    job = there.job("train", workers=0, min_workers=0, priority=7, after=[PREP])
    there.job("behind", workers=0, min_workers=0, priority=3)
    there.cycle()
    there.change_pod(next(iter(first.bound.values())), phase="Succeeded", ready=False)
    assert first.stage == Stage.RUNNING
    there.cycle()
    assert list(job.placements.values()) == ["n1"]
    assert snapshot.digest(snapshot.restore(snapshot.encode(there.state))) == snapshot.digest(there.state)
    validate(there.state)
    there.settle()
    assert (first.stage, job.stage) == (Stage.SUCCEEDED, Stage.RUNNING)


@pytest.mark.parametrize(("priority", "fails", "helps"), [(3, False, False), (8, False, True), (3, True, True)])
def test_the_end_of_a_job_helps_only_jobs_before_those_that_wait_for_it(
    priority: int, fails: bool, helps: bool
) -> None:
    there = World()
    there.node("n1", cpu=1)
    there.job("prep", workers=0, min_workers=0, deadline_s=30 if fails else None, expected_s=60)
    there.settle()
    there.job("train", workers=0, min_workers=0, priority=7, after=[PREP])
    there.job("other", workers=0, min_workers=0, priority=priority)
    there.cycle()
    waiting = explained(there.entries, "other").waiting
    assert waiting is not None
    assert any("default/prep" in one.text for one in waiting.remedies) == helps
    assert there.state.jobs["uid-prep"].stage == Stage.RUNNING


def test_a_job_waits_holds_nothing_says_for_which_and_starts_then() -> None:
    there = world()
    first = there.job("prep", workers=0, min_workers=0)
    job = there.job("train", workers=0, min_workers=0, priority=10, after=[PREP])
    assert message(there, job) == "waits for job prep, which is Pending"
    there.settle()
    assert (first.stage, job.stage, job.placements) == (Stage.RUNNING, Stage.PENDING, {})
    status = desired_status(there.state, job)
    assert status["message"] == message_of(there.state, job) == "waits for job prep, which is Running"
    assert next(of for of in status["conditions"] if of["type"] == "Scheduled")["message"] == status["message"]
    assert awaited(there.state, job).what == What.OTHER_JOBS and "after" not in status
    end(there, first)
    assert job.stage == Stage.RUNNING
    assert desired_status(there.state, job)["after"] == [{"name": "prep", "stage": "Succeeded"}]


def test_a_job_that_has_succeeded_before_counts() -> None:
    there = world()
    ended(there)
    job = there.job("train", workers=0, min_workers=0, after=[PREP])
    there.settle()
    assert job.stage == Stage.RUNNING


def test_a_job_that_succeeded_counts_after_its_deletion_and_whatever_takes_its_name() -> None:
    there = world()
    first = there.job("prep", workers=0, min_workers=0)
    job = there.job("train", workers=0, min_workers=0, after=[PREP, Dependency("other")])
    there.settle()
    end(there, first)
    there.job_gone(first)
    assert message(there, job) == "waits for job other, which doesn't exist: create it, or edit spec.after"
    again = there.job("prep", uid="again", workers=0, min_workers=0, restart_limit=0)
    there.settle()
    end(there, again, "Failed")
    ended(there, "other")
    assert job.stage == Stage.RUNNING


@pytest.mark.parametrize("on_failure", OnFailure)
def test_a_failure_counts_as_the_job_says(on_failure: OnFailure) -> None:
    there = world()
    job = there.job("train", workers=0, min_workers=0, after=[Dependency("prep", on_failure)])
    ended(there, phase="Failed")
    if on_failure == OnFailure.IGNORE:
        assert job.stage == Stage.RUNNING
        return
    assert (job.stage, job.placements) == (Stage.FAILED, {}) and job.decided is not None
    assert (job.decided.reason, job.decided.facts) == (StageReason.DEPENDENCY_FAILED, FailedJob("prep"))
    assert stage_text(job.decided) == message(there, job) == "job prep failed, which had to succeed first"


def test_a_job_that_is_deleted_before_its_end_has_not_failed() -> None:
    there = world()
    first = there.job("prep", workers=0, min_workers=0)
    job = there.job("train", workers=0, min_workers=0, after=[PREP])
    there.cycle()
    there.job("prep", workers=0, min_workers=0, deleting=True)
    there.control()
    assert (first.stage, job.stage) == (Stage.FAILED, Stage.PENDING)
    there.job_gone(first)
    assert message(there, job) == "waits for job prep, which doesn't exist: create it, or edit spec.after"
    there.settle()
    assert job.stage == Stage.PENDING


def test_a_job_of_the_same_name_that_leaves_late_takes_no_end_back() -> None:
    there = world()
    job = there.job("train", workers=0, min_workers=0, after=[PREP])
    before = there.job("prep", uid="before", workers=0, min_workers=0, deleting=True)
    prep = there.job("prep", workers=0, min_workers=0)
    there.say(k.StageDecided(prep.uid, prep.version, 0, Stage.FAILED, StageReason.AS_RECORDED))
    there.job_gone(before)
    there.settle()
    assert job.stage == Stage.FAILED


def test_a_suspended_job_fails_when_it_is_resumed_unless_the_job_was_made_again() -> None:
    for again in (False, True):
        there = world()
        edited = Edited(there, workers=0, min_workers=0, after=[PREP], suspend=True)
        there.settle()
        first = ended(there, phase="Failed")
        assert edited.job.stage == Stage.PENDING and message(there, edited.job).startswith("suspended")
        if again:
            there.job_gone(first)
            there.job("prep", uid="again", workers=0, min_workers=0)
        edited.edit(suspend=False)
        there.settle()
        assert edited.job.stage == (Stage.PENDING if again else Stage.FAILED)


def test_jobs_that_wait_for_each_other_say_so() -> None:
    there = world()
    jobs = {name: there.job(name, after=[Dependency(of)]) for name, of in ("ab", "bc", "ca")}
    there.settle()
    assert {job.stage for job in jobs.values()} == {Stage.PENDING}
    way = "waits for job b, which waits for this one (b → c → a): edit spec.after of one of them"
    assert message(there, jobs["a"]) == way
    beside = there.job("d", after=[Dependency("a")])
    assert message(there, beside) == "waits for job a, which is Pending"
    there.job("c", generation=2, workers=0, min_workers=0)
    there.settle()
    assert jobs["c"].stage == Stage.RUNNING and message(there, jobs["a"]) == "waits for job b, which is Pending"


def test_many_jobs_are_named_up_to_a_limit() -> None:
    there = world()
    job = there.job("train", after=[Dependency(f"j{number}") for number in range(7)])
    told = message(there, job)
    assert told.count("doesn't exist") == 5 and told.endswith("; for 2 more")


def test_an_edit_changes_for_whom_a_job_waits() -> None:
    there = world()
    edited = Edited(there, workers=0, min_workers=0, after=[PREP])
    ended(there, "other")
    edited.edit(after=[Dependency("other"), Dependency("third")])
    assert message(there, edited.job).startswith("waits for job third, which")
    validate(there.state)
    edited.edit(after=[Dependency("other")])
    there.settle()
    assert edited.job.stage == Stage.RUNNING
    validate(there.state)


def test_no_decision_starts_or_fails_a_job_too_early() -> None:
    there = world()
    job = there.job("train", workers=0, min_workers=0, after=[PREP])
    cycle = k.CycleTaken(there.state.offset, there.now_ms, there.config)
    pods = (PlacedPods("n1", 0, ((0, 0),)),)
    there.say(cycle, k.Placed(job.uid, job.version, 0, ScheduleState.SUCCEED, pods))
    assert there.verdict("Placed").reason == "job prep has to end first" and not job.placements
    facts = FailedJob("prep")
    there.say(k.StageDecided(job.uid, job.version, 0, Stage.FAILED, StageReason.DEPENDENCY_FAILED, facts))
    assert there.verdict("StageDecided").reason == "no job has failed that has to succeed first"
    assert job.stage == Stage.PENDING


def test_a_new_epoch_takes_the_ends_from_the_status() -> None:
    there = world()
    status = JobStatusSeen("Pending", "Unscheduled", 0, 0, "", (), after=(("prep", "Succeeded"), ("x", "Unknown")))
    job = there.job("train", workers=0, min_workers=0, after=[PREP], status=status)
    other = there.job("other", workers=0, min_workers=0, after=[PREP])
    there.settle()
    assert (job.stage, other.stage) == (Stage.RUNNING, Stage.PENDING)
    told = job_status_seen(desired_status(there.state, job), job.spec)
    assert told is not None and told.after == (("prep", "Succeeded"),)


def test_the_order_in_which_an_epoch_lists_jobs_makes_no_difference() -> None:
    there = world()
    done = JobStatusSeen("Succeeded", "Unscheduled", 0, 0, "", ())
    early = there.job("early", workers=0, min_workers=0, after=[PREP])
    there.job("prep", status=done)
    late = there.job("late", workers=0, min_workers=0, after=[PREP])
    assert early.valid_spec.after == late.valid_spec.after == (Dependency("prep", ended=Stage.SUCCEEDED),)


def test_a_snapshot_has_the_ends_and_the_indexes_follow_from_the_jobs() -> None:
    there = world()
    job = there.job("train", after=[PREP, Dependency("other")])
    there.job_gone(ended(there))
    restored = snapshot.restore(snapshot.encode(there.state))
    assert restored.jobs[job.uid].valid_spec.after[0].ended == Stage.SUCCEEDED
    assert (restored.named, restored.dependents) == (there.state.named, there.state.dependents)
    validate(there.state)
    there.state.dependents.clear()
    with pytest.raises(InconsistentState, match="indexes of jobs"):
        validate(there.state)


def test_a_status_of_any_content_can_be_adopted() -> None:
    for told in ([None, 3, {"name": 5, "stage": []}, {}], {"name": "a"}, "prep"):
        seen = job_status_seen({"stage": "Pending", "after": told}, None)
        assert seen is not None and all(isinstance(of, str) for each in seen.after for of in each)


def test_those_that_wait_are_looked_at_when_the_job_changes() -> None:
    there = world()
    job = there.job("train", after=[PREP])
    there.changes.jobs.clear()
    first = there.job("prep", workers=0, min_workers=0)
    assert job.uid in there.changes.jobs
    there.changes.jobs.clear()
    there.job_gone(first)
    assert job.uid in there.changes.jobs
    assert msgspec.structs.asdict(job.valid_spec.after[0])["ended"] is None
