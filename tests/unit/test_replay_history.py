"""Time travel and the listing: the state at a point, and the verdict on every event."""

from typing import Any

import msgspec
import pytest

from arranger.errors import UnknownEvent
from arranger.events import kinds as k
from arranger.events.codec import decode_batch, encode_batch
from arranger.events.log import Entry
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.state import State
from arranger.replay.reading.history import Journey, Point, Span
from arranger.replay.reading.listing import EventFilter, EventLine, Listing
from arranger.replay.reading.overview import overview
from tests.unit.replay_worlds import crowded, late_cycle
from tests.world import World, shape


def _at(entries: list[Entry], point: Point, state: State | None = None) -> State:
    journey = Journey(state or State(), point)
    for entry in entries:
        if entry.first > journey.state.offset and not journey.feed(entry):
            break
    return journey.state


def _lines(entries: list[Entry], **desired: Any) -> list[EventLine]:
    listing = Listing(State(), EventFilter(**desired))
    return [line for entry in entries for line in listing.feed(entry)]


def test_the_state_at_every_offset_is_that_of_whole_entries() -> None:
    entries = crowded().entries
    ends = [entry.last for entry in entries]
    for offset in range(1, ends[-1] + 1):
        assert _at(entries, Point(offset=offset)).offset == min(end for end in ends if end >= offset)


