"""The settings that decide a plan. They are recorded with each cycle, so that it can be taken again as it was."""

import msgspec

#: Weight of every resource whose name ends in "/gpu" and that has no weight of its own.
ANY_GPU = "*/gpu"

#: The newest rules by which the fold judges decisions, as they are recorded with new ones: from 1 on, no pod is placed
#: on a node that is not ready, cordoned or tainted at the decision's own offset; from 2 on, a quorum that gets its
#: nodes starts its job. 0 are those of older logs.
VERDICTS = 2


class CycleConfig(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Policies by name for jobs that name none, score weights by resource, and the grace before a job that no empty
    cluster could hold is failed.

    `reasons_refresh_ms` is how old the numbers in an otherwise unchanged reason may grow: every waiting job in every
    cycle would be a storm. `reasons_a_second` is how many jobs may be told other reasons in a second, and in one
    cycle, 0 for any number: while pods come and go, "no node for the leader" and "no node for a worker" change places
    with every cycle, for each of the jobs that wait. `versions` are `(name, version)` of every policy and filter
    installed. For `refusal_avoid_ms` a job leaves a node alone whose kubelet refused a pod of it. Of a quorum whose
    pods are placed one by one, because they ask something of each other, further ways are tried until `tried_pods` of
    them were placed in vain; 0 for all ways. `verdicts` are the rules by which the cycle's placements are judged
    (`VERDICTS`).
    """

    queue_policy: str = "Priority"
    pod_policy: str = "BinPack"
    weights: tuple[tuple[str, int], ...] = ((ANY_GPU, 5), ("cpu", 1), ("memory", 1))
    infeasible_grace_ms: int = 300_000
    reasons_refresh_ms: int = 10_000
    versions: tuple[tuple[str, int], ...] = ()
    refusal_avoid_ms: int = 0
    reasons_a_second: int = 0
    tried_pods: int = 0
    verdicts: int = 0

    def reasons_apart_ms(self, waiting: int) -> int:
        """How old a job's reason must be before another kind of it is told, with so many jobs waiting."""
        return waiting * 1000 // self.reasons_a_second if self.reasons_a_second else 0
