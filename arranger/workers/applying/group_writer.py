"""The group writer: a part of the applier that keeps the status of PodGroups as the projection has them.

It looks at all PodGroups together at intervals, as the queue writer does at queues. The watch shows what is stored, so
a status that somebody else changes is written again; where another scheduler writes it as well, ever more rarely.
"""

import asyncio
import logging
import math
from collections.abc import Callable

import msgspec

from arranger.errors import ClockOff, ClusterError
from arranger.events.kinds import PodGroupSeen
from arranger.kube.cluster import VOLCANO_JOBS, ApiError
from arranger.kube.pod_groups import WRITTEN, desired_digest, status_patch
from arranger.lifecycle.pod_group_status import INQUEUE, PENDING, Phases, desired_group_status, pods_by_phase
from arranger.logs import log_event
from arranger.model.pod import GroupKind, PodGroupStatus
from arranger.model.text import rfc3339
from arranger.workers.applying.effects import SETTLE_S, Effects
from arranger.workers.flow.retries import Retries
from arranger.workers.flow.work_queue import WorkQueue

_log = logging.getLogger(__name__)

#: All are looked at this often at most, and rarer where the look takes long: this many times as long.
_EVERY_S, _TIMES_AS_LONG = 1.0, 20.0
#: So many statuses are written at once at most: each is an event in the log.
_AT_ONCE = 20
#: A status in which only the words of a message changed is written again after this time.
_WORDS_S = 30.0
#: What somebody else changes is written again after this time, then after twice as long, and so on to the limit.
_OTHERS_S, _LONGEST_S = 10.0, 600.0
#: A status that the API server found invalid, or doesn't let us write, is tried again after this time.
_REFUSED_S = 60.0


class _Progress(msgspec.Struct):
    """What this process knows of one PodGroup beyond the projection."""

    #: The status that this process stored last: its digest, what was news in it (`_news`), when, and how often it has
    #: repeated it since then.
    digest: str = ""
    news: tuple[object, ...] = ()
    written_s: float = -math.inf
    times: int = 0
    #: It has no pods, and the Volcano Job that it belongs to names another scheduler.
    of_others: bool = False


