"""What a cycle does for one job, piece by piece, and who looks on to explain it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from arranger.model.job import PodGroup
from arranger.model.quota import QuotaLack
from arranger.model.reasons import ReasonCounts
from arranger.projections.jobs import JobRecord
from arranger.scheduling.filters import Filters
from arranger.scheduling.placement import Scores
from arranger.scheduling.policies.base import PlacementRequest, PodPolicy
from arranger.scheduling.view import Chosen, ClusterView, Taken


@dataclass(slots=True)
class Shortage:
    """Where placing a job stopped: the group whose next pod found no node, and why not, node by node; or the quota that
    doesn't leave enough for it."""

    group: int
    reasons: ReasonCounts
    found: int
    asked: int
    infeasible: bool = False
    #: What a quota of the namespace doesn't leave: then no node was looked at.
    quota: QuotaLack | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Equal pods placed on one node."""

    row: int
    group: int
    indices: Sequence[int]


@dataclass(slots=True)
class PlacementTry:
    """What a cycle does for one job."""

    job: JobRecord
    policy: PodPolicy
    #: The job's pods as this try asks for them.
    groups: tuple[PodGroup, ...]
    pieces: list[Piece] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    #: The job's pods by row, for policies that ask; made when first asked for.
    of_job: Scores | None = None
    shortage: Shortage | None = None
    quorum_stands: bool = False
    #: The quorum was found at the first try: worker sets in the order given, on all nodes.
    as_given: bool = False
    #: Pods that were placed one by one so far, those that were taken back included.
    steps: int = 0
    #: Group → what is left to place beyond the quorum, and how much was asked for.
    left: dict[int, tuple[Sequence[int], int]] | None = None

    @property
    def pods(self) -> int:
        return sum(len(piece.indices) for piece in self.pieces)

    def undo(self) -> None:
        """Forget what was placed; the view has it back."""
        self.pieces.clear()
        self.taken.clear()
        self.of_job = None


class CycleObserver:
    """Looks on while a cycle is taken, to explain it. All calls must leave the view as they found it."""

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
        """These indices get the chosen `(row, pods)`, in this order; nothing of it is held in the view yet."""

    def fell_short(self, tried: PlacementTry, shortage: Shortage, *, view: ClusterView, filters: Filters) -> None:
        """The group's next pod found no node; what was found before it is held in the view."""

    def undone(self, tried: PlacementTry) -> None:
        """A quorum didn't come together: all that `placing` told of it is given back."""
