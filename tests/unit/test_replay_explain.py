"""Explain: why a job waits and why its pods are where they are, computed again at a point and true there."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.lifecycle.desired import desired_status
from arranger.model.config import CycleConfig
from arranger.model.job import Dependency, RestartEvent, RestartPolicy, RestartScope, Topology
from arranger.model.near_names import near_names
from arranger.model.node import Taint
from arranger.model.pod import STOPPED, PodOwner
from arranger.model.queue import Preemption
from arranger.model.reasons import Reason, ReasonKind
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes, State
from arranger.replay.explain.answer import explanation, pod_names
from arranger.replay.explain.awaited import What
from arranger.replay.explain.job_index import JobIndex
from arranger.replay.explain.placement_explanations import ExplanationObserver
from arranger.replay.explain.remedies import TRIES
from arranger.replay.explain.story import Deletion
from arranger.scheduling.cycle import VERSIONS, take_cycle, turns_to
from tests.commands import Run, to_file
from tests.unit.replay_worlds import (
    GPU,
    ROOM,
    crowded,
    explained,
    gpu_job,
    histories,
    histories_of,
    late_cycle,
)
from tests.world import Edited, World, shape


def test_a_waiting_job_has_its_place_in_the_queue_and_the_keys_that_decided_it() -> None:
    waiting = explained(crowded().entries, "other").waiting
    assert waiting is not None
    assert (waiting.position, waiting.queue_length, waiting.queue_policy) == (3, 4, "Priority")
    assert [(ahead.job, ahead.decided_by) for ahead in waiting.ahead] == [
        ("default/big", "priority 8 against 5"),
        ("default/wide", "created 5 s earlier"),
    ]


def test_equal_priority_and_age_is_decided_by_uid_and_said_so() -> None:
    world = World()
    world.node("n1", gpus=1)
    world.job("a", leader=shape(gpus=1))
    world.job("b", leader=shape(gpus=1))
    waiting = explained(world.entries, "b").waiting
    assert waiting is not None
    assert waiting.ahead[0].decided_by == "the lower UID, uid-a against uid-b"
    assert waiting.ahead[0].gets == "1 pod now"


def test_the_counts_by_reason_add_up_to_the_nodes_and_are_of_that_point() -> None:
    world = crowded()
    world.node("n4", gpus=4, cordoned=True)  # after the last recorded reason
    answer = explained(world.entries, "other")
    assert answer.waiting is not None and answer.waiting.shortfall is not None
    short = answer.waiting.shortfall
    assert sum(count for _, count in short.reasons) == short.nodes == 6
    assert dict(short.reasons)[Reason(ReasonKind.CORDONED)] == 2
    assert short.candidates == ("n1", "n2", "n3")
    assert short.resources == (GPU,)


def test_the_closest_node_is_the_one_that_lacks_least() -> None:
    world = World()
    world.node("far", gpus=4)
    world.node("near", gpus=6)
    world.node("shut", gpus=8, cordoned=True)
    world.job("a", leader=shape(gpus=8))
    waiting = explained(world.entries, "a").waiting
    assert waiting is not None and waiting.shortfall is not None and waiting.shortfall.closest is not None
    assert waiting.shortfall.closest.node == "near"
    assert waiting.shortfall.closest.lacks == ((GPU, 8, 6),)
    assert waiting.shortfall.closest.text == f"would take it with 2 more {GPU} (needs 8, has 6 of 6 free)"


def test_a_node_that_the_jobs_own_pods_would_fill_is_not_like_one_that_is_full() -> None:
    world = World()
    for name in ("n1", "n2", "n3"):
        world.node(name, gpus=8)
    world.job("runs", leader=shape(gpus=8), workers=1, worker=shape(gpus=8), min_workers=1)
    world.cycle()
    world.job("waits", leader=shape(gpus=8), workers=1, worker=shape(gpus=8), min_workers=1)
    waiting = explained(world.entries, "waits").waiting
    assert waiting is not None and waiting.shortfall is not None and waiting.shortfall.closest is not None
    full = f"would take it with 8 more {GPU} (needs 8, has 0 of 8 free)"
    assert waiting.shortfall.found == 1  # on the third node
    assert (waiting.shortfall.closest.text, waiting.shortfall.closest.alike) == (full, 1)


def test_with_every_node_ruled_out_the_closest_says_by_what() -> None:
    world = World()
    world.node("a", gpus=1, taints=[Taint("k", "v", "NoSchedule")])
    world.node("b", gpus=8, taints=[Taint("dedicated", "infra", "NoSchedule")])
    world.job("j", leader=shape(gpus=4))
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None and waiting.shortfall is not None and waiting.shortfall.closest is not None
    assert waiting.shortfall.closest.node == "b"
    assert waiting.shortfall.closest.text == "taint dedicated=infra:NoSchedule not tolerated"


def test_without_any_node_there_is_no_closest_one() -> None:
    world = World()
    world.job("j")
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None and waiting.shortfall is not None
    assert (waiting.shortfall.nodes, waiting.shortfall.reasons, waiting.shortfall.closest) == (0, (), None)


def test_the_decisions_that_took_the_room_are_named_with_their_offsets() -> None:
    world = World()
    world.node("n1", gpus=4)
    world.node("n2", gpus=4, labels={"zone": "b"})
    world.job("before", leader=shape(gpus=1), created=1)
    world.settle()
    world.job("waits", leader=shape(gpus=4, selector={"zone": "b"}), created=2, priority=1)
    world.pod("stranger", "n2", gpus=1)
    world.job("elsewhere", leader=shape(gpus=3), created=3)
    world.job("taker", leader=shape(gpus=2, selector={"zone": "b"}), created=4)
    world.settle()
    placed = {
        event.job_uid: entry.first + number
        for entry in world.entries
        for number, event in enumerate(entry.batch.events)
        if isinstance(event, k.Placed)
    }
    waiting = explained(world.entries, "waits").waiting
    assert waiting is not None
    took = [(taker.offset, taker.job, taker.amounts, taker.since_created, taker.holds) for taker in waiting.takers]
    assert took == [(placed["uid-taker"], "default/taker", {GPU: 2}, True, True)]
    assert [(holder.who, holder.amounts) for holder in waiting.holders] == [("pod default/stranger", {GPU: 1})]


def test_room_that_was_taken_and_given_back_is_told_as_such() -> None:
    world = World()
    world.node("n1", gpus=8)
    world.pod("stranger", "n1", gpus=1)
    world.job("waits", leader=shape(gpus=8), created=1)
    gone = world.job("gone", leader=shape(gpus=2), created=2)
    world.settle()
    world.job_gone(gone)
    waiting = explained(world.entries, "waits").waiting
    assert waiting is not None
    (taker,) = waiting.takers
    assert (taker.job, taker.since_created, taker.holds, taker.leaving) == ("default/gone", True, True, True)
    told = [holder.who for holder in waiting.holders]
    assert told == ["pod default/stranger"], "its pods are told of with the decision that placed them"
    world.pod_gone("uid-gone-learner-0")
    waiting = explained(world.entries, "waits").waiting
    assert waiting is not None
    (taker,) = waiting.takers
    assert (taker.job, taker.since_created, taker.holds, taker.leaving) == ("default/gone", True, False, False)
    assert taker.freed_at == world.state.offset


def test_pods_of_an_earlier_attempt_are_told_apart_from_those_of_this_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    world.node("n1", gpus=4)
    job = world.job("a", workers=1, min_workers=1, worker=shape(gpus=1))
    world.settle()
    assert explained(world.entries, "a").standing.pods_earlier == ()
    world.change_pod(job.bound[(0, 0)], phase="Failed", ready=False, reason="Evicted")
    world.control()
    standing = explained(world.entries, "a").standing
    assert (standing.pods_placed, standing.pods_seen, standing.pods_earlier) == (0, 0, ("a-actors-0", "a-learner-0"))
    log = to_file(world.entries, tmp_path / "run.log")
    assert "0 of 2 have nodes, 0 were seen; of its earlier attempt, 2 are still there: a-actors-0, a-learner-0" in (
        " ".join(Run(capsys, "explain", "a", *log).out.split())
    )


def test_room_that_was_taken_before_it_came_and_freed_since_is_told() -> None:
    world = World()
    world.node("n1", gpus=4)
    for name in ("ended", "earlier", "stays"):
        world.job(name, leader=shape(gpus=1))
    world.settle()
    world.change_pod("uid-earlier-learner-0", phase="Succeeded", ready=False)
    world.settle()
    world.job("waits", leader=shape(gpus=4))
    world.cycle()
    world.change_pod("uid-ended-learner-0", phase="Succeeded", ready=False)
    freed = world.state.offset
    world.settle()
    waiting = explained(world.entries, "waits").waiting
    assert waiting is not None
    assert [(taker.job, taker.since_created, taker.holds, taker.freed_at) for taker in waiting.takers] == [
        ("default/ended", False, False, freed),
        ("default/stays", False, True, 0),
    ]


def test_a_strangers_pod_is_told_with_the_offset_at_which_it_came() -> None:
    world = World()
    world.node("n1", gpus=1)
    world.pod("stranger", "n1", gpus=1)
    came = world.state.offset
    world.job("j", leader=shape(gpus=1))
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    assert [(holder.who, holder.since) for holder in waiting.holders] == [("pod default/stranger", came)]


def test_what_keeps_a_job_waiting_since_before_it_came_is_told_apart() -> None:
    world = World()
    world.node("n1", gpus=1)
    world.pod("stranger", "n1", gpus=1)
    took = world.state.offset
    world.job("j", leader=shape(gpus=1))
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    assert waiting.blockers == ()
    assert [(one.offset, one.text) for one in waiting.earlier] == [(took, f"pod default/stranger took 1 {GPU} on n1")]


def test_a_selector_that_no_node_has_is_named() -> None:
    world = World()
    world.node("n1", gpus=1)
    world.node("n2", gpus=1)
    world.job("j", leader=shape(selector={"zone": "b", "gpu-type": "h100"}))
    answer = explained(world.entries, "j", node="n2")
    assert answer.waiting is not None and answer.waiting.shortfall is not None
    short, said = answer.waiting.shortfall, "node selector doesn't match (gpu-type=h100,zone=b)"
    never = "even an empty cluster of these nodes can't hold it"
    assert answer.waiting.why == f"{never}: 0 of 1 required pods fit; learner: 0 of 2 nodes fit: 2 {said}"
    assert short.reasons == ((Reason(ReasonKind.NODE_SELECTOR), 2),)
    assert short.closest is not None and (short.closest.text, short.closest.alike) == (said, 1)
    assert short.node is not None and short.node.refused == said


def test_of_several_nodes_that_lack_the_same_the_closest_says_how_many_are_alike() -> None:
    world = World()
    world.node("n1", gpus=1)
    world.node("n2", gpus=2)
    world.node("n3", gpus=2, cpu=10)
    world.node("n4", gpus=2, cordoned=True)
    world.node("n5", gpus=4)
    world.pod("there", "n5", gpus=4)
    world.job("j", leader=shape(gpus=4))
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None and waiting.shortfall is not None and waiting.shortfall.closest is not None
    assert (waiting.shortfall.closest.node, waiting.shortfall.closest.alike) == ("n2", 1)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"invalid": "spec.priority"}, None),
        ({"deleting": True}, "it is being ended"),
        ({"terminating": True}, "it is being ended"),
        ({"after": [Dependency("prep")]}, "waits for job prep, which doesn't exist: create it"),
    ],
)
def test_a_job_outside_the_queue_says_what_keeps_it_out(options: dict[str, object], why: str | None) -> None:
    world = World()
    world.node("n1")
    world.job("j", **options)  # type: ignore[arg-type]
    waiting = explained(world.entries, "j").waiting
    if why is None:
        assert waiting is None
    else:
        assert waiting is not None and waiting.position == 0 and waiting.why.startswith(why)


def test_a_job_that_waits_for_another_would_get_nodes_without_that() -> None:
    world = World()
    world.node("n1")
    world.job("j", workers=0, min_workers=0, after=[Dependency("prep"), Dependency("other")])
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    assert [(one.text, one.pods) for one in waiting.remedies] == [("spec.after without prep, other", 1)]
    assert [one.text for one in waiting.blockers] == ["it was created to start after prep and other"]


def test_an_edit_by_which_a_job_waits_for_another_is_what_keeps_it_waiting() -> None:
    world = World()
    world.node("n1")
    edited = Edited(world, workers=0, min_workers=0)
    edited.edit(after=[Dependency("prep")])
    waiting = explained(world.entries, "ppo").waiting
    assert waiting is not None
    assert [one.text for one in waiting.blockers] == ["its spec was edited: after unset → prep"]
    edited.edit(after=[Dependency("prep"), Dependency("other")])
    waiting = explained(world.entries, "ppo").waiting
    assert waiting is not None and not waiting.blockers, "without the last edit alone, it would still wait for prep"


@pytest.mark.parametrize("options", [{"suspend": True}, {"after": [Dependency("prep")]}])
def test_a_job_outside_the_queue_is_passed_by_nobody(options: dict[str, object]) -> None:
    world = World()
    world.node("n1", gpus=2)
    world.job("j", leader=shape(gpus=1), created=world.now_ms, **options)  # type: ignore[arg-type]
    world.pass_time(5)
    world.job("later", leader=shape(gpus=1), created=world.now_ms)
    world.settle()
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None and waiting.position == 0 and waiting.passed_by == ()


def test_room_that_has_come_since_the_last_cycle_is_seen() -> None:
    world = World()
    world.job("j", leader=shape(gpus=1))
    world.cycle()
    world.node("n1", gpus=1)
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None and waiting.shortfall is None
    assert waiting.why == "there is room for it now: the next scheduling cycle places it (1 pod)"
    assert waiting.gets == 1


def _elastic(world: World) -> JobRecord:
    """A job whose quorum is the leader and 2 of its 8 workers."""
    one = shape(gpus=1)
    return world.job("j", leader=one, workers=8, worker=one, min_workers=2, created=world.now_ms)


def test_a_job_of_which_more_than_the_quorum_fits_now_has_room_and_says_how_many_pods_find_it() -> None:
    world = World()
    world.node("n1", gpus=4)
    _elastic(world)
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None and waiting.gets == 4
    assert waiting.why == (
        "there is room for it now: the next scheduling cycle places 4 of its 9 pods; "
        f"beside them, actors: 0 of 1 nodes fit: 1 insufficient {GPU} (needs 1, at most 0 free)"
    )
    assert [(remedy.text, remedy.pods) for remedy in waiting.remedies] == [("one more node like n1", 4)]
    world.cycle()
    assert len(world.state.jobs["uid-j"].placements) == 4


def test_where_dry_runs_are_on_the_cycle_without_changes_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(config=CycleConfig(preemption=Preemption(), dry_run=True))
    world.node("n1", gpus=8)
    world.job("runs", leader=shape(gpus=8))
    world.settle()
    world.job("waits", leader=shape(gpus=8), priority=1)
    world.cycle()

    def again(*_: object, **__: object) -> None:
        raise AssertionError("a cycle that was taken before")

    monkeypatch.setattr("arranger.replay.explain.remedies.take_cycle", again)
    waiting = explained(world.entries, "waits").waiting
    assert waiting is not None and waiting.tried and waiting.remedies


@pytest.mark.parametrize(
    ("ahead", "each", "own", "text"),
    [
        (0, 0, 1, "one more node like n1"),
        (1, 1, 1, "2 more nodes like n1 (one of them for a job ahead of it)"),
        (4, 1, 1, "5 more nodes like n1 (4 of them for 4 jobs ahead of it)"),
        (4, 2, 2, "10 more nodes like n1 (8 of them for 4 jobs ahead of it)"),
    ],
)
def test_added_nodes_that_jobs_ahead_would_take_are_said_to_be_for_them(
    ahead: int, each: int, own: int, text: str
) -> None:
    world = World()
    world.node("n1", gpus=8)
    world.pod("stranger", "n1", gpus=8)
    for number in range(ahead):
        world.job(f"a{number}", workers=each, worker=shape(gpus=8), min_workers=each, created=number, priority=9)
    world.job("last", workers=own, worker=shape(gpus=8), min_workers=own, created=99)
    waiting = explained(world.entries, "last").waiting
    assert waiting is not None
    assert [remedy.text for remedy in waiting.remedies if remedy.kind == "node"] == [text]


def test_jobs_behind_that_find_room_on_an_added_node_do_not_count_as_ahead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within a priority all quorums come before all further pods, but this job has none of those."""
    world = World()
    world.node("n1", gpus=8)
    world.pod("stranger", "n1", gpus=8)
    for number, gpus in enumerate((1, 8, 1, 1)):
        world.job(f"j{number}", leader=shape(gpus=gpus), created=number)
    world.cycle()
    waiting = explained(world.entries, "j1").waiting
    assert waiting is not None and (waiting.position, [one.job for one in waiting.ahead]) == (2, ["default/j0"])
    [text] = [remedy.text for remedy in waiting.remedies if remedy.kind == "node"]
    assert text == "2 more nodes like n1 (one of them for a job ahead of it)"
    of_recorded_cycle = Run(capsys, "explain", "j1", *to_file(world.entries, tmp_path / "run.log")).out
    assert f"  {text}\n" in of_recorded_cycle
    world.job_gone(world.state.jobs["uid-j0"])
    waiting = explained(world.entries, "j1").waiting
    assert waiting is not None
    assert [remedy.text for remedy in waiting.remedies if remedy.kind == "node"] == ["one more node like n1"]


