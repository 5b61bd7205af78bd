"""Who takes room from others counts on what is kept for pods that may still come: it is free within ten seconds.

A node was drained and is uncordoned while the room of its old pods is still kept. Nobody loses more work than would be
lost some seconds later.
"""

import msgspec

from arranger.events import kinds as k
from arranger.events.facts import PodsStayed
from arranger.lifecycle.due import due_ms
from arranger.model.job import PlacedPods, Stage
from arranger.model.pod import PodTimes
from arranger.model.stages import StageReason
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import ASSUMED_MS
from arranger.replay.explain.waiting import explain_waiting
from tests.unit.replay_worlds import histories_of
from tests.unit.test_preemption import CONFIG, preempted
from tests.world import World, shape

GPU = "nvidia.com/gpu"
NODE = shape(cpu=1, gpus=8)


def gang(of: World, name: str, workers: int, *, gpus: int = 8, **more: object) -> JobRecord:
    worker = shape(cpu=1, gpus=gpus)
    return of.job(  # type: ignore[arg-type]
        name, workers=workers, worker=worker, min_workers=workers, equals=True, created=of.now_ms, **more
    )


def drained() -> tuple[World, JobRecord]:
    """Five nodes of eight GPUs. The gang `big` of a queue above its share has three of them. `prod` had the other two,
    until one of these, n5, was drained; `low` has a half of the other one now, and n5 is still cordoned."""
    of = World(config=CONFIG)
    for number in range(1, 6):
        of.node(f"n{number}", gpus=8)
    of.queue("product", deserved=((GPU, 16),))
    of.queue("research", deserved=((GPU, 20),))
    of.queue("adhoc")
    gang(of, "big", 3, of_queue="research")
    of.settle()
    prod = gang(of, "prod", 2, of_queue="product")
    of.settle()
    of.pass_time(60)
    of.node("n5", gpus=8, cordoned=True)
    [slot] = [slot for slot, node in prod.placements.items() if node == "n5"]
    of.pod_gone(prod.bound[slot])
    of.control()
    assert prod.stage == Stage.RESCHEDULING and [node for _, node in of.state.assumed] == ["n5"]
    low = gang(of, "low", 2, gpus=2, of_queue="adhoc", priority=2)
    of.settle()
    assert set(low.placements.values()) == {"n4"} and not prod.placements
    of.pass_time(1)
    return of, prod


def uncordoned() -> tuple[World, JobRecord, k.Preempted]:
    """The same with n5 open again, and the decision by which `prod` gets room."""
    of, prod = drained()
    of.node("n5", gpus=8)
    decision = preempted(of)
    assert decision is not None
    return of, prod, decision


def test_a_gang_keeps_its_nodes_if_a_smaller_victim_is_enough_once_kept_room_is_free() -> None:
    of, prod, decision = uncordoned()
    assert [victim.job_uid for victim in decision.victims] == ["uid-low"]
    assert set(prod.placements.values()) == {"n4", "n5"}
    assert of.state.jobs["uid-big"].stage == Stage.RUNNING


def test_explain_named_the_same_victim_before() -> None:
    of, _ = drained()
    histories = histories_of(of.entries, "prod")
    histories.finish(lambda last_ms: last_ms)
    story = histories.stories["uid-prod"]
    waiting = explain_waiting(story, story.state.jobs["uid-prod"])
    assert waiting is not None
    [offered] = [one.text for one in waiting.remedies if one.kind == "uncordon"]
    assert "low" in offered and "big" not in offered, offered


def test_it_starts_when_the_room_is_kept_no_longer_though_nothing_is_said() -> None:
    of, prod, _ = uncordoned()
    of.control()
    of.apply()  # the pods of `low` have left
    [kept] = of.state.assumed.values()
    assert not of.control() and prod.stage == Stage.RESCHEDULING
    assert due_ms(of.state, prod, of.lifecycle, of.now_ms) == kept.until_ms
    of.now_ms = kept.until_ms
    of.control()
    assert prod.stage == Stage.STARTING


