"""The Events of several appliers: together they ask the API server for no more than one applier would."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from arranger.clock import SystemClock
from arranger.model.job import Stage
from arranger.workers.applying.effects.carrying_out import Effects
from arranger.workers.applying.effects.progress import ToldEvents
from arranger.workers.applying.statuses.reports import Reports
from tests.parts import parts

_TOOK_S = 2.0


class _Clock(SystemClock):
    """A clock that stands still, except while somebody records or sleeps."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def monotonic_s(self) -> float:
        return self.at_s

    async def sleep(self, seconds: float) -> None:
        self.at_s += seconds
        await asyncio.sleep(0)


class _Follower:
    cluster = ""

    def __init__(self, jobs: dict[str, Any]) -> None:
        self.state = SimpleNamespace(jobs=jobs)

    def fresh(self) -> bool:
        return True


def job_of(namespace: str, uid: str, *, waits: bool = False) -> Any:
    """As much of a job as its Events need here."""
    seen, stage = SimpleNamespace(namespace=namespace, name=uid), Stage.PENDING if waits else Stage.RUNNING
    return SimpleNamespace(uid=uid, seen=seen, active=True, stage=stage, placements={}, bound={})


@pytest.mark.parametrize("appliers", [1, 3])
async def test_each_of_several_appliers_rests_so_that_all_together_record_as_many_events_as_one(
    appliers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Clock()
    jobs = {uid: job_of("default", uid) for uid in "abc"}
    reports = Reports(Effects(parts(cluster=object(), follower=_Follower(jobs), clock=clock)), lambda: appliers)
    begun: list[float] = []

    async def record(*_: object) -> None:
        reports._reporter.writes += 1
        begun.append(clock.at_s)
        clock.at_s += _TOOK_S

    monkeypatch.setattr(reports._reporter, "report", record)
    for job in jobs.values():
        reports.report(job, ToldEvents())
    running = asyncio.create_task(reports.run())
    for _ in range(50):
        await asyncio.sleep(0)
    running.cancel()
    assert begun == [0.0, appliers * _TOOK_S, 2 * appliers * _TOOK_S]


async def test_the_event_of_a_namespace_waits_for_one_of_another_one_that_storms_and_is_never_dropped_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = _Clock()
    storm = [job_of("storm", f"storm-{number}") for number in range(6_000)]
    other = job_of("default", "other")
    jobs = {job.uid: job for job in (*storm, other)}
    reports = Reports(Effects(parts(cluster=object(), follower=_Follower(jobs), clock=clock)), lambda: 1)
    recorded: list[str] = []

    async def record(job: Any, _: ToldEvents) -> None:
        reports._reporter.writes += 1
        recorded.append(job.uid)
        await asyncio.sleep(0)

    monkeypatch.setattr(reports._reporter, "report", record)
    reports.report(other, ToldEvents())
    for job in storm:
        reports.report(job, ToldEvents())
    running = asyncio.create_task(reports.run())
    for _ in range(50):
        await asyncio.sleep(0)
    running.cancel()
    assert recorded[0] == "other"
    assert recorded[1] == "storm-1001", "the oldest of the storm were dropped"


async def test_thousands_that_wait_delay_no_event_of_one_that_starts_and_theirs_come_five_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = _Clock()
    waiting = [job_of("default", f"waits-{number}", waits=True) for number in range(3_000)]
    starting = [job_of("default", f"starts-{number}") for number in range(10)]
    reports = Reports(
        Effects(
            parts(cluster=object(), follower=_Follower({job.uid: job for job in (*waiting, *starting)}), clock=clock)
        ),
        lambda: 1,
    )
    recorded: list[tuple[float, str]] = []

    async def record(job: Any, _: ToldEvents) -> None:
        reports._reporter.writes += 1
        recorded.append((clock.at_s, job.uid))
        clock.at_s += 0.001

    monkeypatch.setattr(reports._reporter, "report", record)
    for job in (*waiting, *starting):
        reports.report(job, ToldEvents())
    running = asyncio.create_task(reports.run())
    for _ in range(100_000):
        await asyncio.sleep(0)
        if clock.at_s >= 20:
            break
    running.cancel()
    starts_s = [at_s for at_s, uid in recorded if uid.startswith("starts")]
    assert len(starts_s) == 10 and max(starts_s) < 0.1, starts_s
    waits_s = [at_s for at_s, uid in recorded if uid.startswith("waits")]
    assert waits_s[19] < 0.1 and len(waits_s) == pytest.approx(20 + 20 * 5, abs=3), len(waits_s)


async def test_jobs_that_are_gone_take_no_turns_of_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, recorded = _Clock(), list[float]()
    there = job_of("default", "there", waits=True)
    reports = Reports(Effects(parts(cluster=object(), follower=_Follower({"there": there}), clock=clock)), lambda: 1)

    async def record(*_: object) -> None:
        recorded.append(clock.at_s)

    monkeypatch.setattr(reports._reporter, "report", record)
    for job in (*(job_of("default", f"gone-{number}", waits=True) for number in range(1_000)), there):
        reports.report(job, ToldEvents())
    running = asyncio.create_task(reports.run())
    for _ in range(5_000):
        await asyncio.sleep(0)
    running.cancel()
    assert len(recorded) == 1 and recorded[0] < 1.0, recorded


async def test_a_job_that_starts_meanwhile_takes_no_turn_of_those_that_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, recorded = _Clock(), list[float]()
    jobs = {f"job-{number}": job_of("default", f"job-{number}", waits=True) for number in range(40)}
    reports = Reports(Effects(parts(cluster=object(), follower=_Follower(jobs), clock=clock)), lambda: 1)

    async def record(*_: object) -> None:
        reports._reporter.writes += 1
        recorded.append(clock.at_s)
        clock.at_s += 0.001

    monkeypatch.setattr(reports._reporter, "report", record)
    for job in jobs.values():
        reports.report(job, ToldEvents())
        job.placements, job.stage = {(0, 0): "n1"}, Stage.STARTING
    running = asyncio.create_task(reports.run())
    for _ in range(5_000):
        await asyncio.sleep(0)
    running.cancel()
    assert len(recorded) == 40 and recorded[19] < 0.1 and recorded[39] == pytest.approx(20 * 0.2, abs=0.5), recorded
    assert ("default", False) not in reports._turn_s
