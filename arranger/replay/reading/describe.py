"""Events as one line of text for people, and as plain objects with field names for programs."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

import msgspec

from arranger.events import kinds as k
from arranger.events.facts import PreemptionKind, Victim
from arranger.lifecycle.desired import message_text
from arranger.messages.decisions import failure_text, replaced_text, stage_text
from arranger.messages.faults import faults_text
from arranger.messages.readiness import (
    deleting_text,
    guest_text,
    labels_text,
    unset_text,
)
from arranger.messages.shortages import limit_name_text, shortage_text
from arranger.model.job import LEADER_GROUP, JobSpec, PlacedPods
from arranger.model.node import NodeFacts
from arranger.model.pod import STOPPED, GroupAsked, GroupKind, Phase
from arranger.model.pods_to_place import group_uid
from arranger.model.provisioning import Provisioning
from arranger.model.quantity import amount_text, quantity
from arranger.model.quota import unit_of
from arranger.model.taints import taint_text
from arranger.model.text import counted, rfc3339
from arranger.projections.jobs.records import JobRecord, asked_record, expand
from arranger.projections.state import State
from arranger.replay.reading.devices import WORDS as WORDS_OF_DEVICES
from arranger.replay.reading.devices import decided_text
from arranger.replay.reading.queue_fields import other_fields
from arranger.replay.reading.volumes import WORDS as WORDS_OF_VOLUMES


class PodCounts(NamedTuple):
    """Pods of a job's present attempt: slots that have nodes, and those whose pods were seen. Of these, some run, some
    failed and aren't replaced yet, so that they have their nodes still, and others haven't begun or have succeeded."""

    placed: int
    seen: int
    running: int
    failed: int


#: The text of a job or a queue that was seen without a change that decisions depend on.
SEEN_AGAIN = "seen again, with the same spec"

#: Decisions and outcomes that name a job by its UID. Observations are told apart by what they are of.
ABOUT_A_JOB: tuple[type[Any], ...] = tuple(
    kind for kind in get_args(k.Decision | k.Outcome) if "job_uid" in kind.__struct_fields__
)


def label(job: JobRecord) -> str:
    """The job's namespace/name."""
    return f"{job.seen.namespace}/{job.seen.name}"


def priority_text(counts: int | None, own: int | None) -> str:
    """The priority that counts in a job's queue, and the job's own if that is another one; of a job whose PriorityClass
    isn't known, that it is unknown: its message says more."""
    if counts is None:
        return "unknown"
    return str(counts) if counts == own else f"{counts} (job: {own})"


def pod_counts(job: JobRecord) -> PodCounts:
    """How many pods of a job there are."""
    seen, others = len(job.bound), job.slots.not_running
    return PodCounts(len(job.placements), seen, seen - len(others), list(others.values()).count(Phase.FAILED))


def message_of(state: State, job: JobRecord) -> str:
    """The last decision about the job in words; an invalid spec, a quorum that isn't ready, or the reason for waiting
    takes precedence. References to variables that its pods won't have follow, and labels that Kueue reads."""
    return "; ".join(part for part in (told_of(state, job), unset_of(job), labels_of(job)) if part)


def unset_of(job: JobRecord) -> str:
    """The references of a valid job's templates to variables that its pods won't have; empty for none."""
    return "" if job.seen.faults else unset_text(job)


def labels_of(job: JobRecord) -> str:
    """The labels of a valid job that only another scheduler reads; empty for none."""
    return "" if job.seen.faults else labels_text(job)


def told_of(state: State, job: JobRecord) -> str:
    """The same without the variables."""
    if job.seen.faults:
        return faults_text(job.seen.faults)
    told = message_text(state, job, None)
    aside = "" if job.ended or job.below_quorum else deleting_text(job)
    return "; ".join(part for part in (told, aside, guest_text(state, job)) if part)


def why_it_waits(job: JobRecord) -> k.Waits | None:
    """The recorded reason why the job waits; None if it has ended or all its desired pods have nodes."""
    return job.waits if not job.ended and len(job.placements) < job.pods_desired() else None


