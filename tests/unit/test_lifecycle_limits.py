"""What a user asks of a job's time: suspended and resumed, a deadline, and how long it is kept once it has ended."""

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.events.facts import PreemptionKind, Victim
from arranger.kube.translate import job_status_seen
from arranger.lifecycle.desired import desired_pods, desired_status, expires_ms
from arranger.lifecycle.due import due_ms
from arranger.lifecycle.stages import next_decision
from arranger.model.faults import Fault, FaultKind
from arranger.model.job import PlacedPods, ScheduleState, Stage
from arranger.model.pod import PodTimes
from arranger.model.stages import StageReason
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord, compact
from tests.world import Edited, World

LEADER = (0, 0)


class Asked(Edited):
    """A job of a leader and three workers on one node, and what its user asks of it."""

    def __init__(self, **spec: object) -> None:
        world = World()
        world.node("n1", cpu=4)
        super().__init__(world, **{"workers": 3, "min_workers": 1, **spec})

    def settle(self) -> tuple[Stage, str]:
        self.world.settle()
        validate(self.world.state)
        assert self.job.decided is not None
        return self.job.stage, self.job.decided.reason

    def conditions(self) -> dict[str, str]:
        return {one["type"]: one["status"] for one in desired_status(self.world.state, self.job)["conditions"]}


# --- suspend ------------------------------------------------------------------------------------------------------


def test_a_running_job_that_is_suspended_gives_its_nodes_back_and_waits_in_pending() -> None:
    asked = Asked(restart_limit=0)
    asked.settle()
    asked.edit(suspend=True)
    assert asked.settle() == (Stage.PENDING, "Suspended")
    job, state = asked.job, asked.world.state
    assert not job.placements and not state.pods and not state.nodes.used.any()
    assert (job.schedule_state, job.times.start_ms, job.leader.address) == (ScheduleState.UNSCHEDULED, 0, "")
    assert desired_status(state, job)["message"] == "suspended by spec.suspend; it holds no nodes"
    assert asked.conditions()["Suspended"] == "True" and asked.conditions()["Running"] == "False"
    other = asked.world.job("other", workers=3, min_workers=3)
    asked.settle()
    assert other.stage == Stage.RUNNING


def test_a_resumed_job_is_scheduled_again_as_a_new_attempt_without_a_restart_counted() -> None:
    asked = Asked(restart_limit=0)
    asked.settle()
    for attempt in (1, 2):
        asked.edit(suspend=True)
        asked.settle()
        asked.world.pass_time(1000)
        asked.edit(suspend=False)
        assert asked.settle() == (Stage.RUNNING, "WorkersReady")
        assert (asked.job.attempt, asked.job.leader.restarts, asked.job.spent) == (attempt, 0, {})
        assert asked.job.times.start_ms == asked.world.now_ms and asked.conditions()["Suspended"] == "False"


def test_a_resumed_job_waits_for_the_pods_of_the_suspended_attempt_to_go() -> None:
    asked = Asked()
    asked.settle()
    asked.edit(suspend=True)
    asked.world.control()
    assert len(desired_pods(asked.world.state, asked.job).delete) == 4
    asked.edit(suspend=False)
    asked.world.control()
    assert asked.world.cycle() == () and asked.job.stage == Stage.PENDING
    asked.settle()
    assert asked.job.stage == Stage.RUNNING


def test_a_job_suspended_from_the_start_is_not_scheduled_until_it_is_resumed() -> None:
    asked = Asked(suspend=True)
    assert asked.settle() == (Stage.PENDING, "Suspended")
    assert asked.world.cycle() == () and asked.job.waits is None
    asked.edit(suspend=False)
    asked.settle()
    assert (asked.job.stage, asked.job.attempt) == (Stage.RUNNING, 0)


def test_a_job_resumed_placed_and_suspended_again_before_anybody_decided_holds_no_nodes() -> None:
    asked = Asked(suspend=True)
    asked.settle()
    asked.edit(suspend=False)
    asked.world.cycle()
    assert asked.job.placements
    asked.edit(suspend=True)
    assert asked.settle() == (Stage.PENDING, "Suspended")
    assert not asked.job.placements
    asked.world.wait_for_late_pods()  # an applier may have created its leader
    assert not asked.world.state.nodes.used.any()
    asked.edit(suspend=False)
    assert asked.settle() == (Stage.RUNNING, "WorkersReady")


