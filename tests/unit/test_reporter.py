"""Events on TYJobs: a story for `kubectl describe`, without a storm."""

import msgspec

from arranger.clock import SystemClock
from arranger.events import kinds as k
from arranger.kube.cluster import EVENTS, Object
from arranger.model.job import Dependency, JobStatusSeen
from arranger.projections.derived.queue_membership import queue_out_of_reach
from arranger.projections.jobs.records import JobRecord
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.listing import Selection
from arranger.sandbox.store import Store
from arranger.workers.applying.effects.progress import ToldEvents
from arranger.workers.applying.statuses.reporter import Reporter
from tests.world import World, shape


class Scene:
    """A world, and a reporter that tells of it into a store."""

    def __init__(self) -> None:
        self.world = World()
        self.store = Store(now=lambda: 1_700_000_000.0)
        self.told: dict[str, ToldEvents] = {}
        self.reporter = Reporter(DirectCluster(self.store), SystemClock())

    async def report(self, job: JobRecord) -> None:
        await self.reporter.report(job, self.told.setdefault(job.uid, ToldEvents()))

    def events(self) -> list[Object]:
        stored = self.store.page(EVENTS, Selection(), limit=100, continuation="").items
        return [msgspec.json.decode(item.raw) for item in stored]

    def waiting(self) -> list[tuple[str, int]]:
        return [(e["message"], e["count"]) for e in self.events() if e["reason"] == "FailedScheduling"]


async def test_every_stage_is_told_once() -> None:
    scene = Scene()
    scene.world.node("n1")
    job = scene.world.job("j")
    await scene.report(job)
    for _ in range(6):
        scene.world.cycle()
        scene.world.control()
        await scene.report(job)
        await scene.report(job)
        scene.world.apply()
    assert sorted(e["message"].split(":")[0] for e in scene.events()) == ["Pending", "Running", "Starting"]
    assert {e["count"] for e in scene.events()} == {1}


async def test_waiting_is_one_event_that_is_brought_up_to_date_when_the_kind_of_reason_changes() -> None:
    scene = Scene()
    scene.world.node("n1", gpus=8)
    job = scene.world.job("j", leader=shape(gpus=8))
    for gpus in (4, 5, 6):
        scene.world.pass_time(11)
        scene.world.pod("there", "n1", gpus=gpus)
        scene.world.cycle()
        await scene.report(job)
    ((message, count),) = scene.waiting()
    assert "at most 4 free" in message and count == 1  # other numbers alone are no news
    scene.world.node("n1", gpus=8, cordoned=True)
    scene.world.cycle()
    await scene.report(job)
    ((message, count),) = scene.waiting()
    assert "1 cordoned" in message and count == 2


async def test_another_applier_goes_on_with_the_same_event() -> None:
    scene = Scene()
    job = scene.world.job("j", leader=shape(gpus=8))
    scene.world.cycle()
    await scene.report(job)
    scene.told.clear()
    await scene.report(job)
    ((_, count),) = scene.waiting()
    assert count == 2
    assert len(scene.events()) == 2  # Pending, and why it waits


async def test_an_event_that_expired_is_recorded_again() -> None:
    scene = Scene()
    job = scene.world.job("j", leader=shape(gpus=8))
    scene.world.cycle()
    await scene.report(job)
    for event in scene.events():
        scene.store.delete(EVENTS, "default", event["metadata"]["name"])
    scene.world.node("n1", gpus=1)
    scene.world.cycle()
    await scene.report(job)
    assert [count for _, count in scene.waiting()] == [1]


async def test_workers_that_are_replaced_are_one_event_with_the_last_of_them() -> None:
    scene = Scene()
    world = scene.world
    world.node("n1", cpu=9)
    job = world.job("j", workers=3, min_workers=1)
    world.settle()
    await scene.report(job)
    for index in (1, 2):
        world.change_pod(job.bound[(1, index)], phase="Failed", ready=False, reason="Evicted")
        world.settle()
        await scene.report(job)
        await scene.report(job)
    [event] = [e for e in scene.events() if e["reason"] == "WorkersReplaced"]
    assert (event["type"], event["count"]) == ("Warning", 2)
    assert event["message"] == "workers replaced: lost: actors 2 (Evicted)"


