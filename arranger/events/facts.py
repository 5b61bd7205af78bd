"""The facts that decisions carry. What people read of them is made at the edge, by `arranger.messages`.

Words in a fact are another program's: a kubelet's, an API server's, a container's. One reason holds words of Arranger's
own there, as the observation of the job does: what is wrong with a spec (`InvalidSpec`).
"""

from enum import StrEnum

import msgspec

from arranger.model.job import Slot
from arranger.model.node import Taint
from arranger.model.quota import QuotaLack
from arranger.model.reasons import Reason, ReasonCounts, rank


class ShortageFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Why a job, or the rest of it, gets no nodes: `found` of `asked` pods of its quorum fit, or, if `further`, of the
    pods beyond it, and the next one, of the worker set `group`, fits no node.

    `reasons` count every node once. With `quota` no node was looked at: it is what a ResourceQuota of the namespace
    doesn't leave, and `reasons` say the same. `infeasible`: even an empty cluster of the present nodes couldn't hold
    the quorum. `sentence` is what an earlier version recorded, where its facts can't be had from that.
    """

    group: str
    found: int
    asked: int
    further: bool = False
    infeasible: bool = False
    reasons: ReasonCounts = ()
    quota: QuotaLack | None = None
    sentence: str = ""

    def kinds(self) -> tuple[Reason, ...]:
        """The reasons without their numbers, in an order of their own: which is the most frequent is a number too."""
        return tuple(sorted((reason.numberless() for reason, _ in self.reasons), key=rank))

    def amounts(self) -> tuple[object, ...]:
        """All that is told of it: with equal amounts there is no news."""
        never = self.quota is not None and self.quota.never
        return (self.group, self.found, self.asked, self.further, self.infeasible, self.reasons, never, self.sentence)


class StageFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a decision on a job's stage rests on. Which fields are set depends on the reason (`StageReason`).

    `node` is the leader's, `gone` says that it is no longer there, `cordoned` and `taint` how it was closed. `seconds`
    is for how long a node is down, a quorum incomplete, or how long the job may be active. `count` counts restarts of
    the leader or workers, `limit` is the restartLimit, `needed` the minWorkersNum. `address` is the leader's, `was` the
    one before it. `words` are another program's. `sentence` is what an earlier version, or the status of an adopted
    job, says of the decision; then no other field is set.
    """

    node: str = ""
    gone: bool = False
    cordoned: bool = False
    taint: Taint | None = None
    seconds: int = 0
    count: int = 0
    needed: int = 0
    limit: int = 0
    was: str = ""
    address: str = ""
    words: str = ""
    sentence: str = ""
    shortage: ShortageFacts | None = None


#: Of a decision whose reason says it all.
NO_FACTS = StageFacts()


class EndKind(StrEnum):
    """How workers came to be replaced: they failed by their own fault, were evicted, refused or lost without it, were
    restarted beyond the limit, or the API server refuses their pods."""

    FAILED = "Failed"
    LOST = "Lost"
    OVER_LIMIT = "OverLimit"
    REFUSED = "Refused"


class EndCause(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Why `count` workers are replaced: `first` is the first of them, the rest of the fields tell of that one.

    `words` are the kubelet's or the API server's; where there are none, `node` is the worker's, with `cordoned` and
    `taint` if it was closed. `sentence` is what an earlier version recorded; then no other field is set.
    """

    kind: EndKind
    first: Slot
    count: int
    words: str = ""
    node: str = ""
    cordoned: bool = False
    taint: Taint | None = None
    sentence: str = ""
