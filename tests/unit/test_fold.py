"""The fold as the arbiter: which decisions hold, what holds capacity, and that no order of observations harms."""

from collections.abc import Callable
from itertools import permutations

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.events.facts import LackOfNodes
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.model.job import JobStatusSeen, PlacedPods, ScheduleState, Stage
from arranger.model.pod import PodOwner
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.fold import apply_entry
from arranger.projections.jobs.records import JobRecord, compact
from arranger.projections.state import Changes, State
from tests.world import World, requests, shape

CONFIG = CycleConfig()
LEADER = PlacedPods("n1", 0, ((0, 0),))


def two_nodes(**job: object) -> tuple[World, JobRecord]:
    """n1 and n2 with 8 cpu each, and a job of a leader and two workers, both needed, of 1 cpu each."""
    world = World()
    world.node("n1", cpu=8)
    world.node("n2", cpu=8)
    record = world.job("ppo", **{"workers": 2, "min_workers": 2, **job})  # type: ignore[arg-type]
    return world, record


def workers_on(node: str, first: int = 0, last: int = 1) -> PlacedPods:
    return PlacedPods(node, 1, ((first, last),))


def place(
    world: World, job: JobRecord, *pods: PlacedPods, base: int | None = None, **changes: object
) -> tuple[bool, str]:
    """A cycle that places these pods; answers the verdict on the placement."""
    taken = k.CycleTaken(world.state.offset if base is None else base, world.now_ms, CONFIG)
    decision = k.Placed(job.uid, job.version, job.attempt, ScheduleState.SUCCEED, pods)
    world.say(taken, msgspec.structs.replace(decision, **changes))
    verdict = world.verdict("Placed")
    return verdict.accepted, verdict.reason


def owner(job: JobRecord, index: int = 0, *, attempt: int | None = None, leader: bool = False) -> PodOwner:
    name = "learner" if leader else "actors"
    return PodOwner(job.uid, job.attempt if attempt is None else attempt, name, leader, index)


def total_used(world: World) -> int:
    return int(world.state.nodes.used.sum())


def running(**job: object) -> tuple[World, JobRecord]:
    world, record = two_nodes(**job)
    world.settle()
    assert record.stage == Stage.RUNNING
    return world, record


# --- verdicts on placements ---------------------------------------------------------------------------------------


def test_a_whole_quorum_that_fits_is_accepted_and_counts_at_once() -> None:
    world, job = two_nodes()
    assert place(world, job, LEADER, workers_on("n2")) == (True, "")
    assert (world.used("n1"), world.used("n2"), world.used("n2", "pods")) == (1000, 2000, 2)
    assert job.version == world.state.offset


def test_a_placement_based_on_an_older_version_of_the_job_is_void() -> None:
    world, job = two_nodes()
    old = job.version
    world.job("ppo", workers=2, min_workers=2, priority=9)
    accepted, reason = place(world, job, LEADER, workers_on("n1"), based_on=old)
    assert not accepted and f"based on {old}" in reason
    assert total_used(world) == 0 and not job.placements


def test_of_two_placements_of_one_job_the_first_in_the_log_wins() -> None:
    world, job = two_nodes()
    version = job.version
    assert place(world, job, LEADER, workers_on("n1"))[0]
    assert not place(world, job, PlacedPods("n2", 0, ((0, 0),)), workers_on("n2"), based_on=version)[0]
    assert set(job.placements.values()) == {"n1"} and world.used("n2") == 0


def test_a_placement_for_another_attempt_is_void() -> None:
    world, job = two_nodes()
    accepted, reason = place(world, job, LEADER, workers_on("n1"), attempt=1)
    assert not accepted and "attempt" in reason and total_used(world) == 0


def test_a_cycle_that_did_not_see_the_cycle_before_it_is_superseded_with_all_its_decisions() -> None:
    world, job = two_nodes()
    other = world.job("other", created=1)
    base = world.state.offset
    assert place(world, other, LEADER)[0]
    accepted, reason = place(world, job, LEADER, workers_on("n2"), base=base)
    assert not accepted and reason.startswith("superseded by the cycle at offset")
    assert not world.verdict("CycleTaken").accepted and not job.placements


def test_a_superseded_cycle_supersedes_nobody() -> None:
    world, job = two_nodes()
    base = world.state.offset
    world.say(k.CycleTaken(base, world.now_ms, CONFIG))
    last = world.state.last_cycle
    world.say(k.CycleTaken(base, world.now_ms, CONFIG))
    assert world.state.last_cycle == last
    assert place(world, job, LEADER, workers_on("n1"))[0]


def test_scheduling_decisions_without_a_cycle_before_them_in_their_batch_are_void() -> None:
    world, job = two_nodes()
    placed = k.Placed(job.uid, job.version, 0, ScheduleState.SUCCEED, (LEADER, workers_on("n1")))
    waits = k.Waits(job.uid, job.version, ScheduleState.UNSCHEDULED, LackOfNodes(0, 1, group="learner"))
    world.say(k.CycleTaken(world.state.offset, world.now_ms, CONFIG))
    world.say(placed)
    assert "no cycle" in world.verdict("Placed").reason
    world.say(waits)
    assert "no cycle" in world.verdict("Waits").reason
    world.say(placed, k.CycleTaken(world.state.offset, world.now_ms, CONFIG))
    assert not world.verdict("Placed").accepted and not job.placements and job.waits is None


