"""The own jobs of queues with others below them, as one more child of each, as the division of shares has them.

So a queue and the own jobs of one above it take room back from each other as two queues with the same parent do.
"""

from collections.abc import Mapping

from arranger.projections.state import State
from arranger.scheduling.queues.fair_shares import ByResource
from arranger.scheduling.queues.standing import QueueStanding

_NOTHING: ByResource = {}
#: What the name of such a child ends with; no queue has it in its name.
_OWN = "/"


def own_jobs_of(queue: str) -> str:
    """The child that the own jobs of a queue are."""
    return queue + _OWN


def is_of_own_jobs(name: str) -> bool:
    """Whether a name is that of such a child, and of no queue."""
    return name.endswith(_OWN)


def queue_itself(name: str) -> str:
    """The queue whose own jobs a child is, or the queue that has this name."""
    return name.removesuffix(_OWN)


class ShareParts:
    """The paths from the jobs of each queue to the root, and the shares on them, with such children."""

    def __init__(self, state: State, standing: QueueStanding) -> None:
        tree = state.queue_tree
        self._state = state
        self._parents = [name for name in tree.children if name in tree.paths]
        #: Queue → the names on the path of its own jobs, from the nearest on.
        self.paths: Mapping[str, tuple[str, ...]] = tree.paths
        #: Queue, or such a child → its share.
        self.shares: Mapping[str, ByResource] = standing.shares
        if self._parents:
            self.paths = tree.paths | {name: (own_jobs_of(name), *tree.paths[name]) for name in self._parents}
            self.shares = standing.shares | {
                own_jobs_of(name): _left(standing.shares, name, tree.children[name]) for name in self._parents
            }

    def used(self) -> Mapping[str, ByResource]:
        """Queue, or such a child → what it uses, with the queues below."""
        totals, own = self._state.queue_totals, self._state.queue_use.own
        if not self._parents:
            return totals
        return {**totals, **{own_jobs_of(name): own[name] for name in self._parents if name in own}}


def _left(shares: Mapping[str, ByResource], queue: str, children: tuple[str, ...]) -> ByResource:
    """What the children of a queue leave of its share."""
    return {
        resource: amount - sum([shares.get(child, _NOTHING).get(resource, 0) for child in children])
        for resource, amount in shares.get(queue, _NOTHING).items()
    }
