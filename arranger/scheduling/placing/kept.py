"""What a process keeps from one cycle to the next: the view of the nodes, the rankings of pod shapes on it, the shares
of queues, what jobs with nodes use and would lose, and as of when the starts of reservations are known.

They take several milliseconds to build for 100,000 nodes, 1,000 queues or 10,000 jobs, and few of these change between
two cycles. So a cycle updates only what changed. Everything else that a cycle finds out (`quorum_memory`, reasons,
quotas) ends with it.
"""

from arranger.model.config import CycleConfig
from arranger.projections.queues.tree import QueueTree
from arranger.projections.state import State
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.policies.ranking import Rankings
from arranger.scheduling.queues.known_jobs import KnownJobs
from arranger.scheduling.queues.limits import QueueLimits
from arranger.scheduling.queues.standing import KeptQueues


class KeptRankings:
    """The rankings of the last cycle, with their view, and its queues. All cycles must use the same policies."""

    def __init__(self) -> None:
        self._rankings: Rankings | None = None
        self._limits: tuple[QueueTree, QueueLimits] | None = None
        self.queues = KeptQueues()
        #: UID of a job with a reservation → the `changes` of the nodes when its start was last sought.
        self.sought: dict[str, int] = {}
        self._jobs = KnownJobs()

    def rankings(self, state: State, config: CycleConfig) -> Rankings:
        """Rankings on a view that shows the state as it is now; the same as new ones."""
        kept = self._rankings
        if kept is None or kept.config != config or not kept.view.renew(state):
            kept = self._rankings = Rankings(ClusterView.of(state), config)
        return kept

    @staticmethod
    def on(view: ClusterView, config: CycleConfig) -> Rankings:
        """Rankings on another view, of which nothing is kept."""
        return Rankings(view, config)

    def jobs(self, state: State, time_ms: int) -> KnownJobs:
        """What is still known of the jobs in this state."""
        self._jobs.renew(state, time_ms)
        return self._jobs

    def limits(self, state: State) -> QueueLimits:
        """The limits of the state's queues."""
        tree = state.queue_tree
        if self._limits is None or self._limits[0] is not tree:
            self._limits = (tree, QueueLimits(tree))
        return self._limits[1]
