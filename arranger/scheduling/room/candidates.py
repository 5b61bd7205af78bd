"""Who may give room to a quorum: the surplus of jobs, and whole jobs, in the order in which room is taken from them.

First comes surplus, workers above a quorum, of the lowest priority and the highest index: it costs their jobs least.
Then come whole jobs of queues above their share (reclaim), if the quorum's queue stays within its own; then jobs of
lower priority in the same queue. Among these the lowest priority comes first, then whoever loses the least work. No job
is a candidate that isn't preemptible, that has run for less than the `minRuntimeSeconds` of its queue, or that got
nodes in the same cycle. For less than the configured least time, a job that took its nodes from others gives at most
surplus. Both times count from when these have left. Until then, who waits for that gives its nodes as a whole, at any
time: it has done nothing, and those who leave for it then leave for a better one.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from itertools import chain, groupby, islice
from operator import attrgetter
from typing import NamedTuple

from arranger.events.facts import PreemptionKind
from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.queue import DEFAULT_SPEC, Preemption, PreemptionMode, QueueSpec
from arranger.projections.derived.awaited_room import takes_none
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.derived.queue_membership import most_priority
from arranger.projections.derived.work_at_risk import lost_ms
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord
from arranger.projections.queues.use import Use, less
from arranger.projections.state import State
from arranger.scheduling.policies.base import PodPolicy
from arranger.scheduling.queues.fair_shares import ByResource
from arranger.scheduling.queues.known_jobs import KnownJob, KnownJobs, Spare, Units
from arranger.scheduling.queues.own_jobs import ShareParts, is_of_own_jobs, queue_itself
from arranger.scheduling.queues.registry import Policies
from arranger.scheduling.queues.standing import KeptQueues, QueueStanding
from arranger.scheduling.queues.submitters import SubmittersInCycle
from arranger.scheduling.room.surplus import spare_of, spared, spared_on, units_of

_BEGUN = (Stage.STARTING, Stage.RUNNING)
_ALLOWED = PreemptionMode.ALLOWED
_NOTHING: ByResource = {}
#: Of so many jobs, the first in order, workers are looked at that may be spared beside their surplus.
_SPARE_JOBS = 64


#: Some slots of a job.
JobSlots = tuple[JobRecord, tuple[SlotKey, ...]]


class Candidate(NamedTuple):
    """Pods of one job that may give room. `units` lose their nodes one after the other, each as a whole: the workers or
    worker groups of its surplus, or all of its pods at once."""

    job: JobRecord
    kind: PreemptionKind
    #: The one that counts in its queue.
    priority: int
    units: Units
    #: GPU-milliseconds for all units, as in `Victim`.
    lost_ms: int
    queue: str
    #: What the units request together, and of a whole job, what its surplus does.
    amounts: ByResource
    surplus: ByResource
    #: Room may be taken only while the queue is above its share.
    reclaimed: bool


class _Begun(NamedTuple):
    """A job that has nodes, or waits for others to leave them, with its queue and the priority that counts there. One
    that is `young` gives at most its surplus."""

    priority: int
    queue: str
    job: JobRecord
    known: KnownJob
    young: bool


class Candidates:
    """The candidates of one cycle. `waiting` are its waiting jobs, `jobs` what is known of those that have nodes."""

    def __init__(
        self,
        state: State,
        config: CycleConfig,
        policies: Policies,
        waiting: list[JobRecord],
        time_ms: int,
        *,
        jobs: KnownJobs | None = None,
    ) -> None:
        self._state = state
        self._config = config
        self._policies = policies
        self._waiting = waiting
        self._time_ms = time_ms
        if jobs is None:
            jobs = KnownJobs()
            jobs.renew(state, time_ms)
        self._jobs = jobs
        self.submitters = SubmittersInCycle(state, time_ms)
        #: The jobs that have ended (UIDs) → the shares without them.
        self._ended_parts: dict[frozenset[str], ShareParts] = {}
        self._kept_queues = KeptQueues()
        #: Queue → the highest priority that counts there, None for any.
        self._most: dict[str, int | None] = {}
        #: A priority and a queue → whether its jobs may take room from anybody.
        self._some: dict[tuple[int, str], bool] = {}
        #: A priority and a queue → what all of its jobs may give to one of it with that priority.
        self._own_amounts: dict[tuple[int, str], dict[str, int]] = {}
        #: Whether some of those that were read last gave nothing, because others before them had brought their queue
        #: down to its share, or may have: near ones that came before all others.
        self.kept_by_shares = False
        #: When the next of the jobs that were looked at has run for long enough to give room.
        self.due_ms = math.inf

    @cached_property
    def _begun(self) -> list[_Begun]:
        """The jobs that may give room at all, in order."""
        found = [(giver.priority, -giver.known.began_ms, giver.job.seen.uid, giver) for giver in self._givers]
        found.sort()  # no two have the same UID
        return [giver for *_, giver in found]

    @cached_property
    def _givers(self) -> list[_Begun]:
        """The same in any order: most cycles need no other."""
        found, since_ms = [], dict[tuple[str, bool], tuple[int, int]]()
        for job in self._state.jobs.values():
            if (job.stage in _BEGUN or job.awaits_room) and job.slots.nodes:
                known = self._jobs.of(job)
                queue = known.queue
                kind = queue, job.slots.took
                if kind not in since_ms:
                    since_ms[kind] = least_runtime_ms(self._state, self._config, *kind)
                least_ms, whole_ms = since_ms[kind] if not job.awaits_room else (0, 0)
                age_ms = self._time_ms - known.room_since_ms
                if not known.may_give:
                    continue
                if age_ms >= least_ms:
                    found.append(_Begun(self._counted(job, queue), queue, job, known, age_ms < whole_ms))
                if age_ms < whole_ms:
                    self.due_ms = min(self.due_ms, known.room_since_ms + (least_ms if age_ms < least_ms else whole_ms))
        return found

    def standing_of(self, job: JobRecord) -> tuple[int, str]:
        """The priority of a job that counts in its queue, and the queue."""
        queue = queue_of(self._state, job)
        return self._counted(job, queue), queue

    def _counted(self, job: JobRecord, queue: str) -> int:
        """The priority of a job that counts in this queue, which is its own."""
        priority = job.valid_spec.priority
        if queue not in self._most:
            self._most[queue] = most_priority(self._state, queue)
        most = self._most[queue]
        return priority if most is None or priority < most else most

    @cached_property
    def _lowest(self) -> dict[str, int]:
        """Queue → the lowest priority of its jobs that may give room."""
        found: dict[str, int] = {}
        for giver in self._givers:
            found[giver.queue] = min(giver.priority, found.get(giver.queue, giver.priority))
        return found

    @cached_property
    def _spare(self) -> Use:
        """What the surplus of the jobs of each queue requests that may give room."""
        found: Use = {}
        for giver in self._givers:
            for resource, amount in self._surplus_amounts(giver).items():
                amounts = found.setdefault(giver.queue, {})
                amounts[resource] = amounts.get(resource, 0) + amount
        return found

    @cached_property
    def _ending(self) -> Use:
        """What the jobs of each queue use that give up all their nodes, whoever wants them."""
        found: Use = {}
        for job in self._state.jobs.values():
            if job.slots.nodes and not job.slots.done and (known := self._jobs.of(job)).ends:
                _add(found, known.queue, known.whole.amounts, 1)
        return found

    @cached_property
    def _shares(self) -> QueueStanding:
        return QueueStanding(self._state, self._waiting, self._time_ms)

    @cached_property
    def _parts(self) -> ShareParts:
        return ShareParts(self._state, self._shares)

    def _parts_without(self, ended: frozenset[str]) -> ShareParts:
        """The same once these jobs (UIDs) have ended: their queues demand less, so others may have more."""
        if not ended:
            return self._parts
        found = self._ended_parts.get(ended)
        if found is None:
            jobs = [self._state.jobs[uid] for uid in sorted(ended)]
            standing = QueueStanding(self._state, self._waiting, self._time_ms, self._kept_queues, ended=jobs)
            found = self._ended_parts[ended] = ShareParts(self._state, standing)
        return found

    def rules(self, queue: str) -> Preemption | None:
        """How room may be taken for jobs of a queue: as it and the configuration both allow; None for not at all."""
        of_all, spec = self._config.preemption, self._state.queue_tree.specs.get(queue)
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
        if self._config.preemption is None or takes_none(job, self._config):
            return False
        priority, queue = self.standing_of(job)
        found = self._some.get((priority, queue))
        if found is None:
            found = self._some[priority, queue] = self._may_take(priority, queue)
        return found

    def _may_take(self, priority: int, queue: str) -> bool:
        rules = self.rules(queue)
        if rules is None or not self._givers:
            return False
        if self._lowest.get(queue, priority) < priority and _ALLOWED in (rules.surplus, rules.priority):
            return True
        return self._reclaims(rules, queue)

    def of(
        self,
        job: JobRecord,
        asked: ByResource,
        placed: Use,
        taken: Collection[str],
        *,
        nodes: dict[str, None] | None = None,
        spare: bool = False,
        near_first: bool = False,
        beside_queues: Collection[str] = (),
    ) -> Iterator[Candidate]:
        """The candidates for a quorum that requests `asked`, in order, each only while its queue may give more.

        `placed` is what queues' own jobs got in this cycle, `taken` the jobs by UID that can't give room any more,
        because they got nodes or gave room in it. With `nodes`, only jobs that have pods on them are candidates,
        and of their surplus what is there, or with `spare` as many of their workers there as their quorums can spare,
        of the first nodes first. With `near_first`, as many of the quorum's own queue, and of those that share a parent
        with it, come before all others as bring these down to their shares: with which it may take room from others, or
        use what is reserved for jobs of `beside_queues`.
        """
        self.kept_by_shares = False
        own, queue = self.standing_of(job)
        rules = self.rules(queue)
        if rules is None:
            return
        line = self.line(job, asked, placed) if self._reclaims(rules, queue) else None
        units = partial(self._units_on, nodes, spare)
        first = list[Candidate]()
        if line is not None and near_first:
            first += self._down_to_shares(
                job, rules, line, taken, nodes=nodes, units=units, beside_queues=beside_queues
            )
        self.kept_by_shares = bool(first)
        yield from first
        done = {(candidate.job.uid, candidate.kind) for candidate in first}
        queues = self._queues(queue, line)
        may = self._on_nodes(queue, own, queues, taken, nodes)
        yield from self._in_order(may, rules, queue, line, units=units, done=done)

    def _in_order(
        self,
        may: list[_Begun],
        rules: Preemption,
        queue: str,
        line: "ShareLine | None",
        *,
        units: Callable[[_Begun], Units],
        done: Container[tuple[str, PreemptionKind]] = (),
    ) -> Iterator[Candidate]:
        """The candidates among these jobs for a quorum of a queue, as in `of`, without those that are done. `units` are
        what a job may give as surplus."""
        if rules.surplus == _ALLOWED:
            for giver in may:
                if (giver.job.uid, PreemptionKind.SURPLUS) not in done and (found := units(giver)):
                    yield from self._within(line, self._candidate(giver, PreemptionKind.SURPLUS, found, queue))
        own = [giver for giver in may if giver.queue == queue]
        for kind, allowed, jobs in (
            (PreemptionKind.RECLAIM, line is not None, [giver for giver in may if giver.queue != queue]),
            (PreemptionKind.PRIORITY, rules.priority == _ALLOWED, own),
        ):
            if allowed:
                more = [giver for giver in jobs if (giver.job.uid, kind) not in done]
                yield from self._whole(more, kind, queue, line)

    def _down_to_shares(
        self,
        job: JobRecord,
        rules: Preemption,
        line: "ShareLine",
        taken: Container[str],
        *,
        nodes: dict[str, None] | None,
        units: Callable[[_Begun], Units],
        beside_queues: Collection[str] = (),
    ) -> Iterator[Candidate]:
        """The first candidates below each queue on a quorum's path, the nearest first, with which no jobs of others,
        and nothing of `beside_queues`, are closed to the quorum any more because that queue would be above its
        share; the line knows what they give."""
        own, queue = self.standing_of(job)
        done: set[tuple[str, PreemptionKind]] = set()
        others = [*self._lowest, *beside_queues]
        for name in line.path:
            if not line.closes(name, others):
                continue
            below = {
                other: None
                for other in self._lowest
                if other == queue or (line.is_below(other, name) and line.may_reclaim(other))
            }
            may = [giver for giver in self._on_nodes(queue, own, below, taken, nodes) if giver.queue in below]
            candidates = self._in_order(may, rules, queue, line, units=units, done=done)
            while line.closes(name, others) and (candidate := next(candidates, None)) is not None:
                line.gives(candidate)
                done.add((candidate.job.uid, candidate.kind))
                yield candidate

    def _on_nodes(
        self,
        queue: str,
        own: int,
        others: Collection[str],
        taken: Container[str],
        nodes: dict[str, None] | None,
    ) -> list[_Begun]:
        """The jobs that may give room to a quorum of a queue and have pods on these nodes, None for any: those of its
        own queue with a lower priority, and those of the other queues."""
        may = [giver for giver in self._begun if _gives(giver, queue, own, others) and giver.job.uid not in taken]
        if nodes is None:
            return may
        return [giver for giver in may if not nodes.keys().isdisjoint(giver.job.placements.values())]

    def near_helps(self, job: JobRecord, asked: ByResource, placed: Use) -> bool:
        """Whether jobs of other queues are candidates only once some that are nearer in the tree have given room."""
        _, queue = self.standing_of(job)
        line, beyond = self.line(job, asked, placed), self.line_beyond(job, asked, placed)
        return len(self._queues(queue, beyond)) > len(self._queues(queue, line))

    def guests(self, host: JobRecord, taken: Collection[str], nodes: Collection[str] | None = None) -> list[Candidate]:
        """The jobs that use room which is reserved for a job, or a limit that is kept for it: first their surplus, then
        whole jobs, of each those that lose the least work first. No rule about who may give room to whom protects them:
        they got it on these terms. A job with other nodes that was lent some for pods which its quorum needs by now
        leaves as a whole. With `nodes`, their surplus is what they have there."""
        if host.uid not in self._hosts or takes_none(host, self._config) or not self._state.is_host(host.uid):
            return []
        reservation, found = self._state.reservations.get(host.uid), list[Candidate]()
        reserved = nodes
        if nodes is None and reservation is not None:
            reserved = {placed.node: None for placed in reservation.decided.pods}
        for job in self._state.jobs.values():
            if job.stage in _BEGUN and job.slots.nodes and job.uid not in taken:
                lent = {slot for slot in job.slots.lent_by(host.uid) if nodes is None or job.placements[slot] in nodes}
                found += self._guest(job, host, reserved, lent)
        return sorted(found, key=lambda guest: (guest.kind.whole, guest.lost_ms, guest.priority, guest.job.uid))

    @cached_property
    def _hosts(self) -> set[str]:
        """The UIDs of the jobs that have guests, or of whose reserved room some pods were lent."""
        every = [job.slots for job in self._state.jobs.values() if job.slots.nodes]
        return {uid for slots in every for uid in chain(slots.hosts, *slots.lent.values())}

    def _guest(
        self, job: JobRecord, host: JobRecord, nodes: Container[str] | None, slots: set[SlotKey]
    ) -> Iterator[Candidate]:
        """What a job may give as a guest; `nodes` are those of the host's reservation, if it has one, and `slots` those
        that were lent its room."""
        is_guest = host.uid in job.slots.hosts
        if not (is_guest or slots) or (known := self._jobs.of(job)).ends:
            return
        if is_guest:
            slots = {slot for slot, node in job.placements.items() if nodes is None or node in nodes}
        begun = _Begun(self._counted(job, known.queue), known.queue, job, known, young=False)
        lent = [unit for unit in units_of(job) if not slots.isdisjoint(unit)]
        units, queue = self._spared(job, lent), queue_of(self._state, host)
        if units:
            yield self._candidate(begun, PreemptionKind.GUEST_SURPLUS, units, queue)
        if is_guest or not slots.issubset(chain.from_iterable(units)):
            yield self._candidate(begun, PreemptionKind.GUEST, (known.slots,), queue)

    def jobs_of_others(self, job: JobRecord, asked: ByResource, placed: Use, taken: Collection[str]) -> list[JobRecord]:
        """The jobs of other queues that may give room at all, the lowest priority first; the rest as in `of`."""
        queue = queue_of(self._state, job)
        queues = self._queues(queue, self.line_beyond(job, asked, placed))
        return [giver.job for giver in self._begun if giver.queue in queues and giver.job.uid not in taken]

    def every(self, job: JobRecord, asked: ByResource, placed: Use) -> tuple[Hashable, list[JobRecord]]:
        """All jobs that are among the candidates for a quorum as in `of`, before any of them has given room, and what
        determines which these are."""
        own, queue = self.standing_of(job)
        rules = self.rules(queue)
        if rules is None:
            return (), []
        queues = self._queues(queue, self.line_beyond(job, asked, placed) if self._reclaims(rules, queue) else None)
        return (own, queue, *queues), [giver.job for giver in self._begun if _gives(giver, queue, own, queues)]

    def _queues(self, queue: str, line: "ShareLine | None") -> dict[str, None]:
        """The other queues that may give room to a quorum of this one."""
        if line is None:
            return {}
        return {name: None for name in sorted(self._lowest) if name != queue and line.may_reclaim(name)}

    def line(
        self, job: JobRecord, asked: ByResource, placed: Use, *, ended: frozenset[str] = frozenset()
    ) -> "ShareLine":
        """The shares of queues for a quorum that requests `asked`, after `placed` as in `of`, and once the jobs have
        `ended` with these UIDs; `placed` is without what they used."""
        queue = queue_of(self._state, job)
        resources = [resource for resource in asked if resource in self._shares.total and asked[resource]]
        specs = self._state.queue_tree.specs
        parts = self._parts_without(ended)
        return ShareLine(
            specs, queue, asked, placed,
            resources=resources, parts=parts, spare=lambda: self._spare, ending=lambda: self._ending,
        )  # fmt: skip

    def line_beyond(
        self, job: JobRecord, asked: ByResource, placed: Use, *, beside_queues: Collection[str] = ()
    ) -> "ShareLine":
        """As `line`, once all of the quorum's own queue that may give room have done so, and of those that share a
        parent with it as many as bring it down to its share; `beside_queues` as in `of`."""
        line, (own, queue) = self.line(job, asked, placed), self.standing_of(job)
        if line.is_above:
            line.near_give(queue, self._all_of_own(own, queue))
        if line.is_above and (rules := self.rules(queue)) is not None and self._reclaims(rules, queue):
            near = self._down_to_shares(
                job, rules, line, (), nodes=None, units=self._surplus, beside_queues=beside_queues
            )
            deque(near, maxlen=0)
            line.forget_others()
        return line

    def _all_of_own(self, own: int, queue: str) -> ByResource:
        """What all jobs of a queue together may give to one of it with this priority."""
        found = self._own_amounts.get((own, queue))
        if found is None:
            found, rules = {}, self.rules(queue)
            some = rules is not None and self._lowest.get(queue, own) < own
            for giver in self._givers if some else ():
                if giver.queue != queue or giver.priority >= own:
                    continue
                assert rules is not None
                whole = rules.priority == _ALLOWED and not giver.young
                amounts = giver.known.whole.amounts if whole else _NOTHING
                if not whole and rules.surplus == _ALLOWED:
                    amounts = self._surplus_amounts(giver)
                for resource, amount in amounts.items():
                    found[resource] = found.get(resource, 0) + amount
            self._own_amounts[own, queue] = found
        return found

    def _reclaims(self, rules: Preemption, queue: str) -> bool:
        return rules.reclaim == _ALLOWED and len(self._lowest) > (queue in self._lowest)

    def _whole(
        self, jobs: list[_Begun], kind: PreemptionKind, queue: str, line: "ShareLine | None"
    ) -> Iterator[Candidate]:
        """Whole jobs, the lowest priority first, then those that lose the least work; equals stay in their order."""
        for _, of_priority in groupby([giver for giver in jobs if not giver.young], key=attrgetter("priority")):
            found = [self._candidate(giver, kind, (giver.known.slots,), queue) for giver in of_priority]
            for candidate in sorted(found, key=attrgetter("lost_ms")):
                yield from self._within(line, candidate)

    def _within(self, line: "ShareLine | None", candidate: Candidate) -> Iterator[Candidate]:
        """The candidate, unless its queue isn't above its share any more once those before it have given room."""
        if line is None or line.takes(candidate):
            yield candidate
        else:
            self.kept_by_shares = True

    def spare_on_nodes(
        self, job: JobRecord, asked: ByResource, placed: Use, taken: Container[str]
    ) -> dict[str, list[JobSlots]]:
        """The nodes on which jobs can spare more workers than their surplus there, because others of theirs elsewhere
        are enough for their quorums, and all that the first candidates for a quorum as in `of` can spare there."""
        own, queue = self.standing_of(job)
        rules = self.rules(queue)
        if rules is None or rules.surplus != _ALLOWED:
            return {}
        queues = self._queues(queue, self.line_beyond(job, asked, placed) if self._reclaims(rules, queue) else None)
        some = (giver for giver in self._on_nodes(queue, own, queues, taken, None) if self._surplus(giver))
        may = list(islice(some, _SPARE_JOBS))
        found: dict[str, list[JobSlots]] = {}
        for giver in may:
            found.update({node: [] for node in self._spare_of(giver).more})
        for giver in may if found else ():
            for node, units in self._spare_of(giver).units.items():
                if node in found:
                    found[node].append((giver.job, tuple(chain.from_iterable(units))))
        return found

    def can_spare(self, job: JobRecord, nodes: Collection[str]) -> bool:
        """Whether a job that may give room can spare all of its pods on these nodes."""
        giver = _Begun(0, "", job, self._jobs.of(job), young=False)
        there = sum([node in nodes for node in job.placements.values()])
        return 0 < there == sum(map(len, self._units_on(dict.fromkeys(nodes), True, giver)))

    def _spare_of(self, giver: _Begun) -> Spare:
        """What a job can spare on each node."""
        if giver.known.spare is None:
            giver.known.spare = spare_of(giver.job, self._surplus(giver))
        return giver.known.spare

    def _units_on(self, nodes: dict[str, None] | None, spare: bool, giver: _Begun) -> Units:
        """What a job may give as surplus, as in `of`."""
        if spare:
            return spared_on(giver.job, self._spare_of(giver), nodes or ())
        return _on(nodes, giver.job, self._surplus(giver))

    def _surplus(self, giver: _Begun) -> Units:
        """The workers above the quorum, one by one or in their worker groups, the highest index first."""
        if giver.known.surplus is None:
            giver.known.surplus = self._spared(giver.job, units_of(giver.job)) if not giver.job.awaits_room else ()
        return giver.known.surplus

    def has_surplus(self, job: JobRecord) -> bool:
        """Whether a job that runs has workers above its quorum that it may give."""
        return bool(self._surplus(_Begun(0, "", job, self._jobs.of(job), young=False)))

    def _surplus_amounts(self, giver: _Begun) -> ByResource:
        """What the surplus of a job requests."""
        slots = tuple([slot for unit in self._surplus(giver) for slot in unit])
        return giver.known.part(slots).amounts if slots else _NOTHING

    def _spared(self, job: JobRecord, units: Iterable[tuple[SlotKey, ...]]) -> Units:
        return () if self._policy(job).whole else spared(job, units)

    def _policy(self, job: JobRecord) -> PodPolicy:
        return self._policies.pod_policy(job, self._config)

    def _candidate(self, giver: _Begun, kind: PreemptionKind, units: Units, queue: str) -> Candidate:
        slots = units[0] if len(units) == 1 else tuple([slot for unit in units for slot in unit])
        part = giver.known.part(slots)
        lost_ms = giver.known.lost_ms(part, self._time_ms)
        surplus = self._surplus_amounts(giver) if kind == PreemptionKind.RECLAIM else _NOTHING
        reclaimed = giver.queue != queue
        return Candidate(giver.job, kind, giver.priority, units, lost_ms, giver.queue, part.amounts, surplus, reclaimed)

    def lost_ms(self, job: JobRecord, slots: Iterable[SlotKey]) -> int:
        """GPU-milliseconds of work that are lost with these pods of a job."""
        return lost_ms(self._state, job, slots, self._time_ms)