def test_a_job_behind_whose_quorum_comes_before_further_pods_is_named_beside_added_nodes() -> None:
    world = World()
    world.node("n1", gpus=8)
    world.job("grows", leader=shape(gpus=4), workers=3, worker=shape(gpus=4), min_workers=1, created=1)
    world.settle()
    world.job("behind", leader=shape(gpus=8), created=2)
    world.cycle()
    waiting = explained(world.entries, "grows").waiting
    assert waiting is not None and waiting.position == 1
    [text] = [remedy.text for remedy in waiting.remedies if remedy.kind == "node"]
    assert text == "2 more nodes like n1 (one of them for default/behind, which then goes first)"


def test_as_many_nodes_are_tried_as_pods_ahead_of_the_job_may_need() -> None:
    """A gang ahead takes more nodes than one, so one for each job ahead wasn't enough."""
    world = World()
    world.node("n1", gpus=8)
    world.pod("stranger", "n1", gpus=8)
    world.job("pair", leader=shape(gpus=8), workers=1, worker=shape(gpus=8), min_workers=1, priority=9)
    world.job("half", leader=shape(gpus=4), priority=8)
    world.job("late", leader=shape(gpus=8))
    waiting = explained(world.entries, "late").waiting
    assert waiting is not None
    [found] = [remedy.text for remedy in waiting.remedies if remedy.kind == "node"]
    assert found == "4 more nodes like n1 (3 of them for 2 jobs ahead of it)"


