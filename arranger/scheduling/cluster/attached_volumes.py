"""The volumes of the pods on a cycle's nodes: which claims are in use by one pod alone, and which volumes of CSI
drivers are attached where. The cycle updates both as it places pods and undoes placements.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from arranger.model.pod import Attachment
from arranger.projections.cluster.volume_table import VolumeTable

Counts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_Key = TypeVar("_Key", bound=Hashable)

#: In an array of limits: the node has none.
_UNLIMITED = -1


@dataclass(slots=True)
class DriverRoom:
    """The volumes of one driver that a pod needs, by row: the limit, how many are attached already, how many of those
    that the pod shares aren't, and how many it has for itself."""

    limits: Counts
    counts: Counts
    shared: Counts
    own: int = 0

    def refused(self) -> Mask:
        """The rows that can't attach what the pod needs. One that has all of it takes the pod, whatever its limit."""
        needed = self.shared + self.own
        return (self.limits >= 0) & (needed > 0) & (self.counts + needed > self.limits)

    def most(self, many: int) -> Counts:
        """How many pods each row takes together, `many` without a limit, for pods with volumes of their own."""
        left = np.maximum(self.limits - self.counts - self.shared, 0) // self.own
        return np.where(self.limits >= 0, left, many)


class AttachedVolumes:
    """Volumes by row of the view. Each node attaches a volume once, however many of its pods use it."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        #: Driver → how many volumes each row may attach, and how many it has.
        self._limits: dict[str, Counts] = {}
        self._counts: dict[str, Counts] = {}
        #: Volume → row → how many pods there use it.
        self._users: dict[Attachment, dict[int, int]] = {}
        #: (Namespace, claim) → how many pods use it, of claims that one pod alone may use.
        self._exclusive: dict[tuple[str, str], int] = {}

    @classmethod
    def of(cls, table: VolumeTable, rows: Mapping[str, int]) -> "AttachedVolumes":
        """The limits of these nodes (name → row), with no pods."""
        found = cls(len(rows))
        for name, node in table.csi_nodes.items():
            row = rows.get(name)
            for driver, limit in node.limits if row is not None else ():
                if driver not in found._limits:
                    found._limits[driver] = np.full(len(rows), _UNLIMITED, np.int64)
                found._limits[driver][row] = limit
        return found

    def emptied(self) -> "AttachedVolumes":
        """The same limits without pods."""
        found = AttachedVolumes(self._nodes)
        found._limits = self._limits
        return found

    def used(self, namespace: str, claim: str) -> bool:
        """Whether a pod uses this claim, which only one may use."""
        return (namespace, claim) in self._exclusive

    def room(self, attachments: Sequence[Attachment]) -> dict[str, "DriverRoom"]:
        """Driver → the room of each row for these volumes, of the drivers that have a limit on some row."""
        found: dict[str, DriverRoom] = {}
        for of in attachments:
            limits = self._limits.get(of.driver)
            if limits is None:
                continue
            if of.driver not in found:
                counts = self._counts.get(of.driver, np.zeros(self._nodes, np.int64))
                found[of.driver] = DriverRoom(limits, counts, np.zeros(self._nodes, np.int64))
            room = found[of.driver]
            if not of.volume:
                room.own += 1
                continue
            room.shared += 1
            room.shared[list(self._users.get(of, ()))] -= 1
        return found

    def add(
        self, namespace: str, exclusive: Sequence[str], attachments: Sequence[Attachment], row: int, count: int
    ) -> None:
        """Add so many pods with these claims and volumes on a row, or with a negative count remove them."""
        for claim in exclusive:
            _change(self._exclusive, (namespace, claim), count)
        for of in attachments:
            if of.driver not in self._limits:
                continue
            if of.driver not in self._counts:
                self._counts[of.driver] = np.zeros(self._nodes, np.int64)
            counts = self._counts[of.driver]
            if not of.volume:
                counts[row] += count
                continue
            users = self._users.setdefault(of, {})
            before = row in users
            _change(users, row, count)
            counts[row] += (row in users) - before


def _change(counts: dict[_Key, int], key: _Key, by: int) -> None:
    left = counts.get(key, 0) + by
    if left:
        counts[key] = left
    else:
        counts.pop(key, None)
