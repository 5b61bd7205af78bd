"""Nodes requested from autoscalers: asked for whole quorums, awaited, asked again, and taken back."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.lifecycle.config import LifecycleConfig
from arranger.lifecycle.desired import desired_status
from arranger.lifecycle.due import due_ms
from arranger.lifecycle.provisioning import quorum_pods
from arranger.model.config import CycleConfig
from arranger.model.job import JobStatusSeen, ScheduleState, Stage
from arranger.model.provisioning import DEFAULT_CLASS, NodesAnswer, Provisioning, request_name
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.folding.provisioning import present_request, provided_by
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import NodesRequest
from arranger.scheduling.cycle import VERSIONS
from arranger.scheduling.placing.needs import quorum_needs
from arranger.scheduling.queues.registry import BUILT_IN
from tests.commands import Run, to_file
from tests.world import World, shape

GRACE_MS = CycleConfig().infeasible_grace_ms


class Autoscaled(World):
    """A world without nodes whose jobs ask an autoscaler. `answer` is what it says of a job's request."""

    def __init__(self, *, provisioning: Provisioning = Provisioning.REQUEST, watched: bool = True, **of: Any) -> None:
        super().__init__(config=CycleConfig(versions=VERSIONS, provisioning=provisioning, **of))
        self.lifecycle = LifecycleConfig(provisioning=provisioning)
        if watched:
            self._watch(k.Watched.PROVISIONING)

    def asks(self) -> list[k.NodesRequested]:
        """Cycles and controllers decide until nothing is new; returns the requests among the decisions."""
        found: list[k.Event] = []
        while decided := [*self.cycle(), *self.control()]:
            found += decided
        validate(self.state)
        restored = snapshot.restore(snapshot.encode(self.state))
        assert snapshot.digest(restored) == snapshot.digest(self.state)
        return [event for event in found if isinstance(event, k.NodesRequested)]

    def start(self) -> None:
        """The pods of jobs that have nodes run and are ready."""
        while self.apply():
            assert self.asks() == []

    def answer(self, job: JobRecord, answer: NodesAnswer, message: str = "", *, number: int = 0) -> None:
        term = self.terms[k.Watched.PROVISIONING]
        number = number or self.state.requests[job.uid].decided.number
        name = request_name(job.seen.name, job.uid, number)
        self.say(k.ProvisioningSeen(term, "default", name, f"uid-{name}", self._version(), job.uid, number,
                                    DEFAULT_CLASS, answer, message))  # fmt: skip

    def deleted(self, job: JobRecord, number: int) -> None:
        name = request_name(job.seen.name, job.uid, number)
        term = self.terms[k.Watched.PROVISIONING]
        self.say(k.ObjectGone(k.Watched.PROVISIONING, term, "default", name, f"uid-{name}", job.uid))

    def request(self, job: JobRecord) -> NodesRequest:
        found = present_request(self.state, job)
        assert found is not None
        return found

    def message(self, job: JobRecord) -> str:
        return str(desired_status(self.state, job)["message"])


def waiting(**job: Any) -> tuple[Autoscaled, JobRecord]:
    """A job of a leader and two workers, and no node."""
    world = Autoscaled()
    given = {"leader": shape(cpu=1), "workers": 3, "worker": shape(cpu=2, gpus=1), "min_workers": 2, **job}
    return world, world.job("ppo", **given)


def test_a_job_without_nodes_asks_for_its_whole_quorum_once() -> None:
    world, job = waiting()
    (asked,) = world.asks()
    assert [(of.group, of.count, dict(of.shape.requests)["cpu"]) for of in asked.pods] == [(0, 1, 1000), (1, 2, 2000)]
    assert (asked.number, asked.class_name, asked.attempt) == (1, DEFAULT_CLASS, 0)
    assert world.asks() == []
    world.answer(job, NodesAnswer.ACCEPTED)
    assert world.asks() == [] and "an autoscaler has accepted" in world.message(job)


def test_a_job_that_lacks_only_room_asks_too() -> None:
    world, job = waiting()
    world.node("n1", cpu=64, gpus=8)
    other = world.job("other", leader=shape(cpu=60))
    world.pod("taken", "n1", cpu=60)
    assert {of.job_uid for of in world.asks()} == {job.uid, other.uid}
    assert other.waits is not None and not other.waits.shortage.infeasible


def test_nothing_fails_while_the_request_is_under_way_and_the_grace_counts_from_the_answer() -> None:
    world, job = waiting()
    world.asks()
    world.pass_time(100 * GRACE_MS / 1000)
    world.answer(job, NodesAnswer.ACCEPTED)
    world.pass_time(100 * GRACE_MS / 1000)
    assert world.asks() == [] and job.schedule_state == ScheduleState.UNSCHEDULED
    world.answer(job, NodesAnswer.PROVISIONED)
    world.pass_time(GRACE_MS / 1000 - 0.001)
    assert world.asks() == [] and job.stage == Stage.PENDING
    world.pass_time(0.001)
    world.asks()
    assert job.stage == Stage.FAILED, "the nodes that were provided never came"


