"""A literal implementation of the specified scheduling cycle: one pod at a time, with every node checked for each.

It shares only the model with the engine: filters, formulas, queues and shares are implemented again. It is slow and
simple, and tests compare the engine's plans with it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from arranger.model.accelerators import is_accelerator
from arranger.model.config import CycleConfig
from arranger.model.pod import PodShape
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord
from tests.world import World

#: Pods by job, group and node.
Counts = dict[tuple[str, int, str], int]

#: Utilisations of nodes are compared in millionths.
MILLION = 1_000_000

#: The factor by which LeaderFirst raises a weight.
RAISED = 4


@dataclass
class OneJob:
    """A job, its placements, and the progress of its turns."""

    job: JobRecord
    slots: dict[SlotKey, str]
    stands: bool = False
    done: bool = False
    #: Groups without room for another pod.
    full: set[int] = field(default_factory=set)

    @property
    def policy(self) -> str:
        assert self.job.spec is not None
        return self.job.spec.pod_policy or "MostAllocated"

    def count(self, group: int) -> int:
        assert self.job.spec is not None
        return self.job.spec.groups[group].count

    def shape(self, group: int) -> PodShape:
        assert self.job.spec is not None
        return self.job.spec.groups[group].shape

    def groups(self) -> range:
        assert self.job.spec is not None
        return range(len(self.job.spec.groups))

    def missing(self, group: int) -> list[SlotKey]:
        """The group's slots without a node."""
        return [(group, index) for index in range(self.count(group)) if (group, index) not in self.slots]

    def seniority(self) -> tuple[int, int, str]:
        assert self.job.spec is not None
        return (-self.job.spec.priority, self.job.seen.created_ms, self.job.uid)


