"""The first sentence of `arranger explain`: how the job stands, since when, and why."""

from collections.abc import Callable

from arranger.model.job import Stage
from arranger.model.stages import StageReason
from arranger.model.text import duration
from arranger.replay.explain.answer import Explanation


def headline(answer: Explanation, local_time: Callable[[int], str]) -> str:
    """The sentence, with complete times. It begins with the end of a job that is gone, or of pods of others."""
    stands = _stands(answer, local_time)
    if answer.deleted is None:
        return stands
    at, phase = f"at {local_time(answer.deleted.time_ms)} (offset {answer.deleted.offset})", answer.deleted.phase
    gone = f"ended {at}, when its last pod {phase.lower()}" if phase else f"was deleted {at}"
    return f"{answer.standing.job} {gone}; just before: {stands.removeprefix(answer.standing.job).lstrip()}"


def _stands(answer: Explanation, local_time: Callable[[int], str]) -> str:
    job = answer.standing
    since, lasts = local_time(job.stage_since_ms), duration(max(answer.time_ms - job.stage_since_ms, 0))
    why = _after_colon(job.message)
    match job.stage:
        case Stage.FAILED:
            because = f", because {job.message}" if job.message else ""
            return f"{job.job} failed at {since}{because}"
        case Stage.SUCCEEDED:
            return f"{job.job} succeeded at {since}{why}{_times(answer)}"
        case Stage.RUNNING:
            usual = job.reason == StageReason.WORKERS_READY or answer.waiting is not None
            troubles = _after_colon(job.below_quorum, job.stuck)
            return f"{job.job} runs since {since}, for {lasts}{troubles if usual else why}{_times(answer)}"
        case Stage.STARTING:
            told = _after_colon(job.message if answer.waiting is None else job.stuck, job.gives_up)
            return f"{job.job} starts since {since}, for {lasts}{told}"
    if answer.waiting is None:
        since, lasts = local_time(job.scheduled_since_ms), duration(max(answer.time_ms - job.scheduled_since_ms, 0))
        return f"{job.job} has nodes since {since}, for {lasts}, and is about to start"
    if job.stage == Stage.RESCHEDULING:
        last = answer.consequences[-1] if answer.consequences else None
        return f"{job.job} waits again since {since}, for {lasts}{f': {last.message}' if last is not None else ''}"
    return f"{job.job} waits since {since}, for {lasts}"


def _after_colon(*said: str) -> str:
    parts = "; ".join(filter(None, said))
    return f": {parts}" if parts else ""


def _times(answer: Explanation) -> str:
    """For how long it waited and ran, over all attempts. While it was suspended, it didn't wait."""
    waited_ms = sum(one.span_ms for one in answer.spent if one.waits)
    ran_ms = sum(one.span_ms for one in answer.spent if one.stage == Stage.RUNNING)
    ran = f" and ran {duration(ran_ms)}" if answer.standing.ended else ""
    return f"; it waited {duration(waited_ms)}{ran}" if waited_ms else f"; it ran {duration(ran_ms)}" if ran else ""