def test_nothing_is_placed_for_a_job_that_is_gone() -> None:
    world, job = two_nodes()
    world.job_gone(job)
    assert place(world, job, LEADER, workers_on("n1")) == (False, "the job is gone")


def test_nothing_is_decided_about_a_job_that_has_ended() -> None:
    world, job = two_nodes()
    world.say(k.StageDecided(job.uid, job.version, 0, Stage.SUCCEEDED, StageReason.TERMINATED))
    assert "ended" in place(world, job, LEADER, workers_on("n1"))[1]
    for stage in ("Running", "Failed", "Rescheduling"):
        world.say(k.StageDecided(job.uid, job.version, 0, stage, StageReason.AS_RECORDED))
        assert not world.verdict("StageDecided").accepted
    assert (job.stage, job.leader.address, total_used(world)) == (Stage.SUCCEEDED, "", 0)


@pytest.mark.parametrize("how", [{"deleting": True}, {"invalid": "spec.priority"}])
def test_nothing_is_placed_for_a_job_that_is_being_deleted_or_invalid(how: dict[str, object]) -> None:
    world, job = two_nodes()
    world.job("ppo", workers=2, min_workers=2, **how)  # type: ignore[arg-type]
    accepted, reason = place(world, job, LEADER, workers_on("n1"))
    assert not accepted and "deleted or invalid" in reason


def test_a_placement_on_a_node_that_is_gone_or_was_never_there_is_void() -> None:
    world, job = two_nodes()
    world.node_gone("n2")
    assert place(world, job, LEADER, workers_on("n2")) == (False, "node n2 is gone")
    assert place(world, job, LEADER, workers_on("n3")) == (False, "node n3 is gone")


def test_a_placement_on_a_node_known_only_by_its_pods_is_void() -> None:
    world, job = two_nodes()
    world.pod("stranger", "n3", cpu=1)
    assert place(world, job, LEADER, workers_on("n3")) == (False, "node n3 is gone")


@pytest.mark.parametrize("resource", ["cpu", "memory", "pods", "nvidia.com/gpu", "rdma/hca"])
def test_a_placement_that_a_node_lacks_room_for_is_void_as_a_whole(resource: str) -> None:
    world = World()
    world.node("n1", cpu=8)
    world.node("n2", cpu=2, memory=2 << 30, gpus=2, pods=2 if resource == "pods" else 9, **{"rdma/hca": 2})
    amounts = {"cpu": {"cpu": 1}, "memory": {"memory": 1 << 30}, "pods": {}, "nvidia.com/gpu": {"gpus": 1}}
    worker = shape(**amounts.get(resource, {resource: 1}))  # type: ignore[arg-type]
    job = world.job("ppo", leader=shape(), workers=3, worker=worker, min_workers=3)
    assert place(world, job, LEADER, workers_on("n2", 0, 2)) == (False, f"node n2 lacks {resource}")
    assert total_used(world) == 0 and not job.placements
    assert place(world, job, LEADER, workers_on("n2")) == (False, "the quorum is not whole: 3 workers needed")


def test_which_resource_a_node_lacks_is_told_alike_by_processes_that_met_the_resources_in_another_order() -> None:
    reasons = []
    for first, second in (("a/x", "b/y"), ("b/y", "a/x")):
        world = World()
        world.node("seen-first", **{first: 1})
        world.node("n1", **{second: 1})
        job = world.job("ppo", leader=shape(**{"a/x": 9, "b/y": 9}))
        reasons.append(place(world, job, LEADER))
    assert reasons[0] == reasons[1] == (False, "node n1 lacks a/x")


def test_the_room_of_one_node_is_judged_for_all_groups_together() -> None:
    world = World()
    world.node("n1", cpu=3)
    job = world.job("ppo", leader=shape(cpu=2), workers=2, worker=shape(cpu=1), min_workers=2)
    assert place(world, job, LEADER, workers_on("n1")) == (False, "node n1 lacks cpu")


def test_a_part_of_a_quorum_is_void() -> None:
    world, job = two_nodes()
    assert place(world, job, LEADER) == (False, "the quorum is not whole: 2 workers needed")
    assert place(world, job, LEADER, workers_on("n1", 0, 0))[1].startswith("the quorum is not whole")
    assert place(world, job, workers_on("n1"))[1] == "the quorum is not whole: the leader has no node"
    assert not job.placements and total_used(world) == 0


def test_a_place_that_has_a_node_is_not_placed_again() -> None:
    world, job = two_nodes(workers=3)
    assert place(world, job, LEADER, workers_on("n1"), schedule_state="ScheduledPartly")[0]
    accepted, reason = place(world, job, workers_on("n2", 1, 2))
    assert not accepted and "(1, 1) has a node already" in reason
    assert place(world, job, workers_on("n2", 2, 2))[0] and world.used("n2") == 1000


@pytest.mark.parametrize(
    "pods", [PlacedPods("n1", 1, ((0, 2),)), PlacedPods("n1", 2, ((0, 1),)), PlacedPods("n1", 1, ((-1, 1),)),
             PlacedPods("n1", -1, ((0, 1),))]
)  # fmt: skip
def test_a_place_that_the_job_does_not_have_is_not_placed(pods: PlacedPods) -> None:
    world, job = two_nodes()
    accepted, reason = place(world, job, LEADER, pods)
    assert not accepted and "has no slot" in reason and not job.placements