def test_changes_that_cost_others_nothing_come_before_those_that_take_room_and_the_cheaper_of_those_first() -> None:
    world = World(config=CycleConfig(preemption=Preemption()))
    world.node("n1", gpus=8)
    for name, priority, of_queue in (("long", 3, "default"), ("other", 9, "team")):
        world.queue(of_queue)
        world.job(name, leader=shape(gpus=4), priority=priority, of_queue=of_queue)
        world.settle()
        world.pass_time(600)
    world.job("waits", leader=shape(gpus=4), priority=2)
    waiting = explained(world.entries, "waits").waiting
    assert waiting is not None
    costs = [(bool(remedy.room_from), remedy.lost_ms) for remedy in waiting.remedies]
    assert costs == sorted(costs) and len({*costs}) > 1


def test_one_more_node_is_the_remedy_where_those_ahead_would_take_more_of_them() -> None:
    """One node is too little for the gangs ahead, each of which would take two, and leave none of four."""
    world = World()
    world.node("n1", cpu=8, gpus=8)
    world.job("runs", leader=shape(gpus=8), preemptible=False)
    world.settle()
    for number in range(3):
        world.job(f"gang-{number}", leader=shape(gpus=8), workers=1, worker=shape(gpus=8), min_workers=1, priority=9)
    world.job("small", leader=shape(gpus=1))
    world.settle()
    waiting = explained(world.entries, "small").waiting
    assert waiting is not None
    assert [one.text for one in waiting.remedies if "more node" in one.text] == ["one more node like n1"]


def test_a_change_says_which_jobs_lose_nodes_by_it() -> None:
    world = World()
    world.node("n1", gpus=8)
    world.job("wide", leader=shape(gpus=9), priority=9)
    world.job("small", leader=shape(gpus=8), priority=1)
    waiting = explained(world.entries, "wide").waiting
    assert waiting is not None
    assert [remedy.text for remedy in waiting.remedies if remedy.kind == "spec"] == [
        f"learner asking for 8 {GPU} instead of 9; it would take nodes that otherwise default/small gets (1 pod)"
    ]


def test_a_job_with_its_quorum_says_how_many_of_the_further_pods_find_room() -> None:
    world = World()
    world.node("n1", gpus=4)
    _elastic(world)
    world.settle()
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    lack = f"1 insufficient {GPU} (needs 1, at most 0 free)"
    assert waiting.why == f"0 of 5 further pods of actors fit; actors: 0 of 1 nodes fit: {lack}"
    world.node("n2", gpus=2)
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    assert waiting.why.startswith(
        "there is room for it now: the next scheduling cycle places 2 of the 5 pods that have no node; beside them, "
        "actors: 0 of "
    )
    world.node("n2", gpus=8)
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    assert waiting.why == "there is room for it now: the next scheduling cycle places the rest of it (5 pods)"


@pytest.mark.parametrize("queue", ["Priority", "DRF"])
def test_a_remedy_counts_all_the_pods_that_would_get_nodes_and_not_only_the_quorum(queue: str) -> None:
    world = World(config=CycleConfig(versions=VERSIONS, queue_policy=queue))
    for name in ("n1", "n2"):
        world.node(name, gpus=5, cordoned=True)
    _elastic(world)
    world.cycle()
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    assert {remedy.text: remedy.pods for remedy in waiting.remedies} == {"uncordon n2": 5, "uncordon n1": 5}
    world.node("n1", gpus=5)
    world.cycle()
    assert len(world.state.jobs["uid-j"].placements) == 5


def test_every_change_of_a_kind_that_helps_is_found_up_to_a_number_of_tries_and_the_untried_are_counted() -> None:
    def sought(nodes: int) -> tuple[list[str], list[int], int]:
        world = World()
        names = [f"n{number:03}" for number in range(nodes)]
        for name in names:
            world.node(name, gpus=1)
        world.job("j", leader=shape(gpus=1))
        for name in names:
            world.node(name, gpus=1, cordoned=True)
        waiting = explained(world.entries, "j").waiting
        assert waiting is not None
        texts = [remedy.text for remedy in waiting.remedies if remedy.kind == "uncordon"]
        return texts, [blocker.offset for blocker in waiting.blockers], waiting.untried

    texts, offsets, untried = sought(7)
    assert texts == [f"uncordon n{number:03}" for number in range(6, -1, -1)]
    assert (len(offsets), untried) == (7, 0)
    texts, offsets, untried = sought(TRIES + 20)
    assert untried and len(texts) + untried == TRIES + 20


def test_a_placed_job_waits_for_nothing() -> None:
    answer = explained(crowded().entries, "small")
    assert answer.waiting is None
    assert answer.standing.allocation == "n1: learner, actors 0-2; n2: actors 3"


def test_each_choice_names_its_cycle_and_ranks_the_nodes_term_by_term() -> None:
    world = World()
    for name in ("n1", "n2", "n3"):
        world.node(name, cpu=10, memory=10 << 30, gpus=4)
    world.node("off", ready=False)
    world.pod("busy", "n2", cpu=5, gpus=2)
    world.job("j", leader=shape(cpu=1, gpus=1), policy="BinPack")
    base = world.state.offset
    world.cycle()
    (of_pod,) = explained(world.entries, "j").placement_explanations
    assert (of_pod.pod, of_pod.node, of_pod.retaken_on) == ("j-learner-0", "n2", "n2")
    assert (of_pod.base, of_pod.cycle, of_pod.offset) == (base, base + 1, base + 2)
    assert (of_pod.nodes, of_pod.passed, of_pod.refused) == (4, 3, ((Reason(ReasonKind.NOT_READY), 1),))
    assert [ranked.node for ranked in of_pod.ranking] == ["n2", "n1", "n3"]
    winner = of_pod.ranking[0]
    assert [(term.name, term.weight, term.value) for term in winner.terms] == [
        ("cpu", 1, 0.6),
        (GPU, 5, 0.75),
    ]
    assert winner.score == pytest.approx(100 * (0.6 + 5 * 0.75) / 6, abs=1e-4)
    assert f"most of it by {GPU}" in of_pod.why


def test_an_equal_score_is_said_to_be_decided_by_name() -> None:
    world = World()
    world.node("n2")
    world.node("n1")
    world.job("j")
    world.cycle()
    (of_pod,) = explained(world.entries, "j").placement_explanations
    assert of_pod.node == "n1" and of_pod.why.endswith("the lower name wins")


def test_a_pod_deep_in_a_group_is_explained_at_its_own_turn() -> None:
    answer = explained(crowded().entries, "wide", pod="wide-actors-3")
    (of_pod,) = answer.placement_explanations
    assert (of_pod.pod, of_pod.node, of_pod.together) == ("wide-actors-3", "n3", "actors 2-5")
    gpus = {ranked.node: ranked.terms[-1].value for ranked in of_pod.ranking}
    assert gpus == {"n3": 0.5, "n4": 0.25}, "one pod of its own group was on n3 already, n2 was full"


