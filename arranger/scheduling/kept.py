"""What a process keeps from one cycle to the next: the view of the nodes, the rankings of pod shapes on it, the shares
of queues, and the room that pods of jobs use.

They take several milliseconds to build for 100,000 nodes, 1,000 queues or 10,000 jobs, and few of these change between
two cycles. So a cycle updates only what changed. Everything else that a cycle finds out (`quorum_memory`, reasons,
quotas) ends with it.
"""

from arranger.model.config import CycleConfig
from arranger.projections.job_parts import SlotKey
from arranger.projections.jobs import JobRecord
from arranger.projections.nodes import Amounts, NodeTable
from arranger.projections.queue_tree import QueueTree
from arranger.projections.state import State
from arranger.scheduling.queue_room import QueueLimits
from arranger.scheduling.queue_standing import KeptQueues
from arranger.scheduling.ranking import Rankings
from arranger.scheduling.view import ClusterView

#: Rows of the view, each once, with amounts.
RowRooms = tuple[tuple[int, Amounts], ...]


class KeptRooms:
    """By job and slots, the room that their pods use, if all of them use some. It is known until the job gets another
    version, because no slot gets another node without that, or until some amount on one of their nodes changes: no
    pod gets room or leaves it without that."""

    def __init__(self) -> None:
        self._nodes: NodeTable | None = None
        self._facts: tuple[object, int] = (None, 0)
        self._changes = 0
        #: With the job's version.
        self._known: dict[tuple[str, tuple[SlotKey, ...]], tuple[int, RowRooms]] = {}
        #: Row → what is known of pods there.
        self._there: dict[int, list[tuple[str, tuple[SlotKey, ...]]]] = {}

    def renew(self, state: State, view: ClusterView) -> None:
        """Forget what has changed since the last cycle."""
        nodes = state.nodes
        changed = nodes.changed_since(self._changes) if nodes is self._nodes else None
        facts = (nodes.names_version, len(nodes.columns))
        if changed is None or self._facts[0] is not facts[0] or self._facts[1] != facts[1]:
            self._known, self._there = {}, {}
        else:
            rows = view.node_index.rows()
            for row in changed:
                for key in self._there.pop(rows.get(nodes.names[row], -1), ()):
                    self._known.pop(key, None)
        self._nodes, self._facts, self._changes = nodes, facts, nodes.changes

    def get(self, job: JobRecord, slots: tuple[SlotKey, ...]) -> RowRooms | None:
        """What is known of a job's pods in these slots."""
        version, rooms = self._known.get((job.uid, slots), (-1, None))
        return rooms if version == job.version else None

    def keep(self, job: JobRecord, slots: tuple[SlotKey, ...], rooms: RowRooms) -> None:
        """Keep what a job's pods in these slots use."""
        key = (job.uid, slots)
        self._known[key] = (job.version, rooms)
        for row, _ in rooms:
            self._there.setdefault(row, []).append(key)


class Kept:
    """The rankings of the last cycle, with their view, and its queues. All cycles must use the same policies."""

    def __init__(self) -> None:
        self._rankings: Rankings | None = None
        self._limits: tuple[QueueTree, QueueLimits] | None = None
        self.queues = KeptQueues()
        self._rooms = KeptRooms()

    def rankings(self, state: State, config: CycleConfig) -> Rankings:
        """Rankings on a view that shows the state as it is now; the same as new ones."""
        kept = self._rankings
        if kept is None or kept.config != config or not kept.view.renew(state):
            kept = self._rankings = Rankings(ClusterView.of(state), config)
        return kept

    def rooms(self, state: State, view: ClusterView) -> KeptRooms:
        """The rooms that are still known in this state. `view` is that of `rankings`."""
        self._rooms.renew(state, view)
        return self._rooms

    def limits(self, state: State) -> QueueLimits:
        """The limits of the state's queues."""
        tree = state.queue_tree
        if self._limits is None or self._limits[0] is not tree:
            self._limits = (tree, QueueLimits(tree))
        return self._limits[1]
