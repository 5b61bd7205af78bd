"""Jobs that no node could ever hold, and whose recorded reasons say so. Cycles leave them out while that stays so.

One tenant may create thousands of them. A cycle that tries each finds the same as the cycle before, and nothing else
depends on them: they get neither nodes, reservations nor room of others. Their reasons depend on the nodes' facts
(`empty_cluster`), and nothing is searched for those whose recorded reasons say so. So they are tried again only if
something has changed that they depend on, which is little in a cluster without Queues (`_apart`), and of jobs with
equal pods one is tried for all. In all other cases, each job is tried. The decisions are the same either way.
"""

import heapq
import math
from collections.abc import Callable, Collection, Hashable, Iterable, KeysView

from arranger.events.facts import ShortageFacts
from arranger.events.kinds import Watched
from arranger.model.config import CycleConfig
from arranger.model.provisioning import Provisioning
from arranger.projections.jobs.records import JobRecord
from arranger.projections.queues.tree import QueueTree
from arranger.projections.state import State
from arranger.scheduling.placing.placement_try import PlacementTry
from arranger.scheduling.queues.policies import DRF, Priority
from arranger.scheduling.queues.registry import Policies
from arranger.scheduling.search.placer import Placer

#: What determines whether a job's quorum fits, as `Placer.asks_the_same` has it, and the recorded reason.
_Key = tuple[Hashable, ShortageFacts]


class InfeasibleJobs:
    """The jobs that the next cycle may leave out."""

    def __init__(self) -> None:
        self._state: State | None = None
        self._basis: tuple[CycleConfig, QueueTree] | None = None
        #: UID → its key. Jobs with the same key have equal pods and equal recorded reasons.
        self._keys: dict[str, _Key] = {}
        #: Key → UID → the job.
        self._alike: dict[_Key, dict[str, JobRecord]] = {}
        #: Those that were put in or taken out since somebody asked.
        self._moved: dict[str, None] = {}
        #: UID → when the job is given up, in milliseconds; the heap has these times, and outdated ones.
        self._due_ms: dict[str, float] = {}
        self._given_up: list[tuple[float, str]] = []
        self._time_ms = 0
        #: Whether the present cycle may leave jobs out.
        self._apart = False
        self._policy = ""

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def uids(self) -> KeysView[str]:
        """Their UIDs."""
        return self._keys.keys()

    def moved(self) -> Collection[str]:
        """The jobs (UIDs) that were put in or taken out since the last call."""
        moved, self._moved = self._moved, {}
        return moved

    @property
    def due_ms(self) -> float:
        """When the next of them is to be tried again because of the time, in milliseconds; infinite if none is."""
        return self._given_up[0][0] if self._given_up else math.inf

    def forget(self, uids: Iterable[str]) -> None:
        """These jobs have changed."""
        for uid in uids:
            key = self._keys.pop(uid, None)
            if key is not None:
                self._moved[uid] = None
                del self._alike[key][uid]
                if not self._alike[key]:
                    del self._alike[key]

    def clear(self) -> None:
        """Let the next cycle try all jobs."""
        self._moved.update(dict.fromkeys(self._keys))
        self._keys, self._alike, self._due_ms, self._given_up = {}, {}, {}, []

    def begin(self, state: State, config: CycleConfig, policies: Policies, time_ms: int) -> None:
        """A cycle begins: keep those that it may leave out."""
        basis = (config, state.queue_tree)
        known = self._basis
        same = state is self._state and known is not None and known[0] == config and known[1] is state.queue_tree
        self._state, self._basis = state, basis
        self._apart, self._policy = _apart(state, config, policies), config.queue_policy
        if not same or not self._apart or time_ms < self._time_ms:
            self.clear()
        self._time_ms = time_ms
        while self._given_up and self._given_up[0][0] <= time_ms:
            due_ms, uid = heapq.heappop(self._given_up)
            if self._due_ms.get(uid) == due_ms:
                del self._due_ms[uid]
                self.forget([uid])
        if state.quotas and self._keys:
            self.forget([uid for uid in self._keys if state.jobs[uid].seen.namespace in state.quotas])

    def renew(self, placer: Placer, told: Callable[[PlacementTry], bool]) -> bool:
        """Forget those for which a cycle would now find something else than what is recorded, which `told` says of a
        try. False if the cycle must begin anew: a job that isn't infeasible any more was placed or searched for."""
        view, steps = placer.view, placer.search_steps
        if view.neighbours is not None:
            self.clear()
        content = view.content
        for jobs in list(self._alike.values()):
            if not _stays(placer, jobs, told):
                self.forget(list(jobs))
            if placer.search_steps != steps or view.content != content:
                return False
        return True

    def apart_from(self, jobs: Iterable[JobRecord]) -> bool:
        """Whether none of these other jobs has another queue policy: an infeasible one separates jobs of it."""
        return all([job.valid_spec.queue_policy in ("", self._policy) for job in jobs])

    def keep(
        self, placer: Placer, tries: Iterable[PlacementTry], gives_up_ms: Callable[[JobRecord], float | None]
    ) -> None:
        """A cycle has tried these jobs. Those that it found as recorded may be left out by the next one, if that finds
        the same for one of each key. `gives_up_ms` says when a job is given up."""
        state, basis = self._state, self._basis
        if state is None or basis is None or not self._apart or placer.view.neighbours is not None:
            return
        for tried in tries:
            job = tried.job
            if not tried.told or not _fails_for_good(tried) or not _has_nothing(tried, state) or job.waits is None:
                continue
            key = (placer.asks_the_same(job), job.waits.shortage)
            self._keys[job.uid] = key
            self._moved[job.uid] = None
            self._alike.setdefault(key, {})[job.uid] = job
            due_ms = gives_up_ms(job)
            if due_ms is not None and self._due_ms.get(job.uid) != due_ms:
                self._due_ms[job.uid] = due_ms
                heapq.heappush(self._given_up, (due_ms, job.uid))


