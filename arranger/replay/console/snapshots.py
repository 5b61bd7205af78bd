"""States of earlier points, kept in memory, so that any point of the log is a short fold away.

Jobs that didn't change between two snapshots are one object in both. Their number and an estimate of their memory are
bounded: when there would be too many, every second one is forgotten, and the next ones are twice as far apart.
"""

from bisect import bisect_right

import msgspec

from arranger.events.log import Position
from arranger.projections.jobs import JobRecord
from arranger.projections.state import State
from arranger.replay.what_if.hypothesis import private_copy, sharing_copy

MOST = 500
#: How much memory they may use, in bytes, as estimated.
MOST_BYTES = 1 << 30
_FIRST_GAP = 250
#: Estimates in bytes: a pod costs its places in two tables, and a job a record.
_OF_A_POD, _OF_A_NODE, _OF_A_JOB = 110, 250, 3_000


class Kept(msgspec.Struct, frozen=True):
    """A state that nobody may change, its position, and how much memory it needs beside its predecessor, in bytes."""

    position: Position
    state: State
    cost_bytes: int


class Snapshots:
    """Call `note` after each folded entry, with the jobs that it touched."""

    def __init__(self, *, most: int = MOST, most_bytes: int = MOST_BYTES, gap: int = _FIRST_GAP) -> None:
        self._most, self._most_bytes = most, most_bytes
        #: The least number of events between two snapshots.
        self.gap = gap
        self._kept: list[Kept] = []
        self._touched: dict[str, None] = {}
        self._jobs: dict[str, JobRecord] = {}

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def cost_bytes(self) -> int:
        """An estimate of what they use."""
        return sum(one.cost_bytes for one in self._kept)

    def note(self, state: State, position: Position, touched: dict[str, None]) -> None:
        """Keep a copy of the state if the last one is far enough behind."""
        self._touched.update(touched)
        if self._kept and position.offset - self._kept[-1].position.offset < self.gap:
            return
        same = {uid: job for uid, job in self._jobs.items() if uid not in self._touched and uid in state.jobs}
        copied = sharing_copy(state, same)
        cost = _OF_A_POD * len(state.pods) + _OF_A_NODE * len(state.nodes.rows)
        cost += _OF_A_JOB * (len(state.jobs) - len(same))
        self._kept.append(Kept(position, copied, cost))
        self._jobs, self._touched = copied.jobs, {}
        if len(self._kept) > self._most or self.cost_bytes > self._most_bytes:
            self._thin()

    def nearest(self, offset: int) -> Kept | None:
        """The latest snapshot up to an offset."""
        number = bisect_right(self._kept, offset, key=lambda one: one.position.offset)
        return self._kept[number - 1] if number else None

    def _thin(self) -> None:
        # The first one stays: nothing before it could be reached otherwise.
        self._kept = self._kept[::2]
        self.gap *= 2


def continuing(kept: Kept) -> State:
    """A copy of a snapshot that can be folded on."""
    return private_copy(kept.state)
