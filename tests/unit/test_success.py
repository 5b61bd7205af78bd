"""Jobs of equals, and jobs whose success is the end of workers: from the placement to the end."""

import pytest

from arranger.events import kinds as k
from arranger.kube.manifests import pod_manifest
from arranger.kube.translate import job_status_seen
from arranger.lifecycle.desired import desired_pods, desired_status
from arranger.messages.decisions import stage_text
from arranger.model.job import PlacedPods, RestartPolicy, RestartScope, ScheduleState, Stage
from arranger.model.pod import STOPPED
from arranger.model.stages import StageReason
from arranger.model.tyjob import job_spec
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from arranger.replay.explain.awaited import What, awaited
from arranger.replay.explain.causes import budget_text
from tests.unit.replay_worlds import explained
from tests.unit.tyjob_table import GONE, SETS, tyjob_with
from tests.world import Edited, World, shape

LEADER = (0, 0)


def running(*, workers: int = 3, cpu: float = 8, **job: object) -> tuple[World, JobRecord]:
    """A job of equals with workers of 1 cpu on the node n1, running, unless the fields say otherwise."""
    world = World()
    world.node("n1", cpu=cpu)
    fields = {"equals": "success" not in job, "workers": workers, **job}
    record = world.job("sweep", **fields)  # type: ignore[arg-type]
    world.settle()
    assert record.stage == Stage.RUNNING
    return world, record


def finish(world: World, job: JobRecord, *slots: tuple[int, int], **more: object) -> None:
    for slot in slots:
        world.change_pod(job.bound[slot], **{"phase": "Succeeded", "ready": False, **more})


def fail(world: World, job: JobRecord, *slots: tuple[int, int]) -> None:
    for slot in slots:
        world.change_pod(job.bound[slot], phase="Failed", ready=False)


def later(world: World) -> None:
    """The replacement of failed workers, beyond every back-off."""
    world.pass_time(400)
    world.settle()
    world.wait_for_back_offs()
    world.settle()
    validate(world.state)


def reason(job: JobRecord) -> str:
    return job.decided.reason if job.decided is not None else ""


def condition(world: World, job: JobRecord, name: str) -> tuple[str, str]:
    found = {of["type"]: of for of in desired_status(world.state, job)["conditions"]}
    return found[name]["status"], found[name]["reason"]


# --- a job of equals ------------------------------------------------------------------------------------------------


def test_equals_start_at_once_and_together() -> None:
    world = World()
    world.node("n1", cpu=8)
    job = world.job("sweep", equals=True, workers=3)
    world.cycle()
    assert (job.stage, sorted(job.placements)) == (Stage.STARTING, [(1, 0), (1, 1), (1, 2)])
    assert job.decided is not None and stage_text(job.decided) == "its quorum has nodes"
    world.apply()
    assert sorted(pod.name for pod in world.state.pods.values()) == [f"sweep-actors-{index}" for index in range(3)]
    world.settle()
    assert job.stage == Stage.RUNNING and stage_text(job.decided) == "enough workers are ready"
    assert condition(world, job, "Ready") == ("True", "QuorumReady")
    status = desired_status(world.state, job)
    assert status["ready"] == "3/3" and "leaderAddress" not in status
    assert [of["name"] for of in status["workers"]] == ["actors"]


@pytest.mark.parametrize("policy", ["Gang", "BinPack", "LeaderFirst", "MinFragment", "JobAffinity", "FragmentGradient"])
def test_each_policy_places_equals(policy: str) -> None:
    world = World()
    world.node("n1", cpu=2)
    world.node("n2", cpu=2)
    job = world.job("sweep", equals=True, workers=4, min_workers=4, policy=policy)
    waiting = world.job("z", equals=True, workers=[("a", 2, shape(cpu=1)), ("b", 2, shape(cpu=1))], min_workers=3)
    world.settle()
    assert (len(job.placements), job.stage, waiting.stage) == (4, Stage.RUNNING, Stage.PENDING)
    validate(world.state)


