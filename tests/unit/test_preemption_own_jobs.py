"""A queue and the own jobs of one above it take room back from each other: the own jobs are one more child of it."""

from typing import Any

import pytest

from arranger.events import kinds as k
from arranger.model.job import Stage
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.replay.explain.room_words import takes_none_text
from arranger.replay.explain.taken_room import TakesNone
from arranger.scheduling import NoRoomKind, why_no_room
from arranger.scheduling.cycle import take_cycle
from arranger.scheduling.queues.own_jobs import ShareParts
from arranger.scheduling.queues.standing import QueueStanding
from tests.simulation.room_rules import broken
from tests.unit.test_preemption import preempted, running, waiting, world
from tests.world import World

GPU = "nvidia.com/gpu"
#: Fields of the queue above, and of the one below it.
FIELDS = [
    ({}, {}),
    ({"deserved": ((GPU, 12),)}, {"deserved": ((GPU, 8),)}),
    ({"guarantee": ((GPU, 8),)}, {"guarantee": ((GPU, 8),)}),
]


def family(**parent: Any) -> World:
    """12 GPUs, and a queue `qp` with `qk` below it, which has the weight 4, beside `other`."""
    of = world(gpus=12)
    of.queue("qp", **parent)
    of.queue("qk", parent="qp", weight=4)
    of.queue("other")
    return of


def victims(decision: k.Preempted | None) -> list[str]:
    return [victim.job_uid for victim in decision.victims] if decision is not None else []


def reasons(of: World, job: JobRecord) -> list[tuple[NoRoomKind, tuple[str, ...]]]:
    why = why_no_room(of.state, job, of.config, of.now_ms, lacks=None, infeasible=False, short=[GPU])
    return [(one.kind, one.jobs) for one in why]


@pytest.mark.parametrize(("parent", "child"), FIELDS)
def test_a_queue_reclaims_from_the_own_jobs_of_its_parent(parent: dict[str, Any], child: dict[str, Any]) -> None:
    of = family()
    own = [running(of, name, 6, of_queue="qp") for name in ("o1", "o2")]
    of.queue("qp", **parent)
    of.queue("qk", parent="qp", weight=4, **child)
    mine = [waiting(of, name, 2, of_queue="qk") for name in ("k1", "k2")]
    [victim] = victims(preempted(of))
    of.settle()
    assert victim in [job.uid for job in own]
    assert [job.stage for job in mine] == [Stage.RUNNING] * 2
    of.pass_time(600)
    assert preempted(of) is None  # whoever gave room would be above its part with it
    [lost] = [job for job in own if job.uid == victim]
    kept = [job for job in own if job.uid != victim]
    assert reasons(of, lost) == [
        (NoRoomKind.NOT_LOWER, (kept[0].uid,)),
        (NoRoomKind.OWN_ABOVE_SHARE, tuple(job.uid for job in mine)),
    ]


def test_own_jobs_reclaim_from_a_queue_below() -> None:
    of = family()
    below = [running(of, name, 6, of_queue="qk") for name in ("k1", "k2")]
    mine = waiting(of, "o1", 2, of_queue="qp")
    [victim] = victims(preempted(of))
    of.settle()
    assert victim in [job.uid for job in below]
    assert mine.stage == Stage.RUNNING
    of.pass_time(600)
    assert preempted(of) is None


def test_own_jobs_within_their_part_give_nothing_to_a_queue_below() -> None:
    of = family()
    own = running(of, "o1", 2, of_queue="qp")
    below = running(of, "k1", 10, of_queue="qk")
    mine = waiting(of, "k2", 1, of_queue="qk")
    assert preempted(of) is None
    of.settle()
    assert reasons(of, mine) == [(NoRoomKind.NOT_LOWER, (below.uid,)), (NoRoomKind.ABOVE_SHARE, (own.uid,))]


def test_own_jobs_take_no_more_than_their_part_from_a_queue_below() -> None:
    of = family()
    below = [running(of, f"k{number}", 1, of_queue="qk") for number in range(12)]
    mine = waiting(of, "o1", 3, of_queue="qp")
    assert preempted(of) is None
    of.settle()
    assert reasons(of, mine) == [(NoRoomKind.OWN_ABOVE_SHARE, tuple(job.uid for job in below))]
    told = takes_none_text(TakesNone(NoRoomKind.OWN_ABOVE_SHARE, ("k0",), 0), lambda _: "")
    assert told == (
        "the own jobs of its queue, beside those of the queues below it, would be above their part of its share, so "
        "nothing is reclaimed from k0"
    )


def test_an_unrelated_queue_reclaims_from_the_part_that_is_above_its_own() -> None:
    """Otherwise own jobs within their part would lose room, and take it back from the queue below."""
    of = family()
    own = running(of, "o1", 1, of_queue="qp")
    below = [running(of, f"k{number}", 1, of_queue="qk", priority=9) for number in range(11)]
    mine = waiting(of, "mine", 2, of_queue="other")
    assert sorted(reasons(of, mine)) == [
        (NoRoomKind.OWN_WITHIN_SHARE, (own.uid,)),
        (NoRoomKind.TOO_LITTLE, tuple(job.uid for job in below)),
    ]
    found = victims(preempted(of))
    assert len(found) == 2
    assert own.uid not in found
    of.settle()
    assert mine.stage == Stage.RUNNING


def test_the_simulation_finds_own_jobs_that_give_room_within_their_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def undivided(self: ShareParts, state: State, standing: QueueStanding) -> None:
        self._state, self._parents = state, []
        self.paths, self.shares = state.queue_tree.paths, standing.shares

    of = family()
    for number in range(11):
        running(of, f"k{number}", 1, of_queue="qk")
    own = running(of, "o1", 1, of_queue="qp", priority=1)
    waiting(of, "mine", 1, of_queue="other")

    def decided() -> tuple[list[str], list[str]]:
        events = take_cycle(of.state, of.config, of.now_ms)
        [taken] = [event for event in events if isinstance(event, k.CycleTaken)]
        [decision] = [event for event in events if isinstance(event, k.Preempted)]
        return victims(decision), [problem for _, problem in broken(of.state, taken, events)]

    given, found = decided()
    assert (own.uid in given, found) == (False, [])
    monkeypatch.setattr(ShareParts, "__init__", undivided)
    given, found = decided()
    assert given == [own.uid]
    assert "no queue of ['own jobs of qp', 'qp'] is above its share" in found[0]


def test_own_jobs_of_a_queue_that_is_not_reclaimable_are_kept() -> None:
    of = family(reclaimable=False)
    own = [running(of, name, 6, of_queue="qp") for name in ("o1", "o2")]
    mine = waiting(of, "k1", 2, of_queue="qk")
    assert preempted(of) is None
    of.settle()
    assert reasons(of, mine) == [(NoRoomKind.NOT_RECLAIMABLE, tuple(job.uid for job in own))]


def test_submitters_of_a_queue_with_others_below_it_are_its_own_jobs() -> None:
    of = family(user_fairness=True)
    running(of, "o1", 6, of_queue="qp")
    running(of, "o2", 6, of_queue="qp")
    mine = waiting(of, "k1", 2, of_queue="qk")
    assert len(victims(preempted(of))) == 1
    of.settle()
    assert mine.stage == Stage.RUNNING
