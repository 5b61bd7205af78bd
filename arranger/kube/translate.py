"""From Kubernetes objects, as JSON, to observations. Pure functions of the object, without I/O.

Objects come from the API server, so their built-in parts are well-typed; only a TYJob is checked. Most pods and nodes
of a cluster have the same requests, labels and texts, so those are cached and shared, within bounds.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from arranger.events.kinds import (
    JobSeen,
    LimitRangeSeen,
    NamespaceSeen,
    NodeSeen,
    PodSeen,
    PriorityClassSeen,
    QueueSeen,
    QuotaSeen,
    RuntimeClassSeen,
    share_parts,
)
from arranger.kube.annotations import checkpoint_ms, permits_of
from arranger.kube.creator import creator_of
from arranger.kube.pods_to_place import pod_to_place
from arranger.kube.times import parse_time_ms
from arranger.model.allocations import charges_of, decode_allocations, runs_of
from arranger.model.checks import Check
from arranger.model.faults import Fault, FaultKind
from arranger.model.job import BELOW_QUORUM, ENDED, ENDING, LEADER_GROUP, READY, CleanPodPolicy, JobSpec, JobStatusSeen
from arranger.model.names import GROUP, KIND, LABEL_PREFIX, USER_LABEL, owner_of
from arranger.model.node import NodeFacts, Taint
from arranger.model.pod import (
    DISRUPTED,
    FAILURES_KEPT,
    NO_TIMES,
    NO_TRAITS,
    POD_MESSAGE_LIMIT,
    POD_REASON_LIMIT,
    STOPPED,
    TERMINAL,
    ContainerEnd,
    Failure,
    Labels,
    Phase,
    PodOwner,
    PodTimes,
    PodToPlace,
    PodTraits,
)
from arranger.model.quantity import amount
from arranger.model.queue import QUEUE_ANNOTATION
from arranger.model.queue_rules import queue_spec, validate_queue
from arranger.model.quota import quota_amounts, quota_scopes
from arranger.model.template import (
    NOT_HELD,
    REMEMBERED_BYTES,
    Held,
    Requests,
    claims_named,
    effective_requests,
    host_ports,
    limit_defaults,
    pod_terms,
    runtime_needs,
)
from arranger.model.text import first_line, one_line
from arranger.model.tyjob import job_spec
from arranger.model.validation import MAX_AFTER, TYJOB, refused_later, relabelled, validate, warnings

Json = Mapping[str, Any]
#: What can have values of its own in JSON, as the API server sends it or as we build it.
_NESTED = (dict, list, tuple)

#: Waiting reasons of a container that is starting normally.
_ON_ITS_WAY = frozenset({"ContainerCreating", "PodInitializing"})

#: Limit of each text in a fault of a TYJob, in characters: it quotes the user.
_MAX_TEXT = 300

#: Limit of our own message in a status, in characters.
_MAX_STATUS_MESSAGE = 1000

#: The number of faults of a TYJob that are reported.
_MAX_FAULTS = 5

_NOTHING: Json = {}

_ENDED = frozenset(phase.value for phase in TERMINAL)

_canonical = msgspec.json.Encoder(order="sorted").encode
_encode = msgspec.json.Encoder().encode
_decode_labels = msgspec.json.Decoder(dict[str, str]).decode


def node_seen(node: Json, term: int) -> NodeSeen:
    metadata = node["metadata"]
    spec = node.get("spec") or _NOTHING
    status = node.get("status") or _NOTHING
    return NodeSeen(
        term=term,
        name=metadata["name"],
        uid=metadata.get("uid") or "",
        resource_version=metadata.get("resourceVersion") or "",
        facts=NodeFacts(
            allocatable=_amounts(_encode(status.get("allocatable") or _NOTHING)),
            ready=_condition_is_true(status, "Ready"),
            cordoned=spec.get("unschedulable") is True,
            labels=_label_pairs(_encode(metadata.get("labels") or _NOTHING)),
            taints=tuple(
                Taint(taint.get("key") or "", taint.get("value") or "", taint.get("effect") or "")
                for taint in spec.get("taints") or ()
            ),
        ),
    )


def pod_seen(
    pod: Json, term: int, schedulers: tuple[str, ...] = (), *, with_volumes: bool = False, with_devices: bool = False
) -> PodSeen:
    """The observation of a Pod, ours or not, as of the watcher's term. One that no TYJob owns and that names one of
    these `schedulers` is to be placed. The claims that it names are recorded `with_volumes`. `with_devices` as in
    `pod_to_place`."""
    metadata = pod["metadata"]
    spec = pod.get("spec") or _NOTHING
    status = pod.get("status") or _NOTHING
    phase = status.get("phase") or Phase.PENDING.value
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waiting, why_waiting = _first_waiting(containers)
    reason, message = status.get("reason") or "", status.get("message") or why_waiting
    if not reason:
        reason, message = _why_ended(phase, metadata, status, containers, message)
    owner, ready = _owner(metadata), _condition_is_true(status, "Ready")
    restarts = sum([container.get("restartCount") or 0 for container in containers])
    troubled = owner is not None and (restarts or not ready)  # else no container has failed
    claims = claims_named(spec, metadata["name"]) if with_volumes and spec.get("volumes") else ()
    traits = _traits(metadata.get("labels") or _NOTHING, spec, claims, ours=owner is not None)
    requests = effective_requests(spec, _held(status, containers))
    asks = None if owner else _asks(pod, traits.labels, schedulers, requests, with_devices=with_devices)
    seen = PodSeen(
        *_head(metadata, term),
        node=spec.get("nodeName") or "",
        phase=phase,
        requests=requests,
        owner=owner,
        ready=ready,
        deleting=bool(metadata.get("deletionTimestamp")),
        ip=status.get("podIP") or "",
        restarts=restarts,
        reason=first_line(reason, POD_REASON_LIMIT) if reason else "",
        message=first_line(message, POD_MESSAGE_LIMIT) if message else "",
        waiting=first_line(waiting, POD_REASON_LIMIT) if waiting else "",
        traits=traits,
        ended=_failed_container(containers) if troubled else None,
        checkpoint_ms=checkpoint_ms(metadata) if owner is not None else 0,
        asks=asks,
        times=_times(metadata, status, phase, containers),
    )
    share_parts(seen)
    return seen


def _asks(
    pod: Json, labels: Labels, schedulers: tuple[str, ...], requests: Requests, *, with_devices: bool
) -> PodToPlace | None:
    found = pod_to_place(pod, labels, schedulers, with_devices=with_devices)
    return found.holding(requests) if found is not None else None


def _times(metadata: Json, status: Json, phase: str, containers: Sequence[Json]) -> PodTimes:
    """When a pod started, ended and has to be gone."""
    ended = containers if phase in _ENDED else ()
    finished = [((one.get("state") or _NOTHING).get("terminated") or _NOTHING).get("finishedAt") for one in ended]
    times = (
        parse_time_ms(metadata.get("deletionTimestamp")),
        parse_time_ms(status.get("startTime")),
        max(map(parse_time_ms, finished), default=0),
    )
    return PodTimes(*times) if any(times) else NO_TIMES


def _head(metadata: Json, term: int) -> tuple[int, str, str, str, str]:
    """The first fields in the observation of a namespaced object: term, namespace, name, UID, resourceVersion."""
    name, version = metadata["name"], metadata.get("resourceVersion") or ""
    return term, metadata.get("namespace") or "", name, metadata.get("uid") or "", version


def _traits(labels: Json, spec: Json, claims: tuple[str, ...], *, ours: bool) -> PodTraits:
    """The traits of a pod that affect other pods. For our pods, labels that follow from name and slot are left out."""
    own = {key: value for key, value in labels.items() if not (ours and key.startswith(LABEL_PREFIX))}
    ports = host_ports(spec)
    affinity = spec.get("affinity")
    terms = pod_terms(affinity.get("podAntiAffinity"), labels) if affinity else ()
    said = own or ports or terms or claims
    return PodTraits(_label_pairs(_encode(own)), ports, terms, claims) if said else NO_TRAITS


def job_seen(
    job: Json,
    term: int,
    *,
    with_status: bool,
    checks: Check = TYJOB,
    clean: CleanPodPolicy = CleanPodPolicy.ALL,
    last: JobSeen | None = None,
) -> JobSeen:
    """The observation of a TYJob; `with_status` adds the fields from which a new epoch adopts the job.

    `checks` define a valid TYJob: the policies that it may name depend on what is installed. This never raises,
    whatever the object contains: `faults` describe a wrong spec. `last` is an earlier observation of the same TYJob
    with the same checks: while the generation is the same, the spec is the same and isn't checked again. `clean` as in
    `job_spec`.
    """
    metadata = job["metadata"]
    generation = _whole(metadata.get("generation"))
    if last is not None and generation and last.generation == generation:
        spec, faults, unset = last.spec, last.faults, last.unset
        if spec is not None and relabelled(job, unset):
            unset = reported(warnings(job))
    else:
        found = validate(job, checks) or refused_later(job)
        spec, faults = None if found else job_spec(job, clean=clean), reported(found)
        unset = () if found else reported(warnings(job))
    status = job.get("status")
    if not isinstance(status, dict):
        status = {}
    created_by, created_by_groups = creator_of(metadata)
    return JobSeen(
        *_head(metadata, term),
        generation=generation,
        created_ms=parse_time_ms(metadata.get("creationTimestamp")),
        deleting=bool(metadata.get("deletionTimestamp")),
        spec=spec,
        faults=faults,
        status_digest=status_digest(status),
        status=job_status_seen(status, spec) if with_status else None,
        user=_short(_text((metadata.get("labels") or _NOTHING).get(USER_LABEL))),
        checkpoint_ms=checkpoint_ms(metadata),
        created_by=created_by,
        created_by_groups=created_by_groups,
        permits=permits_of(metadata),
        unset=unset,
    )


def quota_seen(quota: Json, term: int) -> QuotaSeen:
    metadata = quota["metadata"]
    status = quota.get("status") or _NOTHING
    return QuotaSeen(
        *_head(metadata, term),
        hard=quota_amounts(status.get("hard")),
        used=quota_amounts(status.get("used")),
        scopes=quota_scopes(quota.get("spec") or _NOTHING),
    )


def priority_class_seen(of_class: Json, term: int) -> PriorityClassSeen:
    return PriorityClassSeen(*_cluster_head(of_class["metadata"], term), int(of_class.get("value") or 0))


def limit_range_seen(of: Json, term: int) -> LimitRangeSeen:
    return LimitRangeSeen(*_head(of["metadata"], term), limit_defaults(of.get("spec") or _NOTHING))


def runtime_class_seen(of_class: Json, term: int) -> RuntimeClassSeen:
    return RuntimeClassSeen(*_cluster_head(of_class["metadata"], term), runtime_needs(of_class))


def queue_seen(queue: Json, term: int) -> QueueSeen:
    """The observation of a Queue. This never raises, whatever its spec contains: `faults` describe a wrong one."""
    metadata = queue["metadata"]
    found = validate_queue(queue)
    return QueueSeen(
        *_cluster_head(metadata, term),
        generation=_whole(metadata.get("generation")),
        spec=None if found else queue_spec(queue),
        faults=reported(found),
        status_digest=queue_status_digest(queue.get("status") or _NOTHING),
    )


def namespace_seen(namespace: Json, term: int) -> NamespaceSeen:
    metadata = namespace["metadata"]
    queue = (metadata.get("annotations") or _NOTHING).get(QUEUE_ANNOTATION) or ""
    labels = _label_pairs(_encode(metadata.get("labels") or _NOTHING))
    return NamespaceSeen(*_cluster_head(metadata, term), labels=labels, queue=_short(queue))


def _cluster_head(metadata: Json, term: int) -> tuple[int, str, str, str]:
    """The first fields in the observation of an object without a namespace: term, name, UID, resourceVersion."""
    return term, metadata["name"], metadata.get("uid") or "", metadata.get("resourceVersion") or ""


def reported(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """The first faults of a TYJob, each text short and on one line; the last fault counts the others."""
    more = len(faults) - _MAX_FAULTS
    further = (Fault("", FaultKind.FURTHER, str(more)),) if more > 0 else ()
    return (*map(_bounded, faults[:_MAX_FAULTS]), *further)


def _bounded(fault: Fault) -> Fault:
    limits = fault.limits
    while sum(map(len, limits[:-1])) > _MAX_TEXT:
        limits = limits[:-1]
    return Fault(_short(fault.field), fault.kind, _short(fault.value), _short(fault.name), tuple(map(_short, limits)))


def _short(text: str) -> str:
    return one_line(" ".join(text.split()))[:_MAX_TEXT]


#: The fields of a status that its digest ignores. The log is the one that wrote it.
QUEUE_POSITION, LOG = "queuePosition", "log"


def job_status_seen(status: Json, spec: JobSpec | None) -> JobStatusSeen | None:
    """The history in the status of a TYJob; None if it has no stage yet."""
    stage = status.get("stage")
    if not isinstance(stage, str) or not stage:
        return None
    names = tuple(group.name for group in spec.groups) if spec is not None else ()
    sets = _sets_seen(status, names)
    conditions = _conditions_seen(status)
    running = conditions.get("Running", _NOTHING)
    # With these reasons, the messages don't tell what was decided.
    decided = conditions.get(READY, _NOTHING).get("reason") not in (BELOW_QUORUM, ENDING)
    told = _text(running.get("message")) or _text(status.get("message")) if decided else ""
    return JobStatusSeen(
        stage=stage,
        schedule_state=_text(status.get("scheduleState")),
        attempt=_whole(status.get("attempt")),
        restarts=_whole(status.get("restartsOfEarlierPods", status.get("restarts"))),
        leader_address=_text(status.get("leaderAddress")),
        allocations=decode_allocations(status.get("allocations"), names),
        start_ms=parse_time_ms(status.get("startTime")),
        completion_ms=parse_time_ms(status.get("completionTime")),
        message=one_line(told)[:_MAX_STATUS_MESSAGE],
        worker_restarts=tuple((name, _whole(of_set.get("restartsOfEarlierPods"))) for name, of_set in sets),
        given_up=tuple((names.index(name), runs_of(of_set.get("givenUp"))) for name, of_set in sets),
        replacing=tuple((names.index(name), runs_of(of_set.get("replacing"))) for name, of_set in sets),
        reason=_text(running.get("reason")),
        turned=tuple(
            (name, found.get("status") == "True", parse_time_ms(found.get("lastTransitionTime")))
            for name, found in sorted(conditions.items())
        ),
        failures=_failures_seen(status),
        charged=(
            *((LEADER_GROUP, ((0, 0, count),)) for count in (_whole(status.get("restartsInWindow")),) if count > 0),
            *((names.index(name), charges_of(of_set.get("restartsByIndex"))) for name, of_set in sets),
        ),
        at_end=_at_end(status, names) if stage in ENDED else (),
        priority=status["priority"] if type(status.get("priority")) is int else None,
        failed_before=tuple((names.index(name), charges_of(of_set.get("failedBefore"))) for name, of_set in sets),
        after=_after_seen(status),
        finished=_finished_seen(status, names),
        active_s=_active_seen(status),
    )


def _active_seen(status: Json) -> int | None:
    told = status.get("activeSecondsOfEarlierAttempts")
    return _whole(told) if told is not None else None


def _finished_seen(status: Json, names: tuple[str, ...]) -> tuple[tuple[int, tuple[tuple[int, int], ...]], ...]:
    leader = ((LEADER_GROUP, ((0, 0),)),) if status.get("leaderFinished") is True else ()
    sets = _sets_seen(status, names)
    return leader + tuple((names.index(name), runs_of(of_set.get("finished"))) for name, of_set in sets)


def _after_seen(status: Json) -> tuple[tuple[str, str], ...]:
    """The jobs that it waited for and that have ended, each with its stage."""
    found = status.get("after")
    entries = [each for each in (found if isinstance(found, list) else ()) if isinstance(each, dict)]
    return tuple((_short(_text(each.get("name"))), _short(_text(each.get("stage")))) for each in entries[:MAX_AFTER])


def _at_end(status: Json, names: tuple[str, ...]) -> tuple[tuple[str, int, int], ...]:
    return tuple((name, _whole(of.get("ready")), _whole(of.get("failed"))) for name, of in _sets(status, names))


def _conditions_seen(status: Json) -> dict[str, Json]:
    conditions = status.get("conditions")
    found = [each for each in (conditions if isinstance(conditions, list) else ()) if isinstance(each, dict)]
    return {each["type"]: each for each in found if isinstance(each.get("type"), str)}


def _failures_seen(status: Json) -> tuple[Failure, ...]:
    """The failures in a status, each text short."""
    found = status.get("lastFailures")
    entries = [each for each in (found if isinstance(found, list) else ()) if isinstance(each, dict)]
    return tuple(
        Failure(
            _short(_text(each.get("workerSet"))),
            _whole(each.get("index")),
            _whole(each.get("attempt")),
            _short(_text(each.get("node"))),
            parse_time_ms(each.get("time")),
            ContainerEnd(
                _short(_text(each.get("container"))),
                _whole(each.get("exitCode")),
                _whole(each.get("signal")),
                _short(_text(each.get("reason"))),
                first_line(_text(each.get("message")), POD_MESSAGE_LIMIT),
            ),
            _whole(each.get("failedBefore")),
        )
        for each in entries[:FAILURES_KEPT]
    )


def _sets_seen(status: Json, names: tuple[str, ...]) -> list[tuple[str, Json]]:
    """The worker sets in a status that the job has and that lost anything, by name."""
    lost = ("restartsOfEarlierPods", "restartsByIndex", "givenUp", "replacing", "failedBefore", "finished")
    return [(name, of_set) for name, of_set in _sets(status, names) if any(of_set.get(field) for field in lost)]


def _sets(status: Json, names: tuple[str, ...]) -> list[tuple[str, Json]]:
    """The worker sets in a status that the job has, by name."""
    workers = status.get("workers")
    sets = [of_set for of_set in (workers if isinstance(workers, list) else ()) if isinstance(of_set, dict)]
    return sorted({of_set["name"]: of_set for of_set in sets if of_set.get("name") in names[1:]}.items())


def status_digest(status: Any) -> str:
    """A short identifier of a status, the same before and after the API server stored it; "" for an empty one.

    Null, absent and empty are equivalent, and so are all orders of an object's fields. The queue position is ignored:
    it changes with every job that arrives or leaves, which is no reason to write all other statuses. So is the log that
    wrote it.
    """
    if isinstance(status, Mapping):
        status = {name: value for name, value in status.items() if name not in (QUEUE_POSITION, LOG)}
    kept = _without_empty(status)
    return "" if kept is None else hashlib.blake2b(_canonical(kept), digest_size=8).hexdigest()


def queue_status_digest(status: Json) -> str:
    """As `status_digest`, for the status of a Queue. The times of its conditions are ignored: only the object has them,
    and they change with the rest of a condition."""
    conditions = status.get("conditions")
    entries = [each for each in (conditions if isinstance(conditions, list) else ()) if isinstance(each, dict)]
    untimed = [{name: value for name, value in each.items() if name != "lastTransitionTime"} for each in entries]
    return status_digest({**status, "conditions": untimed})


def _without_empty(value: Any) -> Any:
    """The value without nulls, empty strings, lists and objects, at any depth; None if nothing remains."""
    if isinstance(value, dict):
        kept = {}
        for name, field in value.items():
            left = _without_empty(field) if isinstance(field, _NESTED) else field
            if left is not None and left != "":
                kept[name] = left
        return kept or None
    if isinstance(value, list | tuple):
        return [kept for entry in value if (kept := _without_empty(entry)) is not None] or None
    return None if value == "" else value


def _owner(metadata: Json) -> PodOwner | None:
    """The slot of a pod whose controller is a TYJob."""
    job = controlling_job(metadata)
    if job is None:
        return None
    return owner_of(metadata["name"], metadata.get("labels") or {}, job=job.get("name") or "", job_uid=job["uid"])


def owned_by(item: Json, job_uid: str) -> bool:
    """Whether an object's controller is the TYJob of this UID, by its owner references."""
    job = controlling_job(item["metadata"])
    return job is not None and job.get("uid") == job_uid