def test_the_state_at_a_point_is_the_same_from_a_snapshot_as_from_the_start() -> None:
    entries = crowded().entries
    middle = _at(entries, Point(offset=entries[len(entries) // 2].last))
    restored = snapshot.restore(snapshot.encode(middle))
    for offset in range(middle.offset, entries[-1].last + 1, 7):
        point = Point(offset=offset)
        there = _at(entries, point, snapshot.restore(snapshot.encode(restored)))
        assert snapshot.digest(there) == snapshot.digest(_at(entries, point))


def test_a_moment_is_the_end_of_all_that_was_told_until_then() -> None:
    world = World()
    world.node("n1")
    before = world.state.offset
    time_ms = world.now_ms
    world.pass_time(1)
    world.node("n2")
    assert _at(world.entries, Point(time_ms=time_ms)).offset == before
    assert _at(world.entries, Point(time_ms=time_ms + 999)).offset == before
    assert _at(world.entries, Point(time_ms=time_ms + 1000)).offset == before + 1


def test_a_value_that_its_kind_cannot_have_is_refused_with_its_offset() -> None:
    world = World()
    job = world.job("j")
    at = world.state.offset + 1
    nowhere = k.StageDecided(job.uid, job.version, 0, "Nowhere", StageReason.AS_RECORDED)  # type: ignore[arg-type]
    payload = encode_batch(k.Batch("x", 1, 0, (nowhere,)))
    with pytest.raises(UnknownEvent, match="Nowhere") as raised:
        decode_batch(payload, at)
    assert raised.value.offset == at


def test_the_overview_has_waiting_jobs_in_queue_order_and_the_use_of_every_node() -> None:
    world = crowded()
    seen = overview(world.state, world.config)
    assert [(job.queue, job.name) for job in seen.jobs] == [
        (1, "big"), (2, "wide"), (3, "other"), (4, "never"), (0, "small"), (0, "wrong")
    ]  # fmt: skip
    nodes = {node.name: node for node in seen.nodes}
    assert nodes["n1"].used["nvidia.com/gpu"] == nodes["n1"].allocatable["nvidia.com/gpu"] == 4
    assert nodes["n5"].cordoned and nodes["n6"].taints == ("dedicated=infra:NoSchedule",)
    assert seen.digest == snapshot.digest(world.state)


def test_pods_of_others_that_hold_something_are_counted_and_the_largest_named() -> None:
    world = World()
    world.node("n1", cpu=8, gpus=4)
    world.pod("done", "n1", phase="Succeeded", cpu=8)
    world.pod("unbound", cpu=8)
    world.pod("large", "n1", gpus=3, cpu=1)
    for number in range(3):
        world.pod(f"small-{number}", "n1", cpu=1)
    world.job("ours", leader=shape(cpu=1))
    world.settle()
    seen = overview(world.state, world.config)
    assert seen.other_pods == 4
    assert [pod.name for pod in seen.largest_other_pods] == ["large", "small-0", "small-1"]
    assert seen.largest_other_pods[0].holds["nvidia.com/gpu"] == 3 and seen.largest_other_pods[0].node == "n1"


def test_a_node_that_is_gone_under_its_pods_is_shown_as_gone() -> None:
    world = World()
    world.node("n1")
    world.pod("p", "n1", cpu=1)
    world.node_gone("n1")
    (node,) = overview(world.state, world.config).nodes
    assert not node.present and node.used["cpu"] == 1000


def test_every_event_is_listed_once_in_order() -> None:
    entries = crowded().entries
    assert [line.offset for line in _lines(entries)] == list(range(1, entries[-1].last + 1))


def test_decisions_show_the_verdict_of_the_fold() -> None:
    world = World()
    world.node("n1", gpus=4)
    world.job("a", leader=shape(gpus=2))
    at = late_cycle(world, world.cycle)
    listed = {line.offset: line for line in _lines(world.entries)}
    assert [listed[at].verdict, listed[at + 1].verdict] == ["rejected", "rejected"]
    assert "superseded" in listed[at + 1].reason
    assert [line.verdict for line in listed.values() if line.kind == "Placed"] == ["accepted", "rejected"]


def test_an_observation_by_a_watcher_whose_term_is_over_is_void() -> None:
    world = World()
    old = world.terms[k.Watched.NODE]
    world.say(k.WatchClaimed(k.Watched.NODE, "another"), k.ObjectGone(k.Watched.NODE, old, "", "n1", "uid-n1"))
    last = _lines(world.entries)[-1]
    assert (last.kind, last.verdict) == ("NodeGone", "void")


@pytest.mark.parametrize("name", ["wide", "default/wide"])
def test_a_job_is_followed_through_its_pods_and_decisions(name: str) -> None:
    lines = _lines(crowded().entries, job=name)
    assert {line.job for line in lines} == {"default/wide"}
    assert {"JobSeen", "PodSeen", "Placed", "Waits", "StageDecided"} <= {line.kind for line in lines}


def test_events_about_a_job_go_on_after_it_is_gone() -> None:
    world = World()
    world.node("n1")
    job = world.job("j")
    world.settle()
    pod = next(iter(world.state.pods))
    world.job_gone(job)
    world.pod_gone(pod)
    lines = _lines(world.entries, job="j")
    assert [line.kind for line in lines][-2:] == ["JobGone", "PodGone"]
    assert [line.text for line in lines][-2:] == ["gone, was Running", "gone, was Running on n1, ready"]


def test_what_goes_is_told_with_what_it_was_if_that_is_known() -> None:
    world = World()
    world.node("n1", cpu=4)
    world.pod("p", "n1", phase="Failed", reason="Evicted", ready=False)
    world.pod_gone("uid-p")
    world.node_gone("n1")
    world.say(k.ObjectGone(k.Watched.POD, world.terms[k.Watched.POD], "default", "never-seen", "uid-x"))
    world.say(k.ObjectGone(k.Watched.NODE, world.terms[k.Watched.NODE], "", "never-seen", "uid-x"))
    world.say(k.ObjectGone(k.Watched.JOB, world.terms[k.Watched.JOB], "default", "never-seen", "uid-x"))
    gone = [line.text for line in _lines(world.entries, kinds=("PodGone", "NodeGone", "JobGone"))]
    assert gone == ["gone, was Failed on n1, Evicted", "gone, was ready; 4 cpu, 256Gi memory, 110 pods", *["gone"] * 3]


def test_every_kind_of_event_is_told_in_words() -> None:
    world = crowded()
    world.list_all()
    assert [line.kind for line in _lines(world.entries) if not line.text] == []


def test_a_node_is_followed_through_its_pods_and_placements() -> None:
    world = crowded()
    kinds = [line.kind for line in _lines(world.entries, node="n1")]
    assert kinds == ["NodeSeen", "Placed", *["PodSeen"] * 4]


def test_a_pod_is_followed_from_its_placement_on() -> None:
    lines = _lines(crowded().entries, pod="wide-actors-3")
    assert [line.kind for line in lines] == ["Placed", "PodSeen"]
    assert [line.kind for line in _lines(crowded().entries, pod="default/wide-actors-3")] == ["PodSeen"]


def test_kinds_and_stretches_restrict_the_list() -> None:
    entries = crowded().entries
    assert {line.kind for line in _lines(entries, kinds=("Placed", "Waits"))} == {"Placed", "Waits"}
    inside = next(entry for entry in entries if len(entry.batch.events) > 2)
    second = Point(offset=inside.first + 1)
    assert [line.offset for line in _lines(entries, span=Span(second, second))] == [inside.first + 1]


def test_a_job_seen_again_after_a_write_of_its_status_is_told_apart_from_an_edit() -> None:
    world = World()
    world.job("j", priority=5)
    world.job("j", priority=5)
    world.job("j", priority=7)
    seen = world.state.jobs["uid-j"].seen
    world.say(msgspec.structs.replace(seen, checkpoint_ms=1_000))
    world.say(msgspec.structs.replace(seen, checkpoint_ms=1_000, resource_version="99"))
    first, again, edited, saved, same = (line.text for line in _lines(world.entries, job="j"))
    assert first.startswith("priority 5") and edited.startswith("priority 7")
    assert again == same == "seen again, with the same spec"
    assert "last checkpoint 1970-01-01T00:00:01Z" in saved, "who gives room depends on it"


def test_events_of_a_queue_are_those_of_the_object_and_of_the_jobs_that_belong_to_it() -> None:
    world = World()
    world.node("n1")
    world.queue("a")
    world.queue("b")
    world.queue("a")  # as after a write of its status
    world.namespace("team", queue="a")
    world.job("own", of_queue="a")
    world.job("moves", of_queue="b")
    world.job("by-namespace", namespace="team")
    world.job("moves", of_queue="a")
    world.settle()
    world.queue_gone("b")
    of_a = [(line.kind, line.subject) for line in _lines(world.entries, queue="a") if line.kind != "PodSeen"]
    assert of_a[:5] == [
        ("QueueSeen", "a"), ("QueueSeen", "a"), ("JobSeen", "default/own"), ("JobSeen", "team/by-namespace"),
        ("JobSeen", "default/moves"),
    ]  # fmt: skip
    assert {subject for kind, subject in of_a if kind == "Placed"} == {
        "default/own", "default/moves", "team/by-namespace",
    }  # fmt: skip
    assert [line.text for line in _lines(world.entries, queue="a")][:2] == [
        "Open, weight 1", "seen again, with the same spec",
    ]  # fmt: skip
    of_b = [(line.kind, line.subject) for line in _lines(world.entries, queue="b")]
    assert of_b == [
        ("QueueSeen", "b"), ("JobSeen", "default/moves"), ("JobSeen", "default/moves"), ("QueueGone", "b"),
    ]  # fmt: skip


def test_events_about_objects_without_a_job_name_them() -> None:
    world = World()
    world.quota("q", {"pods": 1})
    world.priority_class("high", 9)
    world.namespace("team")
    world.queue("a")
    world.quota_gone("q")
    found = {line.kind: line.subject for line in _lines(world.entries)}
    assert [found[kind] for kind in ("QuotaSeen", "QuotaGone", "PriorityClassSeen", "NamespaceSeen", "QueueSeen")] == [
        "default/q", "default/q", "high", "team", "a",
    ]  # fmt: skip