def label_of(state: State, uid: str) -> str:
    """The job's label, or its UID if the state doesn't have it."""
    job = state.jobs.get(uid)
    return label(job) if job is not None else uid


def awaited_labels(state: State, uids: Iterable[str]) -> tuple[str, ...]:
    """The labels of those jobs whose end is still awaited: nobody waits for one that has ended or is gone."""
    jobs = (state.jobs.get(uid) for uid in uids)
    return tuple(label(job) for job in jobs if job is not None and not job.ended)


def placed_in(event: k.Event | None) -> k.Placed | None:
    """The placement that a decision consists of or contains; None for other events."""
    if isinstance(event, k.Preempted):
        return event.placed
    return event if isinstance(event, k.Placed) else None


def decided_for(event: k.Event | None) -> str:
    """The UID of the job for which a decision was made, or that an outcome is about; empty for other events."""
    if isinstance(event, k.Preempted):
        return event.placed.job_uid
    return event.job_uid if isinstance(event, ABOUT_A_JOB) else ""


def victims_of(event: k.Event) -> tuple[str, ...]:
    """The UIDs of the jobs that a decision takes nodes from."""
    return tuple(victim.job_uid for victim in event.victims) if isinstance(event, k.Preempted) else ()


def job_uid_of(event: k.Event, state: State) -> str:
    """The UID of the job that an event is about, empty if there is none. `state` is as before the event."""
    if uid := decided_for(event):
        return uid
    if k.seen_or_gone(event, k.JobSeen):
        return event.uid
    if k.seen_or_gone(event, k.ProvisioningSeen):
        return event.job_uid
    if k.seen_or_gone(event, k.PodGroupSeen):
        kind = event.group_kind if isinstance(event, k.PodGroupSeen) else k.GROUP_KINDS[event.kind]
        return group_uid(event.namespace, event.name, kind)
    if k.seen_or_gone(event, k.PodSeen):
        pod = event if isinstance(event, k.PodSeen) else state.pods.get(event.uid)
        if pod is not None and pod.asks is not None:
            return asked_record(pod)
        return pod.owner.job_uid if pod is not None and pod.owner is not None else ""
    return ""


def nodes_of(event: k.Event, state: State) -> tuple[str, ...]:
    """The nodes that an event concerns. `state` is as before the event."""
    if k.seen_or_gone(event, k.NodeSeen):
        return (event.name,)
    if isinstance(event, k.PodSeen):
        return (event.node,) if event.node else ()
    if k.is_gone(event, k.Watched.POD):
        pod = state.pods.get(event.uid)
        return (pod.node,) if pod is not None and pod.node else ()
    if isinstance(event, k.Preempted):
        lost = [pods.node for victim in event.victims for pods in victim.pods]
        return tuple(dict.fromkeys([*nodes_of(event.placed, state), *lost]))
    if isinstance(event, k.Placed):
        return tuple(dict.fromkeys(placed.node for placed in event.pods))
    return ()


def pods_text(
    pods: tuple[PlacedPods, ...], spec: JobSpec | None, names: Mapping[tuple[int, int], str] = MappingProxyType({})
) -> str:
    """The nodes with their pods in words: "n1: learner, actors 0-3; n2: actors 4". `names` are those of the pods of
    others, by slot."""
    by_node: dict[str, list[str]] = {}
    named = {slot: node for slot, node in expand(pods).items() if slot in names}
    for slot, node in named.items():
        by_node.setdefault(node, []).append(names[slot])
    for placed in pods if not named else ():
        known = spec is not None and placed.group < len(spec.groups)
        name = spec.groups[placed.group].name if spec is not None and known else f"group {placed.group}"
        numbers = ",".join(f"{a}-{b}" if a != b else str(a) for a, b in placed.indices)
        by_node.setdefault(placed.node, []).append(name if placed.group == LEADER_GROUP else f"{name} {numbers}")
    return "; ".join(f"{node}: {', '.join(parts)}" for node, parts in by_node.items())