def controlling_job(metadata: Json) -> Json | None:
    """The reference to an object's controller, if that is a TYJob. Kubernetes allows only one controller."""
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller") is True:
            group = (reference.get("apiVersion") or "").partition("/")[0]
            return reference if reference.get("kind") == KIND and group == GROUP else None
    return None


def _condition_is_true(status: Json, kind: str) -> bool:
    for condition in status.get("conditions") or ():
        if condition.get("type") == kind:
            return bool(condition.get("status") == "True")
    return False


def _held(status: Json, containers: list[Json]) -> Held:
    """The resources in the status of a pod, of which kube-scheduler counts none where the field `resources` is missing:
    then no kubelet has resized it or said what it has."""
    held = {one.get("name"): there for one in containers if (there := _resources_held(one)) is not None}
    of_pod = _resources_held(status)
    if not held and of_pod is None:
        return NOT_HELD
    pending = next((one for one in status.get("conditions") or () if one.get("type") == "PodResizePending"), _NOTHING)
    # Before Kubernetes 1.33, `status.resize` said what that condition says.
    return Held(held, of_pod, "Infeasible" in (pending.get("reason"), status.get("resize")))


def _resources_held(status: Json) -> list[Json] | None:
    """The resources that the status of a container or of a pod shows; None if it doesn't show any."""
    resources = status.get("resources")
    if resources is None:
        return None
    return [part for part in (status.get("allocatedResources"), resources.get("requests")) if part]


