"""The settings that decide a plan. They are recorded with each cycle, so that it can be taken again as it was."""

import msgspec

#: Weight of every resource whose name ends in "/gpu" and that has no weight of its own.
ANY_GPU = "*/gpu"


class CycleConfig(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Policies by name for jobs that name none, score weights by resource, and the grace before a job that no empty
    cluster could hold is failed.

    `reasons_refresh_ms` is how old the numbers in an otherwise unchanged reason may grow: every waiting job in every
    cycle would be a storm. `versions` are `(name, version)` of every policy and filter installed.
    """

    queue_policy: str = "Priority"
    pod_policy: str = "BinPack"
    weights: tuple[tuple[str, int], ...] = ((ANY_GPU, 5), ("cpu", 1), ("memory", 1))
    infeasible_grace_ms: int = 300_000
    reasons_refresh_ms: int = 10_000
    versions: tuple[tuple[str, int], ...] = ()
