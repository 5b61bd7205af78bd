"""From a valid TYJob, as JSON, to the `JobSpec` in the log: with defaults, and templates reduced to shapes."""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from arranger.model.faults import Fault, FaultKind
from arranger.model.fields import ChangesUntil, declared, read
from arranger.model.job import (
    DEFAULT_RESTART_LIMIT,
    LEADER_GROUP,
    CleanPodPolicy,
    Dependency,
    JobSpec,
    OnFailure,
    PodGroup,
    Rendezvous,
    RendezvousScope,
    RestartEvent,
    RestartPolicy,
    RestartScope,
    StartAfter,
    SuccessType,
    Topology,
    TopologyMode,
    TopologyScope,
    with_needed,
)
from arranger.model.names import known_labels
from arranger.model.pod import PodShape, lowest_qos
from arranger.model.template import declared_needs, grace_of, pod_shape, present, qos_class, quota_traits, worker_sets
from arranger.model.validation import (
    DEFAULT_RENDEZVOUS_PORT,
    counts_of,
    group_size_of,
    least_workers,
    scaled_set,
    whole_of,
)


def job_spec(tyjob: Mapping[str, Any], *, clean: CleanPodPolicy = CleanPodPolicy.ALL) -> JobSpec:
    """The spec of a TYJob that passes `validate`; the leader's group comes first, also where there is no leader.
    `clean` is the policy of jobs that name none."""
    spec: Mapping[str, Any] = tyjob["spec"]
    policy: Mapping[str, Any] = spec.get("schedulerPolicy") or {}
    name, leader = tyjob["metadata"]["name"], spec.get("leader")
    scaled = scaled_set(spec)
    groups = (
        _group(name, spec, leader, 1, leader=True) if leader is not None else NO_LEADER,
        *(
            _group(name, spec, workers, count, leader=False)
            for workers, count in zip(worker_sets(spec), counts_of(spec), strict=True)
        ),
    )
    given = read(JobSpec, spec) | {
        "min_workers": least_workers(spec),
        "clean_pod_policy": CleanPodPolicy(spec.get("cleanPodPolicy") or clean),
    }
    if of_class := given["priority_class"]:
        given["priority"] = 0
    return JobSpec(
        **given,
        groups=with_needed(groups, least_workers(spec)),
        queue_policy=policy.get("jobQueuePolicy") or "",
        pod_policy=policy.get("basicPolicy") or "",
        scaled=scaled + 1 if scaled is not None else 0,
        priority_known=not of_class,
        after=tuple(
            Dependency(of["name"], OnFailure(of.get("onFailure") or OnFailure.FAIL)) for of in spec.get("after") or ()
        ),
        success=_success(spec),
        topology=_topology(spec, TopologyScope.JOB),
        image=_image(spec),
        qos=lowest_qos(map(qos_class, _templates(spec))),
        clean_named=bool(spec.get("cleanPodPolicy")),
    )


