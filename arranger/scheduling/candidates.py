"""Who may give room to a quorum: the surplus of jobs, and whole jobs, in the order in which room is taken from them.

First comes surplus, workers above a quorum, of the lowest priority and the highest index: it costs their jobs least.
Then come whole jobs of queues above their share (reclaim), if the quorum's queue stays within its own; then jobs of
lower priority in the same queue. Among these the lowest priority comes first, then whoever loses the least work. No job
is a candidate that isn't preemptible, that has run for less than the `minRuntimeSeconds` of its queue, or that got
nodes in the same cycle.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from arranger.events.facts import PreemptionKind
from arranger.model.config import CycleConfig
from arranger.model.job import LEADER_GROUP, Stage
from arranger.model.queue import DEFAULT_SPEC, Preemption, PreemptionMode
from arranger.projections.job_parts import SlotKey
from arranger.projections.jobs import JobRecord, by_group
from arranger.projections.queue_membership import counted_priority
from arranger.projections.queue_use import Use, less, queue_of, sum_of
from arranger.projections.state import State
from arranger.projections.work_at_risk import lost_ms
from arranger.scheduling.policies.base import PodPolicy
from arranger.scheduling.queue_shares import Amounts
from arranger.scheduling.queue_standing import QueueStanding
from arranger.scheduling.registry import Policies

_BEGUN = (Stage.STARTING, Stage.RUNNING)
_ALLOWED = PreemptionMode.ALLOWED


@dataclass(frozen=True, slots=True)
class Candidate:
    """Pods of one job that may give room. `units` lose their nodes one after the other, each as a whole: the workers or
    worker groups of its surplus, or all of its pods at once."""

    job: JobRecord
    kind: PreemptionKind
    units: tuple[tuple[SlotKey, ...], ...]
    #: GPU-milliseconds for all units, as in `Victim`.
    lost_ms: int
    queue: str
    #: What the units request together.
    amounts: Amounts
    #: Room may be taken only while the queue is above its share.
    reclaimed: bool


class Candidates:
    """The candidates of one cycle. `waiting` are its waiting jobs."""

    def __init__(
        self, state: State, config: CycleConfig, policies: Policies, waiting: list[JobRecord], time_ms: int
    ) -> None:
        self._state = state
        self._config = config
        self._policies = policies
        self._waiting = waiting
        self._time_ms = time_ms

    @cached_property
    def _begun(self) -> list[tuple[int, str, JobRecord]]:
        """Priority, queue and job of each job that may give room at all."""
        found = []
        for job in self._state.jobs.values():
            if job.stage in _BEGUN and job.placements and self._may_give(job):
                found.append((counted_priority(self._state, job), queue_of(self._state, job), job))
        return sorted(found, key=lambda of: (of[0], -of[2].times.stage_ms, of[2].uid))

    def _may_give(self, job: JobRecord) -> bool:
        """Whether a job is preemptible, and has run for as long as its queue says."""
        if not job.active or job.stands_still or not job.valid_spec.preemptible:
            return False
        spec = self._state.queue_tree.specs.get(queue_of(self._state, job), DEFAULT_SPEC)
        return self._time_ms - job.times.stage_ms >= spec.min_runtime_s * 1000

    @cached_property
    def _lowest(self) -> dict[str, int]:
        """Queue → the lowest priority of its jobs that may give room."""
        found: dict[str, int] = {}
        for priority, queue, _ in reversed(self._begun):
            found[queue] = priority
        return found

    @cached_property
    def _standing(self) -> QueueStanding:
        return QueueStanding(self._state, self._waiting, self._time_ms)

    def rules(self, job: JobRecord) -> Preemption | None:
        """How room may be taken for a job: as its queue and the configuration both allow; None for not at all."""
        of_all = self._config.preemption
        spec = self._state.queue_tree.specs.get(queue_of(self._state, job))
        if of_all is None or spec is None:
            return None
        of_queue, modes = spec.preemption, []
        for one, other in (
            (of_all.surplus, of_queue.surplus),
            (of_all.priority, of_queue.priority),
            (of_all.reclaim, of_queue.reclaim),
        ):
            modes.append(_ALLOWED if one == other == _ALLOWED else PreemptionMode.NEVER)
        return Preemption(*modes)

    def may_be_some(self, job: JobRecord) -> bool:
        """Whether a job may take room from anybody. It is found quickly, and most jobs may not."""
        rules = self.rules(job)
        if rules is None or not self._begun:
            return False
        queue = queue_of(self._state, job)
        if self._lowest.get(queue, 1 << 62) < counted_priority(self._state, job):
            return _ALLOWED in (rules.surplus, rules.priority)
        return rules.reclaim == _ALLOWED and len(self._lowest) > (queue in self._lowest)

    def of(self, job: JobRecord, asked: Amounts, placed: Use, taken: Collection[str]) -> list[Candidate]:
        """The candidates for a quorum that requests `asked`, in order, each only while its queue may give more.

        `placed` is what queues' own jobs got in this cycle, `taken` the jobs by UID that can't give room any more,
        because they got nodes or gave room in it.
        """
        rules = self.rules(job)
        if rules is None:
            return []
        queue, own = queue_of(self._state, job), counted_priority(self._state, job)
        line = _Line(self._state, queue, asked, placed, self._standing) if rules.reclaim == _ALLOWED else None
        surplus: list[Candidate] = []
        reclaimed: list[Candidate] = []
        preempted: list[Candidate] = []
        for priority, of_queue, of in self._begun:
            reclaim = of_queue != queue
            if of.uid in taken or (reclaim and (line is None or not line.may_reclaim(of_queue))):
                continue
            if not reclaim and priority >= own:
                continue
            if rules.surplus == _ALLOWED:
                units = self._surplus(of)
                if units:
                    surplus.append(self._candidate(of, PreemptionKind.SURPLUS, units, of_queue, reclaimed=reclaim))
            if (rules.reclaim if reclaim else rules.priority) == _ALLOWED:
                (reclaimed if reclaim else preempted).append(self._whole(of, of_queue, reclaimed=reclaim))
        by_harm = [*_by_harm(self._state, reclaimed), *_by_harm(self._state, preempted)]
        return line.within([*surplus, *by_harm]) if line is not None else [*surplus, *by_harm]

    def _whole(self, job: JobRecord, queue: str, *, reclaimed: bool) -> Candidate:
        kind = PreemptionKind.RECLAIM if reclaimed else PreemptionKind.PRIORITY
        return self._candidate(job, kind, (tuple(sorted(job.placements)),), queue, reclaimed=reclaimed)

    def _surplus(self, job: JobRecord) -> tuple[tuple[SlotKey, ...], ...]:
        """The workers above the quorum, one by one or in their worker groups, the highest index first."""
        spec, found = job.valid_spec, []
        if len(job.provided) <= spec.has_leader + spec.min_workers or self._policy(job).whole:
            return ()
        there = by_group(spec, job.provided)
        units = {
            (group, of.worker_group(index)[0])
            for group, index in job.placements
            for of in (spec.groups[group],)
            if group != LEADER_GROUP
        }
        for group, first in sorted(units, key=lambda unit: (-unit[1], -unit[0])):
            of = spec.groups[group]
            slots = tuple((group, index) for index in of.worker_group(first) if (group, index) in job.placements)
            left = list(there)
            left[group] -= of.group_size
            if len(slots) == of.group_size and not spec.workers_missing(left):
                there = left
                found.append(slots)
        return tuple(found)

    def _policy(self, job: JobRecord) -> PodPolicy:
        return self._policies.pod_policy(job, self._config)

    def _candidate(
        self,
        job: JobRecord,
        kind: PreemptionKind,
        units: tuple[tuple[SlotKey, ...], ...],
        queue: str,
        *,
        reclaimed: bool,
    ) -> Candidate:
        slots = [slot for unit in units for slot in unit]
        lost = self.lost_ms(job, slots)
        return Candidate(job, kind, units, lost, queue, sum_of(job, slots), reclaimed)

    def lost_ms(self, job: JobRecord, slots: Iterable[SlotKey]) -> int:
        """GPU-milliseconds of work that are lost with these pods of a job."""
        return lost_ms(self._state, job, slots, self._time_ms)


def _by_harm(state: State, candidates: list[Candidate]) -> list[Candidate]:
    """Whole jobs, the lowest priority first, then the least work lost; the sort keeps the order of equals."""
    return sorted(candidates, key=lambda of: (counted_priority(state, of.job), of.lost_ms))


class _Line:
    """The shares of queues, as the line beyond which a queue gives room to one below its own."""

    def __init__(self, state: State, queue: str, asked: Amounts, placed: Use, standing: QueueStanding) -> None:
        tree = state.queue_tree
        self._paths = tree.paths
        self._specs = tree.specs
        self._way = tree.paths.get(queue, ())
        self._shares = standing.shares
        self._asked = [resource for resource in asked if resource in standing.total and asked[resource]]
        more: Use = {name: {one: -amount for one, amount in of.items()} for name, of in placed.items()}
        #: What queues and those below them use, with what this cycle placed.
        self._used = less(state.queue_totals, more, tree.paths)
        #: The queues on the way that would be above their share with the quorum.
        self._above = [name for name in self._way if any(self._over(name, one, asked[one]) for one in self._asked)]

    def _over(self, name: str, resource: str, more: int = 0) -> bool:
        return self._used.get(name, {}).get(resource, 0) + more > self._shares.get(name, {}).get(resource, 0)

    def may_reclaim(self, queue: str) -> bool:
        """Whether jobs of a queue may give room: below the first queue that both ways share, every queue on its way is
        above its share of something that is asked, and none on the quorum's way would be."""
        way = self._paths.get(queue, ())
        own = [name for name in self._way if name not in way]
        others = [name for name in way if name not in self._way]
        if not own or not others or any(name in self._above for name in own):
            return False
        if not all(self._specs[name].reclaimable for name in others):
            return False
        return any(all(self._over(name, one) for name in others) for one in self._asked)

    def within(self, candidates: list[Candidate]) -> list[Candidate]:
        """The candidates without those whose queue isn't above its share any more once those before them have given
        room."""
        found = []
        for candidate in candidates:
            if candidate.reclaimed:
                if not self.may_reclaim(candidate.queue):
                    continue
                self._used = less(self._used, {candidate.queue: dict(candidate.amounts)}, self._paths)
            found.append(candidate)
        return found