def test_without_a_grace_no_job_fails_before_it_has_asked() -> None:
    world = Autoscaled(infeasible_grace_ms=0)
    job = world.job("ppo", leader=shape(cpu=1))
    for _ in range(3):
        world.cycle()
    assert job.schedule_state == ScheduleState.UNSCHEDULED
    assert len(world.asks()) == 1


def test_scale_from_zero_and_a_quorum_is_never_split_over_nodes_that_come_one_by_one() -> None:
    world, job = waiting()
    world.asks()
    for number in range(2):
        world.node(f"n{number}", cpu=2, gpus=1)
        assert world.asks() == [] and job.placements == {}, "half of the nodes hold no half of the quorum"
        world.pass_time(5)
    world.node("n2", cpu=2)
    world.answer(job, NodesAnswer.PROVISIONED)
    world.asks()
    assert job.stage == Stage.STARTING and len(job.placements) == 3
    provided = provided_by(world.state, job)
    assert provided is not None and provided.decided.number == 1
    world.start()
    assert job.stage == Stage.RUNNING
    world.answer(job, NodesAnswer.BOOKING_EXPIRED)
    assert world.asks() == [] and provided_by(world.state, job) is not None, "a running job keeps its request"


def test_a_request_is_over_when_the_job_gets_nodes_without_it() -> None:
    world, job = waiting()
    world.asks()
    world.node("n1", cpu=64, gpus=8)
    world.asks()
    assert job.stage == Stage.STARTING and present_request(world.state, job) is None
    assert provided_by(world.state, job) is None


@pytest.mark.parametrize("answer", [NodesAnswer.FAILED, NodesAnswer.BOOKING_EXPIRED, NodesAnswer.CAPACITY_REVOKED])
def test_a_request_in_vain_is_made_again_after_a_back_off_that_grows(answer: NodesAnswer) -> None:
    world, job = waiting()
    world.asks()
    for number, rest_s in ((2, 10), (3, 20), (4, 40)):
        world.answer(job, answer, "quota of the cloud exceeded")
        assert world.asks() == [] and "asked again after a while" in world.message(job)
        assert "quota of the cloud exceeded" in world.message(job)
        assert due_ms(world.state, job, world.lifecycle, world.now_ms) == world.now_ms + rest_s * 1000
        world.pass_time(rest_s - 0.001)
        assert world.asks() == []
        world.pass_time(0.001)
        assert [of.number for of in world.asks()] == [number]


def test_a_job_whose_requests_all_fail_fails_once_the_back_off_is_as_long_as_the_grace() -> None:
    world, job = waiting()
    for number in range(1, 10):
        world.asks()
        if job.ended:
            break
        if world.request(job).decided.number == number:
            world.answer(job, NodesAnswer.FAILED)
        while not job.ended and world.request(job).decided.number == number:
            world.pass_time(5)
            world.asks()
    assert job.stage == Stage.FAILED and 5 <= number <= 7


def test_a_job_asks_again_when_its_quorum_changes() -> None:
    world, job = waiting()
    world.asks()
    world.job("ppo", leader=shape(cpu=1), workers=3, worker=shape(cpu=2, gpus=1), min_workers=3, generation=2)
    (asked,) = world.asks()
    assert asked.number == 2 and asked.pods[1].count == 3
    world.answer(job, NodesAnswer.PROVISIONED, number=1)
    assert world.request(job).answer == NodesAnswer.NONE, "the answer to the earlier request isn't that to this one"


def test_a_job_whose_request_was_deleted_asks_again() -> None:
    world, job = waiting()
    world.asks()
    world.answer(job, NodesAnswer.ACCEPTED)
    world.deleted(job, 1)
    assert [of.number for of in world.asks()] == [2]


def test_explain_says_what_was_asked_and_that_nothing_gives_the_job_up(tmp_path: Path, capsys: Any) -> None:
    world, job = waiting()
    world.asks()
    world.answer(job, NodesAnswer.ACCEPTED)
    log = to_file(world.entries, tmp_path / "run.log")
    found = Run(capsys, "explain", "ppo", *log, "-o", "json").json["waiting"]
    assert found["fails_at_ms"] == 0 and found["request"].startswith("an autoscaler has accepted to provide nodes (")
    out = " ".join(Run(capsys, "explain", "ppo", *log).out.split())
    assert "request an autoscaler has accepted" in out and "no cycle gives it up" in out
    told = " ".join(Run(capsys, "events", "--job", "ppo", *log).out.split())
    assert "NodesRequested" in told and "nodes for 1 learner, 2" in told


def test_jobs_that_wait_for_anything_else_dont_ask() -> None:
    world = Autoscaled()
    world.job("quota", leader=shape(cpu=1), of_queue="small")
    world.queue("small", max_running=0)
    world.job("nowhere", leader=shape(cpu=1), of_queue="unknown")
    world.job("still", leader=shape(cpu=1), suspend=True)
    world.pod_to_place("web")
    assert world.asks() == []


