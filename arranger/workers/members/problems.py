"""The problems of one process as facts, which its heartbeat reports and a reader puts into words.

A problem is a kind and a few fields. `MemberProblems` records since when each exists, so that a check only reports that
it exists or is over.
"""

from enum import StrEnum

import msgspec

from arranger.clock import Clock

#: Characters of a cause that are reported: every heartbeat includes it.
_CAUSE_CHARS = 300


class ProblemKind(StrEnum):
    """The kinds of problems of a running process."""

    #: A watch is interrupted, or was silent for long. `subject` is the watched kind.
    WATCH = "Watch"
    #: The API server doesn't respond, or refuses our requests.
    API = "Api"
    #: Redis refuses this process's writes: it is full, or a replica.
    WRITES_REFUSED = "WritesRefused"
    #: Archiving fails.
    ARCHIVE = "Archive"
    #: Snapshots wait, because a process of an earlier release runs. `subject` is its member id.
    SNAPSHOTS_WAIT = "SnapshotsWait"
    #: The process's clock differs from that of Redis by `off_ms`.
    CLOCK = "Clock"
    #: The process is connected to a Kubernetes cluster other than the log's. `subject` is the UID of its kube-system.
    CLUSTER = "Cluster"
    #: Another log holds the Kubernetes cluster, or is to hold it next. `subject` is that log.
    HELD = "Held"
    #: An entry of the log isn't authentic, and the process waits there. `subject` is its offset.
    FORGED = "Forged"
    #: The definition `subject` is being deleted, and finalizers (`cause`) keep it.
    DEFINITION = "Definition"
    #: The process's changes to the cluster take long, half of them `took_ms` or longer.
    SLOW = "Slow"
    #: Another scheduler places pods that name the scheduler `subject`, which is Arranger's too. `cause` is the last.
    OTHER_SCHEDULER = "OtherScheduler"
    #: A kind that only another version defines.
    OTHER = "Other"

    @classmethod
    def _missing_(cls, value: object) -> "ProblemKind":
        return cls.OTHER


class MemberProblem(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One problem. `lasts_ms` is its duration so far, `cause` the other side's message (an API server, a store)."""

    kind: ProblemKind
    subject: str = ""
    lasts_ms: int = 0
    off_ms: int = 0
    cause: str = ""
    took_ms: int = 0


class MemberProblems:
    """The problems of this process, each with the time when it was first found."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: dict[tuple[ProblemKind, str], tuple[float, MemberProblem]] = {}

    def tell(
        self,
        kind: ProblemKind,
        there: bool,
        *,
        subject: str = "",
        off_ms: int = 0,
        cause: str = "",
        since_s: float = 0,
        took_ms: int = 0,
    ) -> None:
        """Report that a problem of this kind and subject exists, or doesn't (any more).

        `since_s` is how many seconds it had existed when it was first found.
        """
        key = (kind, subject)
        if not there:
            self._found.pop(key, None)
            return
        first_s = self._found[key][0] if key in self._found else self._clock.monotonic_s() - since_s
        problem = MemberProblem(kind, subject, off_ms=off_ms, cause=cause[:_CAUSE_CHARS], took_ms=took_ms)
        self._found[key] = first_s, problem

    def tell_one(self, kind: ProblemKind, subject: str | None, *, cause: str = "", since_s: float = 0) -> None:
        """Report the subject of the one problem of a kind; None: no such problem exists."""
        for other in [key for key in self._found if key[0] == kind and key[1] != subject]:
            del self._found[other]
        if subject is not None:
            self.tell(kind, True, subject=subject, cause=cause, since_s=since_s)

    def present(self) -> tuple[MemberProblem, ...]:
        """The present problems, by kind and subject."""
        now_s = self._clock.monotonic_s()
        return tuple(
            msgspec.structs.replace(problem, lasts_ms=max(0, round((now_s - first_s) * 1000)))
            for _, (first_s, problem) in sorted(self._found.items(), key=lambda item: item[0])
        )
