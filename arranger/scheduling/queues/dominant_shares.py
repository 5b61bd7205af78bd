"""Dominant resource shares (Ghodsi et al., "Dominant Resource Fairness", NSDI 2011).

The share of a job is the largest, over the cluster's resources, of (what the job has / what the cluster has in total).
`x / 0` is 0 for x = 0 and 1 otherwise. Shares are integers, in billionths, so that they compare equally on every
machine. The number of pods doesn't count as a resource, because jobs don't compete for it.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from arranger.projections.cluster.nodes import PODS
from arranger.projections.derived.queue_counts import sum_by_group
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.queues.fair_shares import ByResource
from arranger.scheduling.queues.order import WHOLE


def share_of(amounts: ByResource, total: ByResource) -> int:
    """The dominant share of some amounts, in billionths."""
    return max((_part(amount, total.get(resource, 0)) for resource, amount in amounts.items()), default=0)


def _part(amount: int, total: int) -> int:
    if not amount:
        return 0
    return amount * WHOLE // total if total else WHOLE


class PlacedPiece(Protocol):
    """Equal pods placed in this cycle."""

    @property
    def group(self) -> int: ...

    @property
    def indices(self) -> Sequence[int]: ...


def pods_by_group(pieces: Iterable[PlacedPiece]) -> dict[int, int]:
    """Group → how many of these pods are of it."""
    counts: dict[int, int] = {}
    for piece in pieces:
        counts[piece.group] = counts.get(piece.group, 0) + len(piece.indices)
    return counts


class Shares:
    """The jobs' shares, updated as the cycle places pods."""

    def __init__(self, view: ClusterView) -> None:
        self._total = {name: amount for name, amount in view.total().items() if name != PODS}
        self._allocated: dict[str, dict[str, int]] = {}
        self._given: dict[str, list[PlacedPiece]] = {}

    def allocated(self, job: JobRecord) -> int:
        """The share of the job's placements, including those of this cycle."""
        return share_of(self._of(job), self._total)

    def requested(self, job: JobRecord) -> int:
        """The share of the job's whole request."""
        counts = {number: group.count for number, group in enumerate(job.valid_spec.groups)}
        return share_of(sum_by_group(job, counts), self._total)

    def give(self, job: JobRecord, pieces: Iterable[PlacedPiece]) -> None:
        """Add pods placed by the cycle; they are summed when the job's share is next computed."""
        self._given.setdefault(job.uid, []).extend(pieces)

    def _of(self, job: JobRecord) -> dict[str, int]:
        found = self._allocated.get(job.uid)
        if found is None:
            counts: dict[int, int] = {}
            for group, _ in job.placements:
                counts[group] = counts.get(group, 0) + 1
            found = self._allocated[job.uid] = sum_by_group(job, counts)
        for resource, amount in sum_by_group(job, pods_by_group(self._given.pop(job.uid, ()))).items():
            found[resource] = found.get(resource, 0) + amount
        return found