def _first_waiting(containers: list[Json]) -> tuple[str, str]:
    """The kubelet's reason and message for the first container that can't start."""
    for container in containers:
        waiting = (container.get("state") or _NOTHING).get("waiting")
        if waiting and waiting.get("reason") and waiting["reason"] not in _ON_ITS_WAY:
            return waiting["reason"], waiting.get("message") or ""
    return "", ""


def _why_ended(phase: str, metadata: Json, status: Json, containers: list[Json], message: str) -> tuple[str, str]:
    """For a pod without a reason of its own: what disrupted it if it has ended or is being deleted, or why its first
    failed container ended."""
    failed = phase == Phase.FAILED.value
    condition = _disruption(status)
    if phase not in _ENDED:
        return _disrupted(condition, message) if condition and metadata.get("deletionTimestamp") else ("", message)
    if condition and (failed or _ran_at(parse_time_ms(condition.get("lastTransitionTime")), containers)):
        return _disrupted(condition, message)
    ended = _failed_container(containers) if failed else None
    if ended is not None:
        return ended.reason or "Error", message or ended.message
    if failed:
        return "", message
    going_ms = parse_time_ms(metadata.get("deletionTimestamp"))
    time_ms = going_ms - 1000 * _whole(metadata.get("deletionGracePeriodSeconds"))
    return (STOPPED if going_ms and _ran_at(time_ms, containers) else ""), message