def test_a_gang_is_placed_whole_or_not_at_all_though_most_of_it_fits() -> None:
    world = World()
    world.node("n1", cpu=9)
    job = world.job("gang", workers=9, min_workers=9, policy="Gang")
    assert place(world, job, LEADER, workers_on("n1", 0, 8)) == (False, "node n1 lacks cpu")
    assert (total_used(world), job.schedule_state) == (0, ScheduleState.UNSCHEDULED)


# --- verdicts on what controllers decide --------------------------------------------------------------------------


def test_a_controller_that_comes_second_is_refused_with_the_reason() -> None:
    world, job = two_nodes()
    version = job.version
    world.say(k.StageDecided(job.uid, version, 0, Stage.SUCCEEDED, StageReason.TERMINATED))
    world.say(k.StageDecided(job.uid, version, 0, Stage.FAILED, StageReason.UNSCHEDULABLE))
    assert job.stage == Stage.SUCCEEDED and "ended" in world.verdict("StageDecided").reason
    assert world.state.verdicts["StageDecided"] == [1, 1]


def test_the_address_of_an_earlier_attempts_leader_is_not_the_jobs() -> None:
    world, job = running()
    before = owner(job, leader=True)
    world.pod_gone(job.bound[(0, 0)])
    world.control()
    assert job.attempt == 1
    world.pod("ppo-learner-0", "n1", owner=before, ip="10.0.0.9")
    assert job.leader.address == ""


def test_a_failed_effect_of_an_earlier_attempt_says_nothing_about_this_one() -> None:
    world, job = two_nodes()
    world.say(k.EffectFailed(job.uid, 1, "create", None, 422, "Invalid", "no", True))
    world.say(k.EffectFailed("uid-nobody", 0, "create", None, 422, "Invalid", "no", True))
    assert job.failure is None


def test_a_failure_to_create_a_pod_that_is_there_is_no_failure() -> None:
    world, job = running()
    world.say(k.EffectFailed(job.uid, 0, "create", k.Slot(1, 0), 422, "Invalid", "came too late", True))
    assert job.failure is None


def test_a_new_attempt_forgets_the_failures_and_the_reasons_of_the_one_before() -> None:
    world, job = two_nodes(workers=20, min_workers=2)
    world.settle()
    missing = next(p for p in ((1, i) for i in range(20)) if p not in job.bound)
    world.say(k.EffectFailed(job.uid, 0, "create", k.Slot(*missing), 403, "Forbidden", "quota", False))
    assert job.failure is not None and job.waits is not None
    world.say(k.StageDecided(job.uid, job.version, 0, Stage.RESCHEDULING, StageReason.LEADER_LOST))
    assert job.failure is None and job.waits is None


def test_an_ended_job_takes_no_late_failure() -> None:
    world, job = two_nodes()
    world.say(k.StageDecided(job.uid, job.version, 0, Stage.SUCCEEDED, StageReason.TERMINATED))
    world.say(k.EffectFailed(job.uid, 0, "create", k.Slot(0, 0), 422, "Invalid", "no", True))
    assert job.failure is None


# --- terms of watchers --------------------------------------------------------------------------------------------


def test_observations_under_a_superseded_term_are_void() -> None:
    world, job = running()
    old = dict(world.terms)
    before = {kind: world.say(k.WatchClaimed(kind, "standby")) for kind in k.Watched}
    uid = job.bound[(0, 0)]
    digest_of_facts = (dict(job.bound), dict(world.state.pods), world.state.nodes.used.copy(), job.seen)
    node, pod, of_job = (old[kind] for kind in (k.Watched.NODE, k.Watched.POD, k.Watched.JOB))
    world.say(
        k.ObjectGone(k.Watched.NODE, node, "", "n1", "uid-n1"),
        msgspec.structs.replace(world.state.pods[uid], phase="Failed"),
        k.ObjectGone(k.Watched.POD, pod, "default", "whatever", uid),
        k.ObjectGone(k.Watched.JOB, of_job, "default", "ppo", job.uid),
        msgspec.structs.replace(job.seen, deleting=True),
        k.ListingEnded(k.Watched.POD, pod, "9"),
    )
    assert job.bound == digest_of_facts[0] and world.state.pods == digest_of_facts[1]
    assert (world.state.nodes.used == digest_of_facts[2]).all() and job.seen == digest_of_facts[3]
    assert world.state.verdicts["Observation"] == [0, 6]
    assert world.state.terms == before


def test_the_first_cluster_that_claims_a_watch_is_the_logs_and_the_claim_of_another_is_void() -> None:
    world, job = running()
    assert world.state.cluster == ""
    mine = world.say(k.WatchClaimed(k.Watched.POD, "ours", "uid-of-ours"))
    assert world.state.cluster == "uid-of-ours"
    bound = dict(job.bound)
    foreign = world.say(k.WatchClaimed(k.Watched.POD, "theirs", "uid-of-theirs"))
    world.say(
        k.ListingBegun(k.Watched.POD, foreign),
        k.ObjectGone(k.Watched.POD, foreign, "default", "whatever", job.bound[(0, 0)]),
        k.ListingEnded(k.Watched.POD, foreign, "9"),
    )
    assert job.bound == bound and world.state.terms[k.Watched.POD] == mine
    assert world.state.verdicts["Observation"] == [0, 3]
    # A watcher that couldn't read its cluster tells none.
    unknown = world.say(k.WatchClaimed(k.Watched.POD, "unknowing"))
    assert (world.state.terms[k.Watched.POD], world.state.cluster) == (unknown, "uid-of-ours")


