"""The requests for nodes of waiting jobs, and what autoscalers answered, followed from decisions and observations.

A job has one request at a time. It is over once the job has nodes without it, or has lost those that it got by it, and
then the applier deletes its object. A request whose nodes the job got stays for as long as its pods name it.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from arranger.events import kinds as k
from arranger.model.job import Stage
from arranger.model.provisioning import NUMBER_LABEL, NodesAnswer, Provisioning, request_name, request_number
from arranger.model.queue import DEFAULT_SPEC
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.folding.forecasts import forget_start
from arranger.projections.jobs.parts import ASK
from arranger.projections.jobs.records import JobRecord
from arranger.projections.queues.tree import QueueTree
from arranger.projections.state import Changes, NodesRequest, State
from arranger.projections.verdicts.judging import outdated

_WAITING = (Stage.PENDING, Stage.RESCHEDULING)


def asks_autoscaler(state: State, job: JobRecord, default: Provisioning) -> bool:
    """Whether nodes are requested for a job that lacks them."""
    return way_of(state, job, default) != Provisioning.NONE


def way_of(state: State, job: JobRecord, default: Provisioning) -> Provisioning:
    """How nodes are requested for a job that lacks them, as its queue says, or else `default`. It takes an API server
    that shows such requests, or for placeholders a namespace without ResourceQuotas: there they would take the quota
    that the job itself needs."""
    if job.of_pods:
        return Provisioning.NONE
    own = state.queue_tree.specs.get(queue_of(state, job), DEFAULT_SPEC).provisioning
    how = own or default
    if how == Provisioning.PENDING:
        possible = job.seen.namespace not in state.quotas
    else:
        possible = state.listed.get(k.Watched.PROVISIONING, False)
    return how if possible else Provisioning.NONE


def anybody_asks(tree: QueueTree, default: Provisioning) -> bool:
    """Whether requests are to be watched: the configuration or any queue wants them."""
    hows = [default, *[spec.provisioning for spec in tree.specs.values()]]
    return Provisioning.REQUEST in hows


def present_request(state: State, job: JobRecord) -> NodesRequest | None:
    """The job's request; None if it has none, or none any more."""
    request = state.requests.get(job.uid)
    return request if request is not None and not request.over else None


def name_of(job: JobRecord, request: NodesRequest) -> str:
    """The name of a request's object."""
    return request_name(job.seen.name, job.uid, request.decided.number)


def provided_by(state: State, job: JobRecord) -> NodesRequest | None:
    """The request by which a started job got its nodes; None without one."""
    return present_request(state, job) if job.stage in (Stage.STARTING, Stage.RUNNING) else None


def entered(state: State, job: JobRecord) -> None:
    """The job entered a stage. Nodes that an autoscaler provided stay the job's until it has lost them."""
    request = present_request(state, job)
    if request is None:
        return
    if job.stage != Stage.RUNNING and (job.stage != Stage.STARTING or request.answer != NodesAnswer.PROVISIONED):
        state.requests[job.uid] = msgspec.structs.replace(request, over=True)


def adopt_requests(state: State, job: JobRecord, time_ms: int) -> None:
    """Take over the newest request of a job that the log knows only by its object: it was made in an earlier epoch."""
    known = state.requests.get(job.uid)
    for _, seen in sorted(state.seen_requests.get(job.uid, {}).items()):
        if known is None or known.decided.number < seen.number:
            decided = k.NodesRequested(job.uid, 0, job.attempt, seen.number, seen.class_name, ())
            over = job.stage not in _WAITING and (job.ended or seen.answer.under_way)
            known = NodesRequest(decided, time_ms, 0, seen.answer, time_ms, seen.message, over)
            state.requests[job.uid] = known
    newest = max([_number(pod) for pod in state.placeholders.get(job.uid, {}).values()], default=0)
    if newest > (known.decided.number if known is not None else 0):  # a later request has other names
        decided = k.NodesRequested(job.uid, 0, job.attempt, newest, "", (), Provisioning.PENDING)
        state.requests[job.uid] = NodesRequest(decided, time_ms, over=True)