def _disruption(status: Json) -> Json:
    """The condition that says that Kubernetes disrupted a pod; empty without one."""
    conditions: list[Json] = status.get("conditions") or []
    found = (of for of in conditions if of.get("type") == DISRUPTED and of.get("status") == "True")
    return next(found, _NOTHING)


def _disrupted(condition: Json, message: str) -> tuple[str, str]:
    """The reason and the message of a disrupted pod."""
    why = condition.get("reason") or ""
    return f"{DISRUPTED}{': ' if why else ''}{why}", message or condition.get("message") or ""


def _ran_at(moment_ms: int, containers: list[Json]) -> bool:
    """Whether an ended pod was still running then; times have whole seconds."""
    ended = [(container.get("state") or _NOTHING).get("terminated") or _NOTHING for container in containers]
    return any(parse_time_ms(each.get("finishedAt")) >= moment_ms for each in ended)


def _failed_container(containers: list[Json]) -> ContainerEnd | None:
    """How the first container failed that did; of restarted containers, how the first of them failed last."""
    for state in ("state", "lastState"):
        for container in containers:
            ended = (container.get(state) or _NOTHING).get("terminated")
            if ended and ended.get("exitCode"):
                return ContainerEnd(
                    first_line(container.get("name") or "", POD_REASON_LIMIT),
                    _whole(ended["exitCode"]),
                    _whole(ended.get("signal")),
                    first_line(ended.get("reason") or "", POD_REASON_LIMIT),
                    first_line(ended.get("message") or "", POD_MESSAGE_LIMIT),
                )
    return None


@lru_cache(maxsize=1024)
def _amounts(allocatable: bytes) -> tuple[tuple[str, int], ...]:
    quantities: dict[str, Any] = msgspec.json.decode(allocatable)
    return tuple(sorted((name, amount(name, quantity)) for name, quantity in quantities.items()))


def _label_pairs(labels: bytes) -> Labels:
    return _pairs(labels) if len(labels) <= REMEMBERED_BYTES else _pairs.__wrapped__(labels)


@lru_cache(maxsize=16384)
def _pairs(labels: bytes) -> Labels:
    return tuple(sorted(_decode_labels(labels).items()))


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
