"""The ClusterLog `arranger`: which log works on this Kubernetes cluster, and the rules by which another may take over.

One object has all holders, so that one comparison of its version decides among them: the log of the whole cluster, or
those of a namespace each. These functions read and write nothing; `workers.cluster_hold` does.
"""

from collections.abc import Sequence

import msgspec

from arranger.kube.cluster import Object

#: The name of the one ClusterLog.
NAME = "arranger"


class LogId(msgspec.Struct, frozen=True):
    """A log of all installations: its name, and its epoch, which no other log has; 0 if unknown."""

    name: str
    epoch: int = 0

    def __str__(self) -> str:
        return f"{self.name}@{self.epoch}" if self.epoch else self.name

    @classmethod
    def parsed(cls, text: str) -> "LogId":
        """The log that `str` wrote; one without an epoch for any other text."""
        name, at, epoch = text.rpartition("@")
        return cls(name, int(epoch)) if at and name and epoch.isdecimal() else cls(text)


class LogHolder(msgspec.Struct, frozen=True, rename="camel"):
    """A log that holds a namespace; without one, the whole cluster. Times are RFC 3339.

    `renewed` is when one of its processes was last at work, `hand_over_to` the log that is to be the next; both are
    empty for none. `next_ready` is whether a process of that one has said that it is there.
    """

    namespace: str
    log: str
    since: str
    epoch: int = 0
    renewed: str = ""
    hand_over_to: str = ""
    next_ready: bool = False

    @property
    def log_id(self) -> LogId:
        return LogId(self.log, self.epoch)

    def meets(self, namespace: str) -> bool:
        """Whether its jobs may be those of a log with this namespace, too."""
        return not self.namespace or not namespace or self.namespace == namespace

    def leaves(self) -> bool:
        """Whether another log is to hold it next, and is there."""
        return self.next_ready and bool(self.hand_over_to) and not self.hands_over_to(self.log_id)

    def hands_over_to(self, log: LogId) -> bool:
        return self.hand_over_to in (log.name, str(log))


def holders(cluster_log: Object) -> tuple[LogHolder, ...]:
    """The holders in a ClusterLog. Raises `msgspec.ValidationError` if somebody has written something else there."""
    return msgspec.convert(tuple(cluster_log.get("holders") or ()), tuple[LogHolder, ...])


def with_holders(of: Sequence[LogHolder]) -> Object:
    """The part of a ClusterLog with these holders, by namespace."""
    return {"holders": [_object(each) for each in sorted(of, key=lambda each: each.namespace)]}


def _object(holder: LogHolder) -> Object:
    fields = msgspec.to_builtins(holder)
    return {name: value for name, value in fields.items() if value or name == "namespace"}


def is_of(holder: LogHolder, log: LogId, namespace: str) -> bool:
    """Whether a log with this namespace is that holder."""
    return (holder.epoch, holder.namespace) == (log.epoch, namespace)
