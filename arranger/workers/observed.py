"""Compares objects of the API server with the projection: their observations, the news in them, and deletions.

These functions read and write nothing: the observer does, under its term.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from arranger.events import devices as d
from arranger.events import kinds as k
from arranger.events import volumes as v
from arranger.kube.cluster import Object, WatchEvent
from arranger.kube.devices import (
    device_class_seen,
    resource_claim_seen,
    resource_claim_template_seen,
    resource_slice_seen,
)
from arranger.kube.pod_groups import pod_group_seen
from arranger.kube.provisioning import provisioning_seen
from arranger.kube.translate import (
    LOG,
    job_seen,
    job_status_seen,
    limit_range_seen,
    namespace_seen,
    node_seen,
    pod_seen,
    priority_class_seen,
    queue_seen,
    quota_seen,
    runtime_class_seen,
)
from arranger.kube.volumes import claim_seen, csi_node_seen, storage_class_seen, volume_seen
from arranger.model.checks import Check
from arranger.model.job import ENDED, CleanPodPolicy, Stage
from arranger.model.pods_to_place import group_uid
from arranger.projections.ownership import attributed
from arranger.projections.state import State

#: Stages in the order in which an attempt reaches them.
_ORDER: dict[str, int] = {
    Stage.PENDING: 0,
    Stage.RESCHEDULING: 0,
    Stage.STARTING: 1,
    Stage.RUNNING: 2,
    Stage.SUCCEEDED: 3,
    Stage.FAILED: 3,
}

#: Observations of objects without a namespace, which the projection has by name.
ByName = k.PriorityClassSeen | k.RuntimeClassSeen | k.QueueSeen | k.NamespaceSeen | v.SeenByName | d.SeenByName
_OfClaims = v.ClaimSeen | d.ResourceClaimSeen | d.ResourceClaimTemplateSeen
_Limits = k.QuotaSeen | k.LimitRangeSeen
_Namespaced = k.PodSeen | k.JobSeen | _Limits | k.PodGroupSeen | k.ProvisioningSeen | _OfClaims
Seen = k.NodeSeen | _Namespaced | ByName

#: Kind → how its objects are observed, of the kinds whose observation depends on nothing else.
_PLAIN: dict[k.Watched, Callable[[Object, int], Seen]] = {
    k.Watched.NODE: node_seen,
    k.Watched.QUOTA: quota_seen,
    k.Watched.PRIORITY_CLASS: priority_class_seen,
    k.Watched.RUNTIME_CLASS: runtime_class_seen,
    k.Watched.LIMIT_RANGE: limit_range_seen,
    k.Watched.QUEUE: queue_seen,
    k.Watched.NAMESPACE: namespace_seen,
    k.Watched.PROVISIONING: provisioning_seen,
    **{of: partial(pod_group_seen, kind) for kind, of in k.GROUP_WATCHES.items()},
    k.Watched.CLAIM: claim_seen,
    k.Watched.VOLUME: volume_seen,
    k.Watched.STORAGE_CLASS: storage_class_seen,
    k.Watched.CSI_NODE: csi_node_seen,
    k.Watched.RESOURCE_SLICE: resource_slice_seen,
    k.Watched.DEVICE_CLASS: device_class_seen,
    k.Watched.RESOURCE_CLAIM: resource_claim_seen,
    k.Watched.RESOURCE_CLAIM_TEMPLATE: resource_claim_template_seen,
}


def translate(
    item: Object,
    kind: k.Watched,
    term: int,
    *,
    with_status: bool,
    checks: Check,
    clean: CleanPodPolicy = CleanPodPolicy.ALL,
    scheduler: str = "",
    with_volumes: bool = False,
    with_devices: bool = False,
    last: k.JobSeen | None = None,
) -> Seen:
    """The observation of an object. The status of a TYJob counts only `with_status`: if the job may be new. `last` is
    an earlier observation of the same TYJob by the same process. `clean` as in `job_spec`. `scheduler`,
    `with_volumes` and `with_devices` as in `pod_seen`."""
    if kind == k.Watched.JOB:
        return job_seen(item, term, with_status=with_status, checks=checks, clean=clean, last=last)
    if kind == k.Watched.POD:
        return pod_seen(item, term, scheduler, with_volumes=with_volumes, with_devices=with_devices)
    return _PLAIN[kind](item, term)


def news(
    changes: Sequence[WatchEvent],
    kind: k.Watched,
    term: int,
    state: State,
    *,
    checks: Check,
    clean: CleanPodPolicy = CleanPodPolicy.ALL,
    scheduler: str = "",
    with_volumes: bool = False,
    with_devices: bool = False,
) -> list[k.Event]:
    """The observations in some changes, without those that repeat what the projection has."""
    events: list[k.Event] = []
    touched: set[str] = set()
    for change in changes:
        if change.type == "BOOKMARK":
            continue
        added, last = change.type == "ADDED", last_seen(change.object, kind, term, state)
        seen = translate(
            change.object, kind, term, with_status=added,
            checks=checks, clean=clean, scheduler=scheduler, with_volumes=with_volumes, with_devices=with_devices,
            last=last,
        )  # fmt: skip
        if change.type == "DELETED":
            if not isinstance(seen, k.ProvisioningSeen) or seen.job_uid:
                events.append(k.gone(seen, term))
        elif seen.uid in touched or not known(state, seen):
            events.append(seen)
        touched.add(seen.uid)
    return events if kind != k.Watched.QUOTA else _latest(events, state)


def last_seen(item: Object, kind: k.Watched, term: int, state: State) -> k.JobSeen | None:
    """The projection's observation of the TYJob, if this watcher made it: another version may check specs otherwise."""
    job = state.jobs.get(item["metadata"]["uid"]) if kind == k.Watched.JOB else None
    return job.seen if job is not None and job.seen.term == term else None


