"""Where a cycle stops placing a job: the pod that fits no node, the reasons, and the node that lacks the least."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from arranger.events.facts import LackOfNodes, Objection, UnitLack
from arranger.messages.shortages import affinity_text, meant_text, node_text, selector_text
from arranger.model.pod import PodShape
from arranger.model.quantity import amount_text
from arranger.model.quota import QuotaLack
from arranger.model.reasons import ReasonCounts, ReasonKind
from arranger.model.text import counted
from arranger.projections.cluster.nodes import Amounts
from arranger.projections.jobs.records import JobRecord
from arranger.projections.observed.runtime_classes import added_by_admission
from arranger.projections.state import State
from arranger.replay.explain.candidate_changes.node_labels import may_run_on
from arranger.replay.reading.describe import label
from arranger.scheduling import (
    ClusterView,
    CycleObserver,
    Filters,
    Neighbour,
    PlacementTry,
    Shortage,
    neighbour_of,
)

#: The maximum number of nodes that are compared with the closest one.
_COMPARED = 1000


class Closest(msgspec.Struct, frozen=True):
    """The node that lacks the least for the next pod, and what it lacks: (resource, needed, free). `alike` counts the
    other nodes that lack the same; `node` is the first of them by name."""

    node: str
    lacks: tuple[tuple[str, int, int], ...]
    text: str
    alike: int = 0


class Added(msgspec.Struct, frozen=True):
    """What the admission of the API server adds to the requests of each pod of a group, in each resource's unit:
    defaults of `LimitRange`s (`kind`), or the overhead of a `RuntimeClass`. `names` are those of the objects."""

    kind: str
    names: tuple[str, ...]
    amounts: tuple[tuple[str, int], ...]


class NodeAnswer(msgspec.Struct, frozen=True):
    """The requested node, and why the next pod can't use it."""

    node: str
    refused: str


class Shortfall(msgspec.Struct, frozen=True):
    """Where a cycle stops placing: `found` of `asked` pods fit together, and the next one, of `group`, finds no node.

    `reasons` count every node once. `candidates` are the nodes that lack only resources, and `resources` are those that
    they lack, with a `topology` for as many pods as it asks of a domain. `further`: the quorum has room, and the pods
    are those beyond it. `others` counts pods of other jobs that got room earlier in the cycle. `selector` is the pod's
    nodeSelector, and `affinity` its required node affinity, if they rule out a node. With `quota`, that quota of the
    namespace or limit of a queue is too small, and `beside_limit` says why nodes have too little as well, if they do.
    If `infeasible`, all of it is about these nodes without pods. The others are as in
    `ShortageFacts`.
    """

    group: str
    found: int
    asked: int
    nodes: int
    reasons: ReasonCounts
    closest: Closest | None = None
    resources: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    group_number: int = 0
    node: NodeAnswer | None = None
    selector: str = ""
    further: bool = False
    others: int = 0
    quota: QuotaLack | None = None
    searched: int = 0
    topology: UnitLack | None = None
    objection: Objection | None = None
    no_guest: bool = False
    kept_by: tuple[str, ...] = ()
    infeasible: bool = False
    leaves_late: bool = False
    affinity: str = ""
    beside_limit: LackOfNodes | None = None


def added_to(state: State, job: JobRecord, short: Shortfall) -> tuple[Added, ...]:
    """What admission adds to the requests of the pod that finds no node."""
    return tuple([Added(*of) for of in added_by_admission(state, job, short.group_number)])


def untried_jobs(tries: Iterable[PlacementTry]) -> list[str]:
    """The jobs that would take room by these tries, but for a dry run that is still to come."""
    short = [one for one in tries if one.shortage is not None and one.preempted is None]
    return [label(one.job) for one in short if one.shortage is not None and one.shortage.untried]


