"""The changes of stages that kept logs have: complete, and the same wherever the fold begins."""

import asyncio
from pathlib import Path

import pytest

from arranger.events.file_log import FileLog
from arranger.events.log import Entry, entries
from arranger.feeds.cloud_events import of_stage
from arranger.feeds.stage_changes import StageChanges
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State

HISTORIES = sorted((Path(__file__).parent.parent / "histories").glob("*.log"))


def read(path: Path) -> tuple[int, list[Entry]]:
    """The epoch and the entries of a log file."""

    async def reading() -> tuple[int, list[Entry]]:
        log = FileLog(path)
        try:
            return (await log.open()).epoch, [entry async for entry in entries(log, await log.start())]
        finally:
            await log.close()

    return asyncio.run(reading())


def events(state: State, later: list[Entry]) -> list[bytes]:
    """The CloudEvents of what comes after a state, which is folded further."""
    changes, found = StageChanges(state), []
    for entry in later:
        touched = Changes()
        apply_entry(state, entry, touched)
        for change in changes.after(state, touched.jobs):
            found.append(of_stage(change, "default", state.epoch, entry.last).encoded())
    return found


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_each_change_follows_from_the_one_before_and_the_last_is_the_present(path: Path) -> None:
    epoch, log = read(path)
    state = State(epoch=epoch)
    changes, stages = StageChanges(state), dict[str, str]()
    for entry in log:
        touched = Changes()
        apply_entry(state, entry, touched)
        for change in changes.after(state, touched.jobs):
            assert change.before == stages.get(change.uid, "")
            stages[change.uid] = change.stage
            if change.deleted:
                del stages[change.uid]
        assert stages == {job.uid: job.stage for job in state.jobs.values() if not job.of_pods}
    assert stages


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_events_are_the_same_wherever_the_fold_begins(path: Path) -> None:
    epoch, log = read(path)
    whole = events(State(epoch=epoch), log)
    assert len(set(whole)) == len(whole) > 3
    for at in range(1, len(log), max(1, len(log) // 12)):
        state = State(epoch=epoch)
        before = events(state, log[:at])
        again = snapshot.restore(snapshot.encode(state))
        again.epoch = again.epoch or epoch
        assert before + events(again, log[at:]) == whole
