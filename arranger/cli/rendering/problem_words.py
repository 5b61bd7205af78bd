"""The problems that processes and Redis report, in words: the problem, and the next step."""

from arranger.cli.rendering.output import duration
from arranger.workers.health.status import MemberStatus, Problem, Status
from arranger.workers.members.problems import MemberProblem, ProblemKind

#: Kind → (problem, next step). Placeholders: `subject`, and the durations `lasts`, `off` and `took`.
_WORDS = {
    ProblemKind.WATCH: (
        "has had no working watch of {subject} objects for {lasts}",
        "check its log and /readyz, and whether it reaches the API server; restart it if the watch stays silent",
    ),
    ProblemKind.API: (
        "has had no successful answer from the API server for {lasts}",
        "check its log and /readyz, its way to the API server, its rights, and whether the TYJob resource exists",
    ),
    ProblemKind.WRITES_REFUSED: (
        "hasn't been able to write to Redis for {lasts}",
        "check the memory of Redis (maxmemory), and whether it is a replica",
    ),
    ProblemKind.ARCHIVE: (
        "has archived nothing for {lasts}, so the log isn't trimmed and grows",
        "check its log (archiving failed), and whether it can reach and write the archive",
    ),
    ProblemKind.SNAPSHOTS_WAIT: (
        "has stored no snapshots for {lasts}, so the log isn't trimmed: {subject} runs an earlier release, which "
        "couldn't read them",
        "finish the upgrade, or stop that process",
    ),
    ProblemKind.CLOCK: (
        "writes nothing: its clock differs by {off} from that of Redis",
        "set the clock of its machine (chronyc tracking, timedatectl), or that of Redis if all processes report this",
    ),
    ProblemKind.CLUSTER: (
        "writes nothing: it is connected to another Kubernetes cluster (UID {subject} of kube-system) than the log's",
        "correct its kubeconfig or the server at that address, or give its cluster a name of its own (--cluster)",
    ),
    ProblemKind.HELD: (
        "writes nothing, because the log {subject} holds its Kubernetes cluster",
        "stop these processes, or hand the cluster over to them (arranger hand-over); see One cluster, one log in "
        "docs/operations.md",
    ),
    ProblemKind.FORGED: (
        "does nothing, because the entry of the log at offset {subject} isn't authentic",
        "see who can write to Redis, and whether every process has the same log_key; docs/operations.md, When an entry "
        "is not authentic, says how to go on",
    ),
    ProblemKind.DEFINITION: (
        "sees that the definition {subject} has been in deletion for {lasts}: its TYJobs are deleted, and those that "
        "come now go with it",
        "a deletion can't be taken back: save the TYJobs (kubectl get tyj -A -o yaml), let whoever owns the finalizers "
        "end it or remove them (kubectl edit crd {subject}), then apply the definitions (arranger crd | kubectl apply "
        "-f -) and the TYJobs again",
    ),
    ProblemKind.SLOW: (
        "has been slow for {lasts}: half of its changes to the cluster take {took} or longer, so its jobs get statuses "
        "and pods late",
        "compare arranger_api_request_seconds of all appliers: if all are slow, see the load of the API server and its "
        "flow control; if one is, see its network, its CPU limit and its node, or delete its pod: others take its jobs",
    ),
    ProblemKind.OTHER_SCHEDULER: (
        "has seen that another scheduler binds pods that name {subject}, which Arranger places too: both give the same "
        "room away, and kubelets refuse pods that don't fit",
        "stop the other scheduler, or take {subject} out of scheduler_names",
    ),
    ProblemKind.OTHER: (
        "reports a problem that this version of arranger doesn't know",
        "run arranger status in the version that runs there",
    ),
}


#: Problems of the Redis server: (problem, next step).
_FULL = (
    "Redis is full ({used} of maxmemory {bound}) and refuses writes: nothing is decided or observed, and the running "
    "processes aren't known, because heartbeats are refused too",
    "raise maxmemory (CONFIG SET maxmemory, and the server's own limit), or free memory that isn't the log's; then "
    "lower keep_events",
)
_REPLICA = (
    "this Redis is a read-only replica: nothing is decided or observed, and the running processes aren't known, "
    "because heartbeats are refused too",
    "use the URL of the primary, or make this server the primary (REPLICAOF NO ONE) if the other is permanently gone",
)
_DISK = (
    "Redis can't save to its disk, and may refuse writes until it can",
    "check the log of Redis and its disk; INFO persistence shows when saving works again",
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
    known["took"] = duration(problem.took_ms)
    cause = f" ({problem.cause})" if problem.cause else ""
    return Problem(f"{'+'.join(member.roles)} {member.id} {what.format(**known)}{cause}", following.format(**known))