def test_a_job_resumed_tried_and_suspended_again_before_anybody_decided_gives_no_old_reason() -> None:
    asked = Asked(suspend=True, workers=9, min_workers=9)
    asked.settle()
    asked.edit(suspend=False)
    asked.world.cycle()
    assert asked.job.waits is not None
    asked.edit(suspend=True)
    assert asked.settle() == (Stage.PENDING, "Suspended")
    assert asked.job.waits is None
    assert desired_status(asked.world.state, asked.job)["message"] == "suspended by spec.suspend; it holds no nodes"


@pytest.mark.parametrize("until", ["placed", "starting", "rescheduling", "waiting"])
def test_a_job_can_be_suspended_in_every_stage(until: str) -> None:
    asked = Asked(**({"workers": 9, "min_workers": 9} if until == "waiting" else {}))
    asked.world.cycle()
    if until in ("starting", "rescheduling"):
        asked.world.control()
    if until == "rescheduling":
        asked.settle()
        asked.world.pod_gone(asked.job.bound[LEADER])
        asked.world.control()
        assert asked.job.stage == Stage.RESCHEDULING
    asked.edit(suspend=True)
    assert asked.settle() == (Stage.PENDING, "Suspended")
    assert not asked.job.placements and not asked.world.state.pods and asked.job.waits is None
    asked.edit(suspend=False, workers=3, min_workers=1)
    assert asked.settle() == (Stage.RUNNING, "WorkersReady")


def test_a_placement_that_was_decided_before_the_suspension_is_void() -> None:
    asked = Asked()
    asked.world.cycle()
    placed = next(e for e in asked.world.entries[-1].batch.events if isinstance(e, k.Placed))
    late = Asked()
    late.edit(suspend=True)
    late.world.say(*asked.world.entries[-1].batch.events)
    assert isinstance(placed, k.Placed) and not late.world.verdict("Placed").accepted


def test_terminating_ends_a_suspended_job_and_an_ended_job_is_not_suspended() -> None:
    asked = Asked()
    asked.settle()
    asked.edit(suspend=True)
    asked.settle()
    asked.edit(terminating=True)
    assert asked.settle() == (Stage.SUCCEEDED, "Terminated")
    asked.edit(suspend=False)
    assert asked.settle() == (Stage.SUCCEEDED, "Terminated")


def test_a_suspended_job_stays_suspended_after_the_loss_of_the_log() -> None:
    asked = Asked()
    asked.settle()
    asked.edit(suspend=True)
    asked.settle()
    status = desired_status(asked.world.state, asked.job)
    new = World()
    new.node("n1", cpu=4)
    again = new.job("ppo", workers=3, min_workers=1, suspend=True, status=job_status_seen(status, asked.job.spec))
    new.settle()
    assert (again.stage, again.attempt, again.placements) == (Stage.PENDING, 1, {})
    new.job("ppo", workers=3, min_workers=1, generation=2)
    new.settle()
    assert (again.stage, again.attempt) == (Stage.RUNNING, 1)


# --- deadline -----------------------------------------------------------------------------------------------------


def test_a_job_that_is_active_for_too_long_fails_and_not_a_moment_before() -> None:
    asked = Asked(deadline_s=100)
    asked.world.pass_time(500)  # time before the start doesn't count
    asked.settle()
    asked.world.pass_time(99.999)
    assert asked.settle() == (Stage.RUNNING, "WorkersReady")
    asked.world.pass_time(0.001)
    assert asked.settle() == (Stage.FAILED, "DeadlineExceeded")
    assert desired_status(asked.world.state, asked.job)["message"] == (
        "it was active for 100 s, and activeDeadlineSeconds is 100"
    )
    assert not asked.world.state.pods


