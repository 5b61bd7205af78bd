"""The group writer: a part of the applier that keeps the status of PodGroups as the projection has them.

It looks at all PodGroups together at intervals, as the queue writer does at queues. The watch shows what is stored, so
a status that somebody else changes is written again; where another scheduler writes it as well, ever more rarely.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from http import HTTPStatus

from arranger.errors import ClusterError
from arranger.events.kinds import PodGroupSeen
from arranger.kube.cluster import ApiError, Object, Resource
from arranger.kube.pod_groups import (
    VOLCANO_SCHEDULER,
    WRITTEN,
    desired_digest,
    owner_resource,
    schedulers_of,
    status_patch,
)
from arranger.lifecycle.pod_group_status import INQUEUE, PENDING, RUNNING, Phases, desired_group_status, pods_by_phase
from arranger.logs import log_event
from arranger.model.pod import GroupKind, PodGroupStatus
from arranger.model.text import rfc3339
from arranger.workers.applying.effects.carrying_out import SETTLE_S, Effects
from arranger.workers.applying.statuses.status_rounds import StatusRounds, StoredStatus

_log = logging.getLogger(__name__)

#: A status in which only the words of a message changed is written again after this time.
_WORDS_S = 30.0
#: What somebody else changes is written again after this time, then after twice as long, and so on to the limit.
_OTHERS_S, _LONGEST_S = 10.0, 600.0


class _Progress(StoredStatus):
    """As the status, how often this process has repeated it since then."""

    times: int = 0
    #: It has no pods, and those that its owner makes will name another scheduler.
    of_others: bool = False


class GroupWriter(StatusRounds[_Progress]):
    """Stores the statuses of this member's share of the PodGroups."""

    _kind, _unknown = "pod-group", _Progress

    def __init__(self, effects: Effects, owns: Callable[[str], bool]) -> None:
        super().__init__(effects, owns)
        self._schedulers = effects.parts.settings.schedulers
        #: Whether Arranger places the pods that name Volcano's scheduler.
        self._is_volcano = VOLCANO_SCHEDULER in self._schedulers
        self._phases: Phases = {}
        self._task: asyncio.Task[None] | None = None
        #: How many PodGroups there were when it was last asked whether some have a status to write.
        self._asked = -1
        #: The versions of each kind that may be served, that of the last answer first.
        self._versions = {kind: list(versions) for kind, (versions, _) in WRITTEN.items()}

    def begin(self) -> None:
        """Begin to look once there is a PodGroup of these kinds: most clusters have none."""
        groups = self._follower.state.pod_groups
        if self._schedulers and self._task is None and len(groups) != self._asked:
            self._asked = len(groups)
            if any([of.group_kind in WRITTEN for of in groups.values()]):
                self._task = asyncio.create_task(self.run(), name="group-statuses")

    async def end(self) -> None:
        """Look no more, and let writes in flight finish."""
        task, self._task, self._asked = self._task, None, -1
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _objects(self) -> Iterable[tuple[str, str]]:
        """Those of the PodGroups with a status to write, whose pods are counted."""
        state = self._follower.state
        groups = [(key, of) for key, of in state.pod_groups.items() if of.group_kind in WRITTEN]
        of_volcano = any([of.group_kind == GroupKind.VOLCANO for _, of in groups])
        self._phases = pods_by_phase(state) if of_volcano else {}
        return [(of.uid, key) for key, of in groups]

    def _group(self, uid: str) -> PodGroupSeen | None:
        seen = self._follower.state.pod_groups.get(self._names.get(uid, ""))
        return seen if seen is not None and seen.uid == uid else None

    def _namespace_of(self, uid: str) -> str:
        group = self._group(uid)
        return group.namespace if group is not None else ""

    def _desired(self, group: PodGroupSeen, progress: _Progress) -> tuple[PodGroupStatus | None, bool]:
        """The status that a PodGroup should have, None if it isn't Arranger's to write; and whether that depends on its
        owner: there are no pods, or none any more, which say whose it is."""
        desired = desired_group_status(self._follower.state, group, self._phases)
        if desired is not None or group.group_kind != GroupKind.VOLCANO or progress.of_others:
            return desired, False
        if progress.digest and group.phase in (INQUEUE, RUNNING):  # this process has seen its pods
            return PodGroupStatus(INQUEUE), False
        asks = (group.owner or self._is_volcano) and group.phase in ("", PENDING, RUNNING)
        return (PodGroupStatus(INQUEUE), True) if asks else (None, False)

    def _turn(self, uid: str) -> tuple[float] | None:
        """Those wait longest that were written last."""
        group, progress = self._group(uid), self._progress[uid]
        desired = self._desired(group, progress)[0] if group is not None else None
        if group is None or desired is None or self._retries.rest_s(uid, version=0):
            return None
        digest, since_s = desired_digest(group.group_kind, desired), self._clock.monotonic_s() - progress.written_s
        if digest == (progress.digest if since_s < SETTLE_S else group.status_digest):
            if digest == group.status_digest and since_s >= _LONGEST_S:
                progress.times = 0
            return None
        rest_s = _WORDS_S if _news(desired) == progress.news else 0.0
        if digest == progress.digest:  # somebody else has changed it
            rest_s = min(_OTHERS_S * 2.0 ** min(progress.times, 10), _LONGEST_S)
        return (progress.written_s,) if since_s >= rest_s else None

    async def _write(self, uid: str, progress: _Progress) -> tuple[str, tuple[object, ...]] | None:
        group, cluster = self._group(uid), self._effects.cluster
        if group is None:
            return None  # changed while this effect was queued
        if self._desired(group, progress)[1] and not await self._ours(group):
            progress.of_others = True
            return None
        resource, live = await self._stored_group(group)
        desired, _ = self._desired(group, progress)
        if desired is None or live["metadata"]["uid"] != uid or self._group(uid) is None:
            return None
        status = status_patch(resource, group.group_kind, desired, live, rfc3339(self._clock.now_ms()))
        known = {"uid": uid, "resourceVersion": live["metadata"]["resourceVersion"]}
        body = {"metadata": known, "status": status}
        subresource = WRITTEN[group.group_kind][1]
        await cluster.patch(resource, group.namespace, group.name, body, subresource=subresource)
        digest = desired_digest(group.group_kind, desired)
        progress.times = progress.times + 1 if digest == progress.digest else 0
        return digest, _news(desired)

    async def _stored_group(self, group: PodGroupSeen) -> tuple[Resource, Object]:
        """The group in a version that the API server has. Raises `ApiError` 404 if it has it in none."""
        versions = self._versions[group.group_kind]
        tried = [*versions]  # other writes may sort them meanwhile
        for resource in tried:
            try:
                found = await self._effects.cluster.get(resource, group.namespace, group.name)
            except ApiError as refused:
                if refused.code != HTTPStatus.NOT_FOUND or resource == tried[-1]:
                    raise
            else:
                versions.sort(key=lambda of: of != resource)
                return resource, found
        raise AssertionError("a kind has a version")

    def _complain(self, uid: str, problem: ClusterError) -> None:
        told = {"podgroup": self._names.get(uid, uid), "problem": problem}
        log_event(_log, "a PodGroup's status is tried again", level=logging.WARNING, **told)

    async def _ours(self, group: PodGroupSeen) -> bool:
        """Whether a PodGroup of Volcano without pods gets some that Arranger places. Whoever waits for its phase makes
        none before, so the templates of its owner say it. Where these aren't known, its pods will name Volcano's."""
        resource = owner_resource(group.owner_kind)
        if resource is None:
            return self._is_volcano
        owner = await self._effects.cluster.get(resource, group.namespace, group.owner)
        return not schedulers_of(owner).isdisjoint(self._schedulers)


def _news(status: PodGroupStatus) -> tuple[object, ...]:
    """A status without the words of its messages, whose numbers change with every cycle."""
    return (status.phase, status.counts, *[of[:3] for of in status.conditions])