class GroupWriter:
    """Stores the statuses of this member's share of the PodGroups. `owns` says whether a UID is in it."""

    def __init__(self, effects: Effects, owns: Callable[[str], bool]) -> None:
        self._effects = effects
        self._owns = owns
        self._scheduler = effects.parts.settings.scheduler_name
        self._follower = effects.parts.follower
        self._clock = effects.parts.time
        self._retries = Retries(effects.parts.time)
        #: By UID of the PodGroup, as `_keys` (its UID in the projection) and `_progress`.
        self._queue = WorkQueue(effects.parts.time, lambda: ())
        self._keys: dict[str, str] = {}
        self._progress: dict[str, _Progress] = {}
        self._phases: Phases = {}
        self._task: asyncio.Task[None] | None = None
        #: How many PodGroups there were when it was last asked whether some have a status to write.
        self._asked = -1

    def begin(self) -> None:
        """Begin to look once there is a PodGroup of these kinds: most clusters have none."""
        groups = self._follower.state.pod_groups
        if self._task is None and len(groups) != self._asked:
            self._asked = len(groups)
            if any([of.group_kind in WRITTEN for of in groups.values()]):
                self._task = asyncio.create_task(self._run(), name="group-statuses")

    async def end(self) -> None:
        """Look no more, and let writes in flight finish."""
        task, self._task, self._asked = self._task, None, -1
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def clear(self) -> None:
        """Discard everything derived from an earlier epoch."""
        self._queue.clear()
        self._progress.clear()
        self._retries.clear()

    async def _run(self) -> None:
        rest_s = _EVERY_S
        try:
            while True:
                await self._clock.sleep(rest_s)
                began_s = self._clock.monotonic_s()
                if self._scheduler and self._follower.state.synced and self._effects.allowed():
                    self._look()
                rest_s = max(_EVERY_S, (self._clock.monotonic_s() - began_s) * _TIMES_AS_LONG)
        finally:
            await self._queue.finish()

    def _look(self) -> None:
        """Begin to write each status of this member's share that differs from the stored one."""
        state = self._follower.state
        groups = [(key, of) for key, of in state.pod_groups.items() if of.group_kind in WRITTEN]
        self._keys = {of.uid: key for key, of in groups if self._owns(of.uid)}
        for uid in [uid for uid in (*self._progress, *self._retries.failing()) if uid not in self._keys]:
            self._progress.pop(uid, None)
            self._retries.forget(uid)
        of_volcano = any([of.group_kind == GroupKind.VOLCANO for _, of in groups])
        self._phases = pods_by_phase(state) if of_volcano else {}
        due = [(self._progress[uid].written_s, uid) for uid in self._keys if self._is_due(uid)]
        self._queue.touch([uid for _, uid in sorted(due)[:_AT_ONCE]])
        for uid in self._queue.take():
            self._queue.start(uid, self._mend(uid), name=f"pod-group-{uid}")

    def _group(self, uid: str) -> PodGroupSeen | None:
        seen = self._follower.state.pod_groups.get(self._keys.get(uid, ""))
        return seen if seen is not None and seen.uid == uid else None

    def _desired(self, group: PodGroupSeen, progress: _Progress) -> tuple[PodGroupStatus | None, bool]:
        """The status that a PodGroup should have, None if it isn't Arranger's to write; and whether that depends on the
        Volcano Job to which it belongs: there are no pods yet which say whose it is."""
        desired = desired_group_status(self._follower.state, group, self._phases)
        if desired is None and group.owner and group.phase in ("", PENDING) and not progress.of_others:
            return PodGroupStatus(INQUEUE), True
        return desired, False

    def _is_due(self, uid: str) -> bool:
        """Whether the status isn't stored, as far as known, and has its turn. What this process stored last counts
        until the watch has had the time to show it."""
        group, progress = self._group(uid), self._progress.setdefault(uid, _Progress())
        desired = self._desired(group, progress)[0] if group is not None else None
        if group is None or desired is None or self._retries.rest_s(uid, version=0):
            return False
        digest, since_s = desired_digest(group.group_kind, desired), self._clock.monotonic_s() - progress.written_s
        if digest == (progress.digest if since_s < SETTLE_S else group.status_digest):
            if digest == group.status_digest and since_s >= _LONGEST_S:
                progress.times = 0
            return False
        if digest == progress.digest:  # somebody else has changed it
            return since_s >= min(_OTHERS_S * 2.0 ** min(progress.times, 10), _LONGEST_S)
        return _news(desired) != progress.news or since_s >= _WORDS_S

    async def _mend(self, uid: str) -> None:
        group = self._group(uid)
        try:
            namespace = group.namespace if group is not None else ""
            await self._effects.carry_out("pod-group-status", namespace, lambda: self._write(uid))
            self._retries.forget(uid)
        except ClockOff:
            return  # until the clock is right again, nothing is looked at
        except ClusterError as problem:
            told = {"podgroup": self._keys.get(uid, uid), "problem": problem}
            log_event(_log, "a PodGroup's status is tried again", level=logging.WARNING, **told)
            refused = isinstance(problem, ApiError) and problem.code in (403, 422)
            asked_s = _REFUSED_S if refused else getattr(problem, "retry_after_s", 0.0)
            self._retries.failed(uid, version=0, asked_s=asked_s)

    async def _write(self, uid: str) -> bool:
        """Store the present status, only if nobody has changed the PodGroup since it was read."""
        group, progress, cluster = self._group(uid), self._progress.get(uid), self._effects.cluster
        if group is None or progress is None or not self._effects.allowed():
            return False  # changed while this effect was queued
        resource, subresource = WRITTEN[group.group_kind]
        try:
            if self._desired(group, progress)[1] and not await self._ours(group):
                progress.of_others = True
                return False
            live = await cluster.get(resource, group.namespace, group.name)
            desired, _ = self._desired(group, progress)
            if desired is None or live["metadata"]["uid"] != uid or self._group(uid) is None:
                return False
            status = status_patch(group.group_kind, desired, live, rfc3339(self._clock.now_ms()))
            known = {"uid": uid, "resourceVersion": live["metadata"]["resourceVersion"]}
            body = {"metadata": known, "status": status}
            await cluster.patch(resource, group.namespace, group.name, body, subresource=subresource)
        except ApiError as refused:
            if refused.code in (404, 409):  # deleted or changed meanwhile
                return False
            raise
        digest = desired_digest(group.group_kind, desired)
        progress.times = progress.times + 1 if digest == progress.digest else 0
        progress.digest, progress.news = digest, _news(desired)
        progress.written_s = self._clock.monotonic_s()
        return True

    async def _ours(self, group: PodGroupSeen) -> bool:
        """Whether the Volcano Job of a PodGroup without pods names Arranger as its scheduler."""
        job = await self._effects.cluster.get(VOLCANO_JOBS, group.namespace, group.owner)
        return bool((job.get("spec") or {}).get("schedulerName") == self._scheduler)


def _news(status: PodGroupStatus) -> tuple[object, ...]:
    """A status without the words of its messages, whose numbers change with every cycle."""
    return (status.phase, status.counts, *[of[:3] for of in status.conditions])
