"""Decisions on a job's stage and on its workers, in one line each."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from arranger.events.facts import EndCause, EndKind, NodeTrouble, StageFacts, TakenBy
from arranger.events.kinds import PodsTried, StageDecided
from arranger.messages.faults import faults_text
from arranger.messages.shortages import shortage_text
from arranger.model.job import JobSpec, PodGroup
from arranger.model.node import Taint
from arranger.model.pod import DISRUPTED, ContainerEnd
from arranger.model.stages import StageReason
from arranger.model.taints import taint_text
from arranger.model.text import counted

#: Of a node that a job loses before it has begun there.
_BEFORE = ", before others had left it; scheduled again"


def stage_text(decided: StageDecided) -> str:
    facts = decided.facts
    return facts.adopted_message or _STAGE[decided.reason](facts)


def replaced_text(
    causes: Sequence[EndCause], spec: JobSpec | None, names: Mapping[tuple[int, int], str] = MappingProxyType({})
) -> str:
    """The replaced workers and the reasons; empty for none. `spec` gives the names of the worker sets, and `names`, by
    group and index, those of the pods of others."""
    if not causes:
        return ""
    if causes[0].kind == EndKind.REFUSED:
        return _refused(causes[0])
    if causes[0].kind == EndKind.PREEMPTED:
        return _preempted_workers(causes[0])
    what = "workers replaced" if not names else "pods to be placed again"
    return f"{what}: " + "; ".join(_ended(cause, spec, names) for cause in causes)


def _closed(facts: StageFacts) -> str:
    return closed_text(cordoned=facts.cordoned, taint=facts.taint, claim=facts.claim)


def _from_closed(facts: StageFacts) -> str:
    """How a pod is gone, as far as it said so, and what is so of its node: somebody deleted it too, or drains it."""
    how = f": it {disrupted}" if (disrupted := disruption_text(facts.words)) else ""
    if facts.gone:
        return f"{how}, and its node {facts.node} is gone" if how else f", and so is its node {facts.node}"
    if closed := _closed(facts):
        return f"{how}, and its node {facts.node} {closed}{' (drained)' if facts.cordoned else ''}"
    return f"{how} (node {facts.node})" if how else ""


#: The reasons of Kubernetes' condition `DisruptionTarget`, as what happened to a pod.
_DISRUPTIONS = {
    "EvictionByEvictionAPI": "was evicted through the API, as a drain does",
    "PreemptionByScheduler": "was preempted by another scheduler",
    "DeletionByTaintManager": "was deleted because of a taint of its node",
    "DeletionByPodGC": "was deleted by Kubernetes' pod garbage collection",
    "TerminationByKubelet": "was terminated by its kubelet",
}


def disruption_text(reason: str) -> str:
    """What Kubernetes did to a pod, by the condition `DisruptionTarget`, as a pod's reason names it; empty for other
    reasons of a pod."""
    if not reason.startswith(DISRUPTED):
        return ""
    return _DISRUPTIONS.get(reason.removeprefix(f"{DISRUPTED}: "), f"was disrupted by Kubernetes ({reason})")


def closed_text(*, cordoned: bool, taint: Taint | None, claim: str = "") -> str:
    """How a node is closed to new pods; empty for an open one."""
    if cordoned:
        return "is cordoned"
    if claim:
        return f"can't be used with claim {claim} any more"
    return f"has the taint {taint_text(taint)}" if taint is not None else ""


def failure_text(ended: ContainerEnd | None, words: str) -> str:
    """Why a pod ended: its own reason or message (`words`), and the container that failed."""
    if ended is None:
        return words
    told = container_text(ended)
    return told if words in ("", "Error", ended.reason, ended.message) else f"{words}; {told}"


def container_text(ended: ContainerEnd) -> str:
    """How a container failed, such as "OOMKilled, exit code 137 (SIGKILL) of container main: out of memory"."""
    number = ended.signal or max(ended.exit_code - _SIGNALLED, 0)
    signalled = f" ({_SIGNALS[number]})" if number in _SIGNALS else ""
    reason = f"{ended.reason}, " if ended.reason not in ("", "Error") else ""
    said = f": {ended.message}" if ended.message else ""
    return f"{reason}exit code {ended.exit_code}{signalled} of container {ended.container}{said}"


def taken_text(taken_by: TakenBy | None) -> str:
    """The job that got the room of another one, and why it did."""
    if taken_by is None:
        return "another job"
    name = f"job {taken_by.name} of namespace {taken_by.namespace}"
    if taken_by.guest:
        return f"{name}, whose reserved room it used as a guest"
    if taken_by.reclaimed:
        return f"{name}, whose queue {taken_by.queue} is below its share"
    return f"{name}, which has priority {taken_by.priority}"


def in_vain_text(why: str) -> str:
    """That a job took room and didn't start; `why` is empty if that was said before."""
    return (
        f"it took room from others in vain{_in_brackets(why)}, and takes no more until its spec, a quota of its "
        "namespace or one of the nodes that it got changes; free room is open to it"
    )