def names_of(job: JobRecord | None) -> tuple[JobSpec | None, Mapping[tuple[int, int], str]]:
    """The names of a job's sets, and of the pods of others in its slots."""
    return (job.spec, job.slots.names) if job is not None else (None, {})


def amounts_text(amounts: tuple[tuple[str, int], ...]) -> str:
    """Amounts of resources in words: "2 cpu, 4Gi memory"."""
    return ", ".join(f"{amount_text(resource, value)} {resource}" for resource, value in amounts)


def describe(event: k.Event, state: State) -> str:
    """An event's content in one line, without its subject. `state` is as before or after the event."""
    words = _WORDS.get(type(event))
    return words(event, state) if words is not None else ""


def what_it_was(event: k.Event, state: State) -> str:
    """The last known description of a deleted pod, node or job; empty for other events. `state` is as before."""
    if k.is_gone(event, k.Watched.POD) and event.uid in state.pods:
        return describe(state.pods[event.uid], state)
    if k.is_gone(event, k.Watched.JOB) and event.uid in state.jobs:
        return str(state.jobs[event.uid].stage)
    facts = state.nodes.facts_of(event.name) if k.is_gone(event, k.Watched.NODE) else None
    return _facts(facts) if facts is not None else ""


def _facts(facts: NodeFacts) -> str:
    health = ["ready" if facts.ready else "not ready", *(["cordoned"] if facts.cordoned else [])]
    health += [f"taint {taint_text(taint)}" for taint in facts.taints]
    return f"{', '.join(health)}; {amounts_text(facts.allocatable)}"


def _pod_seen(event: k.PodSeen, _state: State) -> str:
    parts = [event.phase + (f" on {event.node}" if event.node else "")]
    parts += [word for word, true in (("ready", event.ready), ("being deleted", event.deleting)) if true]
    running = event.phase != Phase.FAILED and event.restarts
    after = f" after {failure_text(event.ended, '')}" if running and event.ended is not None else ""
    parts += [f"restarted {counted(event.restarts, 'time')}{after}"] if event.restarts else []
    # Kubernetes gives both times in whole seconds. If a pod ended in the second of its deletion request, the order is
    # unknown.
    reason = "told to terminate before it ended, or in the same second" if event.reason == STOPPED else event.reason
    reason = failure_text(event.ended, reason) if event.phase == Phase.FAILED else reason
    parts += [text for text in (event.waiting, reason, event.message, _checkpoint(event), _asks(event)) if text]
    return ", ".join(parts)


def _of_group(asked: GroupAsked) -> str:
    if asked.kind:
        return f"PodGroup {asked.name} of {asked.kind}"
    return f"group {asked.name} of at least {counted(asked.min_count, 'pod')}"


def _asks(event: k.PodSeen) -> str:
    """What a pod asks for that is to be placed, until it has a node."""
    asks = event.asks
    if asks is None or event.node:
        return ""
    more = f"; gated by {', '.join(asks.gates)}" if asks.gates else ""
    claims = [claim or entry for entry, claim in asks.shape.claims.devices] if asks.shape.claims is not None else []
    more += f"; with the resource claims {', '.join([*asks.claims, *claims])}" if asks.claims or claims else ""
    if asks.group is not None:
        more += f"; in the {_of_group(asks.group)}"
    return f"to be placed with priority {asks.priority}: {amounts_text(asks.shape.requests) or 'no requests'}{more}"


def _checkpoint(event: k.PodSeen | k.JobSeen) -> str:
    return f"last checkpoint {rfc3339(event.checkpoint_ms)}" if event.checkpoint_ms else ""