def known(state: State, event: Seen) -> bool:
    """Whether the projection has this observation already, apart from the term and an uninformative resourceVersion."""
    if isinstance(event, k.NodeSeen):
        row = state.nodes.rows.get(event.name)
        return row is not None and (state.nodes.uids[row], state.nodes.facts[row]) == (event.uid, event.facts)
    if isinstance(event, k.PodSeen):
        pod = state.pods.get(event.uid)
        return pod is not None and _same(pod, attributed(state, event), ("term", "resource_version"))
    if isinstance(event, _Limits):
        limits = _limits(state, k.WATCHED[type(event)]).get(event.namespace, {}).get(event.name)
        return limits is not None and _same(limits, event, ("term", "resource_version"))
    if isinstance(event, k.PodGroupSeen):
        group = state.pod_groups.get(group_uid(event.namespace, event.name, event.group_kind))
        return group is not None and _same(group, event, ("term", "resource_version"))
    if isinstance(event, _OfClaims):
        claim = _claims(state, k.WATCHED[type(event)]).get((event.namespace, event.name))
        # An applier changes a claim of this version only, so an outdated one would be refused without end.
        return claim is not None and _same(claim, event, ("term",))
    if isinstance(event, k.ProvisioningSeen):  # the log has only those of jobs
        request = state.seen_requests.get(event.job_uid, {}).get(event.name)
        return not event.job_uid or (request is not None and _same(request, event, ("term", "resource_version")))
    if isinstance(event, ByName):
        there = _by_name(state, k.WATCHED[type(event)]).get(event.name)
        return there is not None and _same(there, event, ("term", "resource_version"))
    job = state.jobs.get(event.uid)
    # A writer of a status needs the TYJob's latest resourceVersion.
    return job is not None and _same(job.seen, event, ("term", "status"))


def _limits(state: State, kind: k.Watched) -> Mapping[str, Mapping[str, _Limits]]:
    """The projection's quotas or LimitRanges, by namespace and name."""
    return state.quotas if kind == k.Watched.QUOTA else state.limit_ranges


def _claims(state: State, kind: k.Watched) -> Mapping[tuple[str, str], _OfClaims]:
    """The projection's claims, or the templates of claims, by namespace and name."""
    there: dict[k.Watched, Mapping[tuple[str, str], _OfClaims]] = {
        k.Watched.CLAIM: state.volumes.claims,
        k.Watched.RESOURCE_CLAIM: state.devices.claims,
        k.Watched.RESOURCE_CLAIM_TEMPLATE: state.devices.templates,
    }
    return there[kind]