class ShortfallObserver(CycleObserver):
    """Records where a cycle stops placing one job."""

    def __init__(self, uid: str, node: str = "") -> None:
        self.uid = uid
        self._node = node
        self._try: PlacementTry | None = None
        self._found: list[tuple[Shortage, Shortfall]] = []
        #: Jobs that have found room in this cycle.
        self._served: dict[str, PlacementTry] = {}
        #: The last try of each job.
        self._tries: dict[str, PlacementTry] = {}

    @property
    def untried(self) -> list[str]:
        """The jobs that would take room in the cycle, but for a dry run that is still to come."""
        return untried_jobs(self._tries.values())

    @property
    def shortfall(self) -> Shortfall | None:
        """The final shortfall: after a first split of the quorum failed, the cycle may have tried others."""
        left = self._try.shortage if self._try is not None else None
        if left is None or left.untried:
            return None
        # The same one, or a copy that was told more.
        found = next((shortfall for shortage, shortfall in self._found if shortage is left), None) or next(
            (shortfall for shortage, shortfall in reversed(self._found) if shortage.lack == left.lack), None
        )
        if found is None:
            return None
        guest = {"no_guest": left.no_guest, "leaves_late": left.leaves_late}
        return msgspec.structs.replace(found, searched=left.searched, kept_by=left.kept_by, **guest)

    @property
    def now(self) -> Shortfall | None:
        """As `shortfall`, beside the present pods even if that is about the nodes without them."""
        found = self.shortfall
        if found is None or not found.infeasible:
            return found
        return next((shortfall for _, shortfall in reversed(self._found) if not shortfall.infeasible), found)

    def placing(self, tried: PlacementTry, group: int, **_: Any) -> None:
        """Note the job, because its pods use room when the observed job's turn comes."""
        self._served[tried.job.uid] = self._tries[tried.job.uid] = tried

    def fell_short(self, tried: PlacementTry, shortage: Shortage, *, view: ClusterView, filters: Filters) -> None:
        """Record the shortfall while the view still holds the job's pods."""
        self._tries[tried.job.uid] = tried
        if tried.job.uid != self.uid:
            return
        self._try = tried
        shortfall = Shortfall(
            group=tried.groups[shortage.group].name,
            found=shortage.found,
            asked=shortage.asked,
            nodes=len(view),
            reasons=shortage.reasons,
            group_number=shortage.group,
            further=tried.quorum_stands,
            others=0 if shortage.infeasible else sum(of.pods for of in self._served.values() if of is not tried),
            quota=shortage.quota,
            topology=shortage.topology,
            objection=shortage.objection,
            infeasible=shortage.infeasible,
            beside_limit=shortage.nodes,
        )
        if shortage.of_nodes:
            shortfall = self._among_nodes(shortfall, tried, view, filters)
        self._found.append((shortage, shortfall))

    def in_vain(self, tried: PlacementTry) -> None:
        """Of a job that was tried in reserved room as well, remember what counts."""
        self._tries[tried.job.uid] = tried
        if tried.job.uid == self.uid:
            self._try = tried

    def _among_nodes(self, shortfall: Shortfall, tried: PlacementTry, view: ClusterView, filters: Filters) -> Shortfall:
        """The shortfall with the resources that nodes lack."""
        group = shortfall.group_number
        shape, pod = tried.groups[group].shape, neighbour_of(tried.job, group)
        candidates = np.flatnonzero(filters.allowed(shape, pod))
        unit = shortfall.topology
        together = min(unit.pods, tried.groups[group].count) if unit is not None else 1
        # Nobody else is on the nodes of an empty cluster.
        beside = [tried] if shortfall.infeasible else self._served.values()
        next_pod = _NextPod(view, filters, shape, pod, _coming(tried, beside), _ALONE if shortfall.infeasible else "")
        kinds = {reason.kind for reason, _ in shortfall.reasons}
        return msgspec.structs.replace(
            shortfall,
            closest=_closest(next_pod),
            resources=tuple(limiting(view, shape, candidates, together)),
            candidates=tuple(view.names[row] for row in candidates.tolist()),
            node=self._asked(next_pod),
            selector=selector_text(shape) if ReasonKind.NODE_SELECTOR in kinds else "",
            affinity=affinity_text(shape) if ReasonKind.NODE_AFFINITY in kinds else "",
        )

    def _asked(self, of: "_NextPod") -> NodeAnswer | None:
        """Why the pod can't use the requested node."""
        if not self._node:
            return None
        view, filters, shape, pod, coming, alone = of
        row = view.node_index.rows().get(self._node)
        if row is None:
            return NodeAnswer(self._node, "there is no such node")
        refusal = filters.refusal(shape, row, pod)
        fits = refusal.kind == ReasonKind.FITS
        refused = "would take one pod alone" if fits else node_text(refusal, shape)
        of_amounts = refusal.kind == ReasonKind.INSUFFICIENT and not refusal.absent
        return NodeAnswer(self._node, refused + _beside(coming.get(row)) + (alone if of_amounts else ""))


def _short(view: ClusterView, shape: PodShape) -> Amounts:
    """The amounts that nodes lack for the pod's requests: one row per node, one column per resource."""
    request = view.request(shape)
    short: Amounts = np.maximum(request - view.free_with_held, 0) * (request > 0)
    return short


def without_nodes(job: JobRecord) -> set[int]:
    """The groups with pods that have no node."""
    placed = Counter(group for group, _ in job.placements)
    return {number for number, group in enumerate(job.valid_spec.groups) if placed[number] < group.count}


def limiting(view: ClusterView, shape: PodShape, rows: npt.NDArray[np.int64], pods: int = 1) -> list[str]:
    """The resources because of which not so many of these pods find room on some of these nodes, the one that limits
    them on most nodes first."""
    request, asked = view.request(shape), _by_column(view, shape)
    columns = np.array(sorted(asked), np.int64)
    room = np.maximum(view.free_with_held[rows][:, columns], 0) // request[columns]
    least = room.min(axis=1, keepdims=True, initial=pods)
    nodes = ((room == least) & (least < pods)).sum(axis=0)
    return [name for at in np.argsort(-nodes, kind="stable").tolist() if nodes[at] for name, _ in asked[columns[at]]]