def test_who_waits_for_kept_room_is_looked_at_as_it_becomes_free() -> None:
    of, prod, _ = uncordoned()
    of.pass_time(ASSUMED_MS / 1000)
    of.say(k.WatchHeard(k.Watched.POD, of.terms[k.Watched.POD], of.now_ms))
    assert not of.state.assumed and prod.uid in of.changes.jobs


def late(of: World) -> str:
    """The pod comes for which the room is kept, and is deleted; returns its UID."""
    [kept] = of.state.assumed.values()
    times = PodTimes(leave_by_ms=of.now_ms + 30_000)
    uid = of.pod("prod-actors-1", kept.node, owner=kept.owner, amounts=kept.requests, deleting=True, times=times)
    assert not of.state.assumed
    return uid


def test_a_pod_that_comes_late_is_waited_for() -> None:
    of, prod, _ = uncordoned()
    uid = late(of)
    low = of.state.jobs["uid-low"]
    for pod in [*of.state.pods_of[low.uid]]:
        of.pod_gone(pod)
    of.control()
    assert prod.stage == Stage.RESCHEDULING
    of.pod_gone(uid)
    of.control()
    assert prod.stage == Stage.STARTING


def test_a_pod_that_comes_late_and_hangs_holds_the_job_back_for_no_longer_than_others_do() -> None:
    of, prod, decision = uncordoned()
    late(of)
    of.control()
    of.now_ms = decision.until_ms
    events = of.control()
    [given_up] = [event for event in events if isinstance(event, k.StageDecided) and event.job_uid == prod.uid]
    assert given_up.reason == StageReason.ROOM_NOT_FREED and isinstance(given_up.facts, PodsStayed)
    assert not prod.placements


def test_the_time_to_wait_begins_when_the_room_is_kept_no_longer() -> None:
    of, _ = drained()
    of.config = msgspec.structs.replace(CONFIG, room_bound_ms=1_000)
    low = of.state.jobs["uid-low"]
    of.job("low", workers=2, worker=shape(cpu=1, gpus=2), min_workers=2, equals=True, of_queue="adhoc", priority=2,
           created=low.seen.created_ms, grace_s=1, generation=2)  # fmt: skip
    of.node("n5", gpus=8)
    [kept] = of.state.assumed.values()
    decision = preempted(of)
    assert decision is not None and decision.until_ms == kept.until_ms + 1_000


def test_nobody_else_counts_on_the_same_room() -> None:
    """Neither a cycle nor a verdict on the decision of another one."""
    of, prod, decision = uncordoned()
    other = gang(of, "next", 1, of_queue="product", priority=4)
    assert preempted(of) is None and not other.placements
    n5 = (PlacedPods("n5", 1, ((0, 0),)),)
    placed = msgspec.structs.replace(
        decision.placed, job_uid=other.uid, based_on=other.version, attempt=other.attempt, pods=n5
    )
    taken = k.CycleTaken(of.state.offset, of.now_ms, of.config, 0)
    of.say(taken, msgspec.structs.replace(decision, placed=placed, victims=(), spared=()))
    verdict = of.verdict("Preempted")
    assert not verdict.accepted and "n5 lacks" in verdict.reason
    assert not other.placements and set(prod.placements.values()) == {"n4", "n5"}


def test_kept_room_that_is_enough_is_waited_for() -> None:
    of, prod = drained()
    for uid in [*of.state.pods_of["uid-low"]]:
        of.pod_gone(uid)
    of.job_gone(of.state.jobs["uid-low"])
    of.node("n5", gpus=8)
    assert preempted(of) is None and not prod.placements
    of.pass_time(ASSUMED_MS / 1000)
    assert preempted(of) is None
    assert set(prod.placements.values()) == {"n4", "n5"} and prod.stage == Stage.STARTING
