"""The settings of the life cycle, in milliseconds."""

import msgspec


class LifecycleConfig(msgspec.Struct, frozen=True):
    """`image_grace_ms`: how long a leader's image may fail to be pulled before the job fails; `settle_ms`: how long
    failures of workers wait for news of the leader; `lost_ms`: how long a node may be not ready or gone before its
    pods count as lost; `quorum_ms`: how long a job that starts may lack nodes for a part of its quorum; `refused_ms`:
    how long the API server may refuse pods before their nodes are given up. The first back-off in a row lasts
    `back_off_ms`, each further one twice as long, up to `longest_back_off_ms`."""

    image_grace_ms: int = 120_000
    settle_ms: int = 3_000
    lost_ms: int = 60_000
    quorum_ms: int = 300_000
    refused_ms: int = 5_000
    back_off_ms: int = 10_000
    longest_back_off_ms: int = 300_000

    def back_off_after(self, times: int) -> int:
        """How long the back-off after so many in a row lasts, in milliseconds."""
        return min(self.back_off_ms << min(times, 16), self.longest_back_off_ms)