def test_every_pod_of_a_placement_wins_its_own_ranking() -> None:
    world = crowded()
    for name, group in (("small", "actors"), ("wide", "actors")):
        job = world.state.jobs[f"uid-{name}"]
        for (number, index), node in job.placements.items():
            pod = f"{name}-{'learner' if number == 0 else group}-{index}"
            (of_pod,) = explained(world.entries, name, pod=pod).placement_explanations
            assert of_pod.ranking[0].node == of_pod.node == of_pod.retaken_on == node


def test_looking_on_changes_nothing_in_the_cycle() -> None:
    world = crowded()
    story = histories_of(world.entries, "wide").stories["uid-wide"]
    (placement,) = story.placements
    state = State()
    for entry in world.entries:
        if entry.last <= placement.taken.base:
            apply_entry(state, entry, Changes())
    config, time_ms = placement.taken.config, placement.taken.time_ms
    watched = take_cycle(state, config, time_ms, ExplanationObserver(placement, None))
    assert watched == next(entry for entry in world.entries if entry.first == placement.cycle).batch.events


def test_a_restart_is_led_back_to_the_pod_that_failed_and_says_what_is_left_of_the_budget() -> None:
    world = World()
    world.node("n1", gpus=1)
    job = world.job("j", leader=shape(gpus=1), restart_limit=2)
    world.settle()
    world.change_pod(job.bound[0, 0], phase="Failed", ready=False, reason="OOMKilled")
    failed = world.state.offset
    world.control()
    (one,) = explained(world.entries, "j").consequences
    assert (one.offset, one.what, one.reason) == (world.state.offset, "Rescheduling", "LeaderFailed")
    assert [(cause.offset, cause.text) for cause in one.causes] == [(failed, "pod j-learner-0 failed (OOMKilled)")]
    assert one.budget == "leader 1 of 2"


def test_the_usual_way_of_things_needs_no_cause() -> None:
    world = World()
    world.node("n1")
    job = world.job("j")
    world.settle()
    world.change_pod(job.bound[0, 0], phase="Succeeded", ready=False)
    world.control()
    assert world.state.jobs["uid-j"].ended
    assert explained(world.entries, "j").consequences == ()


def test_rejected_decisions_are_told_with_their_reason() -> None:
    world = World()
    world.node("n1", gpus=4)
    world.job("a", leader=shape(gpus=2))
    at = late_cycle(world, world.cycle)
    (rejected,) = explained(world.entries, "a").rejected
    assert (rejected.offset, rejected.kind) == (at + 1, "Placed")
    assert rejected.reason.startswith("superseded by the cycle at offset") and rejected.superseded


def test_the_intervals_cover_a_life_without_a_gap_and_name_what_it_waited_for() -> None:
    world = World()
    world.job("j", leader=shape(gpus=1))
    world.pass_time(2)
    world.cycle()
    world.pass_time(30)
    world.node("n1", gpus=1)
    world.settle()
    world.pass_time(7)
    world.run_pod(world.state.jobs["uid-j"], (0, 0), "n1", phase="Succeeded")
    world.control()
    answer = explained(world.entries, "j")
    intervals = answer.intervals
    assert [a.until_ms for a in intervals[:-1]] == [b.since_ms for b in intervals[1:]]
    assert [(s.stage, s.waiting_for) for s in intervals if s.until_ms > s.since_ms] == [
        ("Pending", "a first scheduling cycle"),
        ("Pending", "nodes for its quorum: there are none"),
        ("Running", ""),
    ]
    assert [s.until_ms - s.since_ms for s in intervals if s.until_ms > s.since_ms] == [2000, 30_000, 7000]
    assert intervals[-1].stage == "Succeeded" and intervals[-1].lasts
    wait, cycle = answer.waited
    assert (wait.further, wait.span_ms, wait.reasons, wait.of) == (False, 30_000, "there are none", ())
    assert (wait.text, cycle.text, cycle.span_ms) == (
        "nodes, of which there are none",
        "a first scheduling cycle",
        2000,
    )


def test_the_time_in_each_state_adds_up_to_the_life() -> None:
    world = World()
    world.node("n1", gpus=1)
    world.job("j", leader=shape(gpus=1), restart_limit=9)
    began_ms = world.now_ms
    for _ in range(3):
        world.settle()
        world.wait_for_back_offs()
        world.settle()
        world.pass_time(10)
        world.change_pod(world.state.jobs["uid-j"].bound[0, 0], phase="Failed", ready=False, reason="Error")
        world.pass_time(2)
        world.control()
    answer = explained(world.entries, "j")
    assert sum(one.span_ms for one in answer.spent) == world.now_ms - began_ms
    running = answer.spent[0]
    assert (running.stage, running.waiting_for, running.span_ms, running.times) == ("Running", "", 36_000, 3)
    assert [one.budget for one in answer.consequences] == ["leader 1 of 9", "leader 2 of 9", "leader 3 of 9"]


def test_a_wait_that_goes_on_is_not_told_as_one_that_is_over() -> None:
    answer = explained(crowded().entries, "wide")
    assert answer.waiting is not None and answer.intervals[-1].waiting_for
    assert answer.waited == ()


def test_a_choice_says_whether_the_pod_still_has_its_node() -> None:
    world = World()
    world.node("n1", gpus=1)
    world.job("j", leader=shape(gpus=1))
    world.settle()
    assert [of_pod.lasts for of_pod in explained(world.entries, "j").placement_explanations] == [True]
    world.run_pod(world.state.jobs["uid-j"], (0, 0), "n1", phase="Succeeded")
    world.control()
    answer = explained(world.entries, "j")
    assert [of_pod.lasts for of_pod in answer.placement_explanations] == [False]
    assert (answer.standing.ended, answer.standing.pods_placed, answer.standing.pods_present) == (True, 0, 1)


def test_the_timeline_has_everything_about_the_job_and_nothing_else() -> None:
    world = crowded()
    story = explained(world.entries, "wide").timeline
    assert {moment.kind for moment in story} == {
        "JobSeen", "Waits", "Placed", "StageDecided", "PodSeen"
    }  # fmt: skip
    assert [moment.offset for moment in story] == sorted({moment.offset for moment in story})
    assert len([moment for moment in story if moment.kind == "PodSeen"]) == 11


def test_names_like_the_one_that_is_unknown_are_offered() -> None:
    world = crowded()
    job_index = JobIndex()
    for entry in world.entries:
        job_index.feed(entry)
    assert job_index.nearest("smal") == ["default/small"]
    assert job_index.nearest("zzzz") == []
    story = histories_of(world.entries, "wide").stories["uid-wide"]
    assert "wide-actors-3" in near_names("wide-actor-3", pod_names(story, story.state.jobs["uid-wide"]), most=3)


def test_a_job_that_is_gone_is_in_the_index_with_the_offset_where_it_went() -> None:
    world = World()
    job = world.job("j")
    world.job_gone(job)
    job_index = JobIndex()
    for entry in world.entries:
        job_index.feed(entry)
    offset = world.state.offset
    assert job_index.jobs["default", "j"] == (Deletion(offset, world.now_ms), offset - 1)


@settings(max_examples=60)
@given(histories())
def test_in_every_random_history_the_reasons_add_up_and_every_winner_has_the_best_score(entries: list[Entry]) -> None:
    jobs = {event.uid: event.name for entry in entries for event in entry.batch.events if isinstance(event, k.JobSeen)}
    state = State()
    for entry in entries:
        apply_entry(state, entry, Changes())
    for uid, name in jobs.items():
        if uid not in state.jobs:
            continue
        answer = explained(entries, name)
        if answer.waiting is not None and answer.waiting.shortfall is not None:
            short = answer.waiting.shortfall
            assert sum(count for _, count in short.reasons) == short.nodes == len(state.nodes.by_name())
            assert all(
                taker.offset <= state.offset and taker.job != f"default/{name}" for taker in answer.waiting.takers
            )
        for of_pod in answer.placement_explanations:
            assert of_pod.node == of_pod.retaken_on == of_pod.ranking[0].node
            assert of_pod.passed + sum(count for _, count in of_pod.refused) == of_pod.nodes
        for wait in answer.waited:
            earlier = [entry for entry in entries if entry.first <= wait.offset]
            then = explained(earlier, name)
            has_nodes = wait.what in (What.ROOM, What.CONTROLLER)
            assert has_nodes or then.waiting is not None, "the command that it is told with says why"
        assert [interval.until_ms for interval in answer.intervals[:-1]] == [
            interval.since_ms for interval in answer.intervals[1:]
        ]


