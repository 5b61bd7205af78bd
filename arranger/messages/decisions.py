"""Decisions on a job's stage and on its workers, in one line each."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from arranger.events import facts as f
from arranger.events.kinds import PodsTried, StageDecided
from arranger.messages.faults import faults_text
from arranger.messages.shortages import shortage_text
from arranger.model.job import JobSpec, PodGroup
from arranger.model.pod import DISRUPTED, ContainerEnd
from arranger.model.stages import StageReason
from arranger.model.taints import taint_text
from arranger.model.text import counted


def stage_text(decided: StageDecided) -> str:
    """Why a job entered its stage."""
    facts, reason = decided.facts, decided.reason
    if isinstance(facts, f.OfLeader):
        return _of_leader(facts, reason)
    if isinstance(facts, f.OfNode):
        return _of_node(facts)
    if isinstance(facts, f.OfRoom):
        return _of_room(facts)
    if isinstance(facts, f.OfWorkers):
        return _of_workers(facts)
    if isinstance(facts, f.OfStart):
        return _of_start(facts)
    return _of_job(facts, reason)


def _of_job(facts: f.OfJob | f.ShortageFacts | None, reason: StageReason) -> str:
    match facts:
        case None | f.AdoptedMessage(""):
            return _PLAIN.get(reason, str(reason))
        case f.AdoptedMessage(message):
            return message
        case f.FailedJob(job):
            return f"job {job} failed, which had to succeed first"
        case f.DeadlineOver(limit_s, active_s):
            return f"it was active for {active_s} s, and activeDeadlineSeconds is {limit_s}"
        case f.Faulty(faults):
            return faults_text(faults)
        case f.PodsRefused(words) if reason == StageReason.POD_REFUSED:
            return f"the API server refuses its pods: {words}"
        case f.PodsRefused(words):
            return f"pods of its quorum are refused{_in_brackets(words)}; it gives its nodes up"
        case shortage:
            grace = "; it has been so for the whole grace period (setting infeasible_grace_s)"
            return shortage_text(shortage) + (grace if shortage.infeasible else "")


def replaced_text(
    causes: Sequence[f.EndCause], spec: JobSpec | None, names: Mapping[tuple[int, int], str] = MappingProxyType({})
) -> str:
    """The replaced workers and the reasons; empty for none. `spec` gives the names of the worker sets, and `names`, by
    group and index, those of the pods of others."""
    match causes:
        case []:
            return ""
        case [f.RefusedPods(_, count, words), *_]:
            few = "1 further worker is" if count == 1 else f"{count} further workers are"
            return f"{few} refused{_in_brackets(words)}; nodes given up"
        case [f.PreemptedPods(_, count, taken_by), *_]:
            were = "1 worker above the quorum was" if count == 1 else f"{count} workers above the quorum were"
            return f"{were} preempted for {taken_text(taken_by)}"
    told = "; ".join(_replaced(cause, spec, names) for cause in causes)
    if gives_up(causes):
        return f"workers {told}"
    some = any(isinstance(cause, f.PodsOverLimit) for cause in causes)
    what = "workers replaced or given up" if some else "workers replaced"
    return f"{what if not names else 'pods to be placed again'}: {told}"


def gives_up(causes: Sequence[f.EndCause]) -> bool:
    """Whether all these workers are given up, with the others of their worker groups, so that none is replaced."""
    return any(isinstance(of, f.PodsOverLimit) for of in causes) and all(
        isinstance(of, f.PodsOverLimit | f.OthersOfGroup) for of in causes
    )


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


def _closed(closed: f.Closed) -> str:
    """How a node is closed to new pods."""
    match closed:
        case f.Cordoned():
            return "is cordoned"
        case f.Tainted(taint):
            return f"has the taint {taint_text(taint)}"
        case f.OutOfReach(claim):
            return f"can't be used with claim {claim} any more"


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


def taken_text(taken_by: f.TakenBy) -> str:
    """The job that got the room of another one, and why it did."""
    name = f"job {taken_by.name} of namespace {taken_by.namespace}"
    if taken_by.guest:
        return f"{name}, whose guest it was"
    if taken_by.reclaimed:
        return f"{name}, whose queue {taken_by.queue} is below its share"
    return f"{name}, which has priority {taken_by.priority}"


def in_vain_text(ended: StageDecided, said: str) -> str:
    """That a job took room and didn't start, with the decision by which it lost that, unless it was `said` before."""
    why = stage_text(ended)
    why = "" if said.startswith(why) else why
    leaves = ", or a pod leaves one of these" if ended.reason == _R.ROOM_NOT_FREED else ""
    return (
        f"it took room from others in vain{_in_brackets(why)}, and takes no more until its spec, a quota of its "
        f"namespace or one of the nodes that it got changes{leaves}; free room is open to it"
    )