def _job_seen(event: k.JobSeen, _state: State) -> str:
    if event.spec is None:
        return f"invalid: {faults_text(event.faults)}"
    spec = event.spec
    of_sets = [f", {group.min_count} of {group.name}" for group in spec.groups if group.min_count]
    workers = f"{counted(spec.total_workers, 'worker')} (at least {spec.min_workers}{''.join(of_sets)})"
    of_class = f"of class {spec.priority_class}" if spec.priority_class else spec.priority
    parts = [f"priority {of_class}, {'leader and ' if spec.has_leader else ''}{workers}"]
    parts += [f"after {', '.join(of.name for of in spec.after)}"] if spec.after else []
    parts += [f"queue {spec.queue}"] if spec.queue else []
    words = (
        ("not preemptible", not spec.preemptible),
        ("terminating", spec.terminating),
        ("suspended", spec.suspend),
        ("being deleted", event.deleting),
    )
    parts += [word for word, true in words if true]
    parts += [_checkpoint(event)] if event.checkpoint_ms else []
    parts += [f"permitted: {', '.join(event.permits)}"] if event.permits else []
    return ", ".join(parts)


def _quota_seen(event: k.QuotaSeen, _state: State) -> str:
    used = dict(event.used)
    parts = [_of_quota(name, used.get(name), hard) for name, hard in event.hard]
    of = [f"{scope.name} {scope.operator} {','.join(scope.values)}".strip() for scope in event.scopes]
    return ", ".join(parts or ["no limits for pods"]) + (f"; of pods: {', '.join(of)}" if of else "")


def _of_quota(name: str, used: int | None, hard: int) -> str:
    told = quantity(unit_of(name), used) if used is not None else "an unknown amount"
    return f"{name} {told} of {quantity(unit_of(name), hard)} used"


def _queue_seen(event: k.QueueSeen, _state: State) -> str:
    spec = event.spec
    if spec is None:
        return f"invalid: {faults_text(event.faults)}"
    amounts = (("guarantee", spec.guarantee), ("deserved", spec.deserved), ("capability", spec.capability))
    parts = [str(spec.state), *([f"below {spec.parent}"] if spec.parent else []), f"weight {spec.weight}"]
    said = [*((name, amounts_text(of)) for name, of in amounts if of), *other_fields(spec).items()]
    return ", ".join(parts) + "".join(f"; {name} {text}" for name, text in said)


def _namespace_seen(event: k.NamespaceSeen, _state: State) -> str:
    of_queue = f"; queue {event.queue}" if event.queue else ""
    return (", ".join(f"{key}={value}" for key, value in event.labels) or "no labels") + of_queue


def _pod_group_seen(event: k.PodGroupSeen, _state: State) -> str:
    facts = event.facts
    parts = [f"of {event.group_kind}: needs {counted(facts.min_count, 'pod')} at once"]
    parts += [f"queue {facts.queue}"] if facts.queue else []
    parts += [f"PriorityClass {facts.priority_class}"] if facts.priority_class else []
    parts += [f"priority {facts.priority}"] if facts.priority is not None else []
    parts += [f"all on nodes with the same {facts.topology}"] if facts.topology else []
    parts += [f"{least} of its task {task}" for task, least in facts.tasks]
    parts += [f"{amounts_text(facts.min_resources)} free"] if facts.min_resources else []
    parts += [f"room reserved for {facts.schedule_timeout_s} s at most"] if facts.schedule_timeout_s else []
    if event.phase:
        parts.append(f"phase {event.phase}" if event.group_kind == GroupKind.VOLCANO else f"scheduled: {event.phase}")
    return ", ".join(parts)


def _provisioning_seen(event: k.ProvisioningSeen, _state: State) -> str:
    said = f": {event.message}" if event.message else ""
    return f"class {event.class_name}, {event.answer or 'no answer yet'}{said}"


def _nodes_requested(event: k.NodesRequested, state: State) -> str:
    job = state.jobs.get(event.job_uid)
    groups = job.spec.groups if job is not None and job.spec is not None else ()
    names = [groups[of.group].name if of.group < len(groups) else f"group {of.group}" for of in event.pods]
    pods = ", ".join(f"{of.count} {name}" for of, name in zip(event.pods, names, strict=True))
    way = f"of class {event.class_name}" if event.how == Provisioning.REQUEST else "by placeholders"
    return f"request {event.number} to an autoscaler, {way}: nodes for {pods}"