def test_a_job_that_no_empty_cluster_could_hold_is_told_when_it_fails() -> None:
    world = World()
    world.node("n1", gpus=4)
    world.job("j", leader=shape(gpus=8))
    world.cycle()
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    assert waiting.infeasible_since_ms == world.now_ms
    assert waiting.fails_at_ms == world.now_ms + world.config.infeasible_grace_ms


@settings(max_examples=60)
@given(histories())
def test_looking_for_remedies_leaves_the_state_as_it_is_and_each_one_undoes_what_it_names(
    entries: list[Entry],
) -> None:
    state = State()
    for entry in entries:
        apply_entry(state, entry, Changes())
    for uid in list(state.jobs):
        job_histories = histories_of(entries, state.jobs[uid].seen.name)
        before = snapshot.encode(job_histories.state)
        answer = explanation(job_histories.stories[uid], job_histories.state.jobs[uid], job_histories.retaken(uid))
        assert snapshot.encode(job_histories.state) == before == snapshot.encode(state)
        if answer.waiting is not None:
            offsets = [blocker.offset for blocker in answer.waiting.blockers]
            assert offsets == sorted(offsets, reverse=True)
            assert all(0 <= remedy.undoes <= state.offset for remedy in answer.waiting.remedies)
            assert all(remedy.undone for remedy in answer.waiting.remedies if remedy.undoes), "each event has words"
            gives = [remedy.gives for remedy in answer.waiting.remedies]
            assert all(gives) or not answer.waiting.position
            config = job_histories.around.config
            tries = turns_to(state, uid, config, state.time_ms, whole_job=True)
            attempt = next((one for one in tries if one.job.uid == uid), None)
            assert answer.waiting.gets == (attempt.pods if attempt is not None else 0)


def test_a_remedy_does_what_it_says_once_it_is_done() -> None:
    world = crowded()
    waiting = explained(world.entries, "other").waiting
    assert waiting is not None
    remedy = waiting.remedies[0]
    assert (remedy.text, remedy.pods) == ("uncordon n5", 1)
    world.node("n5", cpu=16, gpus=4)
    world.cycle()
    assert world.state.jobs["uid-other"].placements == {(0, 0): "n5"}


def test_a_lower_quorum_is_told_with_the_number_that_fits() -> None:
    world = World()
    world.node("n1", gpus=4)
    one = shape(gpus=1)
    world.job("j", leader=one, workers=9, worker=one, min_workers=7)
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    assert ("minWorkersNum 3 instead of 7", 4) in [(remedy.text, remedy.pods) for remedy in waiting.remedies]
    assert ("one more node like n1", 8) in [(remedy.text, remedy.pods) for remedy in waiting.remedies]


def test_a_higher_priority_is_told_with_the_job_that_it_would_overtake() -> None:
    world = World()
    world.node("n1", gpus=4)
    world.job("first", leader=shape(gpus=4), priority=7)
    world.job("second", leader=shape(gpus=4), priority=5)
    waiting = explained(world.entries, "second").waiting
    assert waiting is not None
    texts = [remedy.text for remedy in waiting.remedies]
    costs = "; it would take nodes that otherwise default/first gets (1 pod)"
    assert f"priority 8 would put it before default/first{costs}" in texts
    assert "if default/first weren't ahead of it" in texts


def test_several_nodes_are_told_together_when_no_single_one_is_enough() -> None:
    world = World()
    for name in ("n1", "n2", "n3", "n4"):
        world.node(name, gpus=1)
    world.job("j", leader=shape(gpus=1), workers=2, worker=shape(gpus=1), min_workers=2)
    for name in ("n1", "n2", "n3", "n4"):
        world.node(name, gpus=1, cordoned=True)
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    assert "uncordon n4, n3 and n2" in [remedy.text for remedy in waiting.remedies]


def test_a_smaller_request_is_told_where_a_node_has_some_of_it() -> None:
    world = World()
    world.node("n1", gpus=1)
    world.job("j", leader=shape(gpus=4))
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    assert [remedy.text for remedy in waiting.remedies] == [
        "learner asking for 1 nvidia.com/gpu instead of 4",
        "one more node like n1 with 4 nvidia.com/gpu",
    ]


def test_without_anything_that_helps_it_is_said_how_much_was_tried() -> None:
    world = World()
    world.node("n1", gpus=4, labels={"zone": "a"})
    world.pod("stranger", "n1", cpu=64)
    world.job("j", leader=shape(cpu=1, gpus=8, selector={"kubernetes.io/hostname": "b"}))
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    assert waiting.remedies == () and waiting.blockers == () and waiting.tried == 1


def _remedies(world: World, name: str = "j") -> list[tuple[str, int, int]]:
    """What helps a job, by how many pods, and which event that undoes."""
    waiting = explained(world.entries, name).waiting
    assert waiting is not None
    return [(remedy.text, remedy.pods, remedy.undoes) for remedy in waiting.remedies]


def test_a_job_that_ends_before_its_pods_are_there_gives_its_room_away_at_once_in_a_supposition() -> None:
    world = World()
    world.node("n1", gpus=2)
    world.job("rival", leader=shape(gpus=1), workers=1, worker=shape(gpus=1), min_workers=1)
    world.cycle()
    placed = world.state.offset
    world.control()
    world.job("j", leader=shape(gpus=2))
    assert (f"when default/rival (2 {GPU} on n1) ends", 1, placed) in _remedies(world)


def test_pods_that_are_being_deleted_are_waited_for_before_anybody_has_to_do_anything() -> None:
    world = World()
    for name in ("n1", "n2"):
        world.node(name, gpus=4)
    world.job("done", leader=shape(gpus=4), workers=1, worker=shape(gpus=4))
    world.cycle()
    placed = world.state.offset
    world.settle()
    done = dict(world.state.jobs["uid-done"].bound)
    world.job("j", leader=shape(gpus=4), workers=1, worker=shape(gpus=4), min_workers=1)
    world.change_pod(done[0, 0], phase="Succeeded", ready=False)
    world.control()
    world.change_pod(done[1, 0], deleting=True)
    words = f"when the pod that leaves is gone: default/done-actors-0 (4 {GPU} on n2)"
    assert _remedies(world)[0] == (words, 2, placed)
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    said = f"default/done was placed (pods that leave hold 4 {GPU} on n2)"
    assert [(one.offset, one.text) for one in waiting.earlier] == [(placed, said)]


def test_a_pod_that_leaves_is_of_the_decision_that_placed_it_not_of_a_later_one_on_its_node() -> None:
    world = World()
    world.node("n1", gpus=3)
    world.job("done", leader=shape(gpus=1), workers=2, worker=shape(gpus=2))
    world.settle()
    first = next(e.last for e in world.entries if isinstance(e.batch.events[-1], k.Placed))
    world.node("n1", gpus=5)
    world.settle()
    done = dict(world.state.jobs["uid-done"].bound)
    assert len(done) == 3
    world.job("j", leader=shape(gpus=4), workers=1, worker=shape(gpus=1), min_workers=1)
    world.change_pod(done[0, 0], phase="Succeeded", ready=False)
    world.control()
    world.pod_gone(done[1, 1])
    world.change_pod(done[1, 0], deleting=True)
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    assert [one.offset for one in waiting.earlier] == [first]


def _twice_placed(world: World, waits: int) -> tuple[int, int]:
    """`alternative` got 1 GPU on n1 and later 3 on n2; `j` waits for so many on each. Answers both offsets."""
    world.node("n1", gpus=1)
    world.job("rival", leader=shape(gpus=1), workers=3, worker=shape(gpus=1))
    world.settle()
    first = next(e.last for e in world.entries if isinstance(e.batch.events[-1], k.Placed))
    world.node("n2", gpus=3)
    world.cycle()
    second = world.state.offset
    world.settle()
    world.node("n1", gpus=3)
    world.job("j", leader=shape(gpus=3), workers=waits - 1, worker=shape(gpus=3), min_workers=waits - 1)
    return first, second


def test_a_job_that_was_placed_twice_is_told_with_what_the_event_named_gave_it() -> None:
    world = World()
    _, second = _twice_placed(world, 1)
    said = f"when default/rival (4 {GPU} on n1 and n2) ends"
    assert (said, 1, second) in _remedies(world)
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    assert [(one.offset, one.text) for one in waiting.earlier] == [
        (second, f"default/rival was placed (3 {GPU} on n2; it holds 4 {GPU} on n1 and n2)")
    ]


