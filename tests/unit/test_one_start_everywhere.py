"""explain, forecast and the console's table of jobs expect a waiting job to start at the same time."""

import asyncio
import random

import pytest

from arranger.cli.inputs.explainer import Explainer
from arranger.events.file_log import FileLog
from arranger.replay.explain.expected import Certainty, Start
from arranger.replay.explain.job_history import AskedJob
from arranger.replay.reading.describe import label
from arranger.replay.reading.history import Point
from tests.commands import Run
from tests.unit.test_moments import HISTORIES, at_history, folded, history

#: An offset from which on the demo's log has everything listed.
LISTED = 56


async def starts(points: list[int]) -> list[dict[str, Start]]:
    """What explain says at these points of each job that waits to start."""
    log = FileLog(HISTORIES / "demo.log")
    await log.open()
    explainer, found = Explainer(log), list[dict[str, Start]]()
    for at in points:
        jobs = folded(history("demo.log"), at).jobs.values()
        asked = {label(job): AskedJob(job.seen.name, job.seen.namespace) for job in jobs}
        told = {name: (await explainer.explain(of, Point(offset=at))).start for name, of in asked.items()}
        found.append({name: start for name, start in told.items() if start is not None})
    await log.close()
    return found


def test_a_waiting_job_has_one_expected_start(capsys: pytest.CaptureFixture[str]) -> None:
    points = sorted(random.Random(7).sample(range(LISTED, history("demo.log")[-1].last), 50))
    tables = at_history("demo.log", *(("standings", {"at": str(at)}) for at in points))
    known = 0
    for at, table, told in zip(points, tables, asyncio.run(starts(points)), strict=True):
        shown = {job["job"]: job["expected"] for job in table["jobs"]}
        guesses = {job["job"] for job in table["jobs"] if job["guess"]}
        assert guesses == {name for name, start in told.items() if start.guess}, at
        run = Run(capsys, "forecast", "--log", str(HISTORIES / "demo.log"), "--at", str(at), "-o", "json")
        forecast = {job["job"]: job for job in run.json["jobs"]}
        assert forecast.keys() == told.keys(), at
        for name, start in told.items():
            promised = start.certainty == Certainty.PROMISED
            assert (start.forecast_ms or start.expected_ms) == (forecast[name]["expected_ms"] or 0), (at, name)
            assert (start.expected_ms if promised else None) == forecast[name]["promised_ms"], (at, name)
            assert shown[name] == (start.expected_ms / 1000 or None), (at, name)
            known += start.expected_ms > 0
        assert not [name for name, expected in shown.items() if expected and name not in told], at
    assert known >= 10
