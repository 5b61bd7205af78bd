"""A job whose pods the API server refused when it last got nodes: nobody says when it starts, until it is edited."""

from arranger.events import kinds as k
from arranger.model.job import Slot, Stage
from arranger.model.stages import StageReason
from arranger.projections.folding.forecasts import expected_start
from arranger.projections.jobs.records import JobRecord
from arranger.replay.explain.expected import Certainty, NoStart, start_of
from arranger.replay.forecast.starts import Unknown, forecast
from arranger.replay.reading.describe import told_of
from tests.unit.replay_worlds import explained, gpu_job
from tests.world import World

WHY = 'no PriorityClass with name "nope" was found'


def _refused() -> tuple[World, JobRecord]:
    of = World()
    of.node("n1", gpus=1)
    job = gpu_job(of, "j", 1)
    of.cycle()
    of.control()
    assert job.stage == Stage.STARTING
    slot = Slot(*next(iter(job.placements)))
    of.say(k.EffectFailed(job.uid, job.attempt, "create", slot, 403, "Forbidden", WHY, False, 1))
    assert told_of(of.state, job) == f"create refused: {WHY}"
    of.pass_time(of.lifecycle.refused_ms / 1000)
    of.control()
    assert job.decided is not None and job.decided.reason == StageReason.QUORUM_REFUSED
    return of, job


def test_no_start_is_told_of_a_job_whose_pods_were_refused_and_the_remedy_says_on_what_it_depends() -> None:
    of, job = _refused()
    start = start_of(of.state, job)
    assert start is not None and (start.certainty, start.why) == (Certainty.UNKNOWN, NoStart.REFUSED_BEFORE)
    assert expected_start(of.state, job) is None
    [told] = forecast(of.state, of.config, of.now_ms, first=9).jobs
    assert (told.expected_ms, told.why) == (0, Unknown.REFUSED)
    waiting = explained(of.entries, "j").waiting
    assert waiting is not None
    [remedy] = [one for one in waiting.remedies if one.kind == "wait"]
    assert remedy.text.endswith("when its back-off is over, if the API server takes its pods, as it didn't last time")


def test_after_an_edit_its_start_is_forecast_again() -> None:
    of, job = _refused()
    gpu_job(of, "j", 1, priority=7, generation=2)
    start = start_of(of.state, job)
    assert start is not None and start.why != NoStart.REFUSED_BEFORE
    [told] = forecast(of.state, of.config, of.now_ms, first=9).jobs
    assert told.expected_ms > 0
