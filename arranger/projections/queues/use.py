"""What the jobs of each queue use: the requests of their pods with nodes; and what pods of other programs use, which
no queue counts.

The fold keeps it up to date, because a cycle and a verdict have no time to add up all jobs. It follows from the rest of
the state, so a snapshot doesn't have it.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from arranger.events.kinds import PodSeen
from arranger.model.decayed_usage import DecayedUsage
from arranger.model.queue import DEFAULT_QUEUE
from arranger.model.quota import LimitKind, LimitName
from arranger.projections.cluster.nodes import Requests

#: The jobs of a queue that have nodes are counted as a resource of this name, which no resource has.
JOBS = ""

#: What a job with nodes counts as.
ONE_JOB: Requests = ((JOBS, 1),)

#: What jobs use that can't be preempted is counted once more, as resources with names that begin with this, as no
#: resource's name does.
_NON_PREEMPTIBLE = "!"
#: The same of what leaves the offer with a job.
_OFFERED = "+"

#: Queue → resource → amount in its unit, without zeros. The amounts of a queue are replaced and never modified, so that
#: copies share them.
Use = dict[str, dict[str, int]]

#: Don't modify it.
NOTHING_FREED: Use = {}


@dataclass(slots=True)
class QueueUse:
    """What queues use. `own` is that of each queue's own jobs, without those of the queues below it."""

    own: Use = field(default_factory=dict)
    #: What jobs use of it that can't be preempted, by the names of `non_preemptible_amounts`; None while no queue
    #: limits that.
    non_preemptible: Use | None = None
    #: Node → resource → the amount that pods of other programs have there.
    others: Use = field(default_factory=dict)
    #: Resource → the amount that they have on all nodes together.
    others_total: dict[str, int] = field(default_factory=dict)
    #: Queue → what it and the queues below it use; None until it is needed after a change of the tree.
    _totals: Use | None = field(default=None, compare=False)
    _paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)
    #: The time of the entry that is folded, in milliseconds since 1970.
    time_ms: int = field(default=0, compare=False)
    #: The half-life of the averages in milliseconds, 0 for none: that of the last accepted cycle.
    half_life_ms: int = field(default=0, compare=False)
    #: Queue → what its own jobs used; it doesn't follow from the rest of the state.
    decayed: dict[str, DecayedUsage] = field(default_factory=dict, compare=False)

    def copy(self) -> "QueueUse":
        """An independent copy."""
        decayed = {name: DecayedUsage(of.time_ms, of.sums) for name, of in self.decayed.items()}
        own, others, total = dict(self.own), dict(self.others), dict(self.others_total)
        non_preemptible = dict(self.non_preemptible) if self.non_preemptible is not None else None
        return QueueUse(
            own, non_preemptible, others, total, time_ms=self.time_ms, half_life_ms=self.half_life_ms, decayed=decayed
        )

    def add(self, queue: str, requests: Requests, pods: int) -> None:
        """Add what so many pods request to what a queue's own jobs use; a negative number takes it away."""
        if self.half_life_ms:
            self._note(queue)
        _add(self.own, queue, requests, pods)
        if self._totals is not None:
            for name in self._paths.get(queue, ()):
                _add(self._totals, name, requests, pods)

    def add_non_preemptible(self, queue: str, requests: Requests, pods: int) -> None:
        """Count once more what so many pods request that can't be preempted, if some queue limits that."""
        if self.non_preemptible is None:
            return
        amounts = non_preemptible_amounts(requests)
        _add(self.non_preemptible, queue, amounts, pods)
        if self._totals is not None:
            for name in self._paths.get(queue, ()):
                _add(self._totals, name, amounts, pods)

    def add_other(self, pod: PodSeen, sign: int) -> None:
        """Count another program's pod on its node; with the sign -1 no longer."""
        _add(self.others, pod.node, pod.requests, sign)
        _add_amounts(self.others_total, pod.requests, sign)

    def add_others(self, pods: Mapping[tuple[str, Requests], int]) -> None:
        """Count so many pods of other programs, by their node and what each requests."""
        totals: dict[Requests, int] = {}
        for (node, requests), count in pods.items():
            _add(self.others, node, requests, count)
            totals[requests] = totals.get(requests, 0) + count
        for requests, count in totals.items():
            _add_amounts(self.others_total, requests, count)

    def replace(self, own: Use) -> None:
        """Replace what all queues use."""
        for name in sorted(self.own.keys() | own.keys()) if self.half_life_ms else ():
            self._note(name)
        self.own, self._totals = own, None

    def replace_non_preemptible(self, non_preemptible: Use | None) -> None:
        """Replace what of it can't be preempted."""
        self.non_preemptible, self._totals = non_preemptible, None

    def averages(self, time_ms: int) -> dict[str, dict[str, int]]:
        """Queue → resource → what its own jobs used on average until a time, in thousandths of the unit; empty without
        a half-life."""
        return {
            name: of.averages(self.own.get(name, {}), time_ms, self.half_life_ms) for name, of in self.decayed.items()
        }

    def change_half_life(self, half_life_ms: int) -> None:
        """There is another half-life, or none. The averages stay; without an earlier one they begin at 0."""
        before, self.half_life_ms = self.half_life_ms, half_life_ms
        if before == half_life_ms:
            return
        if not before:
            self.decayed = {name: DecayedUsage(self.time_ms) for name in self.own}
        elif not half_life_ms:
            self.decayed = {}
        for name, of in self.decayed.items() if before else ():
            of.rebase(self.own.get(name, {}), self.time_ms, before, half_life_ms)

    def forget_deleted(self, queues: Set[str]) -> None:
        """Forget what other queues than these and `default` used, unless their jobs have nodes."""
        for name in sorted(self.decayed.keys() - queues - self.own.keys() - {DEFAULT_QUEUE}):
            del self.decayed[name]

    def _note(self, queue: str) -> None:
        """What a queue's own jobs use is about to change."""
        of = self.decayed.get(queue)
        if of is None:
            of = self.decayed[queue] = DecayedUsage(self.time_ms)
        of.change(self.own.get(queue, {}), self.time_ms, self.half_life_ms)

    def totals(self, paths: Mapping[str, tuple[str, ...]]) -> Mapping[str, Mapping[str, int]]:
        """Queue → what it and the queues below it use, for these ways to the root. Don't modify it."""
        if self._totals is None or self._paths is not paths:
            totals: Use = {}
            for use in (self.own, self.non_preemptible or {}):
                for queue, amounts in use.items():
                    for name in paths.get(queue, ()):
                        _add(totals, name, amounts.items(), 1)
            self._paths, self._totals = paths, totals
        return self._totals


