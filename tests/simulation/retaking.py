"""Every cycle of a log is repeated from its own inputs: here, and by another process with another hash seed.

`python -m tests.simulation.retaking LOG` prints the result for a log file, so that two processes can be compared.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from arranger.events.file_log import FileLog
from arranger.events.kinds import CycleTaken, Event
from arranger.events.log import Entry, Position
from arranger.projections import snapshot
from arranger.projections.state import Changes, State
from arranger.replay.reading.history import Span, advance
from arranger.replay.reading.verify import CycleInputs, Survey, Verification, difference
from arranger.scheduling import take_cycle
from arranger.scheduling.queues.registry import Policies
from tests.simulation.quotas import beyond
from tests.simulation.room_rules import broken
from tests.simulation.upgrades import EVERY

#: Writers of forged cycles (`rogue.Rogue`), which are folded but not repeated.
ROGUE = "rogue"


class _Verification(Verification):
    """`arranger verify` without the rogue's batches."""

    def feed(self, entry: Entry) -> None:
        if entry.batch.writer == ROGUE:
            advance(self.state, entry, Changes())
            self._retake()
        else:
            super().feed(entry)

    def _retake(self) -> None:
        super()._retake()
        every = self._survey.by_base.get(self.state.offset, ())
        restored = snapshot.restore(snapshot.encode(self.state)) if every else self.state
        for inputs in every:
            events = self._retaken.get(inputs.offset, ())
            self._repeat_in_other_order(inputs, events, restored)
            over = beyond(self.state, events)
            if over:
                raise AssertionError(f"the cycle at {inputs.offset} places pods beyond a quota: {over}")
            if inputs.offset != self.state.offset + 1:  # the others are checked as they are recorded
                cycle = CycleTaken(self.state.offset, inputs.time_ms, inputs.config)
                for uid, problem in broken(self.state, cycle, events):
                    raise AssertionError(f"the cycle at {inputs.offset}, for {uid}: {problem}")

    def _repeat_in_other_order(self, inputs: CycleInputs, events: tuple[Event, ...], restored: State) -> None:
        """A process that began with a snapshot has the same objects in another order, and other rows and columns. It
        decides the same."""
        if inputs.offset not in self._retaken:
            return
        policies = self._policies.recorded(inputs.config)
        again = take_cycle(restored, inputs.config, inputs.time_ms, policies=policies)
        if again != events:
            found = difference(inputs.offset, events, again, self.state)
            raise AssertionError(f"the cycle at {inputs.offset} differs on a state restored from a snapshot: {found}")


def retaken(epoch: int, entries: Sequence[Entry], *, policies: Policies = EVERY) -> Verification:
    """The verification of a whole epoch, from its first entry on."""
    survey = Survey(Span())
    for entry in entries:
        if entry.batch.writer != ROGUE:
            survey.feed(entry)
    verification = _Verification(State(epoch=epoch), survey, policies=policies)
    for entry in entries:
        verification.feed(entry)
    return verification


def told(verification: Verification) -> str:
    """The result on one line: equal lines mean equal plans and equal states."""
    report = verification.report
    counts = f"{report.cycles} cycles, {report.identical} identical, {report.different} different"
    return f"{counts}, {report.other_versions} of other versions, state {snapshot.digest(verification.state)}"


async def _of_file(path: Path) -> str:
    log = FileLog(path)
    start = await log.open()
    position, entries = Position(start.epoch, 0, ""), []
    while found := await log.read(position, limit=1000):
        entries += found
        position = Position(start.epoch, found[-1].last, found[-1].chain)
    await log.close()
    return told(retaken(start.epoch, entries))


if __name__ == "__main__":
    print(asyncio.run(_of_file(Path(sys.argv[1]))))