async def test_a_listing_tells_the_story_in_its_order_though_all_of_it_is_of_one_second() -> None:
    scene = Scene()
    world = scene.world
    job = world.job("j", workers=1, min_workers=1, created=world.now_ms - world.now_ms % 1000)
    await scene.report(job)
    world.pass_time(0.01)
    world.cycle()
    await scene.report(job)
    world.node("n1", cpu=9)
    world.pass_time(0.01)
    world.cycle()
    for _ in range(3):
        world.pass_time(0.01)
        world.control()
        await scene.report(job)
        world.apply()
    world.change_pod(job.bound[(1, 0)], phase="Failed", ready=False, reason="Evicted")
    world.pass_time(0.01)
    world.control()
    await scene.report(job)
    assert [e["reason"] for e in scene.events()] == [
        "Accepted", "FailedScheduling", "Scheduled", "WorkersReady", "WorkersLost",
    ]  # fmt: skip
    times = [e["lastTimestamp"] for e in scene.events() if e["reason"] != "FailedScheduling"]
    assert len(set(times)) == 1


async def test_a_job_that_had_nodes_before_its_first_status_was_accepted_all_the_same() -> None:
    scene = Scene()
    scene.world.node("n1")
    job = scene.world.job("j")
    scene.world.cycle()
    scene.world.control()
    await scene.report(job)
    assert [e["reason"] for e in scene.events()] == ["Accepted", "Scheduled"]


async def test_every_suspension_and_every_resumption_is_told() -> None:
    scene = Scene()
    world = scene.world
    job = world.job("j", created=1)
    await scene.report(job)
    for suspend in (True, False, True, False):
        world.pass_time(1)
        world.job("j", suspend=suspend, created=1)
        world.control()
        await scene.report(job)
    assert [e["reason"] for e in scene.events()] == ["Accepted", "Suspended", "Resumed", "Suspended", "Resumed"]


async def test_a_refused_pod_is_one_event_with_the_last_reason() -> None:
    scene = Scene()
    world = scene.world
    world.node("n1")
    job = world.job("j", workers=2, min_workers=0)
    world.cycle()
    world.control()
    await scene.report(job)
    for message in ("exceeded quota", "exceeded quota", "denied by a webhook"):
        world.say(k.EffectFailed(job.uid, 0, "create", k.Slot(0, 0), 403, "Forbidden", message, False))
        await scene.report(job)
    [event] = [e for e in scene.events() if e["reason"] == "FailedCreate"]
    assert (event["type"], event["count"], event["message"]) == ("Warning", 2, "denied by a webhook")


async def test_what_an_epoch_before_had_decided_is_not_told_again() -> None:
    scene = Scene()
    scene.world.node("n1")
    status = JobStatusSeen("Running", "ScheduledSucceed", 0, 0, "10.0.0.0", (), reason="WorkersReady")
    job = scene.world.job("j", status=status)
    await scene.report(job)
    assert scene.events() == []
    scene.world.control()
    await scene.report(job)
    assert [e["reason"] for e in scene.events()] == ["LeaderLost"]


async def test_decisions_that_come_faster_than_statuses_are_told_one_by_one() -> None:
    scene = Scene()
    world = scene.world
    world.node("n1")
    job = world.job("j", created=1)
    world.settle()
    await scene.report(job)
    world.pass_time(1)
    world.job("j", suspend=True, created=1)
    world.settle()
    world.pass_time(1)
    world.job("j", created=1)
    world.control()
    world.settle()
    await scene.report(job)
    assert [e["reason"] for e in scene.events()] == [
        "Accepted", "Scheduled", "WorkersReady", "Suspended", "Resumed", "Scheduled", "WorkersReady",
    ]  # fmt: skip
    assert {e["type"] for e in scene.events()} == {"Normal"}


