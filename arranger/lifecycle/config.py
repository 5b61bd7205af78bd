"""The settings of the life cycle, in milliseconds."""

import msgspec


class LifecycleConfig(msgspec.Struct, frozen=True):
    """`image_grace_ms`: how long a leader's image may fail to be pulled before the job fails; `settle_ms`: how long
    failures of workers wait for news of the leader; `lost_ms`: how long a node may be not ready or gone before its
    pods count as lost; `quorum_ms`: how long a job that starts may lack a part of its quorum."""

    image_grace_ms: int = 120_000
    settle_ms: int = 3_000
    lost_ms: int = 60_000
    quorum_ms: int = 300_000