def test_equals_without_their_quorum_wait_and_hold_nothing() -> None:
    world = World()
    world.node("n1", cpu=2)
    job = world.job("sweep", equals=True, workers=3, min_workers=3)
    world.settle()
    assert job.stage == Stage.PENDING and not job.placements and job.waits is not None
    assert (job.waits.shortage.found, job.waits.shortage.asked, job.waits.shortage.infeasible) == (2, 3, True)
    pods = (PlacedPods("n1", 1, ((0, 1),)),)
    cycle = k.CycleTaken(world.state.offset, world.now_ms, world.config)
    world.say(cycle, k.Placed(job.uid, job.version, 0, ScheduleState.PARTLY, pods))
    assert world.verdict("Placed").reason == "the quorum is not whole: 3 workers needed"


def test_a_leader_is_no_slot_of_equals() -> None:
    world, job = running()
    pods = (PlacedPods("n1", 0, ((0, 0),)),)
    cycle = k.CycleTaken(world.state.offset, world.now_ms, world.config)
    world.say(cycle, k.Placed(job.uid, job.version, 0, ScheduleState.PARTLY, pods))
    assert world.verdict("Placed").reason == "the job has no slot (0, 0)"


def test_lost_equals_are_replaced_and_a_lost_quorum_begins_a_new_attempt() -> None:
    world, job = running(min_workers=3)
    world.node("n2", cpu=2)
    world.node_gone("n1")
    for uid in list(job.bound.values()):
        world.pod_gone(uid)
    world.control()
    assert (job.stage, reason(job), job.attempt) == (Stage.RESCHEDULING, "WorkersLost", 1)
    world.node("n3", cpu=4)
    world.settle()
    assert (job.stage, len(job.placements)) == (Stage.RUNNING, 3)


def test_the_scope_job_restarts_all_equals() -> None:
    world, job = running(restart={"actors": RestartPolicy(RestartScope.JOB, limit=3)})
    finish(world, job, (1, 0))
    fail(world, job, (1, 1))
    later(world)
    assert (job.stage, job.attempt, job.slots.finished) == (Stage.RUNNING, 1, {})
    assert len(job.bound) == 3


def test_equals_whose_image_cannot_be_pulled_fail_after_the_grace() -> None:
    world = World()
    world.node("n1", cpu=8)
    job = world.job("sweep", equals=True, workers=2)
    world.cycle()
    for slot in sorted(job.placements):
        uid = world.run_pod(job, slot, "n1", phase="Pending")
        world.change_pod(uid, waiting="ErrImagePull" if slot == (1, 1) else "", ready=False)
    world.control()
    world.pass_time(world.lifecycle.image_grace_ms / 1000)
    world.control()
    assert (job.stage, reason(job)) == (Stage.FAILED, "ImageError")
    assert job.decided is not None
    assert stage_text(job.decided) == "worker actors-1's image can't be pulled (ErrImagePull)"


def test_the_budget_of_equals_has_no_leader() -> None:
    world, job = running()
    fail(world, job, (1, 2))
    later(world)
    assert budget_text(job, world.state) == "actors-2 1 of 3"


def test_equals_are_told_their_ranks_without_a_leader() -> None:
    equals = tyjob_with(
        {
            "metadata/namespace": "team",
            "metadata/uid": "u",
            "spec/leader": GONE,
            "spec/workerSets": [
                {**SETS[0], "counts": 2},
                {**SETS[1], "counts": 3, "rendezvous": {"scope": "Job"}},
                {**SETS[2], "counts": 1, "rendezvous": {"scope": "Job"}},
            ],
        }
    )
    spec = job_spec(equals)
    assert (spec.has_leader, spec.success, spec.min_workers) == (False, (1, 2, 3), 1)
    pod = pod_manifest(equals, group=3, index=0, attempt=0, node="n1", leader_address="")
    told = {of["name"]: of["value"] for of in pod["spec"]["containers"][0]["env"]}
    assert (told["TYJOB_RANK"], told["TYJOB_WORLD_SIZE"]) == ("5", "6") and "TYJOB_LEADER_ADDRESS" not in told
    assert (told["NODE_RANK"], told["NNODES"]) == ("3", "4")
    assert told["MASTER_ADDR"] == "evaluators-0.job.team.svc"
    assert '"firstRank":2' in told["TYJOB_SETS"]