def dry_run_text(tried: PodsTried, spec: JobSpec) -> str:
    """That the API server refuses a pod of a waiting job, so nobody gives room to it."""
    group = tried.slot.group if tried.slot is not None else 0
    of = spec.groups[group].name if group < len(spec.groups) else f"group {group}"
    return (
        f"nobody gives it room, because the API server refuses pods of {of} in a dry run: {tried.message}; it is tried "
        "again now and then, and after each edit"
    )


#: A shell and most container runtimes report the end by a signal as an exit code of so much more than its number.
_SIGNALLED = 128
#: On Linux, by number; on all architectures that Kubernetes runs on these numbers are the same.
_SIGNALS = {1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
            11: "SIGSEGV", 13: "SIGPIPE", 15: "SIGTERM"}  # fmt: skip


def _replaced(cause: f.EndCause, spec: JobSpec | None, names: Mapping[tuple[int, int], str]) -> str:
    group, index = cause.first.group, cause.first.index
    name = spec.groups[group].name if spec is not None and group < len(spec.groups) else f"group {group}"
    who = names.get((group, index), f"{name} {index}") + _more(cause.count)
    match cause:
        case f.FailedPods():
            return f"failed: {who} ({_why(cause)})"
        case f.LostPods():
            return f"lost: {who} ({_why(cause)})"
        case f.PodsOverLimit():
            return f"given up: {who} ({_why(cause)})"
        case f.FailedAgain(_, _, end, node, failures):
            ending = _in_brackets(failure_text(end.ended, end.words))
            return f"moved: {who} failed {failures} times on {node}{ending}, and others run well elsewhere"
        case f.DeletedPods(_, _, disruption):
            return f"deleted: {who}{_in_brackets(disruption_text(disruption))}"
        case f.OthersOfSet():
            return f"{counted(cause.count, 'other worker')} of {name} restarted too"
        case f.OthersOfGroup():
            return f"{counted(cause.count, 'other worker')} of {name} in the same worker groups"
        case f.RefusedPods() | f.PreemptedPods():  # which are alone
            return ""


_TROUBLES = {
    f.NodeTrouble.GONE: "is gone",
    f.NodeTrouble.NOT_READY: "is not ready",
    f.NodeTrouble.NO_ROOM: "has no room for it",
}


def _why(cause: f.EndedPods) -> str:
    """Why a worker ended: its own reason, or what is wrong with its node."""
    match cause.why:
        case f.PodEnd(words, ended):
            return failure_text(ended, words)
        case f.NodeLeft(node, why):
            how = _TROUBLES[why] if isinstance(why, f.NodeTrouble) else _closed(why) if why is not None else ""
            return f"node {node} {how}".rstrip()


def _in_brackets(words: str) -> str:
    return f" ({words})" if words else ""


def _of_leader(facts: f.OfLeader, reason: StageReason) -> str:
    match facts:
        case f.Begins(leaderless):
            return "its quorum has nodes" + ("" if leaderless else "; the leader is started first")
        case f.Ready(leaderless):
            return "enough workers are ready" if leaderless else "the leader runs and enough workers are ready"
        case f.PodEnd(words, ended):
            return f"the leader's pod ended ({failure_text(ended, words) or _FAILED}); scheduled again"
        case f.LeaderRestarts():
            return _restarts(facts, reason)
        case f.LeaderGone():
            return f"the leader's pod is gone{_gone(facts)}; scheduled again"
        case f.AddressChanged(was, now):
            return f"the leader's address changed from {was} to {now}; scheduled again"


