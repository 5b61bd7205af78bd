"""The rule of promises, alone: when it is a problem that a job with a reservation gets no nodes."""

import pytest

from arranger.events import kinds as k
from arranger.model.config import CycleConfig
from arranger.model.job import Slot
from arranger.model.queue import Preemption
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.room import vacating
from tests.simulation.promises import Promise, Promises
from tests.unit.test_room_that_is_about_to_come import FOUR, finish, gang
from tests.world import World


def judged(of: World, job: JobRecord) -> str:
    """What is wrong if a job was promised nodes by now."""
    of.state.time_ms = of.now_ms
    promises = Promises(of.config, hit=lambda _: None)
    promises._open[job.uid] = Promise(of.now_ms, job.seen, {})
    return promises._judge(of.state)[1]


def test_that_nobody_leaves_for_a_job_that_the_api_server_refuses_is_no_problem() -> None:
    of = World(config=CycleConfig(preemption=Preemption(), reservations=1, reservation_refresh_ms=30_000, guests=True))
    of.node("n0", gpus=4)
    of.node("n1", gpus=4)
    gang(of, "first", 2)
    of.settle()
    waits = gang(of, "waits", 2)
    of.settle()
    of.say(k.PodsTried(waits.uid, waits.seen.generation, Slot(1, 0), 403, "Forbidden", "violates PodSecurity"))
    assert judged(of, waits) == ""
    of.say(k.PodsTried(waits.uid, waits.seen.generation))
    assert judged(of, waits) == "waits was promised nodes 0 ms ago, and a cycle gives it none"


def test_that_no_guest_leaves_while_another_job_finishes_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the two nodes that a gang needs, its guest has one, and another job the other one. Then a job finishes on two
    more, worker by worker."""
    of = World(config=CycleConfig(preemption=Preemption(), reservations=1, reservation_refresh_ms=30_000, guests=True))
    for number in range(4):
        of.node(f"n{number}", gpus=4)
    gang(of, "first", 1)
    of.settle()
    of.pass_time(1)  # who began first is expected to end first
    finishing = gang(of, "finishing", 2)
    of.settle()
    waits = gang(of, "waits", 2)
    of.settle()
    guest = of.job("younger", leader=FOUR, created=of.now_ms)
    of.settle()
    assert guest.slots.hosts == (waits.uid,)
    finish(of, finishing, 0)
    of.cycle()
    assert not waits.placements and judged(of, waits) == ""
    monkeypatch.setattr(vacating, "finishes_by_ms", lambda _, time_ms: time_ms + 1)
    of.pass_time(29)
    assert judged(of, waits) == ""
    of.pass_time(2)  # nobody is waited for that long
    assert judged(of, waits) == "waits was promised nodes 0 ms ago, and a cycle gives it none"