def _by_column(view: ClusterView, shape: PodShape) -> dict[int, list[tuple[str, int]]]:
    """Column → the pod's requests in it: one resource, or all resources that no node has."""
    found: dict[int, list[tuple[str, int]]] = {}
    for name, column, need in view.needs(shape):
        found.setdefault(column, []).append((name, need))
    return found


#: Of the nodes as they would be without pods.
_ALONE = ", if nothing else ran there"


class _NextPod(NamedTuple):
    """The pod that finds no node, and where. `coming` is row → the job's own pods and those of others that this cycle
    puts there; what a node has free is said to be so `alone`."""

    view: ClusterView
    filters: Filters
    shape: PodShape
    pod: Neighbour
    coming: Mapping[int, tuple[int, int]]
    alone: str


def _coming(tried: PlacementTry, tries: Iterable[PlacementTry]) -> dict[int, tuple[int, int]]:
    """Row → the try's pods, and those of others, that a cycle puts there: they use room but don't exist yet."""
    found: dict[int, tuple[int, int]] = {}
    for other in tries:
        for piece in other.pieces:
            (own, others), pods = found.get(piece.row, (0, 0)), len(piece.indices)
            found[piece.row] = (own + pods, others) if other is tried else (own, others + pods)
    return found


def _beside(coming: tuple[int, int] | None) -> str:
    """In words, the job's own pods and those of others that this cycle puts on a node."""
    told = zip(coming or (0, 0), ("its own", "other jobs"), strict=True)
    parts = [f"{counted(pods, 'pod')} of {whose}" for pods, whose in told if pods]
    return f", beside {' and '.join(parts)} that the same cycle puts there" if parts else ""


def _closest(of: _NextPod) -> Closest | None:
    """Of the nodes that lack only resources, the one that lacks the fewest of them, then the smallest part of the need.
    If something else rules out every node, the first one with room among those that the pod selects, or else the first
    by name."""
    view, filters, shape, pod, coming, alone = of
    if not len(view):
        return None
    request, short = view.request(shape), _short(view, shape)
    part = (short / np.maximum(request, 1)).sum(axis=1)
    ruled_out = ~filters.allowed(shape, pod)
    kinds = (short > 0).sum(axis=1)
    unselected = _unselected(view, shape) if ruled_out.all() else np.zeros(len(view), np.bool_)
    row = int(np.lexsort((np.arange(len(view)), part, kinds, unselected, ruled_out))[0])
    same_lack = np.flatnonzero((short == short[row]).all(axis=1) & (ruled_out == ruled_out[row])).tolist()
    alike, beside = [other for other in same_lack if coming.get(other) == coming.get(row)], _beside(coming.get(row))
    lacks = tuple(
        (name, need, max(int(view.free_with_held[row, c]), 0))
        for c in np.flatnonzero(short[row]).tolist()
        for name, need in _by_column(view, shape)[c]
    )
    if ruled_out[row] or not lacks:
        refusal = filters.refusal(shape, row, pod)
        same = sum(filters.refusal(shape, other, pod) == refusal for other in alike[:_COMPARED])
        fits = refusal.kind == ReasonKind.FITS
        text = "would take one pod alone" if fits else node_text(refusal, shape)
        return Closest(view.names[row], lacks, text + beside, same - 1)
    free = view.free_with_held[alike] == view.free_with_held[row]
    same = int((free | (request == 0)).all(axis=1).sum())
    text = (
        _with_more(view, shape, row, lacks) + beside + (alone if any(name in view.known for name, *_ in lacks) else "")
    )
    return Closest(view.names[row], lacks, text, same - 1)


def _unselected(view: ClusterView, shape: PodShape) -> npt.NDArray[np.bool_]:
    """Which nodes the pod's nodeSelector or required node affinity leaves out, by row."""
    if not shape.node_selector and shape.required_terms is None:
        return np.zeros(len(view), np.bool_)
    nodes = zip(view.names, view.facts, strict=True)
    return np.array([not may_run_on(shape, name, dict(facts.labels)) for name, facts in nodes])


def _with_more(view: ClusterView, shape: PodShape, row: int, lacks: Sequence[tuple[str, int, int]]) -> str:
    """In words, with how much more of what it lacks, (resource, needed, free), a node would take the pod."""
    totals = {name: int(view.allocatable[row, c]) for c, of in _by_column(view, shape).items() for name, _ in of}
    missing = [
        f"{amount_text(name, need - free)} more {name} (needs {amount_text(name, need)}, has {amount_text(name, free)}"
        f" of {amount_text(name, totals[name])} free)"
        for name, need, free in lacks
        if name in view.known
    ]
    if unknown := {name: f"{amount_text(name, need)} {name}" for name, need, _ in lacks if name not in view.known}:
        missing.append(f"{' and '.join(unknown.values())}, which no node has{meant_text(unknown, view.known)}")
    return "would take it with " + " and ".join(missing)
