"""What each queue may still have in one cycle: the limits on the way from it to the root.

`capability`: a queue and those below it never use more. Guarantees are never lent, so what is guaranteed to a queue is
held for it, used or not. A queue holds what its own jobs use and what its children hold, at least its guarantee and at
most its capability. What the queues below the root hold together is at most what the nodes offer (`queue_offer`), and
what is held within a queue is at most its capability. A placement that lies within a guarantee takes what is held
already, so it is never refused for the sake of another guarantee.

A cycle may place thousands of jobs of a thousand queues, and few of them come near a limit. So what a limit leaves is
found once for all queues when the cycle begins. What is placed later, by whomever, lowers it by at most that amount. So
it is found again only for a queue that may lack something.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from arranger.model.job import PodGroup
from arranger.model.queue import DEFAULT_SPEC, QueueSpec
from arranger.model.quota import LimitKind, QuotaLack
from arranger.projections.queue_use import JOBS
from arranger.projections.state import State
from arranger.scheduling.queue_offer import offered
from arranger.scheduling.queue_shares import ROOT


class _Queue:
    """A queue, or the root, in one cycle. `used` is by it and the queues below it; `inside` is what its own jobs use
    and its children hold, of guaranteed resources. `first` is what its limits left of each limited resource when the
    cycle began."""

    __slots__ = ("_changed", "capability", "first", "guarantee", "inside", "max_running", "name", "parent", "used")

    def __init__(self, name: str, parent: "_Queue | None", spec: QueueSpec, used: Mapping[str, int]) -> None:
        self.name = name
        self.parent = parent
        self.capability: Mapping[str, int] = dict(spec.capability)
        self.guarantee: Mapping[str, int] = dict(spec.guarantee)
        self.max_running = spec.max_running
        self.used = used
        #: `used`, once it differs from the state's.
        self._changed: dict[str, int] | None = None
        self.inside: dict[str, int] = {}
        self.first: Mapping[str, int] = {}

    def held(self, resource: str) -> int:
        held = max(self.inside.get(resource, 0), self.guarantee.get(resource, 0))
        limit = self.capability.get(resource)
        return held if limit is None else min(held, limit)

    def use(self, resource: str, amount: int, *, guaranteed: bool) -> None:
        """Its own jobs use so much more of a resource, or less."""
        queue: _Queue | None = self
        while queue is not None:
            if queue._changed is None:
                queue.used = queue._changed = dict(queue.used)
            queue._changed[resource] = queue._changed.get(resource, 0) + amount
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
        tree, totals = state.queue_tree, state.queue_totals
        #: Resources of which some queue has a guarantee.
        self.guaranteed = {resource for spec in tree.specs.values() for resource, _ in spec.guarantee}
        self.total = offered(state)
        #: Whether some queue limits its jobs with nodes.
        self.counts_jobs = any([spec.max_running is not None for spec in tree.specs.values()])
        #: Resource → what the cycle placed so far. What was undone counts too.
        self.placed: dict[str, int] = {}
        #: What isn't yet counted in the queues.
        self._placed_last: list[tuple[str, str, int]] = []
        self._root = _Queue(ROOT, None, DEFAULT_SPEC, {})
        self._queues: dict[str, _Queue] = {}
        for name, path in sorted(tree.paths.items(), key=_depth):
            parent = self._queues[path[1]] if len(path) > 1 else self._root
            self._queues[name] = _Queue(name, parent, tree.specs[name], totals.get(name, _NOTHING))
        self._hold(state.queue_use.own)
        for pod in state.assumed_until(time_ms):
            for resource, amount in pod.requests:
                self._use(pod.queue, resource, -amount)
        self._find_left()

    def _hold(self, own: Mapping[str, Mapping[str, int]]) -> None:
        """Find what each queue holds of guaranteed resources. A queue without a way to the root uses what the nodes
        offer, too."""
        for name, amounts in own.items() if self.guaranteed else ():
            inside = self._queues.get(name, self._root).inside
            for resource, amount in amounts.items():
                if resource in self.guaranteed:
                    inside[resource] = inside.get(resource, 0) + amount
        for queue in reversed(self._queues.values()) if self.guaranteed else ():
            assert queue.parent is not None
            inside = queue.parent.inside
            for resource in {**queue.guarantee, **queue.inside}:
                inside[resource] = inside.get(resource, 0) + queue.held(resource)

    def _find_left(self) -> None:
        """Find what the limits leave to each queue at first: the least of `limits`, from the root down."""
        inside = self._root.inside
        #: Queue → what the guarantees within and beside it leave, with its own unused one. Queues without amounts have
        #: what their parents have, so that most share one dictionary.
        rooms: dict[str, dict[str, int]] = {
            ROOT: {one: max(self.total.get(one, 0) - inside.get(one, 0), 0) for one in self.guaranteed}
        }
        caps: dict[str, dict[str, int]] = {ROOT: {}}
        self._root.first = rooms[ROOT]
        for name, queue in self._queues.items():
            assert queue.parent is not None
            room, cap = rooms[queue.parent.name], caps[queue.parent.name]
            if queue.capability or queue.guarantee:
                room, cap = self._below(queue, room), dict(cap)
                for resource, most in queue.capability.items():
                    left = most - queue.used.get(resource, 0)
                    cap[resource] = min(cap.get(resource, left), left)
            rooms[name], caps[name] = room, cap
            same = room is rooms[queue.parent.name]
            queue.first = queue.parent.first if same else _least(cap, room)

    def _below(self, queue: _Queue, room: Mapping[str, int]) -> dict[str, int]:
        """What guarantees leave within a queue, where this is what they leave beside it."""
        found = {}
        for resource, beside in room.items():
            inside, promised = queue.inside.get(resource, 0), queue.guarantee.get(resource, 0)
            most = queue.capability.get(resource)
            left = beside if most is None else min(beside, max(most - max(promised, inside), 0))
            found[resource] = left + max(promised - inside, 0)
        return found

    def first(self, name: str) -> Mapping[str, int]:
        """Resource → what the limits left to a queue's jobs when the cycle began, of limited resources only; nothing
        for a queue without a way to the root. Don't modify it."""
        queue = self._queues.get(name)
        return queue.first if queue is not None else _NOTHING

    def use(self, name: str, resource: str, amount: int) -> None:
        """The jobs of a queue use so much more; less, if that is undone."""
        if amount > 0:
            self.placed[resource] = self.placed.get(resource, 0) + amount
        self._placed_last.append((name, resource, amount))

    def _use(self, name: str, resource: str, amount: int) -> None:
        self._queues.get(name, self._root).use(resource, amount, guaranteed=resource in self.guaranteed)

    def _count(self) -> None:
        """Count what was placed last."""
        for name, resource, amount in self._placed_last:
            self._use(name, resource, amount)
        self._placed_last.clear()

    def left(self, name: str, resource: str) -> int:
        """What the tightest limit leaves of a limited resource."""
        return min([limit.left for limit in self.limits(name, resource)])

    def limits(self, name: str, resource: str) -> Iterator[_Limit]:
        """Everything that limits how much of a resource the jobs of a queue get, from the queue to the root."""
        self._count()
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
        if not self.counts_jobs:
            return None
        self._count()
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