def test_a_new_epoch_is_of_the_cluster_that_it_begins_for() -> None:
    state, changes = State(), Changes()
    begun = k.Batch("epoch", 1, 0, (k.EpochBegun(2, 1, "the log was emptied", "uid-of-ours"),))
    claimed = k.Batch("w", 1, 0, (k.WatchClaimed(k.Watched.POD, "theirs", "uid-of-theirs"),))
    apply_entry(state, Entry(1, 1, "", begun), changes)
    apply_entry(state, Entry(2, 2, "", claimed), changes)
    assert state.cluster == "uid-of-ours" and not state.terms
    restored = snapshot.restore(snapshot.encode(state))
    assert restored.cluster == "uid-of-ours"


def test_nobody_may_decide_before_every_kind_is_listed() -> None:
    world = World(listed=False)
    world.node("n1")
    world.job("ppo")
    assert world.cycle() == () and not world.state.synced
    world.say(k.ListingEnded(k.Watched.POD, world.terms[k.Watched.JOB], "1"))  # another kind's term
    assert not world.state.listed
    world.list_all()
    assert world.state.synced and world.cycle() != ()


# --- capacity -----------------------------------------------------------------------------------------------------


def test_what_is_decided_and_unconfirmed_counts_as_used() -> None:
    world = World()
    world.node("n1", cpu=4)
    first = world.job("a", leader=shape(cpu=3))
    world.cycle()
    second = world.job("b", leader=shape(cpu=3), created=1)
    world.cycle()
    assert first.placements == {(0, 0): "n1"} and not second.placements
    assert world.used("n1") == 3000
    world.control()
    world.apply()
    world.cycle()
    assert world.used("n1") == 3000 and not second.placements


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_holds_nothing(phase: str) -> None:
    world = World()
    world.node("n1", cpu=4)
    uid = world.pod("stranger", "n1", cpu=3)
    assert (world.used("n1"), world.used("n1", "pods")) == (3000, 1)
    world.change_pod(uid, phase=phase)
    assert (world.used("n1"), world.used("n1", "pods")) == (0, 0)
    world.pod_gone(uid)
    world.pod("ended-before", "n1", cpu=3, phase=phase)
    assert total_used(world) == 0


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown"])
def test_a_pod_on_a_node_holds_its_requests_until_it_has_ended(phase: str) -> None:
    world = World()
    world.node("n1", cpu=4)
    world.pod("stranger", "n1", cpu=3, phase=phase, deleting=True)
    world.pod("unbound", "", cpu=3, phase="Pending")
    assert world.used("n1") == 3000 and world.used("n1", "pods") == 1


def test_a_pod_whose_requests_changed_holds_the_new_ones() -> None:
    world, job = running()
    uid = job.bound[(0, 0)]
    world.change_pod(uid, requests=requests(cpu=3))
    assert world.used("n1") == 5000
    world.pod_gone(uid)
    assert world.used("n1") == 3000  # the place holds its room again


def test_room_that_a_pod_gave_back_by_asking_for_less_can_be_used_at_once() -> None:
    world = World()
    world.node("n1", cpu=4)
    uid = world.pod("stranger", "n1", cpu=4)
    world.job("ppo", leader=shape(cpu=2))
    world.cycle()
    world.changes.schedulable = False
    world.change_pod(uid, requests=requests(cpu=1))
    assert world.changes.schedulable


def test_pods_known_before_their_node_count_the_same() -> None:
    orders: list[list[Callable[[World], object]]] = [
        [lambda w: w.node("n1", cpu=4), lambda w: w.pod("p", "n1", cpu=3)],
        [lambda w: w.pod("p", "n1", cpu=3), lambda w: w.node("n1", cpu=4)],
    ]
    for order in orders:
        world = World()
        for step in order:
            step(world)
        assert (world.used("n1"), world.used("n1", "pods")) == (3000, 1)
        job = world.job("ppo", leader=shape(cpu=2))
        world.cycle()
        assert not job.placements


def test_a_pod_may_ask_for_what_no_node_seen_so_far_has() -> None:
    world = World()
    world.pod("p", "n1", gpus=2, **{"rdma/hca": 1})
    world.node("n1", gpus=8)
    world.pod("q", "n1", **{"example.com/fpga": 1})
    assert (world.used("n1", "nvidia.com/gpu"), world.used("n1", "example.com/fpga")) == (2, 1)


def test_a_node_that_comes_back_still_counts_the_pods_on_it() -> None:
    world = World()
    world.node("n1", cpu=4)
    uid = world.pod("p", "n1", cpu=3)
    world.node_gone("n1")
    assert world.used("n1") == 3000
    world.node("n1", cpu=4, uid="uid-n1-again")
    assert world.used("n1") == 3000
    world.node_gone("n1")  # the earlier object: its news comes late
    assert world.state.nodes.present(world.state.nodes.rows["n1"])
    world.pod_gone(uid)
    world.node_gone("n1", uid="uid-n1-again")
    assert not world.state.nodes.rows and total_used(world) == 0


def test_a_row_given_back_by_one_node_is_clean_for_the_next() -> None:
    world = World()
    world.node("n1", cpu=4, gpus=8, cordoned=True, labels={"a": "b"})
    world.node_gone("n1")
    world.pod("p", "n2", cpu=1)
    row = world.state.nodes.rows["n2"]
    assert not world.state.nodes.present(row) and not world.state.nodes.allocatable[row].any()
    assert world.state.nodes.facts[row].labels == ()