async def test_an_invalid_job_is_not_told_as_accepted() -> None:
    scene = Scene()
    job = scene.world.job("j", invalid="spec.leader")
    scene.world.control()
    await scene.report(job)
    assert [(e["reason"], e["type"], e["message"]) for e in scene.events()] == [
        ("InvalidSpec", "Warning", "Failed: spec.leader: Required value")
    ]


async def test_the_end_of_waiting_for_further_pods_is_told_too() -> None:
    scene = Scene()
    world = scene.world
    world.node("n1", cpu=2)
    job = world.job("j", workers=2, min_workers=1, created=1)
    world.settle()
    await scene.report(job)
    for node in ("n2", "n3"):
        world.pass_time(1)
        world.node(node, cpu=1)
        world.settle()
        await scene.report(job)
    assert [(e["reason"], e["type"]) for e in scene.events()] == [
        ("Accepted", "Normal"), ("Scheduled", "Normal"), ("WorkersReady", "Normal"), ("FailedScheduling", "Warning"),
        ("FullyScheduled", "Normal"),
    ]  # fmt: skip


async def test_workers_that_are_given_up_and_the_failure_that_follows_are_told_in_this_order() -> None:
    scene = Scene()
    world = scene.world
    world.node("n1", cpu=9)
    job = world.job("j", workers=2, min_workers=2, restart_limit=1, created=1)
    world.settle()
    await scene.report(job)
    for _ in range(2):
        world.change_pod(job.bound[(1, 1)], phase="Failed", ready=False)
        world.pass_time(world.lifecycle.back_off_ms / 1000 * 2)
        world.settle()
        await scene.report(job)
    assert [(e["reason"], e["count"]) for e in scene.events()] == [
        ("Accepted", 1), ("Scheduled", 1), ("WorkersReady", 1), ("WorkersReplaced", 1), ("WorkersGivenUp", 1),
        ("WorkersFailed", 1),
    ]  # fmt: skip


async def test_the_jobs_and_the_class_that_a_job_waits_for_are_told() -> None:
    scene = Scene()
    scene.world.watch_classes()
    ended = JobStatusSeen("Succeeded", "Unscheduled", 0, 0, "", ())
    job = scene.world.job("j", after=[Dependency("a"), Dependency("b")], priority_class="urgent")
    for name in ("", "a", "b"):
        if name:
            scene.world.job(name, status=ended)
        await scene.report(job)
        await scene.report(job)
        told = [(e["reason"], e["message"], e["count"], e["type"]) for e in scene.events() if e["reason"] != "Accepted"]
        left = {"": "job a, job b, ", "a": "job b, ", "b": ""}[name]
        count = ("", "a", "b").index(name) + 1
        assert told == [("WaitsForJobs", f"waits for {left}PriorityClass urgent", count, "Normal")]
    accepted = next(e["message"] for e in scene.events() if e["reason"] == "Accepted")
    assert accepted == "Pending: accepted; waits for job a, job b, PriorityClass urgent"


async def test_a_class_that_a_job_waits_for_is_told() -> None:
    scene = Scene()
    scene.world.watch_classes()
    job = scene.world.job("j", priority_class="urgent")
    await scene.report(job)
    told = [(e["reason"], e["message"]) for e in scene.events() if e["reason"] != "Accepted"]
    assert told == [("WaitsForPriorityClass", "waits for PriorityClass urgent")]


async def test_a_queue_that_a_job_cannot_use_is_told() -> None:
    scene = Scene()
    scene.world.watch_queues()
    job = scene.world.job("j", of_queue="rl")
    scene.told[job.uid] = ToldEvents(queue=queue_out_of_reach(scene.world.state, job))
    await scene.report(job)
    told = {e["reason"]: e["message"] for e in scene.events()}
    assert told == {"Accepted": "Pending: accepted; waits for queue rl", "WaitsForQueue": "waits for queue rl"}
