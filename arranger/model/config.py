"""The settings that determine a plan. Each cycle records them, so that it can be run again exactly."""

import msgspec

from arranger.model.provisioning import Provisioning
from arranger.model.queue import Preemption, ScheduledFailed

#: Weight of every accelerator (`model/accelerators.py`) that has no other weight. No resource has this name.
ANY_ACCELERATOR = "accelerators"
#: Weight of every resource whose name ends in "/gpu" and that has no weight of its own.
ANY_GPU = "*/gpu"

#: How many complete searches for quorums a cycle has the steps for, if each goes up to its bound.
SEARCHES = 10


class StartBounds(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How long the image of a leader may fail to pull, pods of a quorum may fail to start, and a start may take at all
    (0: no limit), in milliseconds."""

    image_ms: int
    start_ms: int
    ready_ms: int


class CycleConfig(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Policies by name for jobs that name none, score weights by resource, and the grace before a job that no empty
    cluster could hold is failed.

    `reasons_refresh_ms` is the maximum age of false numbers in an otherwise unchanged reason while few jobs wait: every
    pod that comes or goes changes them. `reasons_a_second` limits how many jobs may get other reasons or numbers in a
    second, and in one cycle, 0 for no limit: while pods come and go, "no node for the leader" and "no node for a
    worker" alternate with every cycle, for each waiting job. `versions` are `(name, version)` of every installed policy
    and filter. For `refusal_avoid_ms` a job avoids a node whose kubelet refused one of its pods. If the pods of a
    quorum are placed one by one, because they have rules about each other, the scheduler tries further combinations
    until `tried_pods` of them were placed in vain; 0 for all combinations. `search_steps` is the bound of one complete
    search for a quorum that the simple ways don't place; 0 for no such search. In a cluster of fewer nodes than
    `search_nodes`, it is as many times larger as the nodes are fewer, up to `SEARCHES` times. All searches of a cycle
    together may take `SEARCHES` times as many steps as one. From an accepted cycle on, the fold keeps what queues used
    on average with the half-life `half_life_ms`, which counts in their order; 0 for none.

    `preemption` says how room may be taken back in the whole cluster, whatever the queues allow; None for not at all.
    A job for which room is taken back has that room for `room_bound_ms` longer than the longest grace period of the
    pods that leave it. So many of the first waiting jobs as `reservations` get a reservation, which is revised after
    `reservation_refresh_ms` at the earliest, but for an earlier start; without reservations, any job may start before
    others.
    `learned_runtimes`: a job that says nothing of its end is expected to end as earlier ones of its kind did.
    `qos_order`: among jobs of the same priority, those whose pods have the better QoS class come first.
    `scheduled_failed` says whether jobs fail after the grace, where their queue doesn't say it, and `provisioning`
    how autoscalers learn of them: none fails while a request for its nodes is under way. A node counts under the first
    filter that refuses it: `filter_order` has the names of those that come before all others. Before `min_runtime_ms`
    have passed, nobody takes the quorum of a job that took its nodes from others, if its queue says nothing of that.
    `dry_run`: a job takes room from others only once the API server has taken its pods in a dry run. `guests`: a job
    behind one with a reservation may use the reserved room until that one can start.

    `starts` determines no plan: explanations say by it when a job that can't start gives up. None in older logs.
    `beside_limits`: the reason of a job that a limit keeps waiting says as well why nodes have too little for it, if
    they do. Older logs don't have that.
    """

    queue_policy: str = "Priority"
    pod_policy: str = "MostAllocated"
    weights: tuple[tuple[str, int], ...] = ((ANY_ACCELERATOR, 5), ("cpu", 1), ("memory", 1))
    infeasible_grace_ms: int = 300_000
    reasons_refresh_ms: int = 1_000
    versions: tuple[tuple[str, int], ...] = ()
    refusal_avoid_ms: int = 0
    reasons_a_second: int = 0
    tried_pods: int = 0
    search_steps: int = 0
    search_nodes: int = 0
    half_life_ms: int = 0
    preemption: Preemption | None = None
    reservations: int = 0
    reservation_refresh_ms: int = 0
    learned_runtimes: bool = False
    room_bound_ms: int = 0
    scheduled_failed: ScheduledFailed = ScheduledFailed.AFTER_GRACE
    provisioning: Provisioning = Provisioning.NONE
    filter_order: tuple[str, ...] = ()
    qos_order: bool = False
    min_runtime_ms: int = 0
    dry_run: bool = False
    guests: bool = False
    starts: StartBounds | None = None
    beside_limits: bool = False

    def search_bound(self, nodes: int) -> int:
        """The bound of one complete search in a cluster of so many nodes, in steps. Small clusters have time: little
        else is done in their cycles, and a search that ends at its bound may leave a job waiting for ever."""
        return self.search_steps * min(max(self.search_nodes // max(nodes, 1), 1), SEARCHES)

    def reasons_apart_ms(self, waiting: int) -> int:
        """The minimum age in ms of a job's reason before one of another kind replaces it."""
        return waiting * 1000 // self.reasons_a_second if self.reasons_a_second else 0
