"""What each queue may still have in one cycle: the limits on the way from it to the root.

`capability`: a queue and those below it never use more. Guarantees are never lent, so what is guaranteed to a queue is
held for it, used or not. A queue holds what its own jobs use and what its children hold, at least its guarantee and at
most its capability. What the queues below the root hold together is at most what the ready nodes have, and what is held
within a queue is at most its capability. A placement that lies within a guarantee takes what is held already, so it is
never refused for the sake of another guarantee.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from arranger.model.job import PodGroup
from arranger.model.quota import LimitKind, QuotaLack
from arranger.projections.nodes import PODS, NodeTable, Requests
from arranger.projections.queue_use import JOBS
from arranger.projections.state import State
from arranger.scheduling.queue_shares import ROOT
from arranger.scheduling.remembered import remembered


class _Queue:
    """A queue, or the root, in one cycle. `used` is by it and the queues below it; `inside` is what its own jobs use
    and its children hold, of guaranteed resources."""

    __slots__ = ("capability", "guarantee", "inside", "max_running", "name", "parent", "used")

    def __init__(self, name: str, parent: "_Queue | None") -> None:
        self.name = name
        self.parent = parent
        self.capability: Mapping[str, int] = {}
        self.guarantee: Mapping[str, int] = {}
        self.max_running: int | None = None
        self.used: dict[str, int] = {}
        self.inside: dict[str, int] = {}

    def held(self, resource: str) -> int:
        held = max(self.inside.get(resource, 0), self.guarantee.get(resource, 0))
        limit = self.capability.get(resource)
        return held if limit is None else min(held, limit)

    def use(self, resource: str, amount: int, *, guaranteed: bool) -> None:
        """Its own jobs use so much more of a resource, or less."""
        queue: _Queue | None = self
        while queue is not None:
            queue.used[resource] = queue.used.get(resource, 0) + amount
            queue = queue.parent
        queue = self if guaranteed else None
        while queue is not None and amount:
            before = queue.held(resource)
            queue.inside[resource] = queue.inside.get(resource, 0) + amount
            amount, queue = queue.held(resource) - before, queue.parent


class _Limit(NamedTuple):
    """What a limit leaves of a resource for one queue's jobs: maybe less than 0."""

    left: int
    kind: LimitKind
    queue: str
    most: int


class QueueRoom:
    """The limits of all queues in one cycle; what is placed counts at once. `time_ms` decides which assumed pods still
    count."""

    def __init__(self, state: State, time_ms: int) -> None:
        tree, use = state.queue_tree, state.queue_use.own
        #: Resources of which some queue has a guarantee.
        self.guaranteed = {resource for spec in tree.specs.values() for resource, _ in spec.guarantee}
        self.total = ready_total(state.nodes)
        #: Counts the changes of what is used.
        self.changes = 0
        self._root = _Queue(ROOT, None)
        self._queues: dict[str, _Queue] = {}
        for name, path in sorted(tree.paths.items(), key=lambda item: len(item[1])):
            spec = tree.specs[name]
            queue = self._queues[name] = _Queue(name, self._queues[path[1]] if len(path) > 1 else self._root)
            queue.capability, queue.guarantee = dict(spec.capability), dict(spec.guarantee)
            queue.max_running = spec.max_running
        for queue in reversed(self._queues.values()):
            if queue.parent is not None:
                for resource in sorted(queue.guarantee.keys() | queue.inside.keys()):
                    inside = queue.parent.inside
                    inside[resource] = inside.get(resource, 0) + queue.held(resource)
        for name, amounts in use.items():
            for resource, amount in amounts.items():
                self.use(name, resource, amount)
        for pod in state.assumed_until(time_ms):
            for resource, amount in pod.requests:
                self.use(pod.queue, resource, -amount)

    def use(self, name: str, resource: str, amount: int) -> None:
        """The jobs of a queue use so much more. A queue without a way to the root uses what the nodes have, too."""
        self.changes += 1
        self._queues.get(name, self._root).use(resource, amount, guaranteed=resource in self.guaranteed)

    def resources(self, name: str) -> list[str]:
        """The resources that are limited for a queue's jobs, sorted; none for a queue without a way to the root."""
        way = list(self._way(name))
        limited = {resource for queue in way for resource in queue.capability}
        return sorted(limited | self.guaranteed) if way else []

    def limits(self, name: str, resource: str) -> Iterator[_Limit]:
        """Everything that limits how much of a resource the jobs of a queue get, from the queue to the root."""
        slack, guaranteed = 0, resource in self.guaranteed
        for queue in self._way(name):
            most, inside = queue.capability.get(resource), queue.inside.get(resource, 0)
            promised = queue.guarantee.get(resource, 0)
            slack += max(promised - inside, 0)
            if most is not None:
                yield _Limit(most - queue.used.get(resource, 0), LimitKind.CAPABILITY, queue.name, most)
            if most is not None and guaranteed:
                free = max(most - max(promised, inside), 0)
                yield _Limit(slack + free, LimitKind.GUARANTEES, queue.name, most)
        if guaranteed:
            total = self.total.get(resource, 0)
            free = max(total - self._root.inside.get(resource, 0), 0)
            yield _Limit(slack + free, LimitKind.GUARANTEES, ROOT, total)

    def full(self, name: str) -> QuotaLack | None:
        """The lack if no more jobs of a queue may get their first nodes."""
        for queue in self._way(name):
            most = queue.max_running
            if most is not None and queue.used.get(JOBS, 0) >= most:
                return QuotaLack("", JOBS, 1, 0, most, queue.name, LimitKind.MAX_RUNNING)
        return None

    def _way(self, name: str) -> Iterator[_Queue]:
        queue = self._queues.get(name)
        while queue is not None and queue is not self._root:
            yield queue
            queue = queue.parent