def dry_run_text(tried: PodsTried, spec: JobSpec) -> str:
    """That the API server refuses a pod of a waiting job, so nobody gives room to it."""
    group = tried.slot.group if tried.slot is not None else 0
    of = spec.groups[group].name if group < len(spec.groups) else f"group {group}"
    return (
        f"nobody gives it room, because the API server refuses pods of {of} in a dry run: {tried.message}; it is tried "
        "again now and then, and after each edit"
    )


def _preempted_workers(cause: EndCause) -> str:
    were = "1 worker above the quorum was" if cause.count == 1 else f"{cause.count} workers above the quorum were"
    return f"{were} preempted for {taken_text(cause.taken_by)}"


def _refused(cause: EndCause) -> str:
    few = "1 further worker is" if cause.count == 1 else f"{cause.count} further workers are"
    return f"{few} refused{_in_brackets(cause.words)}; nodes given up"


#: A shell and most container runtimes report the end by a signal as an exit code of so much more than its number.
_SIGNALLED = 128
#: On Linux, by number; on all architectures that Kubernetes runs on these numbers are the same.
_SIGNALS = {1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
            11: "SIGSEGV", 13: "SIGPIPE", 15: "SIGTERM"}  # fmt: skip

_KINDS = {EndKind.FAILED: "failed", EndKind.LOST: "lost", EndKind.OVER_LIMIT: "given up"}


def _ended(cause: EndCause, spec: JobSpec | None, names: Mapping[tuple[int, int], str]) -> str:
    group, index = cause.first.group, cause.first.index
    name = spec.groups[group].name if spec is not None and group < len(spec.groups) else f"group {group}"
    if cause.kind == EndKind.WITH_SET:
        return f"{counted(cause.count, 'other worker')} of {name} restarted too"
    if cause.kind == EndKind.WITH_GROUP:
        return f"{counted(cause.count, 'other worker')} of {name} in the same worker groups"
    others = f" and {cause.count - 1} more" if cause.count > 1 else ""
    who = names.get((group, index), f"{name} {index}") + others
    if cause.kind == EndKind.DELETED:
        return f"deleted: {who}{_in_brackets(disruption_text(cause.words))}"
    if cause.kind == EndKind.FAILED_AGAIN:
        ending = _in_brackets(failure_text(cause.ended, cause.words))
        return f"moved: {who} failed {cause.failures} times on {cause.node}{ending}, and others run well elsewhere"
    return f"{_KINDS[cause.kind]}: {who} ({_why(cause)})"


_TROUBLES = {
    NodeTrouble.GONE: "is gone",
    NodeTrouble.NOT_READY: "is not ready",
    NodeTrouble.NO_ROOM: "has no room for it",
}


def _why(cause: EndCause) -> str:
    """Why a worker ended: its own reason, or what is wrong with its node."""
    closed = closed_text(cordoned=cause.cordoned, taint=cause.taint, claim=cause.claim)
    how = _TROUBLES[cause.trouble] if cause.trouble is not None else closed
    return failure_text(cause.ended, cause.words) or f"node {cause.node} {how}".rstrip()


def _in_brackets(words: str) -> str:
    return f" ({words})" if words else ""


def _workers(count: int, one: str, more: str) -> str:
    return f"{counted(count, 'worker')} {one if count == 1 else more}"


def _node_lost(facts: StageFacts) -> str:
    how = "gone" if facts.gone else "not ready"
    if facts.awaited:
        return f"node {facts.node} is {how}{_BEFORE}"
    since = f"has been {how} for {facts.seconds} s" if facts.seconds else f"is {how}"
    return f"{_whose_node(facts)} {since}; scheduled again"


def _node_closed(facts: StageFacts) -> str:
    if facts.awaited:
        return f"node {facts.node} {_closed(facts)}{_BEFORE}"
    return f"{_whose_node(facts)} {_closed(facts)}; scheduled again"


def _left_behind(facts: StageFacts) -> str:
    others = f" and {facts.count - 1} more" if facts.count > 1 else ""
    how = "is gone" if facts.gone else f"has not been ready for {facts.seconds} s"
    return f"pod {facts.words}{others} of its earlier attempt hangs on {facts.node}, which {how}: it goes on without it"


def _whose_node(facts: StageFacts) -> str:
    return f"its node {facts.node}" if facts.leaderless else f"the leader's node {facts.node}"