def _placed(event: k.Placed, state: State) -> str:
    job = state.jobs.get(event.job_uid)
    pods = pods_text(event.pods, *names_of(job))
    return f"{event.schedule_state}: {counted(len(expand(event.pods)), 'pod')}: {pods}{decided_text(event.devices)}"


def _preempted(event: k.Preempted, state: State) -> str:
    return f"{_placed(event.placed, state)}; room from {'; '.join(room_from(event, state))}"


def room_from(event: k.Preempted, state: State) -> tuple[str, ...]:
    """The jobs that give room, in words."""
    return tuple(_victim(victim, state) for victim in event.victims)


def room_given(event: k.Preempted, uid: str, state: State) -> str:
    """What a preemption takes from the victim with this UID, and for which job, in words."""
    victim = next(one for one in event.victims if one.job_uid == uid)
    other, own = (state.jobs[one].spec if one in state.jobs else None for one in (event.placed.job_uid, uid))
    why = ""
    if victim.kind == PreemptionKind.RECLAIM:
        why = ", whose queue takes back its share"
    elif other and own:
        why = f" (priority {other.priority}, its own is {own.priority})"
    return f"gives room to {_name(event.placed.job_uid, state)}{why}: {_lost(victim)}"


def _reserved(event: k.Reserved, state: State) -> str:
    if not event.pods:
        return "its reservation ends"
    job = state.jobs.get(event.job_uid)
    at = f"at {rfc3339(event.start_ms)}" if event.start_ms else "at an unknown time"
    outlived = ", ".join(_name(uid, state) for uid in event.outlived)
    moved = f"; ran for longer than expected: {outlived}" if outlived else ""
    awaits = ", ".join(_name(uid, state) for uid in event.awaits)
    after = f", after the end of {awaits}" if awaits else ""
    return f"{pods_text(event.pods, *names_of(job))}, {at}{after}{moved}"


def _limit_kept(event: k.LimitKept, state: State) -> str:
    if event.limit is None:
        return "no limit is kept for it any more"
    at = f"enough is left at {rfc3339(event.start_ms)}" if event.start_ms else "enough is left at an unknown time"
    awaits = ", ".join(_name(uid, state) for uid in event.awaits)
    return f"{limit_name_text(event.limit)} is kept for it; {at}{f', after the end of {awaits}' if awaits else ''}"


def _start_forecast(event: k.StartForecast, _: State) -> str:
    at = f"starts at {rfc3339(event.expected_ms)}" if event.expected_ms else "starts at an unknown time"
    earliest = rfc3339(event.earliest_ms) if event.earliest_ms else "an unknown time"
    latest = rfc3339(event.latest_ms) if event.latest_ms else "an unknown time"
    return f"{at}{' (a guess)' if event.guess else ''}, likely from {earliest} to {latest}"


def _name(uid: str, state: State) -> str:
    job = state.jobs.get(uid)
    return f"{job.seen.namespace}/{job.seen.name}" if job is not None else uid


def _victim(victim: Victim, state: State) -> str:
    return f"{_name(victim.job_uid, state)} ({_lost(victim)})"


def _lost(victim: Victim) -> str:
    pods = counted(len(expand(victim.pods)), "pod")
    return f"{victim.kind}, {pods}, {victim.lost_ms / 1000:g} GPU seconds of work lost"


def _of_cluster(uid: str) -> str:
    return f" (Kubernetes cluster {uid})" if uid else ""


def _workers_replaced(event: k.WorkersReplaced, state: State) -> str:
    job = state.jobs.get(event.job_uid)
    return replaced_text(event.causes, *names_of(job)) + _back_off(event)


def _searched(event: k.CycleTaken) -> str:
    return f"; {counted(event.search_steps, 'step')} of complete searches" if event.search_steps else ""


def _back_off(event: k.StageDecided | k.WorkersReplaced) -> str:
    return f"; no nodes for {event.back_off_ms / 1000:g} s" if event.back_off_ms else ""


