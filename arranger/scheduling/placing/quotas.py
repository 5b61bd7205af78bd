"""What limits a job beside nodes in one cycle, and whether its pods fit: the ResourceQuotas of its namespace, and its
queue, whose limits are in `queues/limits`.

The usage of a quota is the one in its status or that of the observed pods, if that is higher: quotas and pods are
watched separately, and either may be observed first. The remainder also excludes decisions without an observed pod:
placements, assumed pods, and what the cycle itself places. So a pod that was just created may count twice, in the
status and by its placement, until it is observed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

import msgspec

from arranger.events.kinds import QuotaSeen
from arranger.model.job import LEADER_GROUP, JobSpec, PodGroup
from arranger.model.pod import TERMINAL
from arranger.model.quota import LEFT_BY_ENDS, LEFT_BY_JOBS, LimitKind, QuotaLack, covers, usage, used_by
from arranger.projections.derived.queue_counts import queue_of, sum_by_group
from arranger.projections.jobs.records import JobRecord
from arranger.projections.queues.use import JOBS, counted_name, non_preemptible_amounts
from arranger.projections.state import State
from arranger.scheduling.placing.needs import pods_of, quorum_needs
from arranger.scheduling.policies.base import PodPolicy
from arranger.scheduling.queues.fair_shares import ROOT
from arranger.scheduling.queues.limits import QueueAccount, QueueLimits, QueueRoom

#: Group → pods of it.
Pods = Mapping[int, int]


class _Account:
    """One quota in one cycle, with the remainder of each resource; negative where the limit is exceeded."""

    def __init__(self, quota: QuotaSeen) -> None:
        self.quota = quota
        self.hard = dict(quota.hard)
        self._used = dict(quota.used)
        #: The usage of observed pods that the quota certainly covers.
        self._seen: dict[str, int] = {}
        self.left: dict[str, int] = {}
        self.settle()

    def see(self, used: Mapping[str, int]) -> None:
        """Add the usage of an observed pod."""
        for name, value in used.items():
            self._seen[name] = self._seen.get(name, 0) + value

    def settle(self) -> None:
        """Compute the remainders, once all observed pods were added."""
        for name, limit in self.quota.hard:
            # Without usage in the status nothing remains: until then the API server refuses every pod.
            self.left[name] = limit - max(self._used.get(name, limit), self._seen.get(name, 0))

    def uses(self, group: PodGroup) -> dict[str, int]:
        """The usage of this quota by a pod of the group; empty if the quota doesn't cover it."""
        if not covers(self.quota.scopes, group):
            return {}
        return {name: value for name, value in used_by(group).items() if name in self.left and value}

    def leaves(self, resource: str, amount: int) -> bool:
        """Whether so much remains."""
        return amount <= self.left[resource]

    def take(self, resource: str, amount: int) -> None:
        self.left[resource] -= amount

    def lacks(self, needed: Mapping[str, int]) -> list[QuotaLack]:
        """Every resource that is needed beyond its remainder."""
        return [
            QuotaLack(self.quota.name, name, value, self.left[name], self.hard[name])
            for name, value in sorted(needed.items())
            if value and value > self.left[name]
        ]


Accounts = tuple[_Account | QueueAccount, ...]
#: A namespace and a queue, each empty if it doesn't limit a job.
Names = tuple[str, str]
UNLIMITED: Names = ("", "")
#: A queue, and what its own jobs use.
Use = tuple[str, Iterable[tuple[str, int]]]


