"""What part of all that is held every job holds over time: of the GPUs, and of the cpu for jobs that wait without GPUs.

At each moment the parts of all holders sum to one, and a job's share of a time is the integral of its part. So shares
of parts of a time sum to that of the whole, whoever came and went meanwhile. While nobody holds any GPU, the parts are
those of cpu, and while nobody holds any cpu those of pods.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from arranger.model.pod import gpus_of
from arranger.projections.cluster.nodes import PODS
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.derived.queue_membership import submitter_of
from arranger.projections.jobs.records import JobRecord, requests_of
from arranger.projections.state import State
from arranger.replay.reading.describe import label

#: The UID under which all pods are counted that fill no slot of a job.
OTHERS = ""


class Holder(msgspec.Struct, frozen=True):
    """A job that holds room, and whose it is. Without names: all other pods."""

    queue: str = ""
    user: str = ""
    job: str = ""


class HeldPart(NamedTuple):
    """A job (UID) with what it holds for itself, or as a guest in the room that is reserved for `hosts` (UIDs): those
    don't wait for it, because it leaves as soon as they can start."""

    uid: str
    hosts: tuple[str, ...] = ()


#: What GPUs (0), millicores (1) and pods (2) an amount has.
_Amounts = tuple[int, int, int]
_NONE: _Amounts = (0, 0, 0)
#: A share of one millisecond, of a job that holds everything; others have parts of it.
WHOLE = 1 << 40


class _Held(msgspec.Struct):
    """What a part of a job holds. `shares` are those up to `since`, by the clocks of `Holdings`."""

    amounts: _Amounts
    since: list[int]
    shares: list[int]