def _templates(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The specs of the templates of all its pods, the leader's first."""
    leader = spec.get("leader")
    return [of["template"]["spec"] for of in (leader, *worker_sets(spec)) if of is not None]


def _image(spec: Mapping[str, Any]) -> str:
    """A digest of the image of the first container: the leader's, or without one that of the first worker set."""
    image = _templates(spec)[0]["containers"][0].get("image") or ""
    return hashlib.blake2b(image.encode(errors="replace"), digest_size=8).hexdigest() if image else ""


#: The first group of a job without a leader.
NO_LEADER = PodGroup("", 0, PodShape(()))


def _success(spec: Mapping[str, Any]) -> tuple[int, ...]:
    """The groups whose end is the job's: if not given, the leader, or without one all worker sets."""
    policy: Mapping[str, Any] = spec.get("successPolicy") or {}
    default = SuccessType.LEADER if spec.get("leader") is not None else SuccessType.ALL_WORKERS
    kind, names = policy.get("type") or default, policy.get("sets") or ()
    if kind == SuccessType.LEADER:
        return (LEADER_GROUP,)
    sets = enumerate(worker_sets(spec), start=1)
    return tuple(number for number, of in sets if kind == SuccessType.ALL_WORKERS or of["name"] in names)


def _start_after(spec: Mapping[str, Any], group: Mapping[str, Any]) -> int | None:
    """The group that must be ready before a worker set starts, as in `PodGroup`."""
    after = group.get("startAfter")
    if after is None or after == StartAfter.LEADER_ADDRESS:
        return None
    if after == StartAfter.LEADER_READY:
        return LEADER_GROUP
    return 1 + [of["name"] for of in worker_sets(spec)].index(after)


def _group(job: str, spec: Mapping[str, Any], group: Mapping[str, Any], count: int, *, leader: bool) -> PodGroup:
    template, restart = group["template"], group.get("restart") or {}
    labels = present((template.get("metadata") or {}).get("labels"))
    known = known_labels(job, group["name"], leader=leader)
    shape = pod_shape(template["spec"], tuple(sorted(labels.items())), known=known)
    size = group_size_of(group)
    scope = RestartScope(restart.get("scope") or (RestartScope.GROUP if size > 1 else RestartScope.WORKER))
    event = RestartEvent(restart.get("event") or RestartEvent.POD_ENDED)
    policy = RestartPolicy(
        scope=scope,
        limit=whole_of(restart, "limit", whole_of(spec, "restartLimit", DEFAULT_RESTART_LIMIT)),
        window_s=whole_of(restart, "windowSeconds", None),
        own_limit=restart.get("limit") is not None,
        event=event if scope in (RestartScope.SET, RestartScope.JOB) else RestartEvent.POD_FAILED,
    )
    least = whole_of(group, "minCount", 0) * size
    traits = quota_traits(template["spec"])
    if (of_class := spec.get("priorityClassName")) and not traits.priority_class:
        traits = msgspec.structs.replace(traits, priority_class=of_class)
    after, topology = _start_after(spec, group), _topology(group, TopologyScope.SET)
    return PodGroup(
        group["name"], count, shape, traits, least, policy, rendezvous_of(group), after, size, topology,
        grace_of(template["spec"]), declared=declared_needs(template["spec"]),
    )  # fmt: skip


def _topology(of: Mapping[str, Any], within: TopologyScope) -> Topology | None:
    """The topology of a valid job or worker set, with this scope by default; None without one."""
    found = of.get("topology")
    if found is None:
        return None
    mode, scope = found.get("mode") or TopologyMode.REQUIRED, found.get("within") or within
    return Topology(tuple(found["levels"]), TopologyMode(mode), TopologyScope(scope))


def rendezvous_of(group: Mapping[str, Any]) -> Rendezvous | None:
    """The rendezvous of a valid worker set; None without one, and for a leader."""
    found = group.get("rendezvous")
    if found is None:
        return None
    return Rendezvous(
        port=whole_of(found, "port", DEFAULT_RENDEZVOUS_PORT),
        scope=RendezvousScope(found.get("scope") or RendezvousScope.SET),
        members_file=found.get("membersFile") is True,
    )


def refused_change(old: JobSpec, new: JobSpec, *, waits: bool = False) -> tuple[Fault, ...]:
    """The fields that a started job's new spec must not change but does. A job that `waits` to be scheduled again
    holds no nodes, so it may go to another queue.

    The CRD's rules refuse such a change at apply; this finds it on servers without CEL, as far as a `JobSpec` shows.
    """
    same_sets = len(old.groups) == len(new.groups) and all(map(_same_pods, old.groups[1:], new.groups[1:]))
    found = {
        "leader": _same_pods(old.groups[0], new.groups[0]) and _same_limit(old, new),
        "workerSets": same_sets,
        "successPolicy": old.success == new.success or old.has_leader != new.has_leader,
        "topology": old.topology == new.topology,
        "after": _jobs_before(old) == _jobs_before(new),
        "schedulerPolicy": (old.queue_policy, old.pod_policy) == (new.queue_policy, new.pod_policy),
    }
    for each in declared(JobSpec):
        if each.field.changes == ChangesUntil.STARTED or (each.field.changes == ChangesUntil.HOLDS_NODES and not waits):
            found[each.name] = getattr(old, each.attribute) == getattr(new, each.attribute)
    # The policy of the installation may change, and with it that of a job that names none.
    found["cleanPodPolicy"] |= not (old.clean_named or new.clean_named)
    return tuple(Fault(f"spec.{name}", FaultKind.IMMUTABLE) for name, same in found.items() if not same)


def _jobs_before(spec: JobSpec) -> list[tuple[str, OnFailure]]:
    return sorted((of.name, of.on_failure) for of in spec.after)


def _same_limit(old: JobSpec, new: JobSpec) -> bool:
    """Whether the leader's own limit of restarts is the same. One that follows from `restartLimit` isn't its own."""
    before, now = old.restart_of(0), new.restart_of(0)
    same = (before.limit, before.window_s) == (now.limit, now.window_s)
    return same or old.restart_limit != new.restart_limit


def _same_pods(old: PodGroup, new: PodGroup) -> bool:
    fields = ("name", "shape", "rendezvous", "start_after", "group_size", "topology")
    return all(getattr(old, field) == getattr(new, field) for field in fields)
