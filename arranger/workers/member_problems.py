"""What is wrong with one process, as facts: told with its heartbeat, put into words by whoever shows them.

A problem is a kind and a few fields. `MemberProblems` remembers since when each is there, so that whoever finds one
only says that it is there or that it is over.
"""

from enum import StrEnum

import msgspec

from arranger.clock import Clock

#: Characters of a cause that are told: it stands in every heartbeat.
_CAUSE_CHARS = 300


class ProblemKind(StrEnum):
    """What can be wrong with a process that runs."""

    #: A watch is broken off, or nothing was heard of it for long. `subject` is the watched kind.
    WATCH = "Watch"
    #: The API server doesn't answer, or refuses us.
    API = "Api"
    #: Redis refuses this process's writes: it is full, or a replica.
    WRITES_REFUSED = "WritesRefused"
    #: Nothing could be put into the archive.
    ARCHIVE = "Archive"
    #: Snapshots wait, because a process of an earlier release runs. `subject` is its member id.
    SNAPSHOTS_WAIT = "SnapshotsWait"
    #: The process's clock is off from that of Redis by `off_ms`.
    CLOCK = "Clock"
    #: The process is connected to another Kubernetes cluster than the log's. `subject` is the UID of its kube-system.
    CLUSTER = "Cluster"
    #: Something that only another version has a name for.
    OTHER = "Other"

    @classmethod
    def _missing_(cls, value: object) -> "ProblemKind":
        return cls.OTHER


class MemberProblem(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One problem. `lasts_ms` is since when it is there, `cause` what the other side said (an API server, a store)."""

    kind: ProblemKind
    subject: str = ""
    lasts_ms: int = 0
    off_ms: int = 0
    cause: str = ""


class MemberProblems:
    """The problems of this process, each since it was first found."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: dict[tuple[ProblemKind, str], tuple[float, MemberProblem]] = {}

    def tell(
        self, kind: ProblemKind, there: bool, *, subject: str = "", off_ms: int = 0, cause: str = "", since_s: float = 0
    ) -> None:
        """A problem of this kind and subject is there, or isn't (any more).

        `since_s` is for how many seconds it was there already when it was first found.
        """
        key = (kind, subject)
        if not there:
            self._found.pop(key, None)
            return
        first_s = self._found[key][0] if key in self._found else self._clock.monotonic_s() - since_s
        problem = MemberProblem(kind, subject, off_ms=off_ms, cause=cause[:_CAUSE_CHARS])
        self._found[key] = first_s, problem

    def tell_one(self, kind: ProblemKind, subject: str | None, *, since_s: float = 0) -> None:
        """The one problem of a kind has this subject now; None: there is none."""
        for other in [key for key in self._found if key[0] == kind and key[1] != subject]:
            del self._found[other]
        if subject is not None:
            self.tell(kind, True, subject=subject, since_s=since_s)

    def present(self) -> tuple[MemberProblem, ...]:
        """What is there now, by kind and subject."""
        now_s = self._clock.monotonic_s()
        return tuple(
            msgspec.structs.replace(problem, lasts_ms=max(0, round((now_s - first_s) * 1000)))
            for _, (first_s, problem) in sorted(self._found.items(), key=lambda item: item[0])
        )
