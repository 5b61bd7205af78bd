"""Whether another scheduler places pods that name Arranger: then both give the same room away.

Nothing in a cluster says which schedulers run: they need no lease, and no Deployment of a known name. What a second one
does shows: a pod that waited for Arranger is on a node that Arranger didn't decide. The API server takes one binding
for a pod, so the pod itself is bound once.

A new epoch knows nothing of what was decided before it. So a pod that waited when it listed all of them may get the
node of an earlier decision, whose binding was under way.
"""

import logging
import math
from collections.abc import Sequence

from arranger.events import kinds as k
from arranger.kube.cluster import WatchEvent
from arranger.logs import log_event
from arranger.model.pods_to_place import SLOT
from arranger.projections.jobs.records import asked_record
from arranger.projections.state import State
from arranger.workers.log.follower import Follower
from arranger.workers.members.problems import ProblemKind
from arranger.workers.parts import Parts

_log = logging.getLogger(__name__)

#: So long after the last such pod the other scheduler is taken to have ended.
_TOLD_S = 600.0
#: So long after a listing, a binding may be seen that was under way before it, in seconds: its request takes half a
#: minute at most.
_UNDER_WAY_S = 60.0


class OtherSchedulers:
    """The schedulers whose names pods had when somebody else bound them, told as problems of this process."""

    def __init__(self, parts: Parts) -> None:
        self._clock, self._problems = parts.time, parts.problems
        #: By name: when it was seen last, in seconds of the process's clock, and in words the pod.
        self._seen: dict[str, tuple[float, str]] = {}
        #: The pods (UIDs) that waited when all were listed, and when that was.
        self._waited: frozenset[str] = frozenset()
        self._listed_s = -math.inf

    def listed(self, state: State) -> None:
        """All pods were listed just now."""
        self._waited = frozenset(uid for uid, pod in state.pods.items() if pod.asks is not None and not pod.node)
        self._listed_s = self._clock.monotonic_s()

    async def look(self, events: Sequence[k.Event], changes: Sequence[WatchEvent], follower: Follower) -> None:
        """Look at what a watch has told, before it is appended. The decision for which a pod was bound is in the log
        before the pod has its node, but this process may not have folded it yet."""
        if not self._taken(events, follower.state) or not await follower.catch_up():
            return
        taken = self._taken(events, follower.state)
        for change in changes:
            pod = taken.pop(change.object["metadata"].get("uid", ""), None)
            if pod is not None:
                self._note(pod, change.object["spec"].get("schedulerName") or "")
        self.tell()

    def _taken(self, events: Sequence[k.Event], state: State) -> dict[str, k.PodSeen]:
        found = taken_by_others(events, state)
        if not found or self._clock.monotonic_s() - self._listed_s >= _UNDER_WAY_S:
            return found
        return {uid: pod for uid, pod in found.items() if uid not in self._waited}

    def _note(self, pod: k.PodSeen, scheduler: str) -> None:
        name = f"{pod.namespace}/{pod.name}"
        if scheduler not in self._seen:
            told = {"scheduler": scheduler, "pod": name, "node": pod.node}
            log_event(_log, "another scheduler places pods that Arranger is to place", level=logging.WARNING, **told)
        self._seen[scheduler] = (self._clock.monotonic_s(), f"last: {name}")

    def tell(self, rest_s: float = _TOLD_S) -> None:
        """Report those that were seen within this time, and that the others aren't there any more."""
        for scheduler, (seen_s, pod) in [*self._seen.items()]:
            there = self._clock.monotonic_s() - seen_s < rest_s
            self._problems.tell(ProblemKind.OTHER_SCHEDULER, there, subject=scheduler, cause=pod)
            if not there:
                del self._seen[scheduler]

    def end(self) -> None:
        """Whoever has the watch next tells it."""
        self.tell(-math.inf)


def taken_by_others(events: Sequence[k.Event], state: State) -> dict[str, k.PodSeen]:
    """The pods that waited for Arranger and have got nodes that it didn't decide, by UID."""
    found, before = dict[str, k.PodSeen](), dict[str, k.PodSeen]()
    for event in events:
        if isinstance(event, k.PodSeen):
            old = before.get(event.uid) or state.pods.get(event.uid)
            waited = old is not None and old.asks is not None and not old.node
            if waited and event.asks is not None and event.node and event.node not in _decided(state, event):
                found[event.uid] = event
            before[event.uid] = event
    return found


def _decided(state: State, pod: k.PodSeen) -> set[str]:
    """The nodes to which Arranger may have bound a pod. A binding may be seen after its decision was withdrawn: the
    room is still assumed then."""
    job = state.jobs.get(asked_record(pod))
    if job is None:
        return set()
    slot = job.slots.members.get(pod.uid) if job.of_group else SLOT
    ours = {of.node for of in state.assumed.values() if of.owner.job_uid == job.uid}
    return ours | ({job.placements[slot]} if slot is not None and slot in job.placements else set())
