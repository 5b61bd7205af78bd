"""A guest of another queue that will be within its queue's share by the start of its host, which then borrows, needn't
leave: so it is no guest, and its host waits for its end.

There are four nodes, two queues that deserve half of them each, and a gang that needs all. A job of the other queue has
two nodes. A small job of that queue lifts it above its share until that one ends.
"""

from typing import Any

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.lifecycle.desired import desired_status
from arranger.lifecycle.giving_way import expected_start_text
from arranger.messages.readiness import guest_text
from arranger.model.job import Stage
from arranger.model.stages import StageReason
from arranger.model.text import rfc3339
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling import NoRoom, NoRoomKind, why_no_room
from tests.unit.replay_worlds import explained
from tests.unit.test_guests import NODE
from tests.unit.test_preemption import CONFIG
from tests.world import World, shape

GPUS = "nvidia.com/gpu"
FOUR = shape(cpu=1, gpus=4)


def submit(of: World, name: str, queue: str, workers: int, worker: Any = NODE, **spec: Any) -> JobRecord:
    job = of.job(name, workers=workers, worker=worker, min_workers=workers, equals=True, of_queue=queue, **spec)
    of.settle()
    return job


def end(of: World, name: str) -> None:
    job = of.state.jobs[f"uid-{name}"]
    of.say(k.StageDecided(job.uid, job.version, job.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    of.settle()


def with_nodes() -> World:
    of = World(config=msgspec.structs.replace(CONFIG, reservations=1, reservation_refresh_ms=30_000, guests=True))
    for number in range(4):
        of.node(f"n{number}", cpu=64, gpus=8)
    return of


def world(*, rl: int = 16, x: int = 16, gang_gpus: int = 8, limit: bool = False) -> World:
    """The queues deserve so many GPUs. The job of queue x ends in 100 s, and each worker of the gang requests so many.
    With a `limit`, there are more nodes, and the queues together may use as much as four of them have."""
    of = with_nodes()
    for number in range(4, 8 if limit else 4):
        of.node(f"n{number}", cpu=64, gpus=8)
    of.queue("both", capability=((GPUS, 32),) if limit else ())
    for queue, gpus in (("rl", rl), ("x", x)):
        of.queue(queue, parent="both" if limit else "", deserved=((GPUS, gpus),))
    submit(of, "h", "x", 2, expected_s=100)
    submit(of, "gang", "rl", 4, shape(cpu=1, gpus=gang_gpus))
    return of


def gang_awaits(of: World) -> set[str]:
    awaits, jobs = of.state.reservations["uid-gang"].decided.awaits, of.state.jobs
    return {uid.removeprefix("uid-") for uid in awaits if jobs[uid].placements}


def told_as_guest(of: World, job: JobRecord) -> bool:
    return any(condition["type"] == "Guest" for condition in desired_status(of.state, job)["conditions"])


def takes_none(of: World) -> list[NoRoom]:
    gang = of.state.jobs["uid-gang"]
    return list(why_no_room(of.state, gang, of.config, of.now_ms, lacks=None, infeasible=False))


@pytest.mark.parametrize("known", [200, None], ids=["its end is known", "its end isn't known"])
def test_a_host_waits_for_the_end_of_a_guest_that_will_be_within_its_share(known: int | None) -> None:
    of = world()
    gang = of.state.jobs["uid-gang"]
    assert gang_awaits(of) == {"h"}
    small = submit(of, "small", "x", 1, FOUR, expected_s=known)
    assert small.slots.hosts == (gang.uid,)
    assert gang_awaits(of) == {"h", "small"}
    start_ms = of.state.reservations[gang.uid].decided.start_ms
    assert start_ms == (small.began_ms + known * 1000 if known else 0)
    assert expected_start_text(of.state, gang) == (rfc3339(start_ms) if known else "")
    assert not told_as_guest(of, small) and not guest_text(of.state, small)
    end(of, "h")
    assert gang_awaits(of) == {"small"} and not told_as_guest(of, small)
    assert small.stage == Stage.RUNNING and gang.stage == Stage.PENDING
    end(of, "small")
    assert gang.stage == Stage.RUNNING and not small.attempt
    validate(of.state)


@pytest.mark.parametrize("h_ended", [False, True])
def test_the_reason_of_the_host_names_the_share_and_not_that_the_guest_might_give_room(h_ended: bool) -> None:
    of = world()
    submit(of, "small", "x", 1, FOUR)
    if h_ended:
        end(of, "h")
    [why] = takes_none(of)
    assert (why.kind, why.resources) == (NoRoomKind.ABOVE_SHARE, (GPUS,)) and "uid-small" in why.jobs
    waiting = explained(of.entries, "gang").waiting
    assert waiting is not None
    [told] = waiting.takes_none
    assert (told.kind, told.resources) == (NoRoomKind.ABOVE_SHARE, (GPUS,))
    helps = waiting.remedies[0].text
    assert helps is not None and helps.startswith("when ") and "default/small" in helps


def test_a_guest_that_will_still_lift_its_queue_above_its_share_is_one() -> None:
    of = world(rl=30, x=2)
    gang, small = of.state.jobs["uid-gang"], submit(of, "small", "x", 1, FOUR)
    assert gang_awaits(of) == {"h"} and told_as_guest(of, small)
    end(of, "h")
    assert gang.stage == Stage.RUNNING and small.stage == Stage.RESCHEDULING


def test_a_guest_of_a_host_that_will_be_within_its_share_is_one() -> None:
    """Once the first job has ended, its queue demands less, and the gang's may use that."""
    of = world(gang_gpus=7)
    gang, small = of.state.jobs["uid-gang"], submit(of, "small", "x", 1, FOUR)
    assert gang_awaits(of) == {"h"} and told_as_guest(of, small)
    end(of, "h")
    assert gang.stage == Stage.RUNNING and small.stage == Stage.RESCHEDULING


def test_a_guest_that_neednt_leave_now_but_has_to_by_the_start_isnt_waited_for() -> None:
    """A job of the host's queue ends first, and with that the host is within its queue's share."""
    of = with_nodes()
    for queue, gpus in (("rl", 22), ("x", 10)):
        of.queue(queue, deserved=((GPUS, gpus),))
    submit(of, "first", "x", 1, expected_s=100)
    submit(of, "r", "rl", 1, expected_s=300)
    submit(of, "stays", "x", 1, FOUR, preemptible=False)
    gang = submit(of, "gang", "rl", 3, shape(cpu=1, gpus=7))
    small = submit(of, "small", "x", 1, shape(cpu=1, gpus=6))
    assert small.slots.hosts == (gang.uid,)
    end(of, "first")
    assert not gang.placements and gang_awaits(of) == {"r"} and told_as_guest(of, small)
    end(of, "r")
    assert gang.stage == Stage.RUNNING and small.stage == Stage.RESCHEDULING


def test_who_lifts_its_queue_above_its_share_again_is_a_guest_again() -> None:
    of = world()
    gang, small = of.state.jobs["uid-gang"], submit(of, "small", "x", 1, FOUR)
    assert gang_awaits(of) == {"h", "small"} and not told_as_guest(of, small)
    for queue, gpus in (("rl", 30), ("x", 2)):
        of.queue(queue, deserved=((GPUS, gpus),))
    of.settle()
    assert gang_awaits(of) == {"h"} and told_as_guest(of, small)
    end(of, "h")
    assert gang.stage == Stage.RUNNING and small.stage == Stage.RESCHEDULING


def test_a_limit_is_kept_until_a_guest_ends_that_will_be_within_its_share() -> None:
    of = world(limit=True)
    small = submit(of, "small", "x", 1, FOUR)
    assert small.slots.hosts == ("uid-gang",)
    limit = of.state.kept_limits.get("uid-gang")
    known = limit.decided if limit is not None else of.state.reservations["uid-gang"].decided
    assert known.awaits == ("uid-h", "uid-small") and not told_as_guest(of, small)
    end(of, "h")
    assert small.stage == Stage.RUNNING and of.state.jobs["uid-gang"].stage == Stage.PENDING
