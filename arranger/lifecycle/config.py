"""The settings of the life cycle, in milliseconds."""

import msgspec

from arranger.model.provisioning import DEFAULT_CLASS, Provisioning


class LifecycleConfig(msgspec.Struct, frozen=True):
    """`image_grace_ms`: how long the pull of a leader's image may fail before the job fails; `settle_ms`: how long a
    decision on failed workers waits for observations of the leader; `node_lost_after_ms`: how long a node may be
    unready or missing before its pods count as lost; `quorum_ms`: how long a started job may lack a part of its quorum;
    `start_ms`: how long pods of a starting job may fail to start, `ready_ms`: how long it may be Starting at all, 0
    for no limit, both if its spec doesn't say it;
    `refused_ms`: how long the API server may refuse pods before their nodes are released. The first back-off in a row
    takes `back_off_ms`, each further one twice as long, up to `longest_back_off_ms`. `provisioning`: how autoscalers
    learn of jobs whose queue doesn't say it; `provisioning_class`: the class of the requests to them."""

    image_grace_ms: int = 120_000
    settle_ms: int = 3_000
    node_lost_after_ms: int = 60_000
    quorum_ms: int = 300_000
    refused_ms: int = 5_000
    start_ms: int = 300_000
    ready_ms: int = 7_200_000
    back_off_ms: int = 10_000
    longest_back_off_ms: int = 300_000
    provisioning: Provisioning = Provisioning.NONE
    provisioning_class: str = DEFAULT_CLASS

    def back_off_after(self, times: int) -> int:
        """The length of the back-off after `times` in a row, in milliseconds."""
        return min(self.back_off_ms << min(times, 16), self.longest_back_off_ms)