_FAILED = "its containers failed"


def _restarts(facts: f.LeaderRestarts, reason: StageReason) -> str:
    ending = failure_text(facts.end.ended, facts.end.words) or _FAILED
    window = f" in {facts.window_s} s" if facts.window_s else ""
    if reason == StageReason.LEADER_FAILED:
        return f"the leader failed ({ending}); restart {facts.count} of {facts.limit.limit}{window}"
    limit = limit_text(facts.limit, "leader") + window
    if not facts.count:
        return f"the leader failed ({ending}) and {limit}"
    last = f", last after {container_text(facts.end.ended)}" if facts.end.ended is not None else ""
    return f"the leader restarted {counted(facts.count, 'time')}{last}; {limit}"


def limit_text(limit: f.RestartLimit, of: str = "") -> str:
    """The limit of restarts, with the field that sets it; `of` is the field of its group if it isn't a worker set."""
    own = f"{of or f'workerSets[{limit.of}]'}.restart.limit"
    return f"{own if limit.of else 'restartLimit'} is {limit.limit}"


def _gone(facts: f.LeaderGone) -> str:
    """How a pod is gone, as far as it said so, and what is so of its node: somebody deleted it too, or drains it."""
    how = f": it {disrupted}" if (disrupted := disruption_text(facts.disruption)) else ""
    match facts.why:
        case None:
            return f"{how} (node {facts.node})" if how else ""
        case f.NodeTrouble():
            return f"{how}, and its node {facts.node} is gone" if how else f", and so is its node {facts.node}"
        case f.Cordoned():
            return f"{how}, and its node {facts.node} is cordoned (drained)"
        case closed:
            return f"{how}, and its node {facts.node} {_closed(closed)}"


def _of_node(facts: f.OfNode) -> str:
    match facts:
        case f.NodeLost(gone=gone, down_s=down_s):
            how = "gone" if gone else "not ready"
            how = f"has been {how} for {down_s} s" if down_s and not facts.awaited else f"is {how}"
        case f.NodeClosed(how=closed):
            how = _closed(closed)
    if facts.awaited:
        return f"node {facts.node} {how}, before others had left it; scheduled again"
    return f"{_whose(facts)} {how}; scheduled again"


def _of_room(facts: f.OfRoom) -> str:
    match facts:
        case f.RoomTaken(_, pod):
            took = f": pod {pod} came there" if pod else ""
            return f"{_whose(facts)} has no room for it any more{took}; scheduled again"
        case f.TakenBy():
            return f"preempted for {taken_text(facts)}; scheduled again"
        case f.PodsStayed(node, pod, count):
            who = f"pod {pod}{_more(count)}" if pod else "other pods"
            return f"{who} didn't leave {node or 'its nodes'} in time; scheduled again"
        case f.PodsLeftBehind(node, pod, count, gone, down_s):
            how = "is gone" if gone else f"has not been ready for {down_s} s"
            return f"pod {pod}{_more(count)} of its earlier attempt hangs on {node}, which {how}: it goes on without it"
        case f.ReservationOver(limit_s):
            of = "for which room may be reserved for it (scheduleTimeoutSeconds)"
            return f"no room came in the {limit_s} s {of}; it backs off"


def _whose(facts: f.OfNode | f.RoomTaken) -> str:
    return f"its node {facts.node}" if facts.leaderless else f"the leader's node {facts.node}"


def _more(count: int) -> str:
    return f" and {count - 1} more" if count > 1 else ""


def _of_workers(facts: f.OfWorkers) -> str:
    match facts:
        case f.WorkersLost(few, f.FailedPods() as failure, node):
            failed = f"{counted(few.count, 'worker')} failed ({_ending(failure)})"
            return f"{failed}, and {_not_there_again(few.count, node)}; {_needed(few)}; scheduled again"
        case f.WorkersLost(few, lost):
            why = _in_brackets(_why(lost)) if lost is not None else ""
            return f"{_workers(few.count, 'was', 'were')} lost{why}, {_needed(few)}; scheduled again"
        case f.WorkersGivenUp(few, limit, ended):
            last = f"; the last failure: {container_text(ended)}" if ended is not None else ""
            return f"{_workers(few.count, 'is', 'are')} given up ({limit_text(limit)}) and {_needed(few)}{last}"
        case f.WorkerAtLimit(worker_set, over, limit):
            return f"worker {worker_set}-{over.first.index} failed ({_ending(over)}) and {limit_text(limit)}"
        case f.WorkerEnded(worker_set, cause):
            return f"{_whole_job(f'worker {worker_set}-{cause.first.index}', cause)}; the whole job is restarted"


