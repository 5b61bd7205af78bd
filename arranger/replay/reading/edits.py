"""The changes of an edit of a TYJob, a Queue or a namespace, in words."""

from collections.abc import Iterable, Iterator

from arranger.events import kinds as k
from arranger.model.fields import declared
from arranger.model.job import JobSpec, Rendezvous, RestartEvent, RestartPolicy, Topology
from arranger.model.queue import QueueSpec
from arranger.replay.reading.describe import amounts_text
from arranger.replay.reading.queue_fields import other_fields

_FIELDS = {
    **{each.attribute: each.name for each in declared(JobSpec)},
    "queue_policy": "queue policy",
    "pod_policy": "pod policy",
}


_Differences = Iterable[tuple[str, str, str]]


def told_from_before(before: JobSpec, after: JobSpec) -> str:
    """The spec without the edit, in words: "minWorkersNum 2 instead of 4"."""
    return _told_from_before(_of(before, after))


def changed(before: JobSpec, after: JobSpec) -> str:
    """The changes of the edit, in words: "minWorkersNum 4 → 2"."""
    return _changed(_of(before, after))


def queue_told_from_before(before: QueueSpec, after: QueueSpec) -> str:
    """The spec of the queue without the edit, in words: "weight 3 instead of 1"."""
    return _told_from_before(_of_queue(before, after))


def queue_changed(before: QueueSpec | None, after: QueueSpec | None) -> str:
    """The changes of the queue's edit, in words: "weight 1 → 3". None is an invalid spec."""
    if before is None or after is None:
        return "its spec was invalid" if before is None else "its spec is invalid"
    return _changed(_of_queue(before, after))


def namespace_told_from_before(before: k.NamespaceSeen, after: k.NamespaceSeen) -> str:
    """The namespace without the edit, in words: "labels team=rl instead of none"."""
    return _told_from_before(_of_namespace(before, after))


def namespace_changed(before: k.NamespaceSeen, after: k.NamespaceSeen) -> str:
    """The changes of the namespace's edit, in words: "labels none → team=rl"."""
    return _changed(_of_namespace(before, after))


def _told_from_before(differences: _Differences) -> str:
    said = [f"{what} {old} instead of {new}" if old else f"the former {what}" for what, old, new in differences]
    return ", ".join(said) or "the former spec"


def _changed(differences: _Differences) -> str:
    said = [f"{what} {old} → {new}" if old else f"other {what}" for what, old, new in differences]
    return ", ".join(said) or "its spec"


def shown(value: object) -> str:
    """A field's value in words."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if value not in ("", None) else "unset"


def _policy(policy: RestartPolicy) -> str:
    within = f" in {policy.window_s} s" if policy.window_s is not None else ""
    event = f", {policy.event}" if policy.event == RestartEvent.POD_ENDED else ""
    return f"{policy.scope}{event}, limit {policy.limit}{within}"


def _rendezvous(rendezvous: Rendezvous | None) -> str:
    if rendezvous is None:
        return "unset"
    return f"{rendezvous.scope}, port {rendezvous.port}{', members file' if rendezvous.members_file else ''}"


def _jobs(spec: JobSpec) -> str:
    return ", ".join(of.name for of in spec.after) or "unset"


def _topology(topology: Topology | None) -> str:
    if topology is None:
        return "unset"
    return f"{topology.mode} within {topology.within}, {', '.join(topology.levels)}"


def _of_queue(before: QueueSpec, after: QueueSpec) -> Iterator[tuple[str, str, str]]:
    for field in ("parent", "weight", "state"):
        old, new = getattr(before, field), getattr(after, field)
        if old != new:
            yield field, shown(old), shown(new)
    for field in ("guarantee", "deserved", "capability"):
        old, new = getattr(before, field), getattr(after, field)
        if old != new:
            yield field, amounts_text(old) or "unset", amounts_text(new) or "unset"
    others, now = other_fields(before), other_fields(after)
    for name in dict.fromkeys((*others, *now)):
        if others.get(name) != now.get(name):
            yield name, others.get(name, "unset"), now.get(name, "unset")


def _of_namespace(before: k.NamespaceSeen, after: k.NamespaceSeen) -> Iterator[tuple[str, str, str]]:
    labels = [", ".join(f"{key}={value}" for key, value in of.labels) or "none" for of in (before, after)]
    if before.labels != after.labels:
        yield "labels", labels[0], labels[1]
    if before.queue != after.queue:
        yield "queue", before.queue or "unset", after.queue or "unset"


def _of(before: JobSpec, after: JobSpec) -> Iterator[tuple[str, str, str]]:
    """Each difference: its field in words, and both values, empty if they are too long to show."""
    for field, words in _FIELDS.items():
        old, new = getattr(before, field), getattr(after, field)
        if old != new:
            yield words, shown(old), shown(new)
    if before.topology != after.topology:
        yield "topology", _topology(before.topology), _topology(after.topology)
    if before.image != after.image:
        yield "image", "", ""
    if before.success != after.success:
        yield "successPolicy", "", ""
    if [(of.name, of.on_failure) for of in before.after] != [(of.name, of.on_failure) for of in after.after]:
        yield "after", _jobs(before), _jobs(after)
    for number in range(min(len(before.groups), len(after.groups))):
        yield from _of_group(before, after, number)
    if len(before.groups) != len(after.groups):
        yield "worker sets", "", ""


def _of_group(before: JobSpec, after: JobSpec, number: int) -> Iterator[tuple[str, str, str]]:
    group, now = before.groups[number], after.groups[number]
    if group.count != now.count:
        yield f"{group.name} counts", str(group.count // group.group_size), str(now.count // now.group_size)
    if group.min_count != now.min_count:
        least, now_least = group.min_count // group.group_size, now.min_count // now.group_size
        yield f"{group.name} minCount", str(least), str(now_least)
    if group.grace_s != now.grace_s:
        yield f"{group.name} terminationGracePeriodSeconds", str(group.grace_s), str(now.grace_s)
    if group.group_size != now.group_size:
        yield f"{group.name} groupSize", str(group.group_size), str(now.group_size)
    policy, now_policy = _policy(before.restart_of(number)), _policy(after.restart_of(number))
    if policy != now_policy and before.restart_limit == after.restart_limit:
        yield f"{group.name} restart", policy, now_policy
    if group.start_after != now.start_after:
        yield f"{group.name} startAfter", "", ""
    if group.rendezvous != now.rendezvous:
        yield f"{group.name} rendezvous", _rendezvous(group.rendezvous), _rendezvous(now.rendezvous)
    if group.topology != now.topology:
        yield f"{group.name} topology", _topology(group.topology), _topology(now.topology)
    if group.shape.requests != now.shape.requests:
        yield f"{group.name} asks", amounts_text(group.shape.requests), amounts_text(now.shape.requests)
    elif group.shape != now.shape:
        yield f"pods of {group.name}", "", ""
