"""The record of what a cycle does for one job, and the interface of observers that explain it."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from arranger.events.facts import LackOfNodes, Objection, UnitLack
from arranger.events.kinds import Preempted
from arranger.model.job import WHOLE_JOB, Path, PodGroup, Unit
from arranger.model.quota import QuotaLack
from arranger.model.reasons import ReasonCounts
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cluster.view import Chosen, ClusterView, Taken
from arranger.scheduling.filters.nodes import Filters
from arranger.scheduling.filters.pods import domains_on
from arranger.scheduling.policies.base import PlacementRequest, PodPolicy
from arranger.scheduling.policies.closed_form import Scores

#: As `Shortage.searched`: there was no search, because the cycle had no steps left.
NOT_SEARCHED = 1


@dataclass(slots=True)
class Shortage:
    """Where placing a job stopped: the group whose next pod found no node, with the nodes counted by reason, or the
    exhausted quota, or the objection of a plugin."""

    group: int
    reasons: ReasonCounts
    found: int
    asked: int
    infeasible: bool = False
    #: What the namespace's quota lacks.
    quota: QuotaLack | None = None
    #: Without that quota, the nodes would have too little.
    nodes: LackOfNodes | None = None
    #: The steps after which the complete search gave up; 0 if it proved that nothing fits, and if none was needed.
    #: `NOT_SEARCHED` if no steps were left for one.
    searched: int = 0
    #: The unit of a topology that no domain takes, although the nodes together have room for it.
    topology: UnitLack | None = None
    #: A plugin refuses the quorum or holds it back.
    objection: Objection | None = None
    #: Others would give room, once a dry run shows that the API server takes the pods.
    untried: bool = False
    #: Reserved room is in the way, in which it would be a guest if it were preemptible.
    no_guest: bool = False
    #: Reserved room is in the way, in which it would be a guest if its pods could leave before that is needed.
    leaves_late: bool = False
    #: The jobs (UIDs) for which a limit is kept, or whose reserved room is in its way, if several have reservations.
    kept_by: tuple[str, ...] = ()

    @property
    def of_nodes(self) -> bool:
        """As in `ShortageFacts`."""
        return self.quota is None and self.objection is None

    @property
    def lack(self) -> tuple[object, ...]:
        """What was found when the quorum was tried, without what is told of it later in its turn."""
        return self.group, self.reasons, self.found, self.asked, self.quota, self.topology, self.objection

    @property
    def of_kept_limit(self) -> bool:
        """Whether a limit has enough left, and that is kept for others."""
        return self.quota is not None and bool(self.kept_by)


@dataclass(frozen=True, slots=True)
class Piece:
    """Equal pods placed on one node."""

    row: int
    group: int
    indices: Sequence[int]


@dataclass(slots=True)
class There:
    """The pods of a unit that have nodes. `codes` are the domains that all of these nodes share, by level, 0 for none;
    None if none of the nodes exists."""

    pods: int = 0
    codes: list[int] | None = None


class UnitPods:
    """The pods of one try's job that have nodes, by the unit of their topology."""

    def __init__(self, tried: "PlacementTry", view: ClusterView) -> None:
        self._tried, self._read = tried, 0
        self._view, spec = view, tried.job.valid_spec
        self._sizes = [spec.unit_size(group) for group in range(len(spec.groups))]
        topologies = map(spec.topology_of, range(len(spec.groups)))
        self._paths = [of.paths() if of is not None else () for of in topologies]
        self._whole = spec.whole_topology.paths() if spec.whole_topology is not None else ()
        self._known: dict[Unit, There] = {}
        rows = view.node_index.rows()
        for (group, index), node in tried.job.placements.items():
            self._add(group, index, 1, rows.get(node))

    def of(self, group: int, number: int = 0) -> There | None:
        """What there is of a unit; None for nothing."""
        pieces = self._tried.pieces
        for piece in pieces[self._read :]:
            size, at = self._sizes[piece.group], 0
            while at < len(piece.indices):
                end = bisect_left(piece.indices, (piece.indices[at] // size + 1) * size, at)
                self._add(piece.group, piece.indices[at], end - at, piece.row)
                at = end
        self._read = len(pieces)
        return self._known.get((group, number))

    def begun(self, group: int, number: int) -> There | None:
        """As `of`, without the pods placed since the last call of that."""
        return self._known.get((group, number))

    def _add(self, group: int, index: int, pods: int, row: int | None) -> None:
        if self._whole:
            self._note((WHOLE_JOB, 0), self._whole, pods, row)
        if self._paths[group]:
            self._note((group, index // self._sizes[group]), self._paths[group], pods, row)

    def _note(self, unit: Unit, paths: Sequence[Path], pods: int, row: int | None) -> None:
        there = self._known.setdefault(unit, There())
        there.pods += pods
        if row is not None:
            codes = [int(domains_on(self._view, path)[row]) for path in paths]
            old = there.codes
            there.codes = codes if old is None else [a if a == b else 0 for a, b in zip(old, codes, strict=True)]


@dataclass(slots=True)
class PlacementTry:
    """One cycle's try to place the pods of one job."""

    job: JobRecord
    policy: PodPolicy
    #: The job's groups, with the nodes that this try avoids.
    groups: tuple[PodGroup, ...]
    pieces: list[Piece] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    #: The job's pods by row, for policies that aren't local; computed on first use.
    of_job: Scores | None = None
    shortage: Shortage | None = None
    #: An equal shortage is recorded already.
    told: bool = False
    quorum_stands: bool = False
    #: The first way tried placed the quorum: worker sets in the given order, on all nodes.
    as_given: bool = False
    #: The complete search placed the quorum.
    by_search: bool = False
    #: Pods placed one by one so far, including those undone.
    steps: int = 0
    #: Group → indices still to place beyond the quorum, and how many there were at first.
    left: dict[int, tuple[Sequence[int], int]] | None = None
    #: The domains of the job's pods by unit, for a job with a topology; computed on first use.
    units: UnitPods | None = None
    #: The level of the area in which the whole job is placed; the number of levels for all nodes.
    area: int = 0
    #: Units go to the domains with the most room, not those with the least.
    spacious: bool = False
    #: The decision by which other jobs give room for the placements.
    preempted: Preempted | None = None
    #: The UIDs of the jobs in whose reserved room the pods are guests.
    hosts: tuple[str, ...] = ()
    #: The group whose last pods found no domain, and why.
    lack: tuple[int, UnitLack] | None = None

    @property
    def pods(self) -> int:
        return sum(len(piece.indices) for piece in self.pieces)

    def undo(self, pieces: int = 0, taken: int = 0) -> None:
        """Remove all placements but the first ones after the view was restored."""
        del self.pieces[pieces:]
        del self.taken[taken:]
        self.of_job = self.units = None


def lack_of_nodes(tried: PlacementTry, shortage: Shortage) -> LackOfNodes:
    """The facts of a shortage of nodes."""
    return LackOfNodes(
        shortage.found,
        shortage.asked,
        shortage.reasons,
        further=tried.quorum_stands,
        searched=shortage.searched,
        untried=shortage.untried,
        group=tried.groups[shortage.group].name,
        infeasible=shortage.infeasible,
        topology=shortage.topology,
        no_guest=shortage.no_guest,
        kept_by=shortage.kept_by,
        leaves_late=shortage.leaves_late,
    )


class CycleObserver:
    """Observes a cycle in order to explain it. Every method must leave the view unchanged."""

    def placing(
        self,
        tried: PlacementTry,
        group: int,
        *,
        request: PlacementRequest,
        indices: Sequence[int],
        chosen: Chosen,
        view: ClusterView,
        filters: Filters,
    ) -> None:
        """These indices get the chosen `(row, pods)`, in this order; the view doesn't hold them yet."""

    def fell_short(self, tried: PlacementTry, shortage: Shortage, *, view: ClusterView, filters: Filters) -> None:
        """The group's next pod found no node; the view holds the pods placed before it."""

    def in_vain(self, tried: PlacementTry) -> None:
        """The job's quorum gets no nodes in this cycle: of its tries, this one says why."""

    def undone(self, tried: PlacementTry) -> None:
        """Placements reported to `placing` were undone; the try has those that are left."""
