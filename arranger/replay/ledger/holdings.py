"""How much every job holds over time: the integral of its GPUs, and of its cpu for jobs that wait without GPUs."""

from collections.abc import Iterable

import msgspec

from arranger.model.pod import gpus_of
from arranger.projections.jobs import JobRecord, requests_of
from arranger.projections.queue_membership import submitter_of
from arranger.projections.queue_use import queue_of
from arranger.projections.state import State
from arranger.replay.reading.describe import label

#: The UID under which all pods are counted that fill no slot of a job.
OTHERS = ""


class Holder(msgspec.Struct, frozen=True):
    """A job that holds room, and whose it is. Without names: all other pods."""

    queue: str = ""
    user: str = ""
    job: str = ""


class _Held(msgspec.Struct):
    """What a job holds since `since_ms`, and what that amounted to before: amount times milliseconds."""

    gpus: int
    cpu: int
    since_ms: int
    gpu_ms: int = 0
    cpu_ms: int = 0

    def until(self, time_ms: int, *, of_gpus: bool) -> int:
        """The amount times milliseconds up to a time."""
        span_ms = time_ms - self.since_ms
        return self.gpu_ms + self.gpus * span_ms if of_gpus else self.cpu_ms + self.cpu * span_ms


class Holdings:
    """What jobs hold. `look` is called after every fold with the touched jobs."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        #: The GPUs and the millicores that jobs hold together.
        self._ours = (0, 0)
        self._changes = -1
        #: By UID, also of jobs that hold nothing any more, or nothing yet.
        self.holders: dict[str, Holder] = {OTHERS: Holder()}
        #: UID → when the job got the nodes that it holds, in milliseconds.
        self.began_ms: dict[str, int] = {}

    def look(self, state: State, uids: Iterable[str]) -> None:
        """Update the touched jobs, and all other pods together."""
        for uid in uids:
            job = state.jobs.get(uid)
            amounts = _amounts(job) if job is not None else (0, 0)
            if job is not None and any(amounts):
                self.know(state, job)
                if not self._now(uid):
                    self.began_ms[uid] = state.time_ms
            self._set(uid, amounts, state.time_ms)
        if state.nodes.changes != self._changes:
            self._changes = state.nodes.changes
            self._others(state)

    def know(self, state: State, job: JobRecord) -> None:
        """Remember who a job is that holds room, or for which room is kept."""
        self.holders[job.uid] = Holder(queue_of(state, job), submitter_of(job), label(job))

    def _now(self, uid: str) -> bool:
        held = self._held.get(uid)
        return held is not None and bool(held.gpus or held.cpu)

    def _set(self, uid: str, amounts: tuple[int, int], time_ms: int) -> None:
        held = self._held.get(uid)
        had = (held.gpus, held.cpu) if held is not None else (0, 0)
        if uid != OTHERS:
            self._ours = (self._ours[0] + amounts[0] - had[0], self._ours[1] + amounts[1] - had[1])
        if held is None:
            if any(amounts):
                self._held[uid] = _Held(*amounts, time_ms)
        elif (held.gpus, held.cpu) != amounts:
            held.gpu_ms, held.cpu_ms = held.until(time_ms, of_gpus=True), held.until(time_ms, of_gpus=False)
            held.since_ms = time_ms
            held.gpus, held.cpu = amounts

    def _others(self, state: State) -> None:
        nodes = state.nodes
        used = nodes.used[nodes.by_name()].sum(axis=0) if len(nodes.by_name()) else ()
        totals = {name: int(used[column]) for name, column in nodes.columns.items() if len(used)}
        gpus = gpus_of(totals.items()) - self._ours[0]
        cpu = totals.get("cpu", 0) - self._ours[1]
        self._set(OTHERS, (max(gpus, 0), max(cpu, 0)), state.time_ms)

    def sums(self, time_ms: int, *, of_gpus: bool) -> dict[str, int]:
        """UID → amount times milliseconds up to a time, of all that ever held any."""
        return {uid: held.until(time_ms, of_gpus=of_gpus) for uid, held in self._held.items()}


def _amounts(job: JobRecord) -> tuple[int, int]:
    """The GPUs and the millicores of a job's slots with nodes."""
    gpus = cpu = 0
    for slot in job.placements if job.spec is not None else ():
        requests = requests_of(job, slot)
        gpus += gpus_of(requests)
        cpu += next((amount for name, amount in requests if name == "cpu"), 0)
    return gpus, cpu


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