def _number(pod: k.PodSeen) -> int:
    return request_number(dict(pod.traits.labels).get(NUMBER_LABEL, ""))


def forget_requests(state: State) -> None:
    """The API server doesn't show requests any more, so nobody knows of an answer."""
    for uid, of in state.requests.items():
        if of.decided.how == Provisioning.REQUEST:
            state.requests[uid] = msgspec.structs.replace(of, over=True)


def forget_job(state: State, uid: str, changes: Changes) -> None:
    """The job is gone: nothing is expected for it any more."""
    forget_start(state, uid, changes)
    state.requests.pop(uid, None)


def not_to_request(state: State, event: k.NodesRequested) -> str:
    """Why a decision to ask for nodes isn't valid; empty if it is."""
    job, known = state.jobs.get(event.job_uid), state.requests.get(event.job_uid)
    if refused := outdated(job, event.based_on, event.attempt):
        return refused
    if job is not None and (job.placements or job.stage not in _WAITING):
        return "it has nodes already"
    if known is not None and event.number <= known.decided.number:
        return f"request {known.decided.number} of the job is there already"
    return ""


def took_refusal(fold: Any, job: JobRecord, event: k.EffectFailed) -> bool:
    """Fold that the API server refuses the objects of a request, which is an answer too. False if the event is about
    something else."""
    if event.effect != ASK:
        return False
    request = present_request(fold.state, job)
    if request is not None and request.answer.under_way and job.stage in _WAITING:
        message = f"the API server refuses it: {event.message}"
        _answered(fold, job, request.decided.number, NodesAnswer.FAILED, message)
    return True


def _requested(fold: Any, offset: int, event: k.NodesRequested) -> None:
    state: State = fold.state
    if not fold.record_verdict(offset, "NodesRequested", not_to_request(state, event)):
        return
    job, last = state.jobs[event.job_uid], state.requests.get(event.job_uid)
    in_vain = last is not None and not last.over and last.answer.in_vain
    failures = last.failures + 1 if last is not None and in_vain else 0
    state.requests[job.uid] = NodesRequest(event, fold.time_ms, failures)
    fold.changes.jobs[job.uid] = None
    fold.changes.schedulable = True  # whether the job is given up depends on it


def _seen(fold: Any, _offset: int, event: k.ProvisioningSeen) -> None:
    state: State = fold.state
    state.seen_requests.setdefault(event.job_uid, {})[event.name] = event
    job = state.jobs.get(event.job_uid)
    if job is None:
        return
    adopt_requests(state, job, fold.time_ms)
    _answered(fold, job, event.number, event.answer, event.message)


def forget_request(fold: Any, _offset: int, event: k.ObjectGone) -> None:
    state: State = fold.state
    of_job = state.seen_requests.get(event.job_uid, {})
    seen = of_job.pop(event.name, None)
    if not of_job:
        state.seen_requests.pop(event.job_uid, None)
    job = state.jobs.get(event.job_uid)
    if job is None or seen is None:
        return
    request = present_request(state, job)
    waits = job.stage in _WAITING and request is not None and request.decided.number == seen.number
    if waits and request is not None and not request.answer.in_vain:  # somebody else deleted it: the job asks again
        state.requests[job.uid] = msgspec.structs.replace(request, over=True)
    fold.changes.jobs[job.uid] = None


def _answered(fold: Any, job: JobRecord, number: int, answer: NodesAnswer, message: str) -> None:
    state: State = fold.state
    fold.changes.jobs[job.uid] = None
    request = state.requests.get(job.uid)
    if request is None or request.decided.number != number or (request.answer, request.message) == (answer, message):
        return
    answered_ms = request.answered_ms if answer == request.answer else fold.time_ms
    state.requests[job.uid] = msgspec.structs.replace(request, answer=answer, answered_ms=answered_ms, message=message)
    state.scheduling_changes += 1
    fold.changes.schedulable = True  # whether the job is given up depends on it


def applied(observed: Callable[[Any], Any]) -> dict[type, Callable[[Any, int, Any], None]]:
    """How the fold applies each of these events; `observed` lets only observations of the current term through."""
    return {
        k.ProvisioningSeen: observed(_seen),
        k.NodesRequested: _requested,
    }