def test_a_queue_says_whether_its_jobs_ask() -> None:
    world = Autoscaled(provisioning=Provisioning.NONE)
    world.queue("cloud", provisioning=Provisioning.REQUEST)
    asking, patient = world.job("a", leader=shape(cpu=1), of_queue="cloud"), world.job("b", leader=shape(cpu=1))
    assert [of.job_uid for of in world.asks()] == [asking.uid]
    world.pass_time(GRACE_MS / 1000)
    world.asks()
    assert (asking.stage, patient.stage) == (Stage.PENDING, Stage.FAILED)
    world.queue("cloud", provisioning=Provisioning.NONE)
    world.asks()
    assert asking.stage == Stage.FAILED


@pytest.mark.parametrize("refused", [False, True])
def test_a_cluster_without_such_requests_is_as_if_nobody_asked(refused: bool) -> None:
    world = Autoscaled(watched=refused)
    job = world.job("ppo", leader=shape(cpu=1))
    if refused:
        assert len(world.asks()) == 1
        world.say(k.WatchRefused(k.Watched.PROVISIONING, world.terms[k.Watched.PROVISIONING], 404))
    assert world.asks() == []
    world.pass_time(GRACE_MS / 1000)
    world.asks()
    assert job.stage == Stage.FAILED


def test_a_job_that_loses_its_nodes_asks_anew() -> None:
    world, job = waiting()
    world.asks()
    world.answer(job, NodesAnswer.PROVISIONED)
    world.node("n1", cpu=64, gpus=8)
    world.asks()
    world.start()
    assert job.stage == Stage.RUNNING
    world.node_gone("n1")
    world.pass_time(120)
    for uid in sorted(world.state.pods):
        world.pod_gone(uid)
    (asked,) = world.asks()
    assert asked.number == 2 and job.stage == Stage.RESCHEDULING


@pytest.mark.parametrize("stage", [Stage.PENDING, Stage.RUNNING, Stage.FAILED])
@pytest.mark.parametrize("first", ["job", "request"])
def test_a_new_epoch_takes_over_the_request_that_it_finds(stage: Stage, first: str) -> None:
    world = Autoscaled()
    job = world.job("ppo", leader=shape(cpu=1))
    uid, status = job.uid, JobStatusSeen(stage, "", 0, 0, "", ())
    world.say(k.ObjectGone(k.Watched.JOB, world.terms[k.Watched.JOB], "default", "ppo", uid))
    if first == "request":
        world.answer(job, NodesAnswer.PROVISIONED, number=4)
    job = world.job("ppo", leader=shape(cpu=1), uid=uid, status=status)
    if first == "job":
        world.answer(job, NodesAnswer.PROVISIONED, number=4)
    found = present_request(world.state, job)
    assert (found is None) == (stage == Stage.FAILED)
    if stage == Stage.PENDING:
        assert world.asks() == [] and world.request(job).decided.number == 4


def test_an_outdated_decision_to_ask_is_void() -> None:
    world, job = waiting()
    (asked,) = world.asks()
    world.say(asked)
    assert not world.verdict("NodesRequested").accepted
    world.say(msgspec.structs.replace(asked, number=2, based_on=0))
    assert not world.verdict("NodesRequested").accepted
    world.node("n1", cpu=64, gpus=8)
    world.asks()
    world.say(msgspec.structs.replace(asked, number=2, based_on=job.version))
    assert world.verdict("NodesRequested").reason == "it has nodes already"


@pytest.mark.parametrize("policy", ["", "Gang", "LeaderFirst"])
@pytest.mark.parametrize(
    "of",
    [
        {"workers": 3, "min_workers": 2},
        {"workers": [("a", 2, shape(cpu=1)), ("b", 4, shape(cpu=2))], "min_workers": 3},
        {"workers": [("a", 2, shape(cpu=1)), ("b", 4, shape(cpu=2))], "min_workers": 3, "minimums": {"b": 2}},
        {"workers": [("a", 8, shape(cpu=1))], "min_workers": 3, "group_sizes": {"a": 4}},
        {"workers": [("a", 3, shape(cpu=1)), ("b", 3, shape(cpu=2))], "min_workers": 4, "equals": True},
        {"workers": 0, "min_workers": 0},
    ],
    ids=str,
)
def test_what_is_asked_is_what_a_cycle_places(of: dict[str, Any], policy: str) -> None:
    world = Autoscaled()
    leader = {} if of.get("equals") else {"leader": shape(cpu=1)}
    job = world.job("ppo", worker=shape(cpu=1), policy=policy, **leader, **of)
    world.asks()
    needs = quorum_needs(job, BUILT_IN.pod_policy(job, world.config))
    assert {asked.group: asked.count for asked in quorum_pods(job)} == {group: len(of) for group, of in needs.items()}