class OneByOne:
    """One cycle on a world's present state. The default policies must be Priority and MostAllocated."""

    def __init__(self, world: World) -> None:
        nodes = world.state.nodes
        self.names = [name for name in sorted(nodes.rows) if nodes.has(name)]
        self.facts = {name: nodes.facts[nodes.rows[name]] for name in self.names}
        self.has = {name: dict(self.facts[name].allocatable) for name in self.names}
        amounts = {name: nodes.amounts(nodes.rows[name]) for name in self.names}
        self.used = {name: {resource: used for resource, (used, _) in amounts[name].items()} for name in self.names}
        self.config: CycleConfig = world.config
        #: Turns that changed a job's share: (job UID, share afterwards).
        self.trace: list[tuple[str, Fraction]] = []
        self.levels: list[list[list[OneJob]]] = []

    def plan(self, jobs: Iterable[JobRecord]) -> dict[str, dict[SlotKey, str]]:
        """Every slot with a node after the cycle, by job."""
        every = [OneJob(job, dict(job.placements)) for job in jobs]
        for one in every:
            one.done = not any(one.missing(group) for group in one.groups())  # it isn't in the queue
        self.levels = _in_line([one for one in every if not one.done])
        while (turn := self._next()) is not None:
            before = self.share(turn)
            if turn.stands:
                self._further(turn)
            else:
                turn.stands = self._quorum(turn)
                turn.done = not turn.stands
            if self.share(turn) != before:
                self.trace.append((turn.job.uid, self.share(turn)))
        return {one.job.uid: one.slots for one in every}

    # --- turns ---------------------------------------------------------------------------------------------

    def _next(self) -> OneJob | None:
        for level in self.levels:
            for turn_of_quorums in (True, False):
                for segment in level:
                    left = [one for one in segment if not one.done]
                    if left and (not turn_of_quorums or any(not one.stands for one in left)):
                        return self._first(left)
        return None

    def _first(self, left: list[OneJob]) -> OneJob:
        """The next job among jobs of one policy."""
        if _fair(left[0]):
            return min(left, key=lambda one: (self.share(one), self.requested(one), one.seniority()))
        return min(left, key=lambda one: (one.seniority()[0], one.stands, one.seniority()))

    def share(self, one: OneJob) -> Fraction:
        """The dominant share of a job's placements."""
        return self._dominant(one, Counter(group for group, _ in one.slots))

    def requested(self, one: OneJob) -> Fraction:
        """The dominant share of a job's whole request."""
        return self._dominant(one, {group: one.count(group) for group in one.groups()})

    def _dominant(self, one: OneJob, counts: Mapping[int, int]) -> Fraction:
        amounts: Counter[str] = Counter()
        for group, count in counts.items():
            for resource, amount in one.shape(group).requests:
                amounts[resource] += amount * count
        return max((self._part(resource, amount) for resource, amount in amounts.items()), default=Fraction(0))

    def _part(self, resource: str, amount: int) -> Fraction:
        total = sum(self.has[name].get(resource, 0) for name in self.names)
        return Fraction(amount, total) if total else Fraction(int(amount > 0))

    # --- quorums and further pods --------------------------------------------------------------------------

    def _quorum(self, one: OneJob) -> bool:
        """Place exactly the quorum, or else as many workers as each set can give, in other orders of the sets."""
        spec = one.job.spec
        assert spec is not None
        workers = [(group, index) for group in one.groups() if group for index in range(one.count(group))]
        there = sum(group > 0 for group, _ in one.slots)
        lacking = max((len(workers) if one.policy == "Gang" else spec.min_workers) - there, 0)
        leader = one.missing(0)
        missing = [slot for slot in workers if slot not in one.slots]
        if self._whole(one, [*leader, *missing[:lacking]], len(leader) + lacking, exactly=True):
            return True
        sets = [group for group in one.groups() if group]
        if one.policy == "Gang" or len(sets) < 2:
            return False
        by_size = sorted(sets, key=lambda group: (self._size(one, group), group))
        for order in (by_size, by_size[::-1], *(sets[at:] + sets[:at] for at in range(len(sets))))[:8]:
            tried = [*leader, *(slot for group in order for slot in one.missing(group))]
            if self._whole(one, tried, len(leader) + lacking, exactly=False):
                return True
        return False

    def _whole(self, one: OneJob, desired: list[SlotKey], pods: int, *, exactly: bool) -> bool:
        """Place `pods` of the desired pods, or none of them."""
        got: list[SlotKey] = []
        for slot in desired:
            if len(got) == pods:
                break
            if self._place(one, slot):
                got.append(slot)
            elif exactly or slot[0] == 0:
                break
        if len(got) == pods:
            return True
        for slot in got:
            self._hold(one.slots.pop(slot), one.shape(slot[0]), -1)
        return False

    def _size(self, one: OneJob, group: int) -> int:
        size = 0
        for resource, amount in one.shape(group).requests:
            total = sum(self.has[name].get(resource, 0) for name in self.names)
            size += max(self._weight(resource), 1) * (amount * 10**9 // total if total else 1 << 40)
        return size

    def _further(self, one: OneJob) -> None:
        """Place one more pod of the first set that has one to place and a node for it."""
        for group in one.groups():
            for slot in one.missing(group)[:1] if group not in one.full else ():
                if self._place(one, slot):
                    return
                one.full.add(group)
        one.done = True

    # --- nodes of a pod ------------------------------------------------------------------------------------

    def _place(self, one: OneJob, slot: SlotKey) -> bool:
        pod = one.shape(slot[0])
        fitting = [name for name in self.names if self.fits(name, pod)]
        if not fitting:
            return False
        node = max(fitting, key=lambda name: self._score(one, slot[0], name))
        self._hold(node, pod, 1)
        one.slots[slot] = node
        return True

    def fits(self, name: str, pod: PodShape) -> bool:
        """Whether a node takes such a pod now."""
        return self._room(name, pod, self.used[name]) > 0

    def _room(self, name: str, pod: PodShape, used: Mapping[str, int]) -> int:
        facts, labels = self.facts[name], dict(self.facts[name].labels)
        if not facts.ready or facts.cordoned or facts.taints:
            return 0
        if any(labels.get(key) != value for key, value in pod.node_selector):
            return 0
        return max(min((self.has[name].get(resource, 0) - used.get(resource, 0)) // amount
                       for resource, amount in (*pod.requests, ("pods", 1))), 0)  # fmt: skip

    def _hold(self, name: str, pod: PodShape, pods: int) -> None:
        for resource, amount in (*pod.requests, ("pods", 1)):
            self.used[name][resource] = self.used[name].get(resource, 0) + pods * amount

    # --- the formulas --------------------------------------------------------------------------------------

    def _score(self, one: OneJob, group: int, name: str) -> tuple[int, ...]:
        """The score, as a tuple: later elements break ties."""
        pod = one.shape(group)
        packed = self._utilisation(name, pod)
        of_job = sum(node == name for node in one.slots.values())
        match one.policy:
            case "BinPack" | "Gang":
                return (packed,)
            case "MostAllocated":
                return (self._allocated(name, pod),)
            case "LeaderFirst" if group == 0:
                return (-self._utilisation(name, pod, raised="accelerators"),)
            case "LeaderFirst":
                return (self._utilisation(name, pod, raised="cpu"),)
            case "MinFragment":
                apart = abs(self._used_part(name, pod, "cpu") - self._used_part(name, pod, "memory"))
                return ((MILLION - apart) * packed // MILLION,)
            case "JobAffinity":
                return (of_job + self._holds(one, group, name), packed)
            case "JobAntiAffinity":
                return (-of_job, -packed)
        raise AssertionError(one.policy)

    def _holds(self, one: OneJob, first: int, name: str) -> int:
        """How many of the job's unplaced pods the node can take: this group first, then the others."""
        used = dict(self.used[name])
        found = 0
        for group in (first, *(group for group in one.groups() if group != first)):
            pod = one.shape(group)
            fits = min(self._room(name, pod, used), len(one.missing(group)))
            for resource, amount in (*pod.requests, ("pods", 1)):
                used[resource] = used.get(resource, 0) + fits * amount
            found += fits
        return found

    def _utilisation(self, name: str, pod: PodShape, raised: str = "none") -> int:
        weights = dict(self._weights(pod, raised))
        total = sum(weight * self._used_part(name, pod, resource) for resource, weight in weights.items())
        return total // sum(weights.values()) if weights else 0

    def _allocated(self, name: str, pod: PodShape) -> int:
        """As `_utilisation`, over all weighted resources that some node has; one that the node lacks is full."""
        has = self.has[name]
        weights = {
            resource: weight
            for resource in {resource for of_node in self.has.values() for resource, there in of_node.items() if there}
            if (weight := self._weight(resource))
        }
        total = sum(
            weight * (self._used_part(name, pod, resource) if has.get(resource) else MILLION)
            for resource, weight in weights.items()
        )
        return total // sum(weights.values()) if weights else 0

    def _weights(self, pod: PodShape, raised: str) -> Iterator[tuple[str, int]]:
        for resource, _ in pod.requests:
            weight, kind = self._weight(resource), "accelerators" if is_accelerator(resource) else ""
            if weight:
                yield resource, weight * (RAISED if raised in (resource, kind) else 1)

    def _weight(self, resource: str) -> int:
        weights = dict(self.config.weights)
        return weights.get(resource, weights.get("accelerators", 0) if is_accelerator(resource) else 0)

    def _used_part(self, name: str, pod: PodShape, resource: str) -> int:
        """U = (used + request) / allocatable in millionths; 0 if the node has none of the resource."""
        there = self.has[name].get(resource, 0)
        used = self.used[name].get(resource, 0) + dict(pod.requests).get(resource, 0)
        return min(round(used / there * MILLION), MILLION) if there else 0


def _fair(one: OneJob) -> bool:
    assert one.job.spec is not None
    return one.job.spec.queue_policy == "DRF"


def _in_line(every: list[OneJob]) -> list[list[list[OneJob]]]:
    """Levels of segments. Jobs with a single policy are one segment. Otherwise the line by seniority is cut where the
    priority or the policy changes."""
    if len({_fair(one) for one in every}) < 2:
        return [[every]]
    levels: list[list[list[OneJob]]] = []
    last: OneJob | None = None
    for one in sorted(every, key=OneJob.seniority):
        if last is None or last.seniority()[0] != one.seniority()[0]:
            levels.append([[one]])
        elif _fair(last) != _fair(one):
            levels[-1].append([one])
        else:
            levels[-1][-1].append(one)
        last = one
    return levels


def counted(plan: Mapping[str, Mapping[SlotKey, str]]) -> Counts:
    """Pods by job, group and node: equal pods are interchangeable, so their indices don't matter."""
    return dict(Counter((uid, group, node) for uid, slots in plan.items() for (group, _), node in slots.items()))
