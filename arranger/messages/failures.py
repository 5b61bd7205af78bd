"""How pods failed and when they come again, and what the user of a failed job can do about it, in one line each."""

from enum import StrEnum

from arranger.events import facts as f
from arranger.events.kinds import PodSeen, StageDecided
from arranger.messages.decisions import container_text
from arranger.model.job import Stage
from arranger.model.pod import ContainerEnd
from arranger.model.quantity import amount_text
from arranger.model.reasons import ReasonKind
from arranger.model.stages import StageReason
from arranger.model.text import few, rfc3339_from

#: The kubelet's reason for a container that needed more memory than its limit, or than its node had.
_OUT_OF_MEMORY = "OOMKilled"


def failed_times_text(times: int, ended: ContainerEnd) -> str:
    """How often a pod failed, and how it did last."""
    return f"failed {f'{times} times, last ' if times > 1 else ''}with {container_text(ended)}"


class Again(StrEnum):
    """What becomes of a pod that failed."""

    NOT = "Not"
    WITH_JOB = "WithJob"
    REPLACED = "Replaced"
    TO_BE_GIVEN_UP = "ToBeGivenUp"
    ENDS_JOB = "EndsJob"
    GIVEN_UP = "GivenUp"
    BY_KUBELET = "ByKubelet"
    RUNS = "Runs"
    READY = "Ready"


def again_text(again: Again, due_ms: int, pod: PodSeen | None, limit: str = "") -> str:
    """What becomes of a pod that failed; `due_ms` is when, in milliseconds since 1970, `pod` its present state, and
    `limit` that of its restarts, in words."""
    match again:
        case Again.WITH_JOB:
            return f"the job is scheduled again from {rfc3339_from(due_ms)} on"
        case Again.REPLACED:
            return f"replaced from {rfc3339_from(due_ms)} on"
        case Again.TO_BE_GIVEN_UP:
            return f"to be given up from {rfc3339_from(due_ms)} on, because {limit}"
        case Again.ENDS_JOB:
            return f"the job is to fail from {rfc3339_from(due_ms)} on, because {limit}"
        case Again.BY_KUBELET if pod is not None:
            return f"started again by its kubelet: {waiting_text(pod)}"
    return _AGAIN.get(again, "")


_AGAIN = {
    Again.GIVEN_UP: "given up",
    Again.RUNS: "it runs and isn't ready",
    Again.READY: "it is ready again",
}


def waiting_text(pod: PodSeen) -> str:
    """Why a kubelet can't start a pod."""
    return f"{pod.waiting}: {pod.message}" if pod.message else pod.waiting


def failure_remedy_text(decided: StageDecided) -> str:
    """What can be done about the failure that was decided; empty if there is nothing to do, and for other decisions."""
    remedy = _remedy(decided) if decided.stage == Stage.FAILED else ""
    return f"{remedy}, and submit the job again" if remedy else ""


def _remedy(decided: StageDecided) -> str:
    """The remedy, also of an adopted job, whose status has no facts."""
    facts = decided.facts
    match decided.reason:
        case StageReason.UNSCHEDULABLE:
            return _of_room(decided.shortage)
        case StageReason.DEPENDENCY_FAILED:
            job = facts.job if isinstance(facts, f.FailedJob) else ""
            return f"let job {job} succeed, or take it out of spec.after"
        case StageReason.WORKERS_FAILED | StageReason.RESTART_LIMIT:
            return _of_program(_ended(facts))
        case _:
            return _REMEDIES.get(decided.reason, "")


def _ended(facts: f.StageFacts | None) -> ContainerEnd | None:
    """The container that failed when restarts were at their limit."""
    match facts:
        case f.WorkersGivenUp(ended=ended):
            return ended
        case f.LeaderRestarts(f.PodEnd(_, ended)) | f.WorkerAtLimit(_, f.PodsOverLimit(_, _, f.PodEnd(_, ended))):
            return ended
        case _:
            return None


def _of_program(ended: ContainerEnd | None) -> str:
    """For pods that ended with a failure of their own."""
    if ended is not None and ended.reason == _OUT_OF_MEMORY:
        return (
            f"raise the memory limit of container {ended.container}, or request more memory if it has none, or let it "
            "need less"
        )
    return (
        "mend the program (kubectl logs of the failed pod says more, as long as that is kept: restartPolicy Never, "
        "keepFailedPods), or raise the limit of restarts if such failures pass"
    )


#: What a pod says by which nodes are ruled out, whatever room they have.
_OF_NODES = {
    ReasonKind.NODE_SELECTOR: "the nodeSelector",
    ReasonKind.NODE_AFFINITY: "the node affinity",
    ReasonKind.TAINT: "the tolerations",
    ReasonKind.NO_TOPOLOGY_LABEL: "the topology",
}
#: The same because of other pods there, also those of the job itself.
_OF_PODS = {
    ReasonKind.HOST_PORT: "the host ports",
    ReasonKind.NO_AFFINITY_LABEL: "the pod affinity",
    ReasonKind.AFFINITY: "the pod affinity",
    ReasonKind.ANTI_AFFINITY: "the anti-affinity",
    ReasonKind.NO_SPREAD_LABEL: "the topology spread",
    ReasonKind.TOPOLOGY_SPREAD: "the topology spread",
}
_FEWER = "need fewer pods at once (minWorkersNum, minCount)"


def _absent(short: f.ShortageFacts | None) -> list[str]:
    """The resources that no node has."""
    return list(dict.fromkeys(of.name for of, _ in short.reasons if of.absent)) if short is not None else []


def _offered(short: f.ShortageFacts | None) -> str:
    """The most that a node has for a pod, if that is too little for the first one and nodes lack nothing else."""
    if short is None or not short.infeasible or short.found:
        return ""
    of = [reason for reason, _ in short.reasons if reason.kind == ReasonKind.INSUFFICIENT]
    if len(of) != 1 or not of[0].free:
        return ""
    return f" (a node offers at most {amount_text(of[0].name, of[0].free)} {of[0].name})"


def _of_room(short: f.ShortageFacts | None) -> str:
    """For a job that got no nodes."""
    rules = _OF_NODES | _OF_PODS
    kinds = {of.kind for of, _ in short.reasons} if short is not None else set()
    ruled_out = few(list(dict.fromkeys(words for kind, words in rules.items() if kind in kinds)), len(rules))
    if short is not None and kinds and kinds <= {*rules}:
        fewer = f"{_FEWER}, " if short.found and not kinds.isdisjoint(_OF_PODS) else ""  # else fewer don't fit either
        return f"{fewer}correct {ruled_out} of its pods, or add nodes that match"
    if absent := _absent(short):
        return f"correct the request of {few(absent, 3)}, which no node has, or add nodes that have it"
    by_domain = isinstance(short, f.LackOfNodes) and short.topology is not None
    wider = "let its topology be Preferred or have larger domains, " if by_domain else ""
    less = f"request less for a pod{_offered(short)}, {_FEWER}, {wider}or add nodes that hold it"
    return f"{less}, or correct {ruled_out} of its pods" if ruled_out else less


_REMEDIES = {
    StageReason.IMAGE_ERROR: "correct the image's name, or let the pod pull it (imagePullSecrets)",
    StageReason.POD_REFUSED: "correct what the API server names, in the job's templates or in what refuses it",
    StageReason.DEADLINE_EXCEEDED: "raise activeDeadlineSeconds, or let it need less time",
    StageReason.INVALID_SPEC: "correct the fields that are named",
}
