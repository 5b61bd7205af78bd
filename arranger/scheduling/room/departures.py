"""Pods that leave one after the other, on one cycle's view, and how many of them must until a quorum fits."""

from collections.abc import Iterator
from itertools import islice

from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.room.bound import RoomBound
from arranger.scheduling.room.vacating import Departing, Vacated, Vacating
from arranger.scheduling.search.placer import Placer


class Departures:
    """The pods that leave before a job's quorum is placed, in their order. `leaving` is read only as far as needed. The
    first `short` are surely not enough, by `room/bound`."""

    def __init__(
        self, placer: Placer, vacating: Vacating, job: JobRecord, leaving: Iterator[Vacated], *, short: int = -1
    ) -> None:
        self._placer = placer
        self._vacating = vacating
        self._job = job
        self._more = leaving
        self.leaving = Departing()
        self._bound = RoomBound(placer, job)
        #: So many of the first have left.
        self._gone = 0
        #: So many are surely not enough.
        self.short = short

    def go_to(self, count: int) -> None:
        """Let the first so many leave, or all if these are fewer, and let all others be there again."""
        count = self._read(count)
        if self._gone < count:
            self._vacating.release_some(self.leaving, self._gone, count)
        elif self._gone > count:
            self._vacating.release_some(self.leaving, count, self._gone, -1)
        self._gone = count

    def _read(self, count: int) -> int:
        """Read so many, and tell how many there are of these."""
        if len(self.leaving) < count:
            self.leaving.extend(islice(self._more, count - len(self.leaving)))
        return min(count, len(self.leaving))

    def enough(self) -> int | None:
        """The smallest number of first ones whose departure is enough for the quorum; None if all of them aren't. It is
        found by doubling and halving, because each try costs as much as placing the quorum. Numbers that are surely
        not enough (`room/bound`) aren't tried."""
        least = self._least()
        if least is None:
            return None
        if self._fits(least):
            return least
        short, more = least, 1
        while not self._fits(least + more):
            if self._gone < least + more:
                return None
            short, more = least + more, 2 * more
        enough = self._gone
        while enough - short > 1:
            middle = (short + enough) // 2
            short, enough = (short, middle) if self._fits(middle) else (middle, enough)
        return enough

    def _least(self) -> int | None:
        """The smallest number of first ones that may be enough; None if all of them surely aren't."""
        short, step = self.short, 1
        while self._lacks(short + step):
            if len(self.leaving) < short + step:
                return None
            short, step = short + step, step * 2
        open_ = min(short + step, len(self.leaving))
        while open_ - short > 1:
            middle = (short + open_) // 2
            short, open_ = (middle, open_) if self._lacks(middle) else (short, middle)
        self.short = short
        return open_

    def _lacks(self, count: int) -> bool:
        """Whether the quorum surely doesn't fit once the first so many have left. None have yet."""
        return self._bound.lacks(*self.leaving.rooms(0, self._read(count)))

    def _fits(self, count: int) -> bool:
        self.go_to(count)
        return self._placer.fits(self._job)