def _not_there_again(count: int, left: f.NodeLeft | None) -> str:
    """Why so many failed workers don't come again on their nodes."""
    if left is None or left.why is None:
        return "can't come again where it was" if count == 1 else "can't come again where they were"
    whose, them = (f"its node {left.node}", "it") if count == 1 else (f"node {left.node} of theirs", "them")
    if left.why == f.NodeTrouble.NO_ROOM:
        return f"{whose} has no room for {them} any more"
    return f"{whose} {_TROUBLES[left.why] if isinstance(left.why, f.NodeTrouble) else _closed(left.why)}"


def _whole_job(worker: str, cause: f.FailedPods | f.LostPods | f.DeletedPods) -> str:
    match cause:
        case f.DeletedPods(_, _, disruption, node):
            disrupted = disruption_text(disruption)
            how = f"is gone: it {disrupted}{_in_brackets(node and f'node {node}')}" if disrupted else "was deleted"
            return f"the pod of {worker} {how}"
        case f.LostPods():
            return f"{worker} was lost ({_why(cause)})"
        case f.FailedPods():
            return f"{worker} ended ({_ending(cause)})"


def _ending(cause: f.FailedPods | f.PodsOverLimit) -> str:
    return _why(cause) if isinstance(cause.why, f.PodEnd) else _FAILED


def _workers(count: int, one: str, more: str) -> str:
    return f"{counted(count, 'worker')} {one if count == 1 else more}"


def _needed(few: f.TooFew) -> str:
    if few.worker_set:
        return f"minCount of {few.worker_set} is {few.needed}"
    return f"minWorkersNum is {few.needed}" if few.needed else "all others that the job's success needs have finished"


def _of_start(facts: f.OfStart) -> str:
    match facts:
        case f.QuorumIncomplete(limit_s, why):
            lack = shortage_text(why) if isinstance(why, f.ShortageFacts) else why.words if why is not None else ""
            return f"its quorum wasn't complete for {limit_s} s ({lack or 'no nodes for it'}); it gives its nodes up"
        case f.NeverReady(limit_s):
            return f"its quorum wasn't ready {limit_s} s after its start; it gives its nodes up"
        case f.PodsNotReady(limit_s, count, worker_set, index, node, words):
            who = (f"worker {worker_set}-{index}" if worker_set else "the leader") + _more(count)
            how = "couldn't start" if words else "wasn't ready" if count == 1 else "weren't ready"
            return f"{who} {how} in {limit_s} s on {node}{_in_brackets(words)}; it gives its nodes up"
        case f.NoImage(words, worker_set, index):
            whose = f"worker {worker_set}-{index}'s" if worker_set else "the leader's"
            return f"{whose} image can't be pulled ({words})"


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


_R = StageReason
#: Of decisions without facts.
_PLAIN = {
    _R.LEADER_SUCCEEDED: "the leader has finished",
    _R.WORKERS_SUCCEEDED: "all workers whose end is the job's have finished",
    _R.TERMINATED: "ended by spec.terminating",
    _R.SUSPENDED: "suspended by spec.suspend; it holds no nodes",
    _R.RESUMED: "resumed; waits for the next scheduling cycle",
    _R.TEMPLATE_EDITED: "its template was edited before its status told that it starts; scheduled again with that",
    _R.UNSCHEDULABLE: "no node can hold it",
    _R.DELETED: "it is being deleted; places without a pod are given up",
    _R.ADOPTED: "taken over from its status",
    _R.AS_RECORDED: "it lasted as long as in the log",
    _R.ASSUMED: "it lasted as long as assumed",
    _R.OTHER: "for a reason that this version doesn't know",
}