def test_capacity_grows_with_nodes_and_resources_without_losing_what_is_held() -> None:
    world = World()
    for number in range(200):
        world.node(f"n{number}", cpu=4, **{f"vendor-{number}.example/device": number + 1})
        world.pod(f"p{number}", f"n{number}", cpu=1, **{f"vendor-{number}.example/device": 1})
    for number in range(200):
        assert world.used(f"n{number}") == 1000
        assert world.used(f"n{number}", f"vendor-{number}.example/device") == 1


def test_after_everything_is_gone_nothing_is_held() -> None:
    world, job = running()
    world.job("waiting", workers=1, leader=shape(cpu=100), created=1)
    partly = world.job("partly", workers=50, min_workers=1, created=2)
    world.settle()
    assert partly.schedule_state == ScheduleState.PARTLY and total_used(world) > 0
    world.pod_gone(job.bound[(1, 0)])  # the place holds again what the pod held
    for record in list(world.state.jobs.values()):
        world.job_gone(record)
    for uid in list(world.state.pods):
        world.pod_gone(uid)
    world.node_gone("n1")
    world.node_gone("n2")
    world.wait_for_late_pods()
    nodes = world.state.nodes
    assert not nodes.used.any() and not nodes.allocatable.any() and not nodes.rows and not any(nodes.holders)
    assert not world.state.pods_of and not world.state.jobs


@pytest.mark.parametrize("order", list(permutations(["job", "pod", "other pods", "node"])))
def test_capacity_never_leaks_in_whatever_order_things_go(order: tuple[str, ...]) -> None:
    world, job = running()
    leader = job.bound[(0, 0)]
    gone = {
        "job": lambda: world.job_gone(job),
        "pod": lambda: world.pod_gone(leader),
        "other pods": lambda: [world.pod_gone(uid) for uid in list(world.state.pods) if uid != leader],
        "node": lambda: world.node_gone("n1"),
    }
    for step in order:
        gone[step]()
    world.wait_for_late_pods()
    assert total_used(world) == 0 and not world.state.pods and not world.state.pods_of


# --- which pod fills a place --------------------------------------------------------------------------------------


def test_a_pod_that_is_seen_takes_over_the_room_of_its_place_and_gives_it_back_when_gone() -> None:
    world, job = two_nodes()
    place(world, job, LEADER, workers_on("n2"))
    uid = world.run_pod(job, (1, 0), "n2")
    assert job.bound == {(1, 0): uid} and world.used("n2") == 2000
    world.pod_gone(uid)
    assert job.bound == {} and world.used("n2") == 2000


def test_a_pod_of_an_earlier_attempt_fills_no_place_and_its_events_change_nothing() -> None:
    world, job = running()
    world.say(k.StageDecided(job.uid, job.version, 0, Stage.RESCHEDULING, StageReason.LEADER_LOST))
    stale = next(iter(world.state.pods.values()))
    world.change_pod(stale.uid, phase="Failed")
    world.change_pod(stale.uid, phase="Running")
    assert (job.stage, job.attempt, job.bound) == (Stage.RESCHEDULING, 1, {})
    world.settle()
    bound = dict(job.bound)
    world.pod("ghost", "n1", owner=owner(job, attempt=0), phase="Failed", cpu=1)
    assert job.bound == bound and job.stage == Stage.RUNNING and world.control() == []


def test_a_late_pod_of_an_earlier_attempt_does_not_confirm_a_place_of_this_one() -> None:
    world, job = two_nodes()
    world.say(k.StageDecided(job.uid, job.version, 0, Stage.RESCHEDULING, StageReason.LEADER_LOST))
    assert place(world, job, LEADER, workers_on("n2"))[0]
    world.pod("late", "n1", owner=owner(job, attempt=0), cpu=1)
    assert not job.bound and (world.used("n1"), world.used("n2")) == (2000, 2000)


def test_of_two_pods_for_one_place_every_process_takes_the_same() -> None:
    world = World(listed=False)
    for uid in ("z", "a"):
        world.pod("ppo-learner-0", "n1", uid=uid, owner=PodOwner("uid-ppo", 0, "learner", True, 0), cpu=1)
    restored = World(listed=False)
    restored.state = snapshot.restore(snapshot.encode(world.state))
    status = JobStatusSeen("Running", "ScheduledSucceed", 0, 0, "10.0.0.1", (LEADER,))
    for each in (world, restored):
        assert each.job("ppo", status=status).bound == {(0, 0): "a"}
    world.pod_gone("a")
    assert world.state.jobs["uid-ppo"].bound == {(0, 0): "z"}


def test_a_job_created_again_under_the_same_name_is_another_job() -> None:
    world, old = running()
    world.job("ppo", workers=2, min_workers=2, deleting=True)
    new = world.job("ppo", workers=2, min_workers=2, uid="uid-ppo-2", created=9)
    assert world.state.find_job("default", "ppo") is new
    leader = old.bound[(0, 0)]
    world.job_gone(old)
    world.change_pod(leader, phase="Failed")
    assert (new.stage, new.bound, new.attempt, new.leader.restarts) == (Stage.PENDING, {}, 0, 0)
    world.cycle()
    world.pod_gone(leader)
    assert set(new.placements) == {(0, 0), (1, 0), (1, 1)} and not new.bound