def counted_name(limit: LimitName) -> str:
    """The name under which a queue counts what a limit is on."""
    return (_NON_PREEMPTIBLE if limit.limit == LimitKind.NON_PREEMPTIBLE else "") + limit.resource


def non_preemptible_amounts(amounts: Iterable[tuple[str, int]]) -> Requests:
    """These amounts by the names under which they are counted where they can't be preempted."""
    return tuple([(_NON_PREEMPTIBLE + resource, amount) for resource, amount in amounts])


def is_non_preemptible(name: str) -> bool:
    """Whether a name is one of `non_preemptible_amounts`."""
    return name.startswith(_NON_PREEMPTIBLE)


def offered_amounts(amounts: Iterable[tuple[str, int]]) -> Requests:
    """These amounts as a part of what the nodes offer, for what leaves it together with the use of a queue."""
    return tuple([(_OFFERED + resource, amount) for resource, amount in amounts])


def offered_resource(name: str) -> str:
    """The resource of a name of `offered_amounts`; empty for other names."""
    return name[len(_OFFERED) :] if name.startswith(_OFFERED) else ""


def resource_of(name: str) -> str:
    """The resource that is counted by a name."""
    return name.removeprefix(_NON_PREEMPTIBLE)


def less(
    totals: Mapping[str, Mapping[str, int]], freed: Use, paths: Mapping[str, tuple[str, ...]]
) -> Mapping[str, Mapping[str, int]]:
    """What queues and those below them use without what is freed of their own jobs' use."""
    touched = dict.fromkeys(name for queue in freed for name in paths.get(queue, ()))
    left: Use = {name: dict(totals[name]) for name in touched if name in totals}
    for queue, amounts in freed.items():
        for name in paths.get(queue, ()):
            _add(left, name, amounts.items(), -1)
    return {**totals, **{name: left.get(name, {}) for name in touched}}


def _add(use: Use, queue: str, requests: Iterable[tuple[str, int]], pods: int) -> None:
    amounts = dict(use.get(queue, ()))
    _add_amounts(amounts, requests, pods)
    if amounts:
        use[queue] = amounts
    else:
        use.pop(queue, None)


def _add_amounts(amounts: dict[str, int], requests: Iterable[tuple[str, int]], pods: int) -> None:
    for resource, amount in requests:
        value = amounts.get(resource, 0) + amount * pods
        if value:
            amounts[resource] = value
        else:
            amounts.pop(resource, None)