def test_a_new_attempt_does_not_begin_the_deadline_again_but_a_suspension_does() -> None:
    asked = Asked(deadline_s=100)
    asked.settle()
    asked.world.pass_time(60)
    asked.edit(suspend=True)
    asked.settle()
    asked.world.pass_time(60)
    asked.edit(suspend=False)
    asked.settle()
    asked.world.pass_time(60)
    asked.world.pod_gone(asked.job.bound[LEADER])
    assert asked.settle() == (Stage.RUNNING, "WorkersReady")
    asked.world.pass_time(40)
    assert asked.settle() == (Stage.FAILED, "DeadlineExceeded")


def test_a_deadline_can_be_set_and_moved_on_a_running_job() -> None:
    asked = Asked()
    asked.settle()
    asked.world.pass_time(1000)
    asked.edit(deadline_s=2000)
    assert asked.settle() == (Stage.RUNNING, "WorkersReady")
    asked.edit(deadline_s=500)
    assert asked.settle() == (Stage.FAILED, "DeadlineExceeded")


def preempted_at(seconds: float) -> tuple[Asked, JobRecord]:
    """A job with a deadline of 100 s, which another one preempted when it had been active for so long."""
    asked = Asked(deadline_s=100, priority=2)
    asked.settle()
    asked.world.pass_time(seconds)
    high = running_over(asked)
    assert (asked.job.stage, reason_of(asked)) == (Stage.RESCHEDULING, "Preempted")
    return asked, high


def running_over(asked: Asked) -> JobRecord:
    world = asked.world
    high = world.job("high", workers=3, min_workers=3, priority=8)
    pods = tuple(PlacedPods("n1", group, ((0, last),)) for group, last in ((0, 0), (1, 2)))
    placed = k.Placed(high.uid, high.version, 0, ScheduleState.SUCCEED, pods)
    job = asked.job
    victim = Victim(job.uid, job.version, job.attempt, PreemptionKind.PRIORITY, compact(job.placements), 0)
    world.say(
        k.CycleTaken(world.state.offset, world.now_ms, world.config),
        k.Preempted(placed, (victim,), (), (), world.now_ms + 60_000),
    )
    return high


def reason_of(asked: Asked) -> str:
    assert asked.job.decided is not None
    return asked.job.decided.reason


def test_a_preemption_stops_the_clock_of_the_deadline_and_it_begins_anew_with_the_next_attempt() -> None:
    asked, high = preempted_at(60)
    asked.world.pass_time(500)
    asked.settle()
    assert asked.job.stage == Stage.RESCHEDULING, "it doesn't fail while it waits"
    asked.world.job_gone(high)
    asked.world.wait_for_late_pods()
    for uid in [uid for uid, pod in asked.world.state.pods.items() if pod.owner and pod.owner.job_uid == high.uid]:
        asked.world.pod_gone(uid)
    assert asked.settle() == (Stage.RUNNING, "WorkersReady")
    asked.world.pass_time(99)
    assert asked.settle() == (Stage.RUNNING, "WorkersReady")
    asked.world.pass_time(1)
    assert asked.settle() == (Stage.FAILED, "DeadlineExceeded")
    assert "active for 100 s" in str(desired_status(asked.world.state, asked.job)["message"])


def waits_without_nodes() -> Asked:
    """A job with a deadline of 100 s that was active for 60 s, lost its leader, and finds no node since."""
    asked = Asked(deadline_s=100)
    asked.settle()
    asked.world.pass_time(60)
    asked.world.node("n1", cpu=4, cordoned=True)
    asked.world.pod_gone(asked.job.bound[LEADER])
    asked.settle()
    assert asked.job.stage == Stage.RESCHEDULING
    return asked


def test_the_clock_of_the_deadline_stands_while_a_job_waits_for_nodes() -> None:
    asked = waits_without_nodes()
    asked.world.pass_time(500)
    asked.settle()
    assert asked.job.stage == Stage.RESCHEDULING
    asked.world.node("n1", cpu=4)
    assert asked.settle() == (Stage.RUNNING, "WorkersReady")
    asked.world.pass_time(39)
    assert asked.settle() == (Stage.RUNNING, "WorkersReady")
    asked.world.pass_time(1)
    assert asked.settle() == (Stage.FAILED, "DeadlineExceeded")