def _room_taken(facts: StageFacts) -> str:
    took = f": pod {facts.words} came there" if facts.words else ""
    return f"{_whose_node(facts)} has no room for it any more{took}; scheduled again"


def _room_not_freed(facts: StageFacts) -> str:
    more = f" and {facts.count - 1} more" if facts.count > 1 else ""
    who = f"pod {facts.words}{more}" if facts.words else "other pods"
    return f"{who} didn't leave {facts.node or 'its nodes'} in time; scheduled again"


def _restart_limit(facts: StageFacts) -> str:
    if facts.worker_set:
        return f"worker {facts.worker_set}-{facts.index} failed ({_ending(facts)}) and {_limit(facts)}"
    if facts.count:
        last = f", last after {container_text(facts.ended)}" if facts.ended is not None else ""
        return f"the leader restarted {counted(facts.count, 'time')}{last}; {_limit(facts, 'leader')}{_window(facts)}"
    return f"the leader failed ({_ending(facts)}) and {_limit(facts, 'leader')}{_window(facts)}"


def _limit(facts: StageFacts, of: str = "") -> str:
    """The limit of restarts, with the field that sets it; `of` is the field of its group if it isn't a worker set."""
    own = f"{of or f'workerSets[{facts.limit_of}]'}.restart.limit"
    return f"{own if facts.limit_of else 'restartLimit'} is {facts.limit}"


def _window(facts: StageFacts) -> str:
    return f" in {facts.seconds} s" if facts.seconds else ""


def _ending(facts: StageFacts) -> str:
    cause = facts.cause
    if cause is None:
        return failure_text(facts.ended, facts.words) or "its containers failed"
    return (
        _why(cause) if cause.kind == EndKind.LOST else failure_text(cause.ended, cause.words) or "its containers failed"
    )


def _workers_lost(facts: StageFacts) -> str:
    if facts.cause is not None and facts.cause.kind == EndKind.FAILED:
        failed = f"{counted(facts.count, 'worker')} failed ({_ending(facts)})"
        return f"{failed}, and other pods have their room; {_needed(facts)}; scheduled again"
    why = _in_brackets(_why(facts.cause)) if facts.cause is not None else ""
    return f"{_workers(facts.count, 'was', 'were')} lost{why}, {_needed(facts)}; scheduled again"


def _worker_ended(facts: StageFacts) -> str:
    if facts.cause is not None and facts.cause.kind == EndKind.DELETED:
        how = "was deleted"
        if disrupted := disruption_text(facts.cause.words):
            how = f"is gone: it {disrupted}{_in_brackets(facts.cause.node and f'node {facts.cause.node}')}"
        return f"the pod of worker {facts.worker_set}-{facts.index} {how}; the whole job is restarted"
    how = "was lost" if facts.cause is not None and facts.cause.kind == EndKind.LOST else "ended"
    return f"worker {facts.worker_set}-{facts.index} {how} ({_ending(facts)}); the whole job is restarted"


def _unschedulable(facts: StageFacts) -> str:
    text = _shortage(facts) or facts.words or "no node can hold it"
    if facts.shortage is not None and facts.shortage.infeasible:
        text += "; it has been so for the whole grace period (setting infeasible_grace_s)"
    return text


def _quorum_incomplete(facts: StageFacts) -> str:
    why = facts.words or _shortage(facts) or "no nodes for it"
    return f"its quorum wasn't complete for {facts.seconds} s ({why}); it gives its nodes up"


def _start_timeout(facts: StageFacts) -> str:
    if not facts.count:
        return f"its quorum wasn't ready {facts.seconds} s after its start; it gives its nodes up"
    who = f"worker {facts.worker_set}-{facts.index}" if facts.worker_set else "the leader"
    who += f" and {facts.count - 1} more" if facts.count > 1 else ""
    how = "couldn't start" if facts.words else "wasn't ready" if facts.count == 1 else "weren't ready"
    return f"{who} {how} in {facts.seconds} s on {facts.node}{_in_brackets(facts.words)}; it gives its nodes up"


def _shortage(facts: StageFacts) -> str:
    return shortage_text(facts.shortage) if facts.shortage is not None else ""


def quorum_text(spec: JobSpec) -> str:
    """The workers of a quorum: "3 workers", "5 workers (2 of trainer, 1 of rollout)"."""
    of_sets = [f"{group.min_count} of {group.name}" for group in spec.groups if group.min_count]
    whole = " in whole worker groups" if spec.has_worker_groups else ""
    return counted(spec.min_workers, "worker") + whole + (f" ({', '.join(of_sets)})" if of_sets else "")