class _Clock(msgspec.Struct):
    """What a holder of one unit has had a share of: it runs the faster, the less is held in all. The unit is the first
    from `first` on, in the order of `_Amounts`, of which anything is held; with none, `unit` is -1 and the clock stands
    still, for `idle_ms` up to now."""

    first: int
    unit: int = -1
    total: int = 0
    since_ms: int = 0
    passed: int = 0
    idle_ms: int = 0

    def at(self, time_ms: int) -> int:
        return self.passed + ((time_ms - self.since_ms) * WHOLE // self.total if self.total else 0)

    def idle_until(self, time_ms: int) -> int:
        return self.idle_ms + (0 if self.total else time_ms - self.since_ms)

    def turn(self, totals: _Amounts, time_ms: int) -> None:
        """Go on with these totals."""
        self.passed, self.idle_ms, self.since_ms = self.at(time_ms), self.idle_until(time_ms), time_ms
        self.unit = self.unit_of(totals)
        self.total = totals[self.unit] if self.unit >= 0 else 0

    def unit_of(self, totals: _Amounts) -> int:
        return next((unit for unit in range(self.first, len(totals)) if totals[unit]), -1)


class Holdings:
    """What jobs hold. `look` is called after every fold with the touched jobs."""

    def __init__(self) -> None:
        self._held: dict[HeldPart, _Held] = {}
        #: UID → its parts that hold something.
        self._parts: dict[str, dict[HeldPart, _Amounts]] = {}
        #: What jobs hold together, and with all other pods.
        self._ours = self._totals = _NONE
        #: Of jobs that wait without GPUs, and of those with some.
        self._clocks = (_Clock(first=1), _Clock(first=0))
        self._changes = -1
        #: By UID, also of jobs that hold nothing any more, or nothing yet.
        self.holders: dict[str, Holder] = {OTHERS: Holder()}
        #: UID → when the job got the nodes that it holds, in milliseconds.
        self.began_ms: dict[str, int] = {}
        #: UID → the nodes that the job holds room on, or held it on last.
        self.nodes: dict[str, frozenset[str]] = {}

    def begin(self, state: State) -> None:
        """Look at all jobs for the first time."""
        for clock in self._clocks:
            clock.since_ms = state.time_ms
        self.look(state, list(state.jobs))
        self.began_ms = {uid: state.jobs[uid].began_ms for uid in self.began_ms}

    def look(self, state: State, uids: Iterable[str]) -> None:
        """Update the touched jobs, and all other pods together."""
        for uid in uids:
            job = state.jobs.get(uid)
            parts = _amounts(job) if job is not None else {}
            had = self._parts.pop(uid, {})
            if job is not None and parts:
                self.know(state, job)
                self.nodes[uid] = frozenset(job.placements.values())
                self._parts[uid] = parts
                if not had:
                    self.began_ms[uid] = state.time_ms
            for part in had | parts:
                self._set(part, parts.get(part, _NONE), state.time_ms)
        if state.nodes.changes != self._changes:
            self._changes = state.nodes.changes
            self._others(state)

    def know(self, state: State, job: JobRecord) -> None:
        """Remember who a job is that holds room, or for which room is kept."""
        self.holders[job.uid] = Holder(queue_of(state, job), submitter_of(job), label(job))

    def _set(self, part: HeldPart, amounts: _Amounts, time_ms: int) -> None:
        held = self._held.get(part)
        had = held.amounts if held is not None else _NONE
        if amounts == had:
            return
        if part.uid != OTHERS:
            self._ours = _changed(self._ours, had, amounts)
        totals = _changed(self._totals, had, amounts)
        if any(clock.unit_of(totals) != clock.unit for clock in self._clocks):  # from now on, another amount counts
            for of in self._held.values():
                self._settle(of, time_ms)
        if held is None:
            held = self._held[part] = _Held(_NONE, [clock.at(time_ms) for clock in self._clocks], [0, 0])
        self._settle(held, time_ms)
        held.amounts, self._totals = amounts, totals
        for clock in self._clocks:
            clock.turn(totals, time_ms)

    def _settle(self, held: _Held, time_ms: int) -> None:
        for number, clock in enumerate(self._clocks):
            held.shares[number] = self._share(held, number, time_ms)
            held.since[number] = clock.at(time_ms)

    def _share(self, held: _Held, number: int, time_ms: int) -> int:
        clock = self._clocks[number]
        amount = held.amounts[clock.unit] if clock.unit >= 0 else 0
        return held.shares[number] + amount * (clock.at(time_ms) - held.since[number])

    def _others(self, state: State) -> None:
        nodes = state.nodes
        used = nodes.used[nodes.by_name()].sum(axis=0) if len(nodes.by_name()) else ()
        totals = {name: int(used[column]) for name, column in nodes.columns.items() if len(used)}
        there = (gpus_of(totals.items()), totals.get("cpu", 0), totals.get(PODS, 0))
        gpus, cpu, pods = (max(in_all - ours, 0) for in_all, ours in zip(there, self._ours, strict=True))
        self._set(HeldPart(OTHERS), (gpus, cpu, pods), state.time_ms)

    def sums(self, time_ms: int, *, of_gpus: bool) -> dict[HeldPart, int]:
        """The share of each part of the time up to now, of all that ever held any: as many times `WHOLE` as
        milliseconds."""
        return {part: self._share(held, of_gpus, time_ms) for part, held in self._held.items()}

    def idle_ms(self, time_ms: int, *, of_gpus: bool) -> int:
        """For how long nobody held anything."""
        return self._clocks[of_gpus].idle_until(time_ms)


def _changed(totals: _Amounts, had: _Amounts, has: _Amounts) -> _Amounts:
    gpus, cpu, pods = (total + now - before for total, before, now in zip(totals, had, has, strict=True))
    return gpus, cpu, pods


def _amounts(job: JobRecord) -> dict[HeldPart, _Amounts]:
    """The GPUs, the millicores and the number of a job's slots with nodes, by its parts."""
    found: dict[HeldPart, _Amounts] = {}
    for slot in job.placements if job.spec is not None else ():
        part, requests = HeldPart(job.uid, job.slots.hosts or job.slots.lent.get(slot, ())), requests_of(job, slot)
        cpu = next((amount for name, amount in requests if name == "cpu"), 0)
        found[part] = _changed(found.get(part, _NONE), _NONE, (gpus_of(requests), cpu, 1))
    return found


def shared_out(total: int, weights: dict[str, int]) -> dict[str, int]:
    """A whole number in parts that are proportional to weights and sum exactly to it: each is rounded down, and the
    largest remainders get one more, the first of equals first."""
    whole = sum(weights.values())
    if not whole:
        return {}
    parts = {key: total * weight // whole for key, weight in weights.items()}
    rest = total - sum(parts.values())
    by_remainder = sorted(weights, key=lambda key: -(total * weights[key] % whole))
    for key in by_remainder[:rest]:
        parts[key] += 1
    return {key: part for key, part in parts.items() if part}