def test_an_event_without_which_alone_a_job_would_still_wait_is_not_named_as_what_keeps_it_waiting() -> None:
    world = World()
    _, second = _twice_placed(world, 2)
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    assert (waiting.blockers, waiting.earlier) == ((), ())
    (remedy,) = [one for one in waiting.remedies if one.undoes]
    assert (remedy.text, remedy.pods, remedy.undoes) == (f"when default/rival (4 {GPU} on n1 and n2) ends", 2, second)
    assert remedy.several


def test_pods_that_stay_without_one_event_are_no_room_for_which_a_job_that_takes_room_could_wait() -> None:
    """Their job was taken away in the try, and they seemed to leave: one of two placements seemed to be enough."""
    world = World(config=CycleConfig(versions=VERSIONS, preemption=Preemption()))
    one = shape(cpu=1, gpus=1)
    world.node("n1", gpus=1)
    world.job("rival", leader=one, workers=1, worker=one, min_workers=0, preemptible=False)
    world.settle()
    world.node("n2", gpus=1)
    world.settle()
    second = max(e.last for e in world.entries if isinstance(e.batch.events[-1], k.Placed))
    world.node("n3", gpus=1)
    world.job("low", leader=one, priority=1)
    world.settle()
    world.job("j", equals=True, workers=3, worker=one, min_workers=3, priority=9)
    world.cycle()
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    (remedy,) = [of for of in waiting.remedies if of.undoes]
    assert (remedy.undoes, remedy.several) == (second, True)
    assert [of.partition(" (")[0] for of in remedy.room_from] == ["default/low"]
    assert (waiting.blockers, waiting.earlier) == ((), ())


def test_of_what_helps_together_nothing_is_named_that_could_be_left_out() -> None:
    world = World()
    world.node("n1", gpus=5)
    for name, gpus in (("a", 2), ("b", 2), ("tiny", 1)):
        world.pod(name, "n1", gpus=gpus)
    world.job("j", leader=shape(gpus=4))
    texts = [text for text, _, _ in _remedies(world)]
    assert f"when these end: pod default/b (2 {GPU} on n1); pod default/a (2 {GPU} on n1)" in texts


def test_a_job_that_was_scaled_down_is_told_with_what_it_still_holds() -> None:
    world = World()
    world.node("n1", gpus=8)
    one = shape(gpus=1)
    world.job("rival", leader=one, workers=7, worker=one)
    world.settle()
    world.job("j", leader=shape(gpus=8))
    world.job("rival", leader=one, workers=2, worker=one, generation=2)
    world.settle()
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    texts = [one.text for one in waiting.earlier]
    assert texts == [f"default/rival was placed (what is left: 3 {GPU} on n1)"]
    (taker,) = waiting.takers
    assert (taker.amounts, taker.holds, taker.held) == ({GPU: 8}, True, {GPU: 3})


def test_a_decision_whose_pods_are_gone_doesnt_leave_with_those_of_another_decision() -> None:
    world = World()
    world.node("n1", gpus=8)
    one = shape(gpus=1)
    world.job("rival", leader=one, workers=1, worker=one)
    world.settle()
    world.job("j", leader=shape(gpus=8))
    world.job("rival", leader=one, workers=3, worker=one, generation=2)
    world.settle()
    world.job("rival", leader=one, workers=1, worker=one, generation=3)
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    held = [(taker.holds, taker.leaving, taker.held) for taker in waiting.takers]
    assert held == [(True, False, {GPU: 2}), (True, True, {GPU: 2})], "workers 1 and 2 are on their way out"
    assert waiting.holders == ()
    world.settle()
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    held = [(taker.holds, taker.leaving, taker.held) for taker in waiting.takers]
    assert held == [(True, False, {GPU: 2}), (False, False, {})]


def test_a_decision_is_freed_when_its_own_last_pod_ends_and_not_later() -> None:
    world = World()
    world.node("n1", gpus=8)
    one = shape(gpus=1)
    world.job("rival", leader=one, workers=1, worker=one)
    world.settle()
    world.job("j", leader=shape(gpus=8))
    for generation, workers in ((2, 2), (3, 1)):
        world.job("rival", leader=one, workers=workers, worker=one, generation=generation)
        world.settle()
    ends = [
        entry.first + number
        for entry in world.entries
        for number, event in enumerate(entry.batch.events)
        if k.is_gone(event, k.Watched.POD)
    ]
    world.job_gone(world.state.jobs["uid-rival"])
    world.pod_gone("uid-rival-learner-0")
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    assert [taker.freed_at for taker in waiting.takers] == [0, *ends]


def test_a_decision_of_which_a_part_leaves_holds_the_rest() -> None:
    world = World()
    world.node("n1", gpus=8)
    one = shape(gpus=1)
    world.job("rival", leader=one, workers=3, worker=one)
    world.settle()
    world.job("j", leader=shape(gpus=8))
    world.job("rival", leader=one, workers=1, worker=one, generation=2)
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    (taker,) = waiting.takers
    assert (taker.holds, taker.leaving, taker.held) == (True, False, {GPU: 4})
    assert waiting.holders == (), "pods that leave are told of with the decision that placed them"


def test_a_suspended_job_whose_pods_are_still_there_is_told_both_that_keeps_it_waiting() -> None:
    world = World()
    world.node("n1", gpus=1)
    job = world.job("j", leader=shape(gpus=1))
    world.settle()
    world.change_pod(job.bound[0, 0], deleting=True)
    world.job("j", leader=shape(gpus=1), suspend=True, generation=2)
    suspended = world.state.offset
    world.control()
    both = "spec.suspend false, when the pods of its earlier attempt are gone: j-learner-0"
    assert _remedies(world) == [(both, 1, suspended)]
    world.pod_gone("uid-j-learner-0")
    assert _remedies(world) == [("spec.suspend false", 1, suspended)]
    world.pod("stranger", "n1", gpus=1)
    assert _remedies(world) == [("spec.suspend false", 0, suspended)]
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None and waiting.blockers == (), "no cycle would give it nodes without its suspension"


def test_the_edit_that_something_came_of_is_told_with_what_it_changed() -> None:
    world = World()
    world.node("n1", gpus=1)
    world.job("j", leader=shape(gpus=1))
    world.settle()
    world.job("j", leader=shape(gpus=1), suspend=True, generation=2)
    suspended = world.state.offset
    world.job("j", leader=shape(gpus=1), suspend=True, priority=7, generation=3)
    world.control()
    world.job("j", leader=shape(gpus=1), suspend=True, priority=7, terminating=True, generation=4)
    terminated = world.state.offset
    world.control()
    causes = [cause for one in explained(world.entries, "j").consequences for cause in one.causes]
    assert [(cause.offset, cause.text) for cause in causes] == [
        (suspended, "its spec was edited: suspend false → true"),
        (terminated, "its spec was edited: terminating false → true"),
    ]


def test_room_that_only_this_cycle_gives_away_is_told_where_a_node_lacks_room() -> None:
    world = World()
    world.node("n1", gpus=11)
    world.job("first", leader=shape(gpus=2), priority=9)
    world.job("j", leader=shape(gpus=3), workers=1, worker=shape(gpus=8), min_workers=1)
    waiting = explained(world.entries, "j", node="n1").waiting
    assert waiting is not None and waiting.shortfall is not None
    short = waiting.shortfall
    beside = "beside 1 pod of its own and 1 pod of other jobs that the same cycle puts there"
    assert waiting.why.startswith(
        "1 of 2 required pods fit; beside it and 1 pod of other jobs that get nodes first, actors: 0 of 1 nodes fit"
    )
    assert short.closest is not None
    assert short.closest.text == f"would take it with 2 more {GPU} (needs 8, has 6 of 11 free), {beside}"
    assert short.node is not None and short.node.refused == f"insufficient {GPU} (needs 8, 6 free), {beside}"


def test_a_pod_that_was_told_to_go_in_the_second_in_which_it_ended_is_not_said_to_have_run_still() -> None:
    world = World()
    world.node("n1")
    job = world.job("j")
    world.settle()
    world.change_pod(job.bound[0, 0], phase="Succeeded", ready=False)
    world.control()
    world.change_pod("uid-j-learner-0", deleting=True, reason=STOPPED)
    last = explained(world.entries, "j").timeline[-1]
    assert last.text == "Succeeded on n1, being deleted, told to terminate before it ended, or in the same second"


def _delta(world: World) -> list[tuple[str, int]]:
    """What helps a job that wants the label gpu-type=h100, and what each undoes."""
    world.job("j", leader=shape(gpus=1, selector={"gpu-type": "h100"}))
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    return [(remedy.text, remedy.undoes) for remedy in waiting.remedies]


