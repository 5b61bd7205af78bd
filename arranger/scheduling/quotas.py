"""What the ResourceQuotas of namespaces leave in one cycle, and whether the pods of a job fit that.

Used is what a quota's status says, or what the pods use that are seen, if that is more: quotas and pods are watched
apart, and either may be seen first. Left is the rest without what is decided and not yet seen: placements whose pod
isn't there, pods that may still come, and what the cycle itself places. So a pod that was just created may count twice,
in the status and by its placement, until it is seen too.
"""

from collections.abc import Iterable, Mapping, Sequence

from arranger.events.kinds import QuotaSeen
from arranger.model.job import LEADER_GROUP, JobSpec, PodGroup
from arranger.model.pod import TERMINAL
from arranger.model.quota import QuotaLack, covers, usage, used_by
from arranger.projections.jobs import JobRecord
from arranger.projections.state import State
from arranger.scheduling.needs import quorum_needs
from arranger.scheduling.policies.base import PodPolicy

#: Group → pods of it.
Pods = Mapping[int, int]


class _Account:
    """One quota in one cycle: what is left of each resource; less than nothing where it is overdrawn."""

    def __init__(self, quota: QuotaSeen) -> None:
        self.quota = quota
        self.hard = dict(quota.hard)
        self._used = dict(quota.used)
        #: What the pods use that are seen and certainly covered.
        self._seen: dict[str, int] = {}
        self.left: dict[str, int] = {}
        self.settle()

    def see(self, used: Mapping[str, int]) -> None:
        """A pod is there that uses so much."""
        for name, value in used.items():
            self._seen[name] = self._seen.get(name, 0) + value

    def settle(self) -> None:
        """Every pod was seen: what the status, or they, leave."""
        for name, limit in self.quota.hard:
            # A resource that isn't counted yet: the API server refuses every pod until it is.
            self.left[name] = limit - max(self._used.get(name, limit), self._seen.get(name, 0))

    def uses(self, group: PodGroup) -> dict[str, int]:
        """What a pod of the group uses of this quota; nothing where it doesn't cover it."""
        if not covers(self.quota.scopes, group):
            return {}
        return {name: value for name, value in used_by(group).items() if name in self.left and value}

    def lack(self, needed: Mapping[str, int]) -> QuotaLack | None:
        """What of so much isn't left: what an empty namespace lacks too, or else the first by name."""
        lacks = self.lacks(needed)
        return min(lacks, key=lambda lack: not lack.never) if lacks else None

    def lacks(self, needed: Mapping[str, int]) -> list[QuotaLack]:
        """All that isn't left of so much."""
        return [
            QuotaLack(self.quota.name, name, value, self.left[name], self.hard[name])
            for name, value in sorted(needed.items())
            if value and value > self.left[name]
        ]


class Quotas:
    """The quotas of all namespaces. `time_ms` decides which pods may still come."""

    def __init__(self, state: State, time_ms: int) -> None:
        self._accounts = {
            namespace: [_Account(of[name]) for name in sorted(of)] for namespace, of in state.quotas.items()
        }
        #: What the cycle took, to give it back: account, resource, amount.
        self._taken: list[tuple[_Account, str, int]] = []
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
            if len(job.bound) < len(job.placements) and job.seen.namespace in self._accounts:
                for slot in job.placements:
                    if slot not in job.bound:
                        self.take(job, slot[0], 1)
        for pod in state.assumed.values():
            job_of = state.jobs.get(pod.owner.job_uid)
            if job_of is None or job_of.spec is None or pod.until_ms <= time_ms:
                continue
            for number, group in enumerate(job_of.spec.groups):
                if (group.name, number == LEADER_GROUP) == (pod.owner.group_name, pod.owner.leader):
                    self.take(job_of, number, 1)

    def limits(self, job: JobRecord) -> bool:
        """Whether the job's namespace has a quota."""
        return job.seen.namespace in self._accounts

    def take(self, job: JobRecord, group: int, pods: int) -> None:
        """Count pods of a group as decided."""
        spec = job.valid_spec
        for account in self._accounts.get(job.seen.namespace, ()):
            for name, value in account.uses(spec.groups[group]).items():
                account.left[name] -= value * pods
                self._taken.append((account, name, value * pods))

    def mark(self) -> int:
        """A point that `give_back` can return to."""
        return len(self._taken)

    def give_back(self, mark: int) -> None:
        """Undo all that was taken since `mark`."""
        while len(self._taken) > mark:
            account, name, value = self._taken.pop()
            account.left[name] += value

    def room(self, job: JobRecord, group: int, desired: int) -> int:
        """How many more pods of a group may be created, at most `desired`."""
        spec = job.valid_spec
        room = desired
        for account in self._accounts.get(job.seen.namespace, ()):
            for name, value in account.uses(spec.groups[group]).items():
                room = min(room, account.left[name] // value)
        return max(room, 0)

    def lack(self, job: JobRecord, pods: Pods) -> QuotaLack | None:
        """What isn't left for these pods together, by the first quota that doesn't leave it."""
        spec = job.valid_spec
        for account in self._accounts.get(job.seen.namespace, ()):
            needed = _sum(account, spec, pods)
            lack = account.lack(needed)
            if lack is not None:
                return lack
        return None

    def lacks(self, job: JobRecord, pods: Pods) -> list[tuple[QuotaSeen, QuotaLack]]:
        """Everything that isn't left for these pods together, with the quota that doesn't leave it."""
        spec = job.valid_spec
        return [
            (account.quota, lack)
            for account in self._accounts.get(job.seen.namespace, ())
            for lack in account.lacks(_sum(account, spec, pods))
        ]

    def least(self, job: JobRecord, pods: Pods, others: Iterable[int]) -> QuotaLack | None:
        """As `lack`, if as many workers as `pods` has may come from any of the sets `others`: what lacks then lacks
        whichever they are."""
        spec = job.valid_spec
        workers = sum(count for group, count in pods.items() if group != LEADER_GROUP)
        sets = [spec.groups[group] for group in others]
        for account in self._accounts.get(job.seen.namespace, ()):
            needed = _sum(account, spec, {group: count for group, count in pods.items() if group == LEADER_GROUP})
            for name in account.left:
                each = sorted((account.uses(of).get(name, 0), of.count) for of in sets)
                needed[name] = needed.get(name, 0) + _cheapest(each, workers)
            lack = account.lack(needed)
            if lack is not None:
                return lack
        return None


def quorum_lacks(state: State, job: JobRecord, policy: PodPolicy, group: int) -> list[tuple[QuotaSeen, QuotaLack]]:
    """Everything that the namespace's quotas don't leave for what the quorum needs, or, if it needs nothing, for one
    more pod of the group."""
    needs = {of: len(indices) for of, indices in quorum_needs(job, policy).items()}
    return Quotas(state, state.time_ms).lacks(job, needs or {group: 1})


def _sum(account: _Account, spec: JobSpec, pods: Pods) -> dict[str, int]:
    needed: dict[str, int] = {}
    for group, count in pods.items():
        for name, value in account.uses(spec.groups[group]).items():
            needed[name] = needed.get(name, 0) + value * count
    return needed


def _cheapest(each: Sequence[tuple[int, int]], workers: int) -> int:
    """What so many workers use at least, of sets given as (use of one, workers in it), the smallest first."""
    total = 0
    for value, count in each:
        taken = min(count, workers)
        total, workers = total + value * taken, workers - taken
    return total
