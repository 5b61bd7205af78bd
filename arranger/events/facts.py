"""The facts that decisions carry. What people read of them is made at the edge, by `arranger.messages`.

Words in a fact are another program's: a kubelet's, an API server's, a container's. Three reasons still hold a sentence
of Arranger's own there: what is wrong with a spec (`InvalidSpec`), and why a cycle found no nodes (`Unschedulable`,
`QuorumIncomplete`), because `Waits` has no facts yet.
"""

from enum import StrEnum

import msgspec

from arranger.model.job import Place
from arranger.model.node import Taint


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
    first: Place
    count: int
    words: str = ""
    node: str = ""
    cordoned: bool = False
    taint: Taint | None = None
    sentence: str = ""
