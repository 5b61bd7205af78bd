"""How many GPUs were there and used, and how many jobs waited and ran, over the whole log."""

from collections.abc import Iterable

import msgspec

from arranger.model.pod import gpus_of
from arranger.projections.state import State
from arranger.replay.console.moment import gpu_totals, waits

_SAMPLES = 1_024
_FIRST_GAP = 20


class Series(msgspec.Struct, frozen=True, rename="camel"):
    """Samples of equal index belong together. Times in seconds since 1970; `queues` has the GPUs that each queue, with
    those below it, uses. Idle GPUs are used by nothing, on nodes that take pods;
    reserved ones and those beside used ones are those of `Totals`."""

    times: tuple[float, ...]
    offsets: tuple[int, ...]
    gpus: tuple[int, ...]
    gpus_used: tuple[int, ...]
    jobs_waiting: tuple[int, ...]
    jobs_running: tuple[int, ...]
    queues: dict[str, tuple[int, ...]]
    gpus_idle: tuple[int, ...]
    gpus_reserved: tuple[int, ...]
    gpus_beside_used: tuple[int, ...]
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
    gpus_idle: int
    gpus_reserved: int
    gpus_beside_used: int


class SeriesIndex:
    """Call `note` after each fold with the touched jobs. At most 1,024 samples are kept, about the same number of
    events apart."""

    def __init__(self) -> None:
        self._gap = _FIRST_GAP
        self._samples: list[Sample] = []
        #: The UIDs of the jobs that wait, and of those that run.
        self._waiting: dict[str, None] = {}
        self._running: dict[str, None] = {}

    def note(self, state: State, touched: Iterable[str]) -> None:
        for uid in touched:
            self._waiting.pop(uid, None)
            self._running.pop(uid, None)
            job = state.jobs.get(uid)
            if job is None or job.ended:
                continue
            if waits(job):
                self._waiting[uid] = None
            elif job.quorum_placed():
                self._running[uid] = None
        if not state.offset:  # before the first event there is no time
            return
        if self._samples and state.offset - self._samples[-1].offset < self._gap:
            return
        self._samples.append(self._sample(state))
        if len(self._samples) > _SAMPLES:
            self._samples = self._samples[::2]
            self._gap *= 2

    def series(self, points: int, state: State, *, complete: bool) -> Series:
        """At most so many samples, the last one of them of the present state."""
        found = [one for one in self._samples if one.offset < state.offset]
        step = max(-(-len(found) // max(points - 1, 1)), 1)
        found = [*found[::step], self._sample(state)][-points:]
        names = sorted({name for one in found for name in one.queues})
        return Series(
            times=tuple(one.time_ms / 1000 for one in found),
            offsets=tuple(one.offset for one in found),
            gpus=tuple(one.gpus for one in found),
            gpus_used=tuple(one.gpus_used for one in found),
            jobs_waiting=tuple(one.waiting for one in found),
            jobs_running=tuple(one.running for one in found),
            queues={name: tuple(one.queues.get(name, 0) for one in found) for name in names},
            gpus_idle=tuple(one.gpus_idle for one in found),
            gpus_reserved=tuple(one.gpus_reserved for one in found),
            gpus_beside_used=tuple(one.gpus_beside_used for one in found),
            complete=complete,
        )

    def _sample(self, state: State) -> Sample:
        use = gpu_totals(state)
        return Sample(
            time_ms=state.time_ms,
            offset=state.offset,
            gpus=use.gpus,
            gpus_used=use.used,
            waiting=len(self._waiting),
            running=len(self._running),
            queues={name: gpus_of(amounts.items()) for name, amounts in state.queue_totals.items()},
            gpus_idle=use.idle,
            gpus_reserved=use.reserved,
            gpus_beside_used=use.beside_used,
        )
