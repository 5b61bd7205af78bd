"""The Events of several appliers: together they ask the API server for no more than one applier would."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from arranger.clock import SystemClock
from arranger.workers.effects import Effects
from arranger.workers.reporter import Told
from arranger.workers.reports import Reports
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


def job_of(namespace: str, uid: str) -> Any:
    """As much of a job as its Events need here."""
    return SimpleNamespace(uid=uid, seen=SimpleNamespace(namespace=namespace, name=uid))


@pytest.mark.parametrize("appliers", [1, 3])
async def test_each_of_several_appliers_rests_so_that_all_together_record_as_many_events_as_one(
    appliers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Clock()
    jobs = {uid: job_of("default", uid) for uid in "abc"}
    reports = Reports(Effects(parts(cluster=object(), follower=_Follower(jobs), clock=clock)), lambda: appliers)
    begun: list[float] = []

    async def record(*_: object) -> None:
        begun.append(clock.at_s)
        clock.at_s += _TOOK_S

    monkeypatch.setattr(reports._reporter, "report", record)
    for job in jobs.values():
        reports.report(job, Told())
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

    async def record(job: Any, _: Told) -> None:
        recorded.append(job.uid)
        await asyncio.sleep(0)

    monkeypatch.setattr(reports._reporter, "report", record)
    reports.report(other, Told())
    for job in storm:
        reports.report(job, Told())
    running = asyncio.create_task(reports.run())
    for _ in range(50):
        await asyncio.sleep(0)
    running.cancel()
    assert recorded[0] == "other"
    assert recorded[1] == "storm-1001", "the oldest of the storm were dropped"