class Quotas:
    """The quotas of all namespaces, and the limits of all queues. `time_ms` decides which assumed pods still count."""

    def __init__(self, state: State, time_ms: int, limits: QueueLimits | None = None) -> None:
        """`limits` are those of the state's tree of queues, if they are known."""
        self._state = state
        self._room = QueueRoom(state, time_ms, limits) if state.queue_tree.limited else None
        #: Whether some queue limits its jobs. Each job's turn asks that.
        self.of_queues = self._room is not None
        self._counts_non_preemptible = self._room is not None and self._room.counts_non_preemptible
        #: Whether a job is the record of a pod, its namespace, the queue that it names, and whether it counts once more
        #: as one that can't be preempted → its accounts; found on first use.
        self._found: dict[tuple[bool, str, str, bool], Accounts] = {}
        #: Of each queue, and of those of its jobs that count once more.
        self._queues: dict[tuple[str, bool], QueueAccount] = {}
        #: The groups that were last asked for, and what all their pods request: most jobs that follow each other have
        #: equal ones.
        self._groups: tuple[tuple[PodGroup, ...], bool] = ((), False)
        self._requests: dict[str, int] = {}
        #: The last job whose queue was found to have room for all its pods, until another job takes something.
        self._roomy: JobRecord | None = None
        self._accounts = {
            namespace: [_Account(of[name]) for name in sorted(of)] for namespace, of in state.quotas.items()
        }
        #: Whether nothing limits anybody, for a while.
        self._lifted = False
        #: What the cycle took, in order to undo it: account, resource, amount.
        self._taken: list[tuple[_Account | QueueAccount, str, int]] = []
        if self._accounts:
            self._count_seen(state)
            self._count_decided(state, time_ms)

    def _count_seen(self, state: State) -> None:
        for pod in state.pods.values():
            accounts = self._accounts.get(pod.namespace)
            if accounts is None or pod.phase in TERMINAL or pod.deleting:
                continue
            job = state.jobs.get(pod.owner.job_uid) if pod.owner is not None else None
            slot = job.slot_of(pod.owner) if job is not None and pod.owner is not None else None
            for account in accounts:
                if job is not None and job.spec is not None and slot is not None:
                    account.see(account.uses(job.spec.groups[slot[0]]))
                elif not account.quota.scopes:
                    account.see(usage(pod.requests))
        for of_namespace in self._accounts.values():
            for account in of_namespace:
                account.settle()

    def _count_decided(self, state: State, time_ms: int) -> None:
        for job in state.jobs.values():
            if len(job.bound) < len(job.placements) and _namespace_of(job) in self._accounts:
                for slot in job.placements:
                    if slot not in job.bound:
                        self._decided(job, slot[0])
        for pod in state.assumed.values():
            job_of = state.jobs.get(pod.owner.job_uid)
            if job_of is None or job_of.spec is None or job_of.of_pods or pod.until_ms <= time_ms:
                continue
            for number, group in enumerate(job_of.spec.groups):
                if (group.name, number == LEADER_GROUP) == (pod.owner.group_name, pod.owner.leader):
                    self._decided(job_of, number)

    def _decided(self, job: JobRecord, group: int) -> None:
        for account in self._accounts.get(job.seen.namespace, ()):
            for name, value in account.uses(job.valid_spec.groups[group]).items():
                account.take(name, value)

    def limits(self, job: JobRecord) -> bool:
        """Whether the job's namespace has a quota, or its queue a limit."""
        return bool(self._of(job)) if self._accounts or self._room is not None else False

    def tight(self, job: JobRecord) -> Names:
        """What may limit the job: its namespace if that has quotas, and its queue if that lacks room for all pods of
        the job, even if the job had none yet. Any other queue changes nothing for it, and jobs with equal names have
        the same limits."""
        namespace = of if (of := _namespace_of(job)) in self._accounts else ""
        if self._room is None:
            return (namespace, "") if namespace else UNLIMITED
        enough = self._has_room(job)
        return (namespace, "" if enough else queue_of(self._state, job)) if namespace or not enough else UNLIMITED

    def _has_room(self, job: JobRecord) -> bool:
        """Whether the job's queue has room for all its pods, even if it had none yet."""
        if self._roomy is job or self._room is None:
            return True
        groups, non_preemptible = job.valid_spec.groups, self._counts_non_preemptible and not job.valid_spec.preemptible
        if groups is not self._groups[0] or non_preemptible != self._groups[1]:
            self._groups, self._requests = (groups, non_preemptible), _of_all(groups)
            self._requests.update(non_preemptible_amounts(self._requests.items()) if non_preemptible else ())
        enough = self._room.leaves(queue_of(self._state, job), self._requests)
        self._roomy = job if enough else None
        return enough

    def full(self, job: JobRecord) -> QuotaLack | None:
        """The lack if the job has no nodes, and no more jobs of its queue may get some."""
        if self._room is None or not self._room.counts_jobs or job.placements:
            return None
        return self._room.full(queue_of(self._state, job))

    def begin(self, job: JobRecord) -> None:
        """Count a job that has got its first nodes. `mark` doesn't know of it."""
        if self._room is not None and self._room.counts_jobs and not job.placements:
            self._room.begin(queue_of(self._state, job))

    def never_began(self, job: JobRecord) -> None:
        """Undo `begin`."""
        self.release(queue_of(self._state, job), ((JOBS, 1),), 1)

    def _of(self, job: JobRecord) -> Accounts:
        """The job's accounts, the queue's last."""
        if self._lifted:
            return ()
        non_preemptible = self._counts_non_preemptible and not job.valid_spec.preemptible
        key = (job.of_pods, job.seen.namespace, job.valid_spec.queue, non_preemptible)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._find(
                _namespace_of(job), queue_of(self._state, job), non_preemptible=non_preemptible
            )
        return found

    def counted(self, job: JobRecord, amounts: Mapping[str, int]) -> Iterable[tuple[str, int]]:
        """What its queue counts as the use of these amounts by a job."""
        of_job = amounts.items()
        non_preemptible = self._counts_non_preemptible and not job.valid_spec.preemptible
        return (*of_job, *non_preemptible_amounts(of_job)) if non_preemptible else of_job

    def _limiting(self, job: JobRecord) -> Accounts:
        """The job's accounts, without a queue that has room for all its pods."""
        accounts = self._of(job)
        queue = accounts[-1] if accounts else None
        return accounts[:-1] if isinstance(queue, QueueAccount) and self._has_room(job) else accounts

    def _find(self, namespace: str, queue: str, *, non_preemptible: bool) -> Accounts:
        of_namespace: Accounts = tuple(self._accounts.get(namespace, ()))
        account = self._queues.get((queue, non_preemptible))
        if account is None and self._room is not None:
            account = self._queues[queue, non_preemptible] = QueueAccount(
                self._room, queue, non_preemptible=non_preemptible
            )
        return (*of_namespace, account) if account is not None and account.limited else of_namespace

    def take(self, job: JobRecord, group: int, pods: int) -> None:
        """Count pods of a group that the cycle places."""
        spec = job.valid_spec
        if job is not self._roomy:
            self._roomy = None
        for account in self._of(job):
            for name, value in account.uses(spec.groups[group]).items():
                account.take(name, value * pods)
                self._taken.append((account, name, value * pods))

    def release(self, queue: str, use: Iterable[tuple[str, int]], sign: int) -> None:
        """A queue's own jobs use so much less, or with the sign -1 so much more again. `mark` doesn't know of it."""
        self._roomy = None
        if self._room is not None:
            for resource, amount in use:
                if resource != JOBS:
                    self._room.use(queue, resource, -amount * sign)
                elif self._room.counts_jobs:
                    self._room.begin(queue, -amount * sign)

    @contextmanager
    def _without(self, used: Iterable[Use], sign: int = 1) -> Iterator[None]:
        """Meanwhile queues use so much less, or with the sign -1 so much more."""
        used = [*used]
        for of in used:
            self.release(*of, sign)
        try:
            yield
        finally:
            for of in used:
                self.release(*of, -sign)

    @property
    def guarantees(self) -> bool:
        """Whether some queue has a guarantee. They never leave less than 0, so `exceeded` knows nothing of them."""
        return self._room is not None and bool(self._room.guaranteed)

    def of_guarantees(self, lack: QuotaLack) -> bool:
        """Whether guarantees keep what lacks, and it is to be asked whether nodes have it at all."""
        return lack.limit == LimitKind.GUARANTEES

    def lending(self, lack: QuotaLack) -> set[str]:
        """The queues whose jobs leave some of what lacks as they end, although they share no other limit with the job
        that lacks it; none if it isn't what all guarantees leave of the nodes."""
        of_all = self._room is not None and self.of_guarantees(lack) and lack.queue == ROOT
        return self._room.lending(lack.resource) if self._room is not None and of_all else set()

    @contextmanager
    def without_guarantees(self) -> Iterator[None]:
        """Meanwhile the guarantees keep nothing."""
        assert self._room is not None
        self._roomy = None
        self._room.lend(True)
        try:
            yield
        finally:
            self._roomy = None
            self._room.lend(False)

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Meanwhile no quota and no queue limits anybody. What is placed meanwhile is to be undone before the end."""
        self._lifted = True
        try:
            yield
        finally:
            self._lifted = False

    def suffice_without(self, used: Iterable[Use], job: JobRecord, policy: PodPolicy, lack: QuotaLack) -> bool:
        """Whether a quorum that lacks a limit of its queue has enough once queues use so much less."""
        if lack.limit not in LEFT_BY_JOBS:
            return False
        with self._without(used):
            return self.full(job) is None and self.lack(job, pods_of(quorum_needs(job, policy))) is None

    def keep_from(self, host: JobRecord, needs: Pods, job: JobRecord, pods: Pods, left: Iterable[Use]) -> bool:
        """Whether a limit of queues leaves less than so many pods of a host's groups need, because of so many of a
        job's, which are counted, once queues use as much less as is `left`."""
        with self._without(left):
            lack = self.full(host) or self.lack(host, needs)
            if lack is None or lack.limit not in LEFT_BY_ENDS:
                return False
            with self.before(job, pods):
                return (self.full(host) or self.lack(host, needs)) != lack

    def before(self, job: JobRecord, pods: Pods) -> AbstractContextManager[None]:
        """Meanwhile a quorum of so many pods of a job's groups, which was placed, isn't counted by its queue."""
        return self._without([self._use_of(job, pods)])

    def _use_of(self, job: JobRecord, pods: Pods) -> Use:
        return queue_of(self._state, job), (*self.counted(job, sum_by_group(job, pods)), (JOBS, 1))

    def lack_beside(
        self, job: JobRecord, pods: Pods, host: JobRecord, needs: Pods, left: Iterable[Use]
    ) -> QuotaLack | None:
        """What a quorum of so many pods of a job's groups lacks of a limit of queues, other than their guarantees,
        beside so many of a host's, for which that is kept, once queues use as much less as is `left`."""
        queue, use = self._use_of(job, pods)
        with self._without(left):
            alone = self.full(host) or self.lack(host, needs)
            with self._without([(queue, use)], -1):
                lack = self.full(host) or self.lack(host, needs)
        if lack is None or lack == alone or lack.limit not in LEFT_BY_ENDS or self.of_guarantees(lack):
            return None
        own = dict(use).get(lack.resource, 0)
        return msgspec.structs.replace(lack, needed=own, left=max(lack.left + own - lack.needed, 0)) if own else None

    @contextmanager
    def with_only(self, lack: QuotaLack) -> Iterator[None]:
        """Meanwhile a limit of queues leaves what this lack of it says, unless that is less anyway."""
        assert self._room is not None
        kept = max(self._room.left_of(lack.name) - lack.left, 0)
        with self._without([(lack.queue, ((counted_name(lack.name), kept),))], -1):
            yield

    def quota_keeps_from(self, host: JobRecord, needs: Pods, job: JobRecord, policy: PodPolicy) -> bool:
        """Whether the quotas of its namespace leave less than so many pods of a host's groups need, once a job's quorum
        uses them too. They count its pods until these are gone."""
        if _namespace_of(job) != _namespace_of(host) or _namespace_of(job) not in self._accounts:
            return False
        mark = self.mark()
        for group, pods in pods_of(quorum_needs(job, policy)).items():
            self.take(job, group, pods)
        lack = self.lack(host, needs)
        self.give_back(mark)
        return lack is not None and lack.limit == LimitKind.QUOTA

    @contextmanager
    def kept_for(self, hosts: Iterable[tuple[JobRecord, Pods]], job: JobRecord) -> Iterator[None]:
        """Meanwhile the quotas of a job's namespace leave to it only what so many pods of the groups of each of these
        hosts don't need."""
        kept, namespace = list[tuple[_Account, str, int]](), _namespace_of(job)
        there = [(host.valid_spec, needs) for host, needs in hosts if _namespace_of(host) == namespace]
        for account in self._accounts.get(namespace, ()) if there else ():
            each = [_sum(account, spec, needs) for spec, needs in there]
            kept += [(account, name, max(of.get(name, 0) for of in each)) for name in account.left]
        for account, name, value in kept:
            account.take(name, value)
        try:
            yield
        finally:
            for account, name, value in kept:
                account.take(name, -value)

    def over(self, job: JobRecord) -> bool:
        """Whether the job's queue, or one above it, has more than a limit allows, as after the limit was lowered."""
        return self._room is not None and self._room.over(queue_of(self._state, job))

    def exceeded(self, job: JobRecord) -> bool:
        """Whether what the cycle placed exceeds a limit of the job's queue."""
        if self.full(job) is not None:
            return True
        return any(isinstance(of, QueueAccount) and min(of.left.values()) < 0 for of in self._of(job))

    def mark(self) -> int:
        """A point that `give_back` can return to."""
        return len(self._taken)

    def give_back(self, mark: int) -> None:
        """Undo everything taken since `mark`."""
        while len(self._taken) > mark:
            account, name, value = self._taken.pop()
            account.take(name, -value)

    def room(self, job: JobRecord, group: int, desired: int) -> int:
        """How many more pods of a group may be created, at most `desired`."""
        spec = job.valid_spec
        room = desired
        for account in self._limiting(job):
            for name, value in account.uses(spec.groups[group]).items():
                if not account.leaves(name, value * room):
                    room = min(room, account.left[name] // value)
        return max(room, 0)

    def lack(self, job: JobRecord, pods: Pods) -> QuotaLack | None:
        """The lack for these pods together in the first quota or queue that is too small; None if all suffice."""
        spec = job.valid_spec
        for account in self._limiting(job):
            if lacks := account.lacks(_sum(account, spec, pods)):
                return self._first(lacks)
        return None

    def remainders(self, job: JobRecord, groups: Sequence[int]) -> tuple[list[list[int]], list[int]]:
        """For each limited resource that some group uses: the use by one pod of each group, and what remains.
        A queue that has room for all pods of the job is left out."""
        spec = job.valid_spec
        uses, left = [], []
        for account in self._limiting(job):
            of_groups = [account.uses(spec.groups[group]) for group in groups]
            for name in sorted(account.left):
                used = [of_group.get(name, 0) for of_group in of_groups]
                if any(used):
                    uses.append(used)
                    left.append(max(account.left[name], 0))
        return uses, left

    def lacks(self, job: JobRecord, pods: Pods) -> list[QuotaLack]:
        """Every lack for these pods together."""
        spec = job.valid_spec
        return [lack for account in self._of(job) for lack in account.lacks(_sum(account, spec, pods))]

    def least(self, job: JobRecord, pods: Pods, others: Iterable[int]) -> QuotaLack | None:
        """As `lack`, if the workers in `pods` may come from any of the sets `others`: a lack here is a lack for every
        choice."""
        spec = job.valid_spec
        workers = sum(count for group, count in pods.items() if group != LEADER_GROUP)
        sets = [spec.groups[group] for group in others]
        for account in self._of(job):
            needed = _sum(account, spec, {group: count for group, count in pods.items() if group == LEADER_GROUP})
            for name in account.left:
                each = sorted((account.uses(of).get(name, 0), of.count) for of in sets)
                needed[name] = needed.get(name, 0) + _cheapest(each, workers)
            if lacks := account.lacks(needed):
                return self._first(lacks)
        return None

    def _first(self, lacks: list[QuotaLack]) -> QuotaLack:
        """The first lack by name; others come before guarantees, which may keep nothing, and of them one that even an
        empty namespace exceeds."""
        return min(lacks, key=lambda lack: (self.of_guarantees(lack), not lack.never))


def _namespace_of(job: JobRecord) -> str:
    """The namespace whose quotas limit a job. A pod that exists already was counted when it was created, so none limits
    its record."""
    return "" if job.of_pods else job.seen.namespace


def quorum_lacks(state: State, job: JobRecord, policy: PodPolicy, group: int) -> list[QuotaLack]:
    """Every lack in the namespace's quotas and the job's queue, for the pods that the quorum needs or, if it needs
    none, for one more pod of the group."""
    needs = pods_of(quorum_needs(job, policy))
    return Quotas(state, state.time_ms).lacks(job, needs or {group: 1})


def _sum(account: _Account | QueueAccount, spec: JobSpec, pods: Pods) -> dict[str, int]:
    needed: dict[str, int] = {}
    for group, count in pods.items():
        for name, value in account.uses(spec.groups[group]).items():
            needed[name] = needed.get(name, 0) + value * count
    return needed


def _of_all(groups: Iterable[PodGroup]) -> dict[str, int]:
    """What all pods of these groups request."""
    needed: dict[str, int] = {}
    for group in groups:
        for name, value in group.shape.requests:
            needed[name] = needed.get(name, 0) + value * group.count
    return needed


def _cheapest(each: Sequence[tuple[int, int]], workers: int) -> int:
    """The least usage of `workers` workers from sets given as (usage of one, workers in it), ascending."""
    total = 0
    for value, count in each:
        taken = min(count, workers)
        total, workers = total + value * taken, workers - taken
    return total
