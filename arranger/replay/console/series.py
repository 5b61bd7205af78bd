"""How many GPUs were there and used, and how many jobs waited and ran, over the whole log."""

import msgspec

from arranger.model.pod import gpus_of
from arranger.projections.state import State
from arranger.replay.console.moment import gpu_use, waits

_SAMPLES = 1_024
_FIRST_GAP = 20


class Series(msgspec.Struct, frozen=True, rename="camel"):
    """Samples of equal index belong together. Times in seconds since 1970; `queues` has the GPUs that each queue, with
    those below it, uses."""

    times: tuple[float, ...]
    offsets: tuple[int, ...]
    gpus: tuple[int, ...]
    gpus_used: tuple[int, ...]
    jobs_waiting: tuple[int, ...]
    jobs_running: tuple[int, ...]
    queues: dict[str, tuple[int, ...]]
    complete: bool = True


class Sample(msgspec.Struct, frozen=True, rename="camel"):
    """The cluster at one offset."""

    time_ms: int
    offset: int
    gpus: int
    gpus_used: int
    waiting: int
    running: int
    queues: dict[str, int]


class SeriesIndex:
    """Call `note` after each fold. At most 1,024 samples are kept, about the same number of events apart."""

    def __init__(self) -> None:
        self._gap = _FIRST_GAP
        self._samples: list[Sample] = []
        self._last: Sample | None = None

    def note(self, state: State) -> None:
        if self._samples and state.offset - self._samples[-1].offset < self._gap:
            return
        self._samples.append(sample(state))
        if len(self._samples) > _SAMPLES:
            self._samples = self._samples[::2]
            self._gap *= 2

    def series(self, points: int, state: State, *, complete: bool) -> Series:
        """At most so many samples, the last one of them of the present state."""
        found = [one for one in self._samples if one.offset < state.offset]
        step = max(-(-len(found) // max(points - 1, 1)), 1)
        found = [*found[::step], sample(state)]
        names = sorted({name for one in found for name in one.queues})
        return Series(
            times=tuple(one.time_ms / 1000 for one in found),
            offsets=tuple(one.offset for one in found),
            gpus=tuple(one.gpus for one in found),
            gpus_used=tuple(one.gpus_used for one in found),
            jobs_waiting=tuple(one.waiting for one in found),
            jobs_running=tuple(one.running for one in found),
            queues={name: tuple(one.queues.get(name, 0) for one in found) for name in names},
            complete=complete,
        )


def sample(state: State) -> Sample:
    """The present numbers of a state."""
    there, used = gpu_use(state.nodes)
    jobs = state.jobs.values()
    queues = {name: gpus_of(amounts.items()) for name, amounts in state.queue_totals.items()}
    return Sample(
        time_ms=state.time_ms,
        offset=state.offset,
        gpus=int(there.sum()),
        gpus_used=int(used.sum()),
        waiting=sum(map(waits, jobs)),
        running=sum(not job.ended and job.quorum_placed() for job in jobs),
        queues=queues,
    )
