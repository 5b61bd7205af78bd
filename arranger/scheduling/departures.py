"""Pods that leave one after the other, on one cycle's view, and how many of them must until a quorum fits."""

from collections.abc import Iterator

from arranger.projections.jobs import JobRecord
from arranger.scheduling.placer import Placer
from arranger.scheduling.vacating import Vacated, Vacating


class Departures:
    """The pods that leave before a job's quorum is placed, in their order. `leaving` is read only as far as needed."""

    def __init__(self, placer: Placer, vacating: Vacating, job: JobRecord, leaving: Iterator[Vacated]) -> None:
        self._placer = placer
        self._vacating = vacating
        self._job = job
        self._more = leaving
        self._leaving: list[Vacated] = []
        #: So many of the first have left.
        self.left = 0

    def go_to(self, count: int) -> None:
        """Let the first so many leave, or all if these are fewer, and let all others be there again."""
        while len(self._leaving) < count and (vacated := next(self._more, None)) is not None:
            self._leaving.append(vacated)
        count = min(count, len(self._leaving))
        while self.left < count:
            self._vacating.release(self._leaving[self.left])
            self.left += 1
        while self.left > count:
            self.left -= 1
            self._vacating.take_again(self._leaving[self.left])

    def enough(self) -> int | None:
        """The smallest number of first ones whose departure is enough for the quorum; None if all of them aren't. It is
        found by doubling and halving, because each try costs as much as placing the quorum."""
        if self._fits(0):
            return 0
        short, enough = 0, 1
        while not self._fits(enough):
            if self.left < enough:
                return None
            short, enough = enough, enough * 2
        enough = self.left
        while enough - short > 1:
            middle = (short + enough) // 2
            short, enough = (short, middle) if self._fits(middle) else (middle, enough)
        return enough

    def _fits(self, count: int) -> bool:
        self.go_to(count)
        return self._placer.fits(self._job)
