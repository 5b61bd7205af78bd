"""The tree of queues: the way from each queue to the root, and what is wrong with a queue beside the others.

A queue may name a parent that doesn't exist yet, so the API server can't refuse that: it is a problem of the queue
until the other one changes.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from arranger.events.kinds import QueueSeen
from arranger.model.queue import DEFAULT_QUEUE, DEFAULT_SPEC, MAX_DEPTH, QueueSpec, QueueState


class QueueProblemKind(StrEnum):
    """What is wrong with a queue. All but the last four keep its jobs from getting nodes."""

    INVALID = "Invalid"
    UNKNOWN_PARENT = "UnknownParent"
    CYCLE = "Cycle"
    TOO_DEEP = "TooDeep"
    ABOVE_PARENT = "AboveParent"
    GUARANTEE_CUT = "GuaranteeCut"
    ABOVE_CLUSTER = "AboveCluster"
    UNKNOWN_RESOURCE = "UnknownResource"


_WARNINGS = (
    QueueProblemKind.ABOVE_PARENT,
    QueueProblemKind.GUARANTEE_CUT,
    QueueProblemKind.ABOVE_CLUSTER,
    QueueProblemKind.UNKNOWN_RESOURCE,
)


class QueueProblem(msgspec.Struct, frozen=True):
    """A problem of a queue. `queue` is where it is: the queue itself, or one on its way to the root.

    `parent` is what that queue names. `depth` is that of a queue which is too deep. ABOVE_PARENT is of the queue
    itself: its `amount` of a `resource` in `field` (`guarantee`, `deserved`, `capability`) is above the parent's in the
    same field, else above the parent's capability: `limit`, in the resource's unit. GUARANTEE_CUT is of a queue of
    whose guarantee of a `resource`, the `amount`, only the `limit` is kept, because the guarantees below the parent are
    together more than is kept for that. ABOVE_CLUSTER is of a queue with a guarantee: together, all guarantees of a
    `resource` are the `amount`, above the `limit` that the nodes offer.
    UNKNOWN_RESOURCE is of a queue with an amount in `field` of a `resource` that no node has had, where one that nodes
    have had has a similar name: `meant`. The tree has neither, because they come and go with nodes;
    `scheduling.queue_view` adds them.
    """

    kind: QueueProblemKind
    queue: str
    parent: str = ""
    depth: int = 0
    field: str = ""
    resource: str = ""
    amount: int = 0
    limit: int = 0
    meant: str = ""

    @property
    def blocks(self) -> bool:
        """Whether it keeps jobs of the queue from getting nodes."""
        return self.kind not in _WARNINGS


class QueueTree(msgspec.Struct, frozen=True):
    """All queues by name, `default` included, in order.

    `specs` has no invalid ones, and their guarantees are together at most that of the queue above them. `paths` has the
    names from each queue to the one below the root, the queue first; it has no queue with a problem that blocks.
    `children` are by parent, "" for the root, of queues with a path.
    """

    specs: dict[str, QueueSpec]
    paths: dict[str, tuple[str, ...]]
    children: dict[str, tuple[str, ...]]
    problems: dict[str, QueueProblem]
    #: The queues that are closed themselves.
    closed: dict[str, None]

    def is_closed(self, name: str) -> bool:
        """Whether a queue, or one above it, is closed."""
        return any([each in self.closed for each in self.paths.get(name, ())]) if self.closed else False

    @property
    def limited(self) -> bool:
        """Whether some queue limits what jobs get."""
        return any([spec.limited or spec.guarantee for spec in self.specs.values()])


def queue_tree(queues: Mapping[str, QueueSeen]) -> QueueTree:
    """The tree of these queues by name, as observed."""
    known: dict[str, QueueSpec | None] = {DEFAULT_QUEUE: DEFAULT_SPEC}
    known |= {name: queue.spec for name, queue in queues.items()}
    specs = {name: spec for name in sorted(known) if (spec := known[name]) is not None}
    paths: dict[str, tuple[str, ...]] = {}
    problems: dict[str, QueueProblem] = {}
    for name in sorted(known):
        _enter(name, known, paths, problems)
    children: dict[str, tuple[str, ...]] = {}
    for name in sorted(paths):
        parent = specs[name].parent
        children[parent] = (*children.get(parent, ()), name)
        if (above := _above_parent(name, specs)) is not None:
            problems[name] = above
    closed = {name: None for name, spec in specs.items() if spec.state == QueueState.CLOSED}
    if any([spec.guarantee for spec in specs.values()]):
        stated, specs = specs, _within_parents(specs, paths, children)
        problems = {
            name: _cut(stated[name], spec, name) for name, spec in specs.items() if spec != stated[name]
        } | problems
    return QueueTree(specs, dict(sorted(paths.items())), children, dict(sorted(problems.items())), closed)


def _enter(
    first: str,
    known: Mapping[str, QueueSpec | None],
    paths: dict[str, tuple[str, ...]],
    problems: dict[str, QueueProblem],
) -> None:
    """Find the path or the problem of a queue, and of those above it that have none yet."""
    way: list[str] = []
    name, found = first, None
    while name and name not in paths and found is None:
        spec = known.get(name)
        if name in problems:
            found = problems[name]
        elif name not in known:
            found = QueueProblem(QueueProblemKind.UNKNOWN_PARENT, way[-1], name)
        elif name in way:
            of_cycle = min(way[way.index(name) :])
            found = QueueProblem(QueueProblemKind.CYCLE, of_cycle, _parent(known, of_cycle))
        elif spec is None:
            found = QueueProblem(QueueProblemKind.INVALID, name)
            problems[name] = found
        else:
            way.append(name)
            name = spec.parent
    above = paths.get(name, ())
    for each in reversed(way):
        above = (each, *above)
        if found is not None and found.kind != QueueProblemKind.TOO_DEEP:
            problems[each] = found
        elif found is not None or len(above) > MAX_DEPTH:
            depth = len(above) if found is None else found.depth + 1
            found = QueueProblem(QueueProblemKind.TOO_DEEP, each, _parent(known, each), depth)
            problems[each] = found
        else:
            paths[each] = above


def _parent(known: Mapping[str, QueueSpec | None], name: str) -> str:
    spec = known[name]
    return spec.parent if spec is not None else ""


def _within_parents(
    specs: Mapping[str, QueueSpec], paths: Mapping[str, tuple[str, ...]], children: Mapping[str, tuple[str, ...]]
) -> dict[str, QueueSpec]:
    """The specs with guarantees that together are at most what a queue above them states, each less in proportion and
    rounded down. A queue that states none is guaranteed what those below it are."""
    claims, sums = dict[str, dict[str, int]](), dict[str, dict[str, int]]()
    parents_first = sorted(paths, key=lambda name: len(paths[name]))
    for name in reversed(parents_first):
        claims[name] = sums.get(name, {}) | dict(specs[name].guarantee)
        above = sums.setdefault(specs[name].parent, {})
        for resource, amount in claims[name].items():
            above[resource] = above.get(resource, 0) + amount
    for name in parents_first:
        for resource, amount in sums.get(name, {}).items():
            limit = claims[name][resource]
            for child in children[name] if amount > limit else ():
                if resource in claims[child]:
                    claims[child][resource] = claims[child][resource] * limit // amount
    made = dict(specs)
    for name in parents_first:
        guarantee = tuple([(resource, claims[name][resource]) for resource, _ in specs[name].guarantee])
        if guarantee != specs[name].guarantee:
            made[name] = msgspec.structs.replace(specs[name], guarantee=guarantee)
    return made


def _cut(stated: QueueSpec, kept: QueueSpec, name: str) -> QueueProblem:
    """That less of a guarantee is kept than is stated, of the first such resource."""
    resource, amount, limit = next(
        (resource, amount, limit)
        for (resource, amount), (_, limit) in zip(stated.guarantee, kept.guarantee, strict=True)
        if limit < amount
    )
    return QueueProblem(
        QueueProblemKind.GUARANTEE_CUT,
        name,
        stated.parent,
        field="guarantee",
        resource=resource,
        amount=amount,
        limit=limit,
    )


def _above_parent(name: str, specs: Mapping[str, QueueSpec]) -> QueueProblem | None:
    """The first amount of a queue that its parent doesn't have."""
    spec = specs[name]
    if not spec.parent:
        return None
    above = specs[spec.parent]
    for field in ("guarantee", "deserved", "capability"):
        limits = dict(above.capability) | dict(getattr(above, field))
        for resource, amount in getattr(spec, field):
            if amount > limits.get(resource, amount):
                return QueueProblem(
                    QueueProblemKind.ABOVE_PARENT,
                    name,
                    spec.parent,
                    field=field,
                    resource=resource,
                    amount=amount,
                    limit=limits[resource],
                )
    return None