def _apart(state: State, config: CycleConfig, policies: Policies) -> bool:
    """Whether infeasible jobs change nothing for others, and depend on nothing but their pods, the nodes, and quotas of
    their namespaces. They have turns among those of Queues, and wait for answers of autoscalers. Under DRF, their turns
    decide when room is held for a reservation."""
    policy = policies.queue.get(config.queue_policy)
    plain = type(policy) is Priority or (type(policy) is DRF and not state.reservations)
    others = state.queues or state.with_volumes or state.with_devices or policies.checks or policies.permits
    # Until the namespaces are listed again, no change tells the jobs that it shuts out.
    listed = state.listed.get(Watched.NAMESPACE, False) or not state.watches(Watched.NAMESPACE)
    return plain and not others and listed and config.provisioning == Provisioning.NONE


def _stays(placer: Placer, jobs: dict[str, JobRecord], told: Callable[[PlacementTry], bool]) -> bool:
    """Whether one of these jobs fails as is recorded for them."""
    tried = placer.quorum(next(iter(jobs.values())))
    return _fails_for_good(tried) and told(tried)


def _fails_for_good(tried: PlacementTry) -> bool:
    """Whether the nodes could never hold a quorum."""
    shortage = tried.shortage
    return shortage is not None and shortage.infeasible and shortage.of_nodes and not tried.pieces


def _has_nothing(tried: PlacementTry, state: State) -> bool:
    """Whether a job has no nodes, no slots that need none, avoids no nodes, and no quota can refuse it."""
    job = tried.job
    slots, spec = job.slots, job.valid_spec
    nothing = not (slots.nodes or slots.given_up or slots.finished or job.avoids or spec.queue)
    return nothing and tried.groups is spec.groups and job.seen.namespace not in state.quotas