@pytest.mark.parametrize("while_waiting", [False, True])
def test_a_new_epoch_knows_how_long_a_job_was_active(while_waiting: bool) -> None:
    asked = waits_without_nodes()
    if not while_waiting:
        asked.world.node("n1", cpu=4)
        asked.settle()
    shown = desired_status(asked.world.state, asked.job)
    assert shown["activeSecondsOfEarlierAttempts"] == 60
    new = World()
    new.now_ms = asked.world.now_ms
    new.node("n1", cpu=8)
    again = new.job("ppo", workers=3, min_workers=1, deadline_s=100, status=job_status_seen(shown, asked.job.spec))
    new.pass_time(30)
    new.settle()
    if while_waiting:
        new.pass_time(30)
    assert again.stage != Stage.FAILED
    new.pass_time(10)
    new.settle()
    assert again.stage == Stage.FAILED


def test_a_deadline_that_a_job_got_in_a_new_epoch_counts_from_its_start() -> None:
    asked = Asked()
    asked.settle()
    asked.world.pass_time(60)
    shown = desired_status(asked.world.state, asked.job)
    assert "activeSecondsOfEarlierAttempts" not in shown
    new = World()
    new.now_ms = asked.world.now_ms
    new.node("n1", cpu=8)
    again = new.job("ppo", workers=3, min_workers=1, deadline_s=100, status=job_status_seen(shown, asked.job.spec))
    assert due_ms(new.state, again, new.lifecycle, new.now_ms) == new.now_ms + 40_000
    new.pass_time(40)
    new.settle()
    assert again.decided is not None and again.decided.reason == "DeadlineExceeded"


# --- a success in time --------------------------------------------------------------------------------------------


def finish(asked: Asked, seconds: float) -> None:
    """The pods whose end is the job's have succeeded so long after its start; the log tells of it now."""
    ended_ms = asked.job.times.start_ms + round(seconds * 1000)
    slots = [LEADER] if asked.job.valid_spec.ends_with_leader else [slot for slot in asked.job.bound if slot != LEADER]
    for slot in slots:
        times = PodTimes(ended_ms=ended_ms)
        asked.world.change_pod(asked.job.bound[slot], phase="Succeeded", ready=False, times=times)


BOTH_SUCCESSES = pytest.mark.parametrize("success", [(0,), (1,)])


@BOTH_SUCCESSES
@pytest.mark.parametrize(("ended_s", "stage"), [(99, Stage.SUCCEEDED), (100, Stage.SUCCEEDED), (101, Stage.FAILED)])
def test_what_ended_in_time_succeeds_however_late_it_is_seen(
    success: tuple[int, ...], ended_s: float, stage: Stage
) -> None:
    asked = Asked(deadline_s=100, success=success)
    asked.settle()
    asked.world.pass_time(500)
    finish(asked, ended_s)
    assert asked.settle()[0] == stage


@BOTH_SUCCESSES
@pytest.mark.parametrize("since", ["suspended", "invalid", "workers failed"])
def test_what_has_succeeded_has_whatever_happens_before_somebody_decides(success: tuple[int, ...], since: str) -> None:
    asked = Asked(success=success, restart_limit=0)
    asked.settle()
    seen, world = asked.job.seen, asked.world
    others = [slot for slot in asked.job.bound if (slot == LEADER) != (success == (0,))]
    finish(asked, 5)
    if since == "suspended":
        asked.edit(suspend=True)
    elif since == "invalid":
        faults = (Fault("spec.workerSets", FaultKind.REQUIRED),)
        world.say(msgspec.structs.replace(seen, resource_version="999", generation=9, spec=None, faults=faults))
    else:
        for slot in others:
            world.change_pod(asked.job.bound[slot], phase="Failed", ready=False)
    world.pass_time(60)
    assert asked.settle()[0] == Stage.SUCCEEDED