def _by_name(state: State, kind: k.Watched) -> Mapping[str, ByName]:
    """The projection's objects of a kind without namespaces."""
    there: dict[k.Watched, Mapping[str, ByName]] = {
        k.Watched.PRIORITY_CLASS: state.priority_classes,
        k.Watched.RUNTIME_CLASS: state.runtime_classes,
        k.Watched.QUEUE: state.queues,
        k.Watched.NAMESPACE: state.namespaces,
        k.Watched.VOLUME: state.volumes.volumes,
        k.Watched.STORAGE_CLASS: state.volumes.classes,
        k.Watched.CSI_NODE: state.volumes.csi_nodes,
        k.Watched.RESOURCE_SLICE: state.devices.slices,
        k.Watched.DEVICE_CLASS: state.devices.classes,
    }
    return there[kind]


def _latest(events: list[k.Event], state: State) -> list[k.Event]:
    """Drop observations of a quota that a later one in `events` replaces, or that repeat the projection: a quota's
    usage changes with each of many pods."""
    last = {event.uid: number for number, event in enumerate(events) if isinstance(event, k.QuotaSeen)}
    gone = any(k.is_gone(event, k.Watched.QUOTA) for event in events)
    return [
        event
        for number, event in enumerate(events)
        if not isinstance(event, k.QuotaSeen) or (last[event.uid] == number and (gone or not known(state, event)))
    ]


def ahead_of_log(item: Object, state: State, *, adopts: bool, log: str = "") -> bool:
    """Whether a TYJob's status shows a stage or an attempt that the projection hasn't reached.

    A job that isn't in the projection is adopted with its status from a listing; otherwise it can't have one yet. What
    another log than `log` wrote says nothing of ours.
    """
    job = state.jobs.get(item["metadata"]["uid"])
    status = item.get("status")
    shown = job_status_seen(status, None) if isinstance(status, dict) else None
    if status is None or shown is None or shown.stage not in _ORDER or (log and status.get(LOG, log) != log):
        return False
    if job is None:
        return not adopts
    if shown.stage in ENDED:
        return shown.stage != job.stage  # an ended stage is final, whatever was decided since
    return (shown.attempt, _ORDER[shown.stage]) > (job.attempt, _ORDER[job.stage])


def _same(old: Seen, new: Seen, aside: tuple[str, ...]) -> bool:
    return all(getattr(old, name) == getattr(new, name) for name in old.__struct_fields__ if name not in aside)


def projected(state: State, kind: k.Watched, term: int) -> list[tuple[str, k.Event]]:
    """UID and "gone" event of everything of a kind in the projection, in a fixed order."""
    if kind == k.Watched.NODE:
        nodes = state.nodes
        rows = [(name, nodes.uids[row]) for name, row in sorted(nodes.rows.items()) if nodes.present(row)]
        return [(uid, k.ObjectGone(kind, term, "", name, uid)) for name, uid in rows]
    seen: list[Seen]
    if kind == k.Watched.POD:
        seen = [state.pods[uid] for uid in sorted(state.pods)]
    elif kind in (k.Watched.QUOTA, k.Watched.LIMIT_RANGE):
        seen = [of[name] for _, of in sorted(_limits(state, kind).items()) for name in sorted(of)]
    elif kind == k.Watched.PROVISIONING:
        seen = [of[name] for _, of in sorted(state.seen_requests.items()) for name in sorted(of)]
    elif kind in k.GROUP_WATCHES.values():
        seen = [of for _, of in sorted(state.pod_groups.items()) if k.GROUP_WATCHES[of.group_kind] == kind]
    elif kind in (k.Watched.CLAIM, k.Watched.RESOURCE_CLAIM, k.Watched.RESOURCE_CLAIM_TEMPLATE):
        seen = [of for _, of in sorted(_claims(state, kind).items())]
    elif kind == k.Watched.JOB:
        seen = [state.jobs[uid].seen for uid in sorted(state.jobs) if not state.jobs[uid].of_pods]
    else:
        seen = [each for _, each in sorted(_by_name(state, kind).items())]
    return [(each.uid, k.gone(each, term)) for each in seen]
