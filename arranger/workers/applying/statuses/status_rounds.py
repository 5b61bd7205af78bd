"""Rounds through the statuses of one kind of objects: all are looked at together, at intervals, and those that differ
from the stored ones are written. The members share the objects as they share the jobs."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import msgspec

from arranger.errors import ClockOff, ClusterError
from arranger.kube.cluster import ApiError
from arranger.workers.applying.effects.carrying_out import Effects
from arranger.workers.flow.retries import Retries
from arranger.workers.flow.work_queue import KeyQueue

#: There is a round this often at most, and rarer where one takes long: this many times as long.
_EVERY_S, _TIMES_AS_LONG = 1.0, 20.0
#: So many statuses are written at once at most: each costs the API server as much as several pods, and is an event in
#: the log.
_AT_ONCE = 20
#: A status that the API server found invalid, or doesn't let us write, is tried again after this time.
_REFUSED_S = 60.0


class StoredStatus(msgspec.Struct):
    """What this process knows of one object's status beyond the projection."""

    #: The status that this process stored last: its digest, what was news in it, and when.
    digest: str = ""
    news: tuple[object, ...] = ()
    written_s: float = -math.inf


_Stored = TypeVar("_Stored", bound=StoredStatus)


class StatusRounds(ABC, Generic[_Stored]):
    """Stores the statuses of this member's share of the objects of a kind. `owns` says whether a UID is in it."""

    #: The kind in the names of effects, and what is known of an object at first.
    _kind: str
    _unknown: type[_Stored]

    def __init__(self, effects: Effects, owns: Callable[[str], bool]) -> None:
        self._effects = effects
        self._owns = owns
        self._follower = effects.parts.follower
        self._clock = effects.parts.time
        self._retries = Retries(effects.parts.time)
        #: By UID, as `_names` and `_progress`.
        self._queue = KeyQueue(effects.parts.time, lambda: ())
        self._names: dict[str, str] = {}
        self._progress: dict[str, _Stored] = {}

    def clear(self) -> None:
        """Discard everything derived from an earlier epoch."""
        self._queue.clear()
        self._progress.clear()
        self._retries.clear()

    async def run(self) -> None:
        """Keep the statuses until cancelled; then let writes in flight finish."""
        rest_s = _EVERY_S
        try:
            while True:
                await self._clock.sleep(rest_s)
                began_s = self._clock.monotonic_s()
                self._round()
                rest_s = max(_EVERY_S, (self._clock.monotonic_s() - began_s) * _TIMES_AS_LONG)
        finally:
            await self._queue.finish()

    def _round(self) -> None:
        if self._follower.state.synced and self._effects.allowed():
            self._look()

    def _look(self) -> None:
        """Begin to write each status of this member's share that differs from the stored one."""
        self._names = {uid: name for uid, name in self._objects() if self._owns(uid)}
        for uid in [uid for uid in (*self._progress, *self._retries.failing()) if uid not in self._names]:
            self._progress.pop(uid, None)
            self._retries.forget(uid)
        self._progress |= {uid: self._unknown() for uid in self._names if uid not in self._progress}
        differ = [(turn, uid) for uid in self._names if (turn := self._turn(uid)) is not None]
        self._queue.touch([uid for _, uid in sorted(differ)[:_AT_ONCE]])
        for uid in self._queue.take():
            self._queue.start(uid, self._mend(uid), name=f"{self._kind}-{uid}")

    async def _mend(self, uid: str) -> None:
        try:
            await self._effects.carry_out(f"{self._kind}-status", self._namespace_of(uid), lambda: self._stored(uid))
            self._retries.forget(uid)
        except ClockOff:
            return  # until the clock is right again, nothing is looked at
        except ClusterError as problem:
            self._complain(uid, problem)
            refused = isinstance(problem, ApiError) and problem.code in (403, 422)
            asked_s = _REFUSED_S if refused else getattr(problem, "retry_after_s", 0.0)
            self._retries.failed(uid, version=0, asked_s=asked_s)

    async def _stored(self, uid: str) -> bool:
        progress = self._progress.get(uid)
        if progress is None or not self._effects.allowed():
            return False  # changed while this effect was queued
        try:
            written = await self._write(uid, progress)
        except ApiError as refused:
            if refused.code not in (404, 409):  # deleted or changed meanwhile
                raise
            written = None
        if written is not None:
            progress.digest, progress.news = written
            progress.written_s = self._clock.monotonic_s()
        return written is not None

    @abstractmethod
    def _objects(self) -> Iterable[tuple[str, str]]:
        """The UIDs of all objects at the beginning of a look, each with the key in the projection."""

    @abstractmethod
    def _turn(self, uid: str) -> tuple[Any, ...] | None:
        """When the status has its turn among others, the lowest first; None if it is stored, as far as known, or isn't
        to be written yet. What this process stored last counts until the watch has had the time to show it."""

    def _namespace_of(self, _uid: str) -> str:
        return ""

    @abstractmethod
    async def _write(self, uid: str, progress: _Stored) -> tuple[str, tuple[object, ...]] | None:
        """Store the present status, only if nobody has changed the object since it was read. Returns its digest and
        what is news in it; None if it wasn't stored."""

    @abstractmethod
    def _complain(self, uid: str, problem: ClusterError) -> None:
        """Log that a status will be tried again."""
