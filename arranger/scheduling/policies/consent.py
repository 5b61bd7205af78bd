"""The consent of other packages to whole quorums: group checks, before nodes are looked at, and permits, once nodes are
found.

They correspond to PreFilter and to Reserve and Permit of Kubernetes' scheduling framework. Both are pure: an answer may
depend only on what `QuorumAsked` has, and all of that is in the log. Whoever wants to say yes or no from outside puts a
fact there that Arranger observes: a label of the namespace or of a node, a label of a pod, or the annotation
`arranger.dev/permits` of the TYJob. The change of such a fact is followed by a cycle, which asks again.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from arranger.model.job import PlacedPods
from arranger.model.node import NodeFacts
from arranger.projections.jobs.records import JobRecord

#: Longer words of a plugin are cut, and longer time-outs are shortened: a reason is a short sentence, and room isn't
#: kept for good.
MOST_WORDS = 200
MOST_SECONDS = 7 * 86_400


@dataclass(frozen=True, slots=True)
class QuorumAsked:
    """A quorum for which nodes are sought: its job (or pod, or pod group) and the labels of its namespace. `pods` is
    the number of pods that it needs, by group. For a permit, `placed` has the nodes that were found, and `nodes` their
    facts by name; for a group check, both are empty. Don't modify any of it."""

    job: JobRecord
    namespace_labels: Mapping[str, str]
    pods: Mapping[int, int]
    placed: tuple[PlacedPods, ...] = ()
    nodes: Mapping[str, NodeFacts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hold:
    """A permit holds a quorum back: `words` say what it waits for. With `keep_room`, nobody else gets the nodes that
    were found for it for up to `seconds`. After that it waits without room, until the permit lets it go."""

    words: str
    seconds: int = 0
    keep_room: bool = False


class GroupCheck(ABC):
    """One reason for which a quorum may be refused as a whole before any node is looked at. Each cycle records `name`
    and `version`."""

    name: ClassVar[str]
    version: ClassVar[int]

    @abstractmethod
    def refuses(self, asked: QuorumAsked) -> str:
        """Why the quorum gets no nodes now, in a few words; empty if the check has nothing against it."""


class Permit(ABC):
    """A check of a quorum for which nodes were found, before it gets them. Each cycle records `name` and `version`."""

    name: ClassVar[str]
    version: ClassVar[int]

    @abstractmethod
    def holds(self, asked: QuorumAsked) -> Hold | None:
        """What the quorum has to wait for; None if it may go. The words stay the same for as long as the wait does."""
