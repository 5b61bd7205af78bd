"""The problems that processes and Redis report, in words: the problem, and the next step."""

from arranger.cli.rendering.output import duration
from arranger.workers.member_problems import MemberProblem, ProblemKind
from arranger.workers.status import MemberStatus, Problem, Status

#: Kind → (problem, next step). Placeholders: `subject`, and the durations `lasts` and `off`.
_WORDS = {
    ProblemKind.WATCH: (
        "can't watch {subject} objects, or hears nothing of them, for {lasts}",
        "see its log and /readyz, and whether the API server answers it; restart it if the watch stays silent",
    ),
    ProblemKind.API: (
        "gets no good answer from the API server for {lasts}",
        "see its log and /readyz: its way to the API server, its rights, and whether the TYJob resource is there",
    ),
    ProblemKind.WRITES_REFUSED: (
        "can't write to Redis for {lasts}",
        "see what Redis says: memory (maxmemory), and whether it is a replica",
    ),
    ProblemKind.ARCHIVE: (
        "has archived nothing for {lasts}: the log isn't trimmed meanwhile and grows",
        "see its log (archiving failed) and whether the archive can be reached and written",
    ),
    ProblemKind.SNAPSHOTS_WAIT: (
        "stores no snapshots for {lasts}, and the log isn't trimmed: {subject} runs an earlier release, which couldn't "
        "read them",
        "finish the upgrade, or end that process",
    ),
    ProblemKind.CLOCK: (
        "writes nothing: its clock is off by {off} from that of Redis",
        "set the clock of its machine (chronyc tracking, timedatectl), or that of Redis if all tell this",
    ),
    ProblemKind.CLUSTER: (
        "writes nothing: it is connected to another Kubernetes cluster (UID {subject} of kube-system) than the log's",
        "correct its kubeconfig or what answers at that address, or give its cluster a name of its own (--cluster)",
    ),
    ProblemKind.OTHER: (
        "tells a problem that this version of arranger has no words for",
        "ask with the version that runs there",
    ),
}


#: Problems of the Redis server: (problem, next step).
_FULL = (
    "Redis is full ({used} of maxmemory {bound}) and refuses writes: nothing is decided or observed, and who runs "
    "isn't known, because heartbeats are refused too",
    "raise maxmemory (CONFIG SET maxmemory, and the server's own limit), or free memory that isn't the log's; then "
    "lower keep_events",
)
_REPLICA = (
    "this Redis is a read-only replica: nothing is decided or observed, and who runs isn't known, because heartbeats "
    "are refused too",
    "name the primary in the URL, or make this server the primary (REPLICAOF NO ONE) once the other is gone for good",
)
_DISK = (
    "Redis can't save to its disk, and may refuse writes until it can",
    "see the log of Redis and its disk; INFO persistence says when it works again",
)


def store_problems(status: Status) -> list[Problem]:
    """The problems of the Redis server with the log. They are listed first, because everything depends on it."""
    store = status.store
    sizes = {"used": f"{store.used_bytes / 1e6:.1f} MB", "bound": f"{store.max_bytes / 1e6:.1f} MB"}
    there = ((store.replica, _REPLICA), (store.full, _FULL), (store.disk_failing, _DISK))
    return [Problem(what.format(**sizes), following) for holds, (what, following) in there if holds]


def member_problems(status: Status) -> list[Problem]:
    return [_said(member, problem) for member in status.members for problem in member.problems]


def _said(member: MemberStatus, problem: MemberProblem) -> Problem:
    what, following = _WORDS[problem.kind]
    known = {"subject": problem.subject, "lasts": duration(problem.lasts_ms), "off": duration(abs(problem.off_ms))}
    cause = f" ({problem.cause})" if problem.cause else ""
    return Problem(f"{'+'.join(member.roles)} {member.id} {what.format(**known)}{cause}", following)