@BOTH_SUCCESSES
@pytest.mark.parametrize(
    ("reason", "stage"),
    [
        (StageReason.RESTART_LIMIT, Stage.FAILED),
        (StageReason.WORKERS_FAILED, Stage.FAILED),
        (StageReason.INVALID_SPEC, Stage.FAILED),
        (StageReason.NODE_LOST, Stage.RESCHEDULING),
        (StageReason.WORKERS_LOST, Stage.RESCHEDULING),
        (StageReason.SUSPENDED, Stage.PENDING),
    ],
)
def test_no_decision_takes_a_success_from_a_job(success: tuple[int, ...], reason: StageReason, stage: Stage) -> None:
    asked = Asked(success=success)
    asked.settle()
    finish(asked, 5)
    job = asked.job
    asked.world.say(k.StageDecided(job.uid, job.version, job.attempt, stage, reason))
    assert asked.world.verdict("StageDecided").reason == "it has succeeded"
    assert asked.settle()[0] == Stage.SUCCEEDED


@BOTH_SUCCESSES
def test_a_decision_on_the_deadline_is_void_once_the_log_tells_of_a_success_in_time(success: tuple[int, ...]) -> None:
    asked = Asked(deadline_s=100, success=success)
    asked.settle()
    asked.world.pass_time(500)
    asked.world.hear()
    late = next_decision(asked.world.state, asked.job, asked.world.lifecycle, asked.world.now_ms)
    assert isinstance(late, k.StageDecided) and late.reason == "DeadlineExceeded"
    finish(asked, 99)
    asked.world.say(late)
    assert asked.world.verdict("StageDecided").reason == "it had succeeded before its deadline"
    assert asked.settle()[0] == Stage.SUCCEEDED


def test_a_deadline_waits_until_everything_is_known_that_happened_before_it() -> None:
    asked = Asked(deadline_s=100)
    asked.settle()
    asked.world.hears = False
    asked.world.pass_time(100)
    assert asked.settle()[0] == Stage.RUNNING
    pods = asked.world.terms[k.Watched.POD]
    asked.world.say(k.WatchHeard(k.Watched.POD, pods, asked.world.now_ms - 1))
    assert asked.settle()[0] == Stage.RUNNING
    asked.world.say(k.WatchHeard(k.Watched.POD, pods - 1, asked.world.now_ms))
    assert asked.settle()[0] == Stage.RUNNING, "another watcher has claimed the watch"
    asked.world.say(k.WatchHeard(k.Watched.POD, pods, asked.world.now_ms))
    assert asked.settle() == (Stage.FAILED, "DeadlineExceeded")


def test_a_decision_on_the_deadline_is_void_before_everything_is_known() -> None:
    asked = Asked(deadline_s=100)
    asked.settle()
    asked.world.hears = False
    asked.world.pass_time(100)
    job = asked.job
    early = k.StageDecided(job.uid, job.version, job.attempt, Stage.FAILED, StageReason.DEADLINE_EXCEEDED)
    asked.world.say(early)
    assert not asked.world.verdict("StageDecided").accepted and job.stage == Stage.RUNNING


def test_an_image_that_cant_be_pulled_ends_no_job_on_a_late_view() -> None:
    asked = Asked()
    asked.world.cycle()
    asked.world.apply()
    leader = asked.job.bound[LEADER]
    asked.world.change_pod(leader, phase="Pending", ready=False, waiting="ErrImagePull")
    asked.world.hears = False
    for _ in range(3):
        asked.world.pass_time(61)
        asked.world.control()
    assert asked.job.stage == Stage.STARTING
    asked.world.hears = True
    asked.world.control()
    assert asked.job.stage == Stage.FAILED


# --- ttl ----------------------------------------------------------------------------------------------------------


def test_an_ended_job_is_due_to_go_when_it_was_kept_for_its_ttl() -> None:
    asked = Asked(ttl_s=30)
    asked.settle()
    assert expires_ms(asked.job) is None
    asked.world.change_pod(asked.job.bound[LEADER], phase="Succeeded", ready=False)
    asked.settle()
    assert expires_ms(asked.job) == asked.job.times.completion_ms + 30_000
    asked.edit(ttl_s=0)
    assert expires_ms(asked.job) == asked.job.times.completion_ms
    asked.edit(ttl_s=None)
    assert expires_ms(asked.job) is None