def test_a_label_that_a_node_never_had_was_not_lost() -> None:
    world = World()
    world.node("n1", gpus=1)
    assert _delta(world) == [
        ("label n1 gpu-type=h100", 0),
        ("nodeSelector without gpu-type=h100", 0),
        ("one more node like n1 with the label gpu-type=h100", 0),
    ]


def test_a_node_that_came_with_a_taint_or_cordoned_was_not_given_it() -> None:
    world = World()
    world.node("n1", gpus=1, taints=[Taint("k", "v", "NoSchedule")])
    world.node("n2", gpus=1, cordoned=True)
    world.job("j", leader=shape(gpus=1))
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    assert [(remedy.text, remedy.undoes) for remedy in waiting.remedies] == [
        ("uncordon n2", 0),
        ("remove taint k=v:NoSchedule from n1, or tolerate it", 0),
    ]


def test_a_lost_label_is_told_with_the_event_that_took_it_and_not_with_a_later_one() -> None:
    world = World()
    world.node("n1", gpus=1, labels={"gpu-type": "h100"})
    world.node("n1", gpus=1)
    lost = world.state.offset
    world.node("n1", gpus=1, labels={"zone": "a"})
    world.node_gone("n1")
    world.node("n1", gpus=1, labels={"zone": "a"})
    assert _delta(world) == [
        ("label n1 gpu-type=h100", lost),
        ("nodeSelector without gpu-type=h100", 0),
        ("one more node like n1 with the label gpu-type=h100", 0),
    ]


def test_one_step_comes_before_two_and_two_undo_nothing_when_one_of_them_never_was_otherwise() -> None:
    world = World()
    world.node("n1", gpus=1)
    world.node("n2", gpus=1)
    world.node("n2", gpus=1, taints=[Taint("k", "v", "NoSchedule")])
    assert _delta(world) == [
        ("label n1 gpu-type=h100", 0),
        ("(remove taint k=v:NoSchedule from n2 or tolerate it) and label n2 gpu-type=h100", 0),
        ("nodeSelector without gpu-type=h100", 0),
        ("one more node like n1 with the label gpu-type=h100", 0),
    ]


def test_a_failure_beyond_the_limit_is_not_called_a_restart() -> None:
    world = World()
    world.node("n1", gpus=4)
    job = world.job("j", leader=shape(gpus=1), workers=2, worker=shape(gpus=1), min_workers=1, restart_limit=1)
    world.settle()
    world.change_pod(job.bound[1, 0], phase="Failed", ready=False)
    world.pass_time(20)
    world.settle()
    assert explained(world.entries, "j").standing.budget == "leader 0 of 1, actors-0 1 of 1"
    world.change_pod(job.bound[1, 0], phase="Failed", ready=False)
    world.pass_time(20)
    world.settle()
    answer = explained(world.entries, "j")
    assert (1, 0) in job.slots.given_up and desired_status(world.state, job)["workers"][0]["restarts"] == 1
    assert answer.standing.budget == "leader 0 of 1, actors-0 failed 2 times (limit 1), 1 given up"
    assert answer.consequences[-1].budget == "leader 0 of 1, actors-0 failed 2 times (limit 1), 1 given up"


def test_restarts_by_the_kubelet_count_and_the_first_one_is_told() -> None:
    world = World()
    world.node("n1", gpus=4)
    job = world.job("j", leader=shape(gpus=1), workers=1, worker=shape(gpus=1), restart_limit=1)
    world.settle()
    leader, worker = job.bound[0, 0], job.bound[1, 0]
    world.change_pod(leader, restarts=1)
    first = world.state.offset
    answer = explained(world.entries, "j")
    assert answer.standing.restarts_used == {"learner": 1, "actors": 0}
    assert (answer.standing.restart_limit, answer.standing.budget) == (1, "leader 1 of 1, actors 0 of 1")
    world.change_pod(worker, restarts=1)
    second = world.state.offset
    world.change_pod(leader, restarts=2)
    last = world.state.offset
    world.control()
    answer = explained(world.entries, "j")
    assert [(one.offset, one.what, one.budget) for one in answer.consequences] == [
        (first, "Restarted", "leader 1 of 1"),
        (second, "Restarted", "leader 1 of 1, actors-0 1 of 1"),
        (world.state.offset, "Failed", "leader 2 (limit 1), actors-0 1 of 1"),
    ]
    assert [cause.offset for cause in answer.consequences[-1].causes] == [last], "told once, as the cause"


def _with_a_worker_deleted(world: World) -> JobRecord:
    """A running job, a worker of which somebody deleted."""
    world.node("n1", gpus=4)
    job = world.job("j", leader=shape(gpus=1), workers=2, worker=shape(gpus=1))
    world.settle()
    world.change_pod(job.bound[1, 1], deleting=True)
    return job


def test_a_failed_pod_that_goes_after_the_next_one_came_was_deleted_by_nobody_else() -> None:
    """Only the newest failed pods are kept for their logs, so an older one goes while the next one runs."""
    world = World()
    world.node("n1", gpus=4)
    workers = {"workers": 2, "worker": shape(gpus=1), "min_workers": 1}
    job = world.job("j", leader=shape(gpus=1), keep_failed=1, **workers)  # type: ignore[arg-type]
    world.settle()
    for _ in range(3):
        failed = world.state.pods[job.bound[1, 1]]
        world.change_pod(failed.uid, phase="Failed", ready=False, reason="OOMKilled")
        world.pass_time(300)
        world.settle()
        assert job.bound[1, 1] != failed.uid
        world.say(msgspec.structs.replace(failed, phase="Failed", resource_version="9001", deleting=True))
    told = explained(world.entries, "j").consequences
    assert {one.reason for one in told} == {"WorkersReplaced"}, [one.message for one in told]


def test_a_worker_that_somebody_deleted_is_told_with_its_replacement() -> None:
    world = World()
    job = _with_a_worker_deleted(world)
    deleted = world.state.offset
    old = job.bound[1, 1]
    world.pod_gone(old)
    gone = world.state.offset
    pod = PodOwner("uid-j", 0, "actors", False, 1)
    world.pod("j-actors-1", "n1", owner=pod, uid="another", amounts=shape(gpus=1).requests)
    answer = explained(world.entries, "j")
    (one,) = answer.consequences
    assert (one.offset, one.what) == (world.state.offset, "Replaced")
    assert one.message == "j-actors-1 was deleted by another client; replaced on n1; no restart counted"
    assert one.budget == "leader 0 of 3, actors 0 of 3"
    assert [(cause.offset, cause.text) for cause in one.causes] == [(deleted, "pod j-actors-1 is being deleted")]
    assert [(moment.offset, moment.text) for moment in answer.timeline[-2:]] == [
        (gone, "it is gone"),
        (one.offset, f"Running on n1, ready, a new pod after the one that was deleted at offset {gone}"),
    ]


def test_a_pod_of_an_attempt_that_is_over_is_not_told_as_a_replacement() -> None:
    world = World()
    job = _with_a_worker_deleted(world)
    worker, leader = job.bound[1, 1], job.bound[0, 0]
    world.change_pod(leader, phase="Failed", ready=False, reason="OOMKilled")
    world.control()
    world.pod_gone(worker)
    world.pod("j-actors-1", "n1", owner=PodOwner("uid-j", 0, "actors", False, 1), uid="late", restarts=1)
    assert [one.reason for one in explained(world.entries, "j").consequences] == ["LeaderFailed"]


def test_a_worker_that_was_replaced_by_a_decision_is_told_once() -> None:
    world = World()
    world.node("n1", gpus=4)
    job = world.job("j", leader=shape(gpus=1), workers=2, worker=shape(gpus=1))
    world.settle()
    old = job.bound[1, 1]
    world.change_pod(old, phase="Failed", ready=False, reason="OOMKilled")
    world.pass_time(60)
    world.control()
    world.pod_gone(old)
    world.pod(
        "j-actors-1", "n1", owner=PodOwner("uid-j", 0, "actors", False, 1), uid="another",
        amounts=shape(gpus=1).requests,
    )  # fmt: skip
    assert [one.reason for one in explained(world.entries, "j").consequences] == ["WorkersReplaced"]


def test_a_lost_worker_is_the_cause_of_the_restart_of_its_job() -> None:
    world = World()
    world.node("n1", gpus=4)
    whole = RestartPolicy(RestartScope.JOB, 3)
    job = world.job("j", leader=shape(gpus=1), workers=2, worker=shape(gpus=1), restart={"actors": whole})
    world.settle()
    world.node("n1", gpus=4, cordoned=True)
    world.change_pod(job.bound[1, 1], deleting=True)
    world.pod_gone(job.bound[1, 1])
    world.control()
    (one,) = explained(world.entries, "j").consequences
    assert one.message == "worker actors-1 was lost (node n1 is cordoned); the whole job is restarted"
    assert [cause.text for cause in one.causes] == ["pod j-actors-1 is being deleted"]