def least_runtime_ms(state: State, config: CycleConfig, queue: str, took: bool) -> tuple[int, int]:
    """How long jobs of a queue have their nodes before they may give surplus, and before they may give all, in
    milliseconds. What the queue says is for both, and for all of its jobs. The configured time is for the quorums of
    those that took their nodes from others: jobs that take them from each other within seconds do little else, while
    victims that are younger lose less. Who loses surplus runs on, and workers that just came into free room would keep
    others from it."""
    own_s = state.queue_tree.specs.get(queue, DEFAULT_SPEC).min_runtime_s
    if own_s is not None:
        return own_s * 1000, own_s * 1000
    return 0, config.min_runtime_ms if took else 0


def _on(nodes: dict[str, None] | None, job: JobRecord, units: Units) -> Units:
    """The units that have pods on these nodes; None for any."""
    if nodes is None or not units:
        return units
    return tuple([unit for unit in units if any([job.placements[slot] in nodes for slot in unit])])


def _gives(giver: _Begun, queue: str, priority: int, others: Collection[str]) -> bool:
    """Whether a job may give room to one of a queue with this priority, and of these other queues."""
    return giver.priority < priority if giver.queue == queue else giver.queue in others


class ShareLine:
    """The shares of queues, as the line beyond which a queue gives room to one below its own.

    A queue gives surplus while it is above its share, and whole jobs only while it would be without any surplus.
    Otherwise surplus that came into free room would cost a job its quorum, and two queues could take turns for ever.
    What jobs use that give it up anyway counts for neither: else others of their queue would be lost that may stay.
    The own jobs of a queue with others below it are one more child of it, as in `own_jobs`: among the names on paths,
    and with a line of their own.
    """

    def __init__(
        self,
        specs: Mapping[str, QueueSpec],
        queue: str,
        asked: ByResource,
        placed: Use,
        *,
        resources: list[str],
        parts: ShareParts,
        spare: Callable[[], Use],
        ending: Callable[[], Use],
    ) -> None:
        """`asked` is what a quorum of the queue requests, of these resources some that is in shares. `placed` is what
        this cycle gave to the own jobs of queues, `spare` what their surplus requests, and `ending` what those of them
        use that give it up anyway."""
        self._paths = parts.paths
        self._specs = specs
        self._path = self._paths.get(queue, ())
        self._shares = parts.shares
        self._asked = resources
        more: Use = {name: {one: -amount for one, amount in got.items()} for name, got in placed.items()}
        #: What queues and those below them use, with what this cycle placed.
        self._used = less(parts.used(), more, self._paths)
        #: What of that candidates have given: of queues on the quorum's path those whose giving opens others to it.
        self._given: Use = {}
        self._spare = spare
        self._ending = ending
        #: What whole jobs have given, without their surplus.
        self._given_whole: Use = {}
        #: UID → what a job has given as surplus.
        self._given_surplus: dict[str, ByResource] = {}
        #: Other queue → as in `_reclaimed_from`.
        self._others: dict[str, list[str]] = {}
        self._amounts = asked
        self._above = self._path_above()

    def _path_above(self) -> list[str]:
        """The queues on the path that would be above their share with the quorum."""
        return [name for name in self._path if any(self._over(name, one, self._amounts[one]) for one in self._asked)]

    def _over(self, name: str, resource: str, more: int = 0) -> bool:
        use = self._used if name in self._path else self._used_for_good
        used = use.get(name, _NOTHING).get(resource, 0) - self._given.get(name, _NOTHING).get(resource, 0)
        return used + more > self._shares.get(name, _NOTHING).get(resource, 0)

    @property
    def is_above(self) -> bool:
        """Whether the quorum's queue, or one above it, would be above its share with the quorum."""
        return bool(self._above)

    @property
    def above(self) -> Use:
        """The queues on the path that would be above their share with the quorum, with what they would use of that. Own
        jobs aren't among them: no field of a queue gives them more."""
        would: Use = {}
        for name in [above for above in self._above if not is_of_own_jobs(above)]:
            used = self._used.get(name, _NOTHING)
            over = [one for one in self._asked if self._over(name, one, self._amounts[one])]
            would[name] = {one: used.get(one, 0) + self._amounts[one] for one in over}
        return would

    @property
    def path(self) -> tuple[str, ...]:
        """The quorum's queue and those above it, up to the root."""
        return self._path

    def closes(self, name: str, queues: Iterable[str]) -> bool:
        """Whether one of these queues is closed to the quorum because another one, on its path, would be above its
        share."""
        return name in self._above and any(not self.is_below(queue, name) for queue in queues)

    def is_below(self, queue: str, name: str) -> bool:
        """Whether a queue is another one or below it."""
        return name in self._paths.get(queue, ())

    def gives(self, candidate: Candidate) -> None:
        """A candidate gives its room, and so brings down all queues that are on its path and on the quorum's."""
        self.near_give(candidate.queue, self._net(candidate))
        if not candidate.kind.whole:
            self._given_surplus[candidate.job.uid] = candidate.amounts

    def near_give(self, queue: str, amounts: ByResource) -> None:
        """As `gives`, for so much of a queue."""
        for name in self._paths.get(queue, ()):
            if name in self._path:
                _add(self._given, name, amounts, 1)
        self._above = self._path_above()
        self._others.clear()

    def forget_others(self) -> None:
        """Forget what candidates have given of queues that aren't on the quorum's path."""
        self._given = {name: self._given[name] for name in self._path if name in self._given}
        self._given_whole.clear()
        self._given_surplus.clear()

    def _net(self, candidate: Candidate) -> ByResource:
        """What a candidate gives beside what its job has given as surplus."""
        before = self._given_surplus.get(candidate.job.uid, _NOTHING) if candidate.kind.whole else _NOTHING
        return {one: amount - before.get(one, 0) for one, amount in candidate.amounts.items()}

    def keeps_below(self, queue: str) -> bool:
        """Whether no queue on the quorum's path alone, of which there are some, would be above its share with it. The
        other path is that of `queue`."""
        return any(name not in self._paths.get(queue, ()) for name in self._path) and not self.own_above(queue)

    def exceeds(self, queue: str) -> bool:
        """Whether every queue on the quorum's path alone, of which there are some, would be above its share with it."""
        own = [name for name in self._path if name not in self._paths.get(queue, ())]
        return bool(own) and all(name in self._above for name in own)

    def own_above(self, queue: str) -> bool:
        """Whether a queue on the quorum's path, but not on that of another queue, would be above its share with it."""
        other_path = self._paths.get(queue, ())
        return any(name not in other_path for name in self._above)

    def first_above(self, queue: str) -> str:
        """The first such queue, from the quorum's own on; empty if there is none, or only the quorum's queue with its
        own jobs, as one more child of it."""
        other_path = self._paths.get(queue, ())
        return next((name for name in self._above if name not in other_path and not is_of_own_jobs(name)), "")

    def may_reclaim(self, queue: str) -> bool:
        """Whether jobs of a queue may give room: below the first queue that both paths share, every queue on its path
        is above its share of something that is asked, and none on the quorum's path would be."""
        if queue not in self._others:
            self._others[queue] = self._reclaimed_from(queue)
        others = self._others[queue]
        if not others:
            return False
        return any([all([self._over(name, resource) for name in others]) for resource in self._asked])

    def _reclaimed_from(self, queue: str) -> list[str]:
        """The queues on another queue's path alone, if jobs of it may give room while these are above their shares."""
        other_path = self._paths.get(queue, ())
        own = [name for name in self._path if name not in other_path]
        others = [name for name in other_path if name not in self._path]
        if not own or any(name in self._above for name in own):
            return []
        return others if all(self._specs[queue_itself(name)].reclaimable for name in others) else []

    def spared_by_own(self, queue: str) -> bool:
        """Whether jobs of a queue, which has others below it, give no room because its own jobs have no more than their
        part of its share, though it has more than its own, or isn't on that path alone."""
        own, *others = self._reclaimed_from(queue) or [""]
        above = [one for one in self._asked if all(self._over(name, one) for name in others)]
        return is_of_own_jobs(own) and bool(above) and not any(self._over(own, one) for one in above)

    @cached_property
    def _used_for_good(self) -> Mapping[str, Mapping[str, int]]:
        """What queues and those below them use without jobs that give it up anyway."""
        ending = self._ending()
        return less(self._used, ending, self._paths) if ending else self._used

    @cached_property
    def _by_quorums(self) -> Mapping[str, Mapping[str, int]]:
        """The same without surplus."""
        return less(self._used_for_good, self._spare(), self._paths)

    def _over_by_quorums(self, name: str, resource: str) -> bool:
        used = self._by_quorums.get(name, _NOTHING).get(resource, 0)
        used -= self._given_whole.get(name, _NOTHING).get(resource, 0)
        return used > self._shares.get(name, _NOTHING).get(resource, 0)

    def may_reclaim_whole(self, queue: str) -> bool:
        """As `may_reclaim`, for whole jobs."""
        if not self.may_reclaim(queue):
            return False
        others = self._others[queue]
        return any([all([self._over_by_quorums(name, resource) for name in others]) for resource in self._asked])

    def takes(self, candidate: Candidate) -> bool:
        """Whether a candidate's queue may still give room; then it has given that of the candidate."""
        if not candidate.reclaimed:
            return True
        whole = candidate.kind == PreemptionKind.RECLAIM
        if not (self.may_reclaim_whole if whole else self.may_reclaim)(candidate.queue):
            return False
        amounts = self._net(candidate)
        for name in self._others[candidate.queue]:
            _add(self._given, name, amounts, 1)
            if whole:
                _add(self._given_whole, name, candidate.amounts, 1)
                _add(self._given_whole, name, candidate.surplus, -1)
        if not whole:
            self._given_surplus[candidate.job.uid] = candidate.amounts
        return True


def _add(use: Use, queue: str, amounts: ByResource, sign: int) -> None:
    given = use.setdefault(queue, {})
    for resource, amount in amounts.items():
        given[resource] = given.get(resource, 0) + sign * amount