def test_news_of_the_end_of_an_earlier_job_of_that_name_leaves_the_present_one_alone() -> None:
    world, job = running()
    world.say(k.ObjectGone(k.Watched.JOB, world.terms[k.Watched.JOB], "default", "ppo", "uid-of-an-earlier-one"))
    assert world.state.find_job("default", "ppo") is job and job.stage == Stage.RUNNING


def test_a_successor_seen_before_its_forerunner_is_gone_fills_the_place_in_the_end() -> None:
    world, job = running()
    old = world.pods_of(job)[(1, 0)]
    world.pod(old.name, old.node, uid="uid-successor", owner=old.owner, cpu=1)
    assert job.bound[(1, 0)] == old.uid
    world.pod_gone(old.uid)
    assert job.bound[(1, 0)] == "uid-successor"
    assert world.used("n1") + world.used("n2") == 3000


def test_a_pod_that_stops_being_ours_gives_its_place_back() -> None:
    world, job = running()
    uid = job.bound[(1, 0)]
    world.change_pod(uid, owner=None)
    assert (1, 0) not in job.bound and uid not in world.state.pods_of[job.uid]
    assert world.used("n1") == 4000  # the place, and the stranger that the pod is now
    world.pod_gone(uid)
    assert world.used("n1") == 3000


def test_a_pod_without_a_node_confirms_nothing() -> None:
    world, job = two_nodes()
    place(world, job, LEADER, workers_on("n2"))
    world.pod("ppo-actors-0", "", owner=owner(job), phase="Pending", cpu=1)
    assert not job.bound and world.used("n2") == 2000
    world.pod("ppo-actors-0", "n2", owner=owner(job), phase="Pending", cpu=1)
    assert set(job.bound) == {(1, 0)} and world.used("n2") == 2000


def test_rescheduling_gives_back_what_was_decided_and_keeps_what_still_runs() -> None:
    world, job = two_nodes(workers=2)
    place(world, job, LEADER, workers_on("n2"))
    world.say(k.start(job.uid, job.version, 0))
    world.pod("ppo-learner-0", "n1", phase="Pending", owner=owner(job, leader=True), cpu=1)
    world.say(k.StageDecided(job.uid, job.version, 0, Stage.RESCHEDULING, StageReason.LEADER_LOST))
    assert (world.used("n1"), world.used("n2")) == (1000, 0)
    assert (job.placements, job.bound, job.attempt, job.schedule_state) == ({}, {}, 1, ScheduleState.UNSCHEDULED)


def test_container_restarts_of_a_replaced_leader_stay_on_its_account() -> None:
    world, job = running()
    world.change_pod(job.bound[(0, 0)], restarts=2)
    world.say(k.StageDecided(job.uid, job.version, 0, Stage.RESCHEDULING, StageReason.LEADER_FAILED))
    assert job.leader.restarts == 3


def test_an_ended_job_gives_back_at_once_the_room_to_which_no_pod_can_come() -> None:
    world, job = two_nodes()
    place(world, job, LEADER, workers_on("n2"))
    world.say(k.StageDecided(job.uid, job.version, 0, Stage.SUCCEEDED, StageReason.TERMINATED))
    assert total_used(world) == 1001 and job.times.completion_ms == world.now_ms, "the leader's pod may be on its way"
    world.wait_for_late_pods()
    assert total_used(world) == 0


# --- edited jobs --------------------------------------------------------------------------------------------------


def test_lowered_counts_give_up_the_highest_places_and_raised_ones_are_placed_later() -> None:
    world, job = running(workers=4, min_workers=1)
    assert job.schedule_state == ScheduleState.SUCCEED
    world.job("ppo", workers=2, min_workers=1)
    assert sorted(job.placements) == sorted(job.bound) == [(0, 0), (1, 0), (1, 1)]
    assert job.schedule_state == ScheduleState.SUCCEED
    assert world.used("n1") == 5000  # the pods that must go hold their room until they are gone
    world.settle()
    assert world.used("n1") == 3000 and job.stage == Stage.RUNNING
    world.job("ppo", workers=3, min_workers=1)
    assert job.schedule_state == ScheduleState.PARTLY and (1, 2) not in job.placements
    world.settle()
    assert job.schedule_state == ScheduleState.SUCCEED and (1, 2) in job.bound


def test_a_job_lowered_to_what_it_has_is_scheduled_and_waits_for_nothing() -> None:
    world = World()
    world.node("n1", cpu=3)
    job = world.job("ppo", workers=4, min_workers=1)
    world.settle()
    assert job.schedule_state == ScheduleState.PARTLY and job.waits is not None
    world.job("ppo", workers=2, min_workers=1)
    assert job.schedule_state == ScheduleState.SUCCEED and job.waits is None


def test_an_edit_changes_nothing_about_a_job_that_has_ended() -> None:
    world, job = running()
    world.say(k.StageDecided(job.uid, job.version, 0, Stage.SUCCEEDED, StageReason.TERMINATED))
    world.settle()
    world.job("ppo", workers=5, min_workers=2, priority=7)
    assert (job.stage, job.schedule_state, job.placements) == (Stage.SUCCEEDED, ScheduleState.SUCCEED, {})
    assert total_used(world) == 0