def test_an_edit_says_what_it_changed() -> None:
    world = World()
    world.node("n1", gpus=1)
    world.job("j", leader=shape(gpus=4), priority=4)
    world.job("j", leader=shape(gpus=4), priority=9, generation=2)
    texts = [moment.text for moment in explained(world.entries, "j").timeline]
    assert texts == [
        "priority 4, leader and 0 workers (at least 0)",
        "edited: priority 4 → 9; priority 9, leader and 0 workers (at least 0)",
    ]


def test_the_recorded_message_has_the_offset_of_its_decision() -> None:
    world = World()
    world.node("n1", gpus=1)
    world.job("j", leader=shape(gpus=4))
    world.cycle()
    said = world.state.offset
    world.node("n2", gpus=1)
    assert explained(world.entries, "j").standing.message_at == said


def test_a_job_that_backs_off_says_so_for_how_long_and_what_began_it() -> None:
    world = World()
    world.node("n1", gpus=1)
    job = world.job("j", leader=shape(gpus=1))
    world.settle()
    world.change_pod(job.bound[0, 0], phase="Failed", ready=False, reason="Error")
    failed = world.state.offset
    world.control()
    world.apply()
    world.pass_time(4)
    world.say(k.ListingBegun(k.Watched.NODE, world.terms[k.Watched.NODE]))
    answer = explained(world.entries, "j")
    assert answer.waiting is not None and answer.waiting.position == 0
    assert answer.waiting.why == "it backs off: it gets no nodes for 6 s more"
    assert "scheduled again from 20" in answer.standing.message
    (remedy,) = answer.waiting.remedies
    assert (remedy.kind, remedy.text, remedy.pods) == ("wait", "in 6 s, when its back-off is over", 1)
    assert remedy.undoes == failed + 1
    assert answer.intervals[-1].waiting_for == "its back-off to end"
    world.pass_time(6)
    world.say(k.ListingBegun(k.Watched.NODE, world.terms[k.Watched.NODE]))
    answer = explained(world.entries, "j")
    assert answer.waiting is not None and answer.waiting.position == 1


class Renewing(World):
    """A world in which the next pod of a slot has another UID, as in Kubernetes."""

    def pod(self, name: str, node: str = "", **of: Any) -> str:
        self._made = getattr(self, "_made", 0) + 1
        return super().pod(name, node, **{"uid": f"uid-{name}-{self._made}", **of})


def _with_workers(world: World) -> Edited:
    """The running job `ppo` of three workers, one of which is enough."""
    world.node("n1", gpus=4)
    edited = Edited(world, workers=3, worker=shape(gpus=1), min_workers=1, equals=True)
    world.settle()
    return edited


def test_workers_that_an_edit_takes_away_and_brings_back_were_deleted_by_no_other_client() -> None:
    world = Renewing()
    edited = _with_workers(world)
    edited.edit(workers=1)
    down = world.state.offset
    world.settle()
    edited.edit(workers=3)
    world.settle()
    (one,) = explained(world.entries, "ppo").consequences
    assert (one.offset, one.what, one.reason) == (down, "Scaled", "ScaledDown")
    assert one.message == "actors scaled from 3 to 1, so ppo-actors-1, ppo-actors-2 leave; no restart counted"
    assert [(cause.offset, cause.text) for cause in one.causes] == [(down, "its spec was edited: actors counts 3 → 1")]


def test_workers_that_gave_room_and_are_back_were_deleted_by_no_other_client() -> None:
    world = Renewing(config=ROOM)
    world.node("n1", cpu=16, gpus=4)
    gpu_job(world, "wide", 4, least=1, priority=2)
    world.settle()
    high = gpu_job(world, "high", 3, priority=9)
    world.settle()
    for uid in list(high.bound.values()):
        world.change_pod(uid, phase="Succeeded", ready=False)
    world.settle()
    assert len(world.state.jobs["uid-wide"].bound) == 4
    assert [one.reason for one in explained(world.entries, "wide").consequences] == ["Preempted"]


@pytest.mark.parametrize(
    ("reason", "how"),
    [
        ("", "was deleted by another client"),
        ("DisruptionTarget: EvictionByEvictionAPI", "was evicted through the API, as a drain does"),
        ("DisruptionTarget: PreemptionByScheduler", "was preempted by another scheduler"),
        ("DisruptionTarget: DeletionByTaintManager", "was deleted because of a taint of its node"),
    ],
)
def test_a_deleted_worker_is_told_before_its_next_pod_and_with_it(reason: str, how: str) -> None:
    world = Renewing()
    job = _with_workers(world).job
    old = job.bound[1, 1]
    world.change_pod(old, deleting=True, reason=reason)
    deleted = world.state.offset
    (one,) = explained(world.entries, "ppo").consequences
    assert (one.offset, one.what) == (deleted, "Deleted")
    assert one.message == f"ppo-actors-1 on n1 {how}; once it is gone, its next pod starts"
    world.pod_gone(old)
    (one,) = explained(world.entries, "ppo").consequences
    assert one.message == f"ppo-actors-1 on n1 {how}; its next pod wasn't seen yet"
    world.settle()
    (one,) = explained(world.entries, "ppo").consequences
    assert one.message == f"ppo-actors-1 {how}; replaced on n1; no restart counted"


def test_others_of_a_worker_group_that_begin_again_were_deleted_by_no_other_client() -> None:
    world = Renewing()
    world.node("n1", gpus=4)
    edited = Edited(world, workers=4, worker=shape(gpus=1), min_workers=2, equals=True, group_sizes={"actors": 2})
    world.settle()
    world.pod_gone(edited.job.bound[1, 1])
    world.settle()
    assert [one.message for one in explained(world.entries, "ppo").consequences] == [
        "ppo-actors-1 was deleted by another client; replaced on n1; the others of its worker group restarted too; "
        "no restart counted"
    ]


def test_others_of_a_set_that_restarts_as_a_whole_are_told_with_the_deleted_worker() -> None:
    world = Renewing()
    world.node("n1", cpu=16, gpus=8)
    policy = RestartPolicy(RestartScope.SET, 3, event=RestartEvent.POD_ENDED)
    spec = {"worker": shape(gpus=1), "min_workers": 4, "restart": {"actors": policy}}
    edited = Edited(world, workers=4, equals=True, **spec)
    world.settle()
    world.pod_gone(edited.job.bound[1, 2])
    others = "3 other workers of actors restarted too"
    (one,) = explained(world.entries, "ppo").consequences
    assert one.message.endswith(f"its next pod wasn't seen yet; {others}")
    world.settle()
    assert [one.message for one in explained(world.entries, "ppo").consequences] == [
        f"ppo-actors-2 was deleted by another client; replaced on n1; {others}; no restart counted"
    ]


def test_nodes_without_the_label_of_a_required_topology_are_not_said_to_fit() -> None:
    world = World(config=ROOM)
    world.node("n1", gpus=4, labels={"rack": "r1"})
    world.node("n2", gpus=4)
    world.node("n3", gpus=4)
    rack = {"": Topology(("rack",))}
    job = world.job("j", workers=2, worker=shape(gpus=4), min_workers=2, equals=True, topologies=rack)
    world.cycle()
    said = (
        "no rack takes all 2 pods of the job (1 rack, at most 1 fit); for one pod of actors alone, 1 of 3 nodes fit: "
    )
    lacks = "2 no label rack (topology)"
    assert f"{said}{lacks}" in desired_status(world.state, job)["message"]
    answer = explained(world.entries, "j", node="n2")
    assert answer.waiting is not None and answer.waiting.shortfall is not None
    short = answer.waiting.shortfall
    assert f"{said}{lacks}" in answer.waiting.why
    assert short.closest is not None and short.closest.text == "would take one pod alone"
    assert short.node is not None and short.node.refused == "no label rack (topology)"
    assert answer.intervals[-1].waiting_for == (
        "nodes for its quorum, which no cluster of these nodes has: "
        "no label rack (topology), those that fit take too few of them"
    )


def test_a_node_with_any_label_of_a_required_topology_may_fit() -> None:
    world = World(config=ROOM)
    world.node("n1", gpus=4, labels={"block": "b1"})
    world.node("n2", gpus=4)
    either = {"": Topology(("rack", "block"))}
    world.job("j", workers=2, worker=shape(gpus=4), min_workers=2, equals=True, topologies=either)
    world.cycle()
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None and "1 no label rack or block (topology)" in waiting.why