# --- whose end is the job's -----------------------------------------------------------------------------------------


def test_equals_succeed_when_the_last_of_them_has_finished() -> None:
    world, job = running(min_workers=2)
    finish(world, job, (1, 0), (1, 2))
    world.settle()
    assert job.stage == Stage.RUNNING and condition(world, job, "Ready") == ("True", "QuorumReady")
    status = desired_status(world.state, job)
    assert (status["workers"][0]["finished"], status["scheduleState"]) == ("0,2", "ScheduledSucceed")
    assert not desired_pods(world.state, job).delete and not desired_pods(world.state, job).create
    finish(world, job, (1, 1))
    world.settle()
    assert (job.stage, reason(job)) == (Stage.SUCCEEDED, "WorkersSucceeded")
    status = desired_status(world.state, job)
    assert (status["ready"], status["message"]) == ("3/3", "all workers whose end is the job's have finished")
    assert not world.state.nodes.used.any()
    validate(world.state)


def test_a_finished_worker_holds_no_room_and_does_not_run_again_if_its_pod_is_deleted() -> None:
    world, job = running(cpu=3)
    other = world.job("other", equals=True, workers=1)
    uid = job.bound[(1, 0)]
    finish(world, job, (1, 0))
    world.settle()
    assert other.stage == Stage.RUNNING
    world.pod_gone(uid)
    world.settle()
    assert (1, 0) not in job.placements and job.stage == Stage.RUNNING and world.cycle() == ()
    validate(world.state)


def test_the_fold_rejects_a_success_that_the_facts_do_not_support() -> None:
    world, job = running()
    finish(world, job, (1, 0), (1, 1))
    world.say(k.StageDecided(job.uid, job.version, 0, Stage.SUCCEEDED, StageReason.WORKERS_SUCCEEDED))
    assert not world.verdict("StageDecided").accepted and job.stage == Stage.RUNNING
    assert "haven't finished" in world.verdict("StageDecided").reason
    world.say(k.StageDecided(job.uid, job.version, 0, Stage.SUCCEEDED, StageReason.LEADER_SUCCEEDED))
    assert "the leader's end isn't the job's" in world.verdict("StageDecided").reason and job.stage == Stage.RUNNING


def test_the_fold_rejects_a_node_for_a_worker_that_has_finished() -> None:
    world, job = running()
    finish(world, job, (1, 0))
    cycle = k.CycleTaken(world.state.offset, world.now_ms, world.config)
    pods = (PlacedPods("n1", 1, ((0, 0),)),)
    world.say(cycle, k.Placed(job.uid, job.version, 0, ScheduleState.SUCCEED, pods))
    assert world.verdict("Placed").reason == "slot (1, 0) has finished and needs no node"


def test_an_exit_that_was_asked_for_is_no_finish() -> None:
    world, job = running()
    finish(world, job, (1, 0), reason=STOPPED)
    assert not job.slots.finished and (1, 0) in job.placements


def test_only_the_chosen_sets_end_the_job_and_only_they_count_as_there() -> None:
    sets = [("trainer", 2, shape(cpu=1)), ("rollout", 2, shape(cpu=1))]
    world, job = running(workers=sets, success=(1,), minimums={"trainer": 2, "rollout": 1})
    finish(world, job, (1, 0), (2, 0))
    world.settle()
    assert job.stage == Stage.RUNNING and list(job.slots.finished) == [(1, 0)]
    assert condition(world, job, "Ready") == ("True", "QuorumReady")
    finish(world, job, (2, 1))
    world.settle()
    assert condition(world, job, "Ready") == ("False", "BelowQuorum")
    finish(world, job, (1, 1))
    assert condition(world, job, "Ready") == ("False", "Ending")
    world.settle()
    assert job.stage == Stage.SUCCEEDED
    assert [of["ready"] for of in desired_status(world.state, job)["workers"]] == [2, 2]