def test_an_edit_of_a_job_that_never_fitted_gives_it_another_chance() -> None:
    world = World()
    world.node("n1", cpu=8)
    job = world.job("ppo", leader=shape(cpu=9))
    world.cycle()
    world.pass_time(301)
    world.cycle()
    assert job.schedule_state == ScheduleState.FAILED
    world.job("ppo", leader=shape(cpu=8))
    assert (job.schedule_state, job.times.infeasible_ms) == (ScheduleState.UNSCHEDULED, 0)
    world.settle()
    assert job.stage == Stage.RUNNING


def test_seeing_a_job_again_unchanged_does_not_make_decisions_stale() -> None:
    world, job = two_nodes()
    version = job.version
    world.job("ppo", workers=2, min_workers=2)
    assert job.version == version
    assert place(world, job, LEADER, workers_on("n1"))[0]


# --- a new epoch --------------------------------------------------------------------------------------------------


def adopted_world(order: tuple[str, ...], allocations: tuple[PlacedPods, ...]) -> tuple[World, JobRecord]:
    world = World(listed=False)
    status = JobStatusSeen("Running", "ScheduledSucceed", 1, 2, "10.0.0.1", allocations, 5, 0, "runs")
    of_job = PodOwner("uid-ppo", 1, "actors", False, 0)
    steps: dict[str, Callable[[], object]] = {
        "job": lambda: world.job("ppo", workers=2, min_workers=2, status=status),
        "leader": lambda: world.pod(
            "ppo-learner-0-r1",
            "n1",
            uid="uid-l",
            owner=PodOwner("uid-ppo", 1, "learner", True, 0),
            cpu=1,
            ip="10.0.0.1",
        ),
        "workers": lambda: [
            world.pod(
                f"ppo-actors-{i}-r1", "n2", uid=f"uid-w{i}", owner=msgspec.structs.replace(of_job, index=i), cpu=1
            )
            for i in (0, 1)
        ],
        "nodes": lambda: [world.node("n1", cpu=8), world.node("n2", cpu=8)],
    }
    for step in order:
        steps[step]()
    world.list_all()
    return world, world.state.jobs["uid-ppo"]


@pytest.mark.parametrize("order", list(permutations(["job", "leader", "workers", "nodes"])))
@pytest.mark.parametrize("told", ["all", "none"])
def test_a_new_epoch_adopts_a_running_job_in_whatever_order_it_is_listed(order: tuple[str, ...], told: str) -> None:
    allocations = (LEADER, PlacedPods("n2", 1, ((0, 1),))) if told == "all" else ()
    world, job = adopted_world(order, allocations)
    assert (job.stage, job.attempt, job.leader.restarts, job.leader.address) == (Stage.RUNNING, 1, 2, "10.0.0.1")
    assert job.placements == {(0, 0): "n1", (1, 0): "n2", (1, 1): "n2"}
    assert job.bound == {(0, 0): "uid-l", (1, 0): "uid-w0", (1, 1): "uid-w1"}
    assert (world.used("n1"), world.used("n2")) == (1000, 2000)
    assert world.cycle() == () and world.control() == [] and world.apply() == 0


def test_an_adopted_job_holds_the_room_of_pods_that_were_not_created_yet() -> None:
    world, job = adopted_world(("nodes", "job", "leader"), (LEADER, PlacedPods("n2", 1, ((0, 1),))))
    assert (world.used("n1"), world.used("n2")) == (1000, 2000)
    assert world.apply() == 2 and len(job.bound) == 3
    assert (world.used("n1"), world.used("n2")) == (1000, 2000)


def test_an_adopted_place_that_the_job_no_longer_has_is_left_out() -> None:
    told = (LEADER, PlacedPods("n2", 1, ((0, 7),)), PlacedPods("n2", 4, ((0, 0),)))
    _, job = adopted_world(("job",), told)
    assert compact(job.placements) == (LEADER, PlacedPods("n2", 1, ((0, 1),)))


@pytest.mark.parametrize(("least", "nodes"), [(2, 3), (3, 0)])
def test_a_job_that_waits_for_others_to_leave_its_nodes_is_adopted_with_a_whole_quorum_or_none(
    least: int, nodes: int
) -> None:
    """The log was lost, and meanwhile its spec was edited."""
    world = World(listed=False)
    world.node("n1", cpu=8)
    allocations = (LEADER, PlacedPods("n1", 1, ((0, 1),)))
    status = JobStatusSeen("Pending", "ScheduledPartly", 0, 0, "", allocations, 0, 0, "waits")
    job = world.job("ppo", workers=3, min_workers=least, status=status)
    validate(world.state)
    assert len(job.placements) == nodes and world.used("n1") == nodes * 1000


@pytest.mark.parametrize("order", list(permutations(["job", "pod"])))
@pytest.mark.parametrize("stage", ["Pending", "Rescheduling"])
def test_an_adopted_job_that_has_not_started_gets_no_nodes_from_pods_that_its_status_does_not_tell_of(
    stage: str, order: tuple[str, ...]
) -> None:
    """Arranger creates no pod before the status with its node is stored, so somebody else made it (seed 42000659)."""
    world = World(listed=False)
    world.node("n1", cpu=8)
    status = JobStatusSeen(stage, "Unscheduled", 0, 0, "", (), 0, 0, "waits")
    steps: dict[str, Callable[[], object]] = {
        "job": lambda: world.job("ppo", workers=1, min_workers=1, status=status),
        "pod": lambda: world.pod("ppo-learner-0", "n1", owner=PodOwner("uid-ppo", 0, "learner", True, 0), cpu=1),
    }
    for step in order:
        steps[step]()
    world.list_all()
    validate(world.state)
    job = world.state.jobs["uid-ppo"]
    assert (job.placements, job.bound) == ({}, {})