_NOTHING: Mapping[str, int] = {}


def _least(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {**one, **{name: min(amount, one.get(name, amount)) for name, amount in other.items()}}


def _depth(entry: tuple[str, tuple[str, ...]]) -> int:
    return len(entry[1])


class QueueAccount:
    """The limits for the jobs of one queue, as an account of `Quotas`."""

    def __init__(self, room: QueueRoom, name: str) -> None:
        self._room = room
        self._name = name
        self._first = room.first(name)
        #: Resource → what the limits left when they were last looked at, plus all that was placed until then.
        self._known: dict[str, int] = {}

    @property
    def limited(self) -> bool:
        """Whether anything limits these jobs."""
        return bool(self._first)

    @property
    def left(self) -> Mapping[str, int]:
        """Resource → what the tightest limit leaves."""
        return {resource: self._look(resource) for resource in self._first}

    def leaves(self, resource: str, amount: int) -> bool:
        """Whether the limits leave so much of a limited resource."""
        known = self._known.get(resource)
        least = (self._first[resource] if known is None else known) - self._room.placed.get(resource, 0)
        return amount <= least or amount <= self._look(resource)

    def _look(self, resource: str) -> int:
        left = self._room.left(self._name, resource)
        self._known[resource] = left + self._room.placed.get(resource, 0)
        return left

    def uses(self, group: PodGroup) -> dict[str, int]:
        """What a pod of the group uses of the limited resources."""
        return {name: value for name, value in group.shape.requests if value and name in self._first}

    def take(self, resource: str, amount: int) -> None:
        self._room.use(self._name, resource, amount)

    def lacks(self, needed: Mapping[str, int]) -> list[QuotaLack]:
        """The first lack of every resource that is needed beyond what is left."""
        short = [name for name, value in needed.items() if value and not self.leaves(name, value)]
        return [self._lack(name, needed[name]) for name in sorted(short)]

    def _lack(self, resource: str, needed: int) -> QuotaLack:
        short = [limit for limit in self._room.limits(self._name, resource) if needed > limit.left]
        lacks = [QuotaLack("", resource, needed, of.left, of.most, of.queue, of.kind) for of in short]
        return min(lacks, key=lambda lack: (not lack.never, lack.limit))
