"""Recorded logs: still read, folded to the same jobs, and every cycle taken again with the same plan."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from arranger.events.file_log import FileLog
from arranger.events.kinds import CycleTaken
from arranger.events.log import Entry, entries
from arranger.model.config import CycleConfig
from arranger.model.job import ENDED
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State
from arranger.replay.reading.history import Span
from arranger.replay.reading.recording import Recording
from arranger.replay.reading.verify import Survey, Verification
from arranger.replay.what_if.continuation import Continuation, Future
from arranger.replay.what_if.utilisation import Meter, likeness

HISTORIES = Path(__file__).parent.parent / "histories"

#: File → events, cycles, and the jobs by the stage that they ended in.
ENDS = {
    "a-job-that-waits.log": (211, 10, {"Succeeded": 1, "Running": 2}),
    "demo.log": (229, 10, {"Succeeded": 6, "Failed": 1}),
    "room-for-what-matters.log": (602, 31, {"Succeeded": 7, "Running": 2}),
}


#: File → the first offset from which it may go on, 60 for others. The continuation doesn't run the pods that it places,
#: so jobs that start in it have no work to lose. Here a choice of victims depends on pods that start before that,
#: and on a checkpoint that is saved there.
GOES_ON = {"room-for-what-matters.log": 148}


def read(path: Path) -> tuple[State, list[Entry]]:
    """The log, and the state before it: the empty one, or that of the snapshot with which an export begins."""

    async def whole() -> tuple[State, list[Entry]]:
        log = FileLog(path)
        await log.open()
        try:
            start, state = await log.start(), State()
            if start.offset:
                stored = await log.newest_snapshot(at_most=start.offset)
                assert stored is not None
                state = snapshot.restore(stored.content)
            return state, [entry async for entry in entries(log, start)]
        finally:
            await log.close()

    return asyncio.run(whole())


def test_every_history_in_the_folder_is_tried() -> None:
    assert {path.name for path in HISTORIES.glob("*.log")} == set(ENDS)


@pytest.mark.parametrize("name", sorted(ENDS))
def test_a_history_folds_to_the_end_that_it_had(name: str) -> None:
    state, history = read(HISTORIES / name)
    for entry in history:
        apply_entry(state, entry, Changes())
    events, _, stages = ENDS[name]
    assert state.offset == events
    assert Counter(str(job.stage) for job in state.jobs.values()) == stages


@pytest.mark.parametrize("name", sorted(ENDS))
def test_every_cycle_of_a_history_is_taken_again_with_the_same_plan(name: str) -> None:
    state, history = read(HISTORIES / name)
    survey = Survey(Span())
    for entry in history:
        survey.feed(entry)
    verification = Verification(state, survey)
    for entry in history:
        verification.feed(entry)
    report = verification.report
    assert (report.cycles, report.identical) == (ENDS[name][1], ENDS[name][1])


@pytest.mark.parametrize("name", sorted(ENDS))
def test_a_history_goes_on_as_it_did_when_nothing_is_otherwise(name: str) -> None:
    """Not to the millisecond: cycles of a real run come some tens of them after what they answer to."""
    state, history = read(HISTORIES / name)
    middle = next(entry.last for entry in history if entry.last >= GOES_ON.get(name, 60))
    for entry in history:
        if entry.last <= middle:
            apply_entry(state, entry, Changes())
    begin_ms, config = state.time_ms, _config(history)
    recording = Recording(snapshot.restore(snapshot.encode(state)), begin_ms=begin_ms)
    for entry in history:
        if entry.first > middle:
            recording.feed(entry)
    recording.finish()
    future = Future(recording.observations, recording.intervals)
    meter = Meter(None, begin_ms)
    utilisation = Continuation(state, future, config, meter, begin_ms=begin_ms, until_ms=recording.end_ms).run()
    alike = likeness(recording.starts(recording.end_ms), utilisation.starts)
    assert alike.common == alike.equal > 0 and alike.only_log == alike.only_here == 0
    assert Counter(str(job.stage) for job in state.jobs.values() if job.ended) == {
        stage: count for stage, count in ENDS[name][2].items() if stage in ENDED
    }


def _config(history: list[Entry]) -> CycleConfig:
    taken = [event for entry in history for event in entry.batch.events if isinstance(event, CycleTaken)]
    return taken[-1].config