@pytest.mark.parametrize("stage", ["Succeeded", "Failed"])
def test_an_adopted_job_that_has_ended_stays_ended_and_holds_nothing(stage: str) -> None:
    world = World(listed=False)
    status = JobStatusSeen(stage, "ScheduledSucceed", 0, 0, "", (LEADER,), 5, 9, "as it was")
    world.pod("l", "n1", owner=PodOwner("uid-ppo", 0, "learner", True, 0), cpu=1, phase="Succeeded")
    job = world.job("ppo", workers=2, status=status)
    world.list_all()
    assert (job.stage, job.times.completion_ms, job.bound, total_used(world)) == (Stage(stage), 9, {}, 0)
    assert world.cycle() == () and world.control() == []


def test_a_status_that_arranger_did_not_write_never_stops_the_fold() -> None:
    world = World()
    world.node("n1")
    odd = world.job("odd", status=JobStatusSeen("Dancing", "", 0, 0, "", ()))
    half = world.job("half", created=1, status=JobStatusSeen("Pending", "Whatever", 0, 0, "", ()))
    assert (odd.stage, half.stage, half.schedule_state) == (Stage.PENDING, Stage.PENDING, ScheduleState.UNSCHEDULED)
    world.settle()
    assert odd.stage == half.stage == Stage.RUNNING


def test_in_a_running_epoch_a_pod_is_no_evidence_for_a_placement_that_was_never_decided() -> None:
    world, job = two_nodes()
    world.pod("forged", "n1", owner=owner(job, leader=True), cpu=1)
    assert not job.placements and not job.bound


def test_entries_are_folded_in_order_and_once() -> None:
    world, _ = two_nodes()
    again = World()
    with pytest.raises(ValueError, match="doesn't follow"):
        again.fold(world.entries[-1])
    with pytest.raises(ValueError, match="doesn't follow"):
        world.fold(world.entries[-1])


def test_the_time_told_never_goes_back() -> None:
    world, job = two_nodes()
    before = world.state.time_ms
    world.pass_time(-3600)
    world.cycle()
    assert world.state.time_ms == before and job.times.scheduled_ms == before


def test_a_gang_is_placed_with_every_pod_or_not_at_all() -> None:
    world = World()
    world.node("n1", cpu=8)
    job = world.job("ppo", workers=3, min_workers=1, policy="Gang")
    assert place(world, job, LEADER, workers_on("n1", 0, 1)) == (False, "the gang is not whole: 4 pods needed")
    assert place(world, job, LEADER, workers_on("n1", 0, 2)) == (True, "")


def test_a_place_whose_ended_pod_is_deleted_is_given_up_if_others_have_its_room_by_now() -> None:
    world = World()
    world.node("n1", cpu=3)
    first = world.job("first", leader=shape(cpu=1), workers=1, worker=shape(cpu=2))
    world.settle()
    worker = world.pods_of(first)[1, 0]
    world.change_pod(worker.uid, phase="Succeeded")
    second = world.job("second", leader=shape(cpu=2))
    world.settle()
    world.pod_gone(worker.uid)
    assert (second.placements, sorted(first.placements)) == ({(0, 0): "n1"}, [(0, 0)])
    assert first.schedule_state == ScheduleState.PARTLY
    assert world.used("n1") == 3000


def test_a_place_whose_ended_pod_is_deleted_stays_while_there_is_room() -> None:
    world = World()
    world.node("n1", cpu=3)
    job = world.job("j", leader=shape(cpu=1), workers=1, worker=shape(cpu=2))
    world.settle()
    worker = world.pods_of(job)[1, 0]
    world.change_pod(worker.uid, phase="Succeeded")
    world.pod_gone(worker.uid)
    assert sorted(job.placements) == [(0, 0), (1, 0)]
    assert world.used("n1") == 3000


# --- stages -------------------------------------------------------------------------------------------------------


def test_a_job_without_nodes_cannot_be_made_to_run() -> None:
    world, job = two_nodes()
    for stage, reason in ((Stage.RUNNING, StageReason.WORKERS_READY), (Stage.RUNNING, StageReason.AS_RECORDED)):
        world.say(k.StageDecided(job.uid, job.version, 0, stage, reason))
        assert job.stage == Stage.PENDING
        assert (
            world.verdict("StageDecided").reason == f"a job doesn't go from Pending to Running for the reason {reason}"
        )
    world.say(k.start(job.uid, job.version, 0))
    assert job.stage == Stage.PENDING and world.verdict("StageDecided").reason == (
        "it can't be Starting: its quorum has no nodes"
    )


def test_a_reason_leads_to_its_own_stage_alone() -> None:
    world, job = running()
    for stage in Stage:
        world.say(k.StageDecided(job.uid, job.version, 0, stage, StageReason.LEADER_SUCCEEDED))
        assert world.verdict("StageDecided").accepted == (stage == Stage.SUCCEEDED)


@pytest.mark.parametrize("begins", [running, two_nodes])
def test_of_ends_only_success_is_assumed(begins: Callable[[], tuple[World, JobRecord]]) -> None:
    world, job = begins()
    for stage in Stage:
        world.say(k.StageDecided(job.uid, job.version, 0, stage, StageReason.ASSUMED))
        assert world.verdict("StageDecided").accepted == (stage == Stage.SUCCEEDED)