def test_a_leader_that_finishes_before_its_workers_is_not_started_again() -> None:
    world, job = running(success=(1,))
    finish(world, job, LEADER)
    world.settle()
    assert (job.stage, list(job.slots.finished), len(job.bound)) == (Stage.RUNNING, [LEADER], 3)
    assert desired_status(world.state, job)["leaderFinished"] is True
    assert condition(world, job, "Ready") == ("True", "QuorumReady")
    world.pod_gone(next(pod.uid for pod in world.state.pods.values() if pod.name == "sweep-learner-0"))
    fail(world, job, (1, 1))
    later(world)
    assert (job.stage, job.attempt, len(job.bound)) == (Stage.RUNNING, 0, 3)
    finish(world, job, (1, 0), (1, 1), (1, 2))
    world.settle()
    assert job.stage == Stage.SUCCEEDED


def test_workers_start_after_a_leader_that_finished_before_it_was_seen_with_an_address() -> None:
    world = World()
    world.node("n1", cpu=8)
    job = world.job("sweep", workers=3, success=(1,))
    world.cycle()
    world.control()
    assert awaited(world.state, job).what == What.LEADER_ADDRESS
    world.run_pod(job, LEADER, "n1", phase="Succeeded", ready=False)
    assert (list(job.slots.finished), job.leader.address) == ([LEADER], "")
    assert awaited(world.state, job).what == What.WORKERS
    world.settle()
    assert (job.stage, len(job.bound)) == (Stage.RUNNING, 3)


def test_a_failed_leader_restarts_its_finished_workers_too() -> None:
    world, job = running(success=(1,))
    finish(world, job, (1, 0))
    world.change_pod(job.bound[LEADER], phase="Failed")
    later(world)
    assert (job.attempt, job.stage, job.slots.finished, len(job.bound)) == (1, Stage.RUNNING, {}, 4)


def test_finished_workers_of_a_job_whose_end_is_its_leaders_do_not_count() -> None:
    world, job = running(equals=False, success=(0,), min_workers=3)
    finish(world, job, (1, 0))
    assert condition(world, job, "Ready") == ("False", "BelowQuorum") and not job.slots.finished


# --- workers that are given up, suspension, edits -------------------------------------------------------------------


def test_a_job_fails_when_all_but_the_given_up_have_finished() -> None:
    world, job = running(restart_limit=0)
    fail(world, job, (1, 1))
    later(world)
    assert list(job.slots.given_up) == [(1, 1)] and job.stage == Stage.RUNNING
    finish(world, job, (1, 0), (1, 2))
    world.settle()
    assert (job.stage, reason(job)) == (Stage.FAILED, "WorkersFailed") and job.decided is not None
    assert stage_text(job.decided) == (
        "1 worker is given up (restartLimit is 0) and all others that the job's success needs have finished"
    )
    assert desired_status(world.state, job)["ready"] == "2/3"


def test_a_job_fails_at_once_when_the_given_up_leave_no_quorum() -> None:
    world, job = running(restart_limit=0, min_workers=3)
    finish(world, job, (1, 0))
    fail(world, job, (1, 1))
    later(world)
    assert (job.stage, reason(job)) == (Stage.FAILED, "WorkersFailed")


def test_a_set_that_restarts_together_runs_its_finished_workers_again() -> None:
    world, job = running(restart={"actors": RestartPolicy(RestartScope.SET, limit=3)})
    finish(world, job, (1, 0))
    fail(world, job, (1, 1))
    later(world)
    assert not job.slots.finished and sorted(job.bound) == [(1, 0), (1, 1), (1, 2)]
    assert all(pod.phase == "Running" for pod in world.pods_of(job).values())


def test_suspended_equals_keep_what_has_finished() -> None:
    world = World()
    world.node("n1", cpu=8)
    edited = Edited(world, equals=True, workers=3, min_workers=2)
    job = edited.job
    world.settle()
    finish(world, job, (1, 0))
    edited.edit(suspend=True)
    world.settle()
    assert not job.placements and desired_status(world.state, job)["workers"][0]["finished"] == "0"
    edited.edit(suspend=False)
    world.settle()
    assert (job.stage, sorted(job.bound), job.attempt) == (Stage.RUNNING, [(1, 1), (1, 2)], 1)
    validate(world.state)