def scaled_text(sets: Sequence[tuple[int, int, int]], spec: JobSpec) -> str:
    """Changed counts of worker sets: of each, its group and the counts before and after, in workers."""
    known = [(spec.groups[group], before, after) for group, before, after in sets if group < len(spec.groups)]
    return "; ".join(
        f"{of.name} scaled from {_scaled(of, before)} to {_scaled(of, after)}" for of, before, after in known
    )


def _scaled(group: PodGroup, workers: int) -> str:
    """A number of workers as it is scaled."""
    return str(workers) if group.group_size == 1 else counted(workers // group.group_size, "worker group")


def _needed(facts: StageFacts) -> str:
    if facts.worker_set:
        return f"minCount of {facts.worker_set} is {facts.needed}"
    return (
        f"minWorkersNum is {facts.needed}" if facts.needed else "all others that the job's success needs have finished"
    )


def _whose(facts: StageFacts) -> str:
    return f"worker {facts.worker_set}-{facts.index}'s" if facts.worker_set else "the leader's"


_R = StageReason
_STAGE: dict[StageReason, Callable[[StageFacts], str]] = {
    _R.SCHEDULED: lambda facts: (
        "its quorum has nodes" if facts.leaderless else "its quorum has nodes; the leader is started first"
    ),
    _R.WORKERS_READY: lambda facts: (
        "enough workers are ready" if facts.leaderless else "the leader runs and enough workers are ready"
    ),
    _R.LEADER_SUCCEEDED: lambda _: "the leader has finished",
    _R.WORKERS_SUCCEEDED: lambda _: "all workers whose end is the job's have finished",
    _R.TERMINATED: lambda _: "ended by spec.terminating",
    _R.SUSPENDED: lambda _: "suspended by spec.suspend; it holds no nodes",
    _R.RESUMED: lambda _: "resumed; waits for the next scheduling cycle",
    _R.LEADER_FAILED: lambda facts: (
        f"the leader failed ({_ending(facts)}); restart {facts.count} of {facts.limit}{_window(facts)}"
    ),
    _R.LEADER_EVICTED: lambda facts: f"the leader's pod ended ({_ending(facts)}); scheduled again",
    _R.LEADER_LOST: lambda facts: f"the leader's pod is gone{_from_closed(facts)}; scheduled again",
    _R.LEADER_MOVED: lambda facts: f"the leader's address changed from {facts.was} to {facts.address}; scheduled again",
    _R.NODE_LOST: _node_lost,
    _R.NODE_CLOSED: _node_closed,
    _R.ROOM_TAKEN: _room_taken,
    _R.PREEMPTED: lambda facts: f"preempted for {taken_text(facts.taken_by)}; scheduled again",
    _R.ROOM_NOT_FREED: _room_not_freed,
    _R.PODS_LEFT_BEHIND: _left_behind,
    _R.RESERVATION_OVER: lambda facts: (
        f"no room came in the {facts.seconds} s for which room may be reserved for it (scheduleTimeoutSeconds); "
        "it backs off"
    ),
    _R.WORKERS_LOST: _workers_lost,
    _R.WORKER_ENDED: _worker_ended,
    _R.QUORUM_INCOMPLETE: _quorum_incomplete,
    _R.QUORUM_REFUSED: lambda facts: (
        f"pods of its quorum are refused{_in_brackets(facts.words)}; it gives its nodes up"
    ),
    _R.START_TIMEOUT: _start_timeout,
    _R.TEMPLATE_EDITED: lambda _: (
        "its template was edited before its status told that it starts; scheduled again with that"
    ),
    _R.UNSCHEDULABLE: _unschedulable,
    _R.DEPENDENCY_FAILED: lambda facts: f"job {facts.job} failed, which had to succeed first",
    _R.WORKERS_FAILED: lambda facts: (
        f"{_workers(facts.count, 'is', 'are')} given up ({_limit(facts)}) and {_needed(facts)}"
        + (f"; the last failure: {container_text(facts.ended)}" if facts.ended is not None else "")
    ),
    _R.RESTART_LIMIT: _restart_limit,
    _R.IMAGE_ERROR: lambda facts: f"{_whose(facts)} image can't be pulled ({facts.words})",
    _R.POD_REFUSED: lambda facts: f"the API server refuses its pods: {facts.words}",
    _R.DEADLINE_EXCEEDED: lambda facts: (
        f"it was active for {facts.active_s} s, and activeDeadlineSeconds is {facts.seconds}"
    ),
    _R.INVALID_SPEC: lambda facts: faults_text(facts.faults),
    _R.DELETED: lambda _: "it is being deleted; places without a pod are given up",
    _R.ADOPTED: lambda _: "taken over from its status",
    _R.AS_RECORDED: lambda _: "it lasted as long as in the log",
    _R.ASSUMED: lambda _: "it lasted as long as assumed",
    _R.OTHER: lambda _: "for a reason that this version doesn't know",
}