def _of_kind(kind: k.Watched) -> str:
    """What distinguishes kinds of the same name in words."""
    return f"of {k.GROUP_KINDS[kind]}: " if kind in k.GROUP_KINDS else ""


def _limit_range(event: k.LimitRangeSeen, _state: State | None) -> str:
    added = event.defaults.requests
    return f"containers request {amounts_text(added)} by default" if added else "adds no requests to containers"


def _runtime_class(event: k.RuntimeClassSeen, _state: State | None) -> str:
    needs = event.needs
    parts = [f"adds {amounts_text(needs.overhead)} to pods"] if needs.overhead else []
    parts += (
        [f"nodes with {', '.join(f'{key}={value}' for key, value in needs.node_selector)}"]
        if needs.node_selector
        else []
    )
    parts += [counted(len(needs.tolerations), "toleration")] if needs.tolerations else []
    return "; ".join(parts) or "adds nothing to pods"


_WORDS: dict[type, Any] = {
    **dict.fromkeys(k.SEEN.values(), lambda _event, _state: "is there"),
    k.EpochBegun: lambda event, _: f"epoch {event.epoch}: {event.reason}{_of_cluster(event.cluster)}",
    k.WatchClaimed: lambda event, _: f"{event.watcher} watches{_of_cluster(event.cluster)}",
    k.ListingBegun: lambda event, _: "a listing of all of them begins",
    k.ListingEnded: lambda event, _: f"at resourceVersion {event.resource_version}",
    k.WatchHeard: lambda event, _: f"all changes until {rfc3339(event.until_ms)} are known",
    k.NodeSeen: lambda event, _: _facts(event.facts),
    k.PodSeen: _pod_seen,
    k.JobSeen: _job_seen,
    k.QuotaSeen: _quota_seen,
    k.PriorityClassSeen: lambda event, _: f"value {event.value}",
    k.LimitRangeSeen: _limit_range,
    k.RuntimeClassSeen: _runtime_class,
    k.QueueSeen: _queue_seen,
    k.NamespaceSeen: _namespace_seen,
    k.PodGroupSeen: _pod_group_seen,
    k.ObjectGone: lambda event, _: f"{_of_kind(event.kind)}gone",
    **WORDS_OF_VOLUMES,
    **WORDS_OF_DEVICES,
    k.ProvisioningSeen: _provisioning_seen,
    k.NodesRequested: _nodes_requested,
    k.WatchRefused: lambda event, _: f"{event.kind}: the API server refuses it ({event.code})",
    k.CycleTaken: lambda event, _: f"on the state at offset {event.base}{_searched(event)}",
    k.Placed: _placed,
    k.Preempted: _preempted,
    k.Reserved: _reserved,
    k.LimitKept: _limit_kept,
    k.StartForecast: _start_forecast,
    k.Waits: lambda event, _: f"{event.schedule_state}: {shortage_text(event.shortage)}",
    k.StageDecided: lambda event, _: f"to {event.stage} ({event.reason}): {stage_text(event)}{_back_off(event)}",
    k.WorkersReplaced: _workers_replaced,
    k.PodsTried: lambda event, _: (
        f"the API server refuses a pod: {event.code} {event.reason}: {event.message}"
        if event.slot is not None
        else "the API server takes the pods"
    ),
    k.EffectFailed: lambda event, _: (
        f"{event.effect}: {event.code} {event.reason}{', permanently' if event.permanent else ''}: {event.message}"
    ),
}


_PLAIN = frozenset({str, int, bool, float, type(None)})


def as_object(value: Any) -> Any:
    """The value with all nested structs as objects with field names, ready for JSON."""
    # Most values are plain, and a call for each of them would take half of the time.
    if isinstance(value, msgspec.Struct):
        fields = [(name, getattr(value, name)) for name in value.__struct_fields__]
        return {name: of if type(of) in _PLAIN else as_object(of) for name, of in fields}
    if isinstance(value, (list, tuple)):
        return [of if type(of) in _PLAIN else as_object(of) for of in value]
    if isinstance(value, Mapping):
        return {key: as_object(item) for key, item in value.items()}
    return value