def test_scaling_down_to_what_has_finished_is_success() -> None:
    world = World()
    world.node("n1", cpu=8)
    edited = Edited(world, equals=True, workers=3)
    world.settle()
    finish(world, edited.job, (1, 0))
    job = edited.edit(workers=1)
    world.settle()
    assert (job.stage, reason(job)) == (Stage.SUCCEEDED, "WorkersSucceeded")


# --- a lost log, and a snapshot -------------------------------------------------------------------------------------


@pytest.mark.parametrize("pods_stay", [True, False])
def test_another_epoch_knows_what_has_finished(pods_stay: bool) -> None:
    world, job = running(success=(1,))
    finish(world, job, LEADER, (1, 0))
    status = desired_status(world.state, job)
    pods = [pod for pod in world.state.pods.values() if pods_stay or pod.phase == "Running"]
    spec, another = job.valid_spec, World(listed=False)
    another.node("n1", cpu=8)
    for pod in pods:
        another.say(k.PodSeen(another.terms[k.Watched.POD], *pod_fields(pod)))
    seen = job_status_seen(status, spec)
    adopted = another.job("sweep", workers=3, success=(1,), status=seen)
    another.list_all()
    another.settle()
    assert (adopted.stage, adopted.attempt) == (Stage.RUNNING, 0)
    assert sorted(adopted.slots.finished) == [LEADER, (1, 0)] and sorted(adopted.bound) == [(1, 1), (1, 2)]
    validate(another.state)


def pod_fields(pod: k.PodSeen) -> tuple[object, ...]:
    return tuple(getattr(pod, name) for name in k.PodSeen.__struct_fields__[1:])


def test_a_snapshot_has_what_has_finished() -> None:
    world, job = running()
    finish(world, job, (1, 0))
    restored = snapshot.restore(snapshot.encode(world.state))
    assert list(restored.jobs[job.uid].slots.finished) == [(1, 0)] and restored.jobs[job.uid].pods_desired() == 2


def test_equals_that_cannot_get_what_all_of_them_need_give_their_nodes_up() -> None:
    """A Service that belongs to somebody else is refused in the name of the first pod."""
    world = World()
    world.node("n1", cpu=8)
    job = world.job("sweep", equals=True, workers=3)
    world.cycle()
    words = "a service named sweep exists that isn't this job's"
    world.say(k.EffectFailed(job.uid, 0, "create", k.Slot(1, 0), 409, "AlreadyExists", words, False, 1))
    assert words in desired_status(world.state, job)["message"]
    world.pass_time(world.lifecycle.refused_ms / 1000)
    world.control()
    assert (job.stage, reason(job), job.placements) == (Stage.RESCHEDULING, "QuorumRefused", {})


def test_a_quorum_without_a_leader_may_need_the_last_pod_of_a_node() -> None:
    """No leader takes part in the sum that says whether a quorum ever fits."""
    world = World()
    world.node("n1", cpu=8, pods=2)
    world.pod("other", "n1", cpu=1)
    job = world.job("j", equals=True, workers=2, min_workers=2, worker=shape(cpu=1))
    world.cycle()
    assert job.waits is not None and not job.waits.shortage.infeasible


def test_the_row_of_a_restart_tells_of_the_worker_that_restarted_and_not_of_the_one_with_the_most() -> None:
    world = World()
    world.node("n1", cpu=16)
    job = world.job("j", workers=2, min_workers=1, equals=True)
    world.settle()
    for index, restarts in ((0, 2), (1, 1)):
        world.change_pod(job.bound[1, index], restarts=restarts)
    rows = [one.budget for one in explained(world.entries, "j").consequences if one.what == "Restarted"]
    assert rows == ["actors-0 2 of 3", "actors-1 1 of 3"]