class QueueAccount:
    """The limits for the jobs of one queue, as an account of `Quotas`."""

    def __init__(self, room: QueueRoom, name: str) -> None:
        self._room = room
        self._name = name
        self._resources = room.resources(name)
        self._uses: dict[Requests, dict[str, int]] = {}
        self._left: dict[str, int] = {}
        self._changes = -1

    @property
    def limited(self) -> bool:
        """Whether anything limits these jobs."""
        return bool(self._resources)

    @property
    def left(self) -> Mapping[str, int]:
        """Resource → what the tightest limit leaves."""
        if self._changes != self._room.changes:
            self._changes = self._room.changes
            self._left = {
                resource: min(limit.left for limit in self._room.limits(self._name, resource))
                for resource in self._resources
            }
        return self._left

    def uses(self, group: PodGroup) -> dict[str, int]:
        """What a pod of the group uses of the limited resources. Don't modify it."""
        requests = group.shape.requests
        found = self._uses.get(requests)
        if found is None:
            found = {name: value for name, value in requests if value and name in self._resources}
            self._uses[requests] = found
        return found

    def take(self, resource: str, amount: int) -> None:
        self._room.use(self._name, resource, amount)

    def lacks(self, needed: Mapping[str, int]) -> list[QuotaLack]:
        """The first lack of every resource that is needed beyond what is left."""
        return [self._lack(name, value) for name, value in sorted(needed.items()) if value and value > self.left[name]]

    def _lack(self, resource: str, needed: int) -> QuotaLack:
        short = [limit for limit in self._room.limits(self._name, resource) if needed > limit.left]
        lacks = [QuotaLack("", resource, needed, of.left, of.most, of.queue, of.kind) for of in short]
        return min(lacks, key=lambda lack: (not lack.never, lack.limit))


def ready_total(nodes: NodeTable) -> Mapping[str, int]:
    """Resource → what all ready nodes together have. Don't modify it."""

    def total() -> dict[str, int]:
        ready = [row for row, facts in enumerate(nodes.facts) if facts.ready and nodes.present(row)]
        amounts = nodes.allocatable[ready].sum(axis=0).tolist()
        return {name: amounts[column] for name, column in nodes.columns.items() if name not in (JOBS, PODS)}

    return remembered(nodes.facts_version, "ready total", total)
