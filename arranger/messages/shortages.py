"""Why pods have no nodes: reasons of single nodes, nodes counted by reason, and a cycle's result for a job."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from arranger.events.facts import BeyondLimit, LackOfNodes, LevelLack, Objected, Objection, ShortageFacts, UnitLack
from arranger.model.job import TopologyScope
from arranger.model.near_names import did_you_mean
from arranger.model.pod import PodShape, Requirement
from arranger.model.quantity import amount_text
from arranger.model.quota import LimitKind, LimitName, QuotaLack, unit_of
from arranger.model.reasons import Reason, ReasonCounts, ReasonKind, beyond_quota, similar_resource
from arranger.model.taints import taint_text
from arranger.model.text import counted
from arranger.projections.jobs.records import JobRecord

_HOSTNAME = "kubernetes.io/hostname"


def waits_text(job: JobRecord) -> str:
    """Why a job, or the rest of it, waits for nodes as recorded last; empty if nothing is recorded."""
    if job.waits is None:
        return ""
    shortage, groups = job.waits.shortage, job.spec.groups if job.spec is not None else ()
    group = shortage.group if isinstance(shortage, LackOfNodes) else ""
    if shortage.further:
        lacking = _lacking(job, group)
        if 0 < lacking < shortage.asked - shortage.found:  # some of them got nodes since, the rest didn't
            shortage = msgspec.structs.replace(shortage, found=0, asked=lacking)
    if isinstance(shortage, LackOfNodes):
        shortage = msgspec.structs.replace(shortage, group=set_text(job, group))
    elif isinstance(shortage, BeyondLimit) and shortage.nodes is not None:
        group = shortage.nodes.group
        nodes = msgspec.structs.replace(shortage.nodes, group=set_text(job, group))
        shortage = msgspec.structs.replace(shortage, nodes=nodes)
    return shortage_text(shortage, next((of.shape for of in groups if of.name == group), None))


def set_text(job: JobRecord, worker_set: str) -> str:
    """The name of a worker set. The pods of others have none that people know: "p0 and 2 like it", by those that lack
    nodes."""
    if not job.of_group or job.spec is None:
        return worker_set
    alike = [number for number, of in enumerate(job.spec.groups) if of.name == worker_set]
    over = job.provided | job.slots.given_up.keys()
    names = [name for slot, name in sorted(job.slots.names.items()) if slot[0] in alike and slot not in over]
    if not names:
        return worker_set
    return names[0] + (f" and {len(names) - 1} like it" if names[1:] else "")


def _lacking(job: JobRecord, worker_set: str) -> int:
    """How many pods of a worker set have no node; of the whole job if no set is named."""
    left = job.provided | job.slots.given_up.keys()
    if not worker_set:
        return sum(group.count for group in job.valid_spec.groups) - len(left)
    sets = [(number, group.count) for number, group in enumerate(job.valid_spec.groups) if group.name == worker_set]
    return sum(count - sum(of == number for of, _ in left) for number, count in sets)


def selector_text(shape: PodShape) -> str:
    """A pod's nodeSelector in words: "gpu-type=h100,zone=a"."""
    return ",".join(f"{key}={value}" for key, value in shape.node_selector)


def affinity_text(shape: PodShape) -> str:
    """A pod's required node affinity in words: "zone In a,b and gpu Exists, or pool In rl". Of more than four terms,
    requirements or values, three are named."""
    terms = [_few([_requirement_text(one) for one in term], " and ") for term in shape.required_terms or ()]
    return _few(terms, ", or ")


def _requirement_text(one: Requirement) -> str:
    return f"{one.key} {one.operator} {_few(one.values, ',')}".rstrip()


def _few(parts: Sequence[str], joint: str) -> str:
    more = f"{' and ' if joint == ',' else joint}{len(parts) - 3} more" if len(parts) > 4 else ""
    return joint.join(parts[:3] if more else parts) + more


def shortage_text(facts: ShortageFacts, shape: PodShape | None = None) -> str:
    """Why pods have no nodes; `shape` is that of the next one if known."""
    of = facts.group if isinstance(facts, LackOfNodes) else ""
    head = fits_text(facts.found, facts.asked, further=facts.further, of=of, searched=facts.searched)
    head = f"{never_text(infeasible=facts.infeasible)}{head}"
    match facts:
        case Objected(objection=objection):
            return f"{head}; {objection_text(objection)}"
        case BeyondLimit(quota=quota):
            return f"{head}; {quota_text(quota, kept=bool(facts.kept_by))}{beside_limit_text(facts.nodes, shape)}"
    tail = no_guest_text(no_guest=facts.no_guest, leaves_late=facts.leaves_late)
    nodes = nodes_text(facts.group, facts.reasons, alone=facts.topology is not None, shape=shape)
    if facts.topology is None:
        return f"{head}; {beside_text(facts.found)}{nodes}{tail}"
    return f"{head}; {domains_text(facts.topology, facts.group, nodes, own=facts.found, further=facts.further)}{tail}"


def beside_limit_text(nodes: LackOfNodes | None, shape: PodShape | None = None) -> str:
    """That the nodes have too little as well for a job that a limit keeps waiting, and why; empty if they don't."""
    return f"; nodes have too little as well: {shortage_text(nodes, shape)}" if nodes is not None else ""


def never_text(*, infeasible: bool) -> str:
    """What the numbers of an infeasible job are about."""
    return "even an empty cluster of these nodes can't hold it: " if infeasible else ""


def beside_text(own: int, others: int = 0) -> str:
    """The pods that the next one was tried beside: what they use isn't free for it. `own` are of its job, `others` of
    other jobs."""
    parts = [("it" if own == 1 else "them")] if own else []
    parts += [f"{counted(others, 'pod')} of other jobs that get nodes first"] if others else []
    return f"beside {' and '.join(parts)}, " if parts else ""


def no_guest_text(*, no_guest: bool, leaves_late: bool) -> str:
    """Why a job doesn't use reserved room as others may."""
    late = "that is needed before its grace period would be over" if leaves_late else ""
    why = "it isn't preemptible" if no_guest else late
    return f"; it can't be a guest in reserved room, because {why}" if why else ""


def objection_text(objection: Objection) -> str:
    """Why a plugin keeps a quorum from its nodes, and for how long room is kept for it."""
    if not objection.since_ms:
        return f"refused by {objection.plugin}: {objection.words}"
    held = f"held back by {objection.plugin}: {objection.words}"
    if objection.over and objection.until_ms > objection.since_ms:
        return f"{held}; its time is over, so no room is kept for it"
    return f"{held}; {'its room is kept' if objection.pods else 'no room is kept'} meanwhile"


def fits_text(found: int, asked: int, *, further: bool, of: str = "", searched: int = 0) -> str:
    """How many of the pods fit; further ones are counted by worker set, and are `of` that one. A search that ended
    after `searched` steps proves nothing about the others."""
    if searched:
        steps = counted(searched, "step")
        return f"{found} of {asked} required pods found nodes; nodes for all of them were not found within {steps}"
    if not further:
        return f"{found} of {asked} required pods fit"
    return f"{found} of {asked} further pods {f'of {of} ' if of else ''}fit"


def counted_of(worker_set: str, quota: QuotaLack | None) -> str:
    """The worker set whose further pods are counted where one of it finds no node; empty for all of the job: none gets
    nodes in a queue with as many running jobs as it may have."""
    return "" if quota is not None and quota.limit == LimitKind.MAX_RUNNING else worker_set


def nodes_text(worker_set: str, reasons: ReasonCounts, *, alone: bool = False, shape: PodShape | None = None) -> str:
    """How many nodes fit the next pod of a worker set; `alone`: by itself, because no domain fits all of its unit."""
    return f"{f'for one pod of {worker_set} alone,' if alone else f'{worker_set}:'} {counts_text(reasons, shape)}"


def unit_text(lack: UnitLack, worker_set: str) -> str:
    """Why no domain takes the pods of a unit of a topology: "no rack takes all 4 pods of group 0 of actors (8 racks, at
    most 3 fit)"."""
    units = {
        TopologyScope.JOB: "the job",
        TopologyScope.SET: worker_set,
        TopologyScope.GROUP: f"group {lack.number} of {worker_set}",
    }
    of, pods = units[lack.within], counted(lack.pods, "pod")
    if lack.beside:
        their, have = ("its", "has a node") if lack.beside == 1 else ("their", "have nodes")
        found = ", ".join(f"{level.most} in {their} {_topology(level.key)}" for level in lack.levels if level.domains)
        beside = f"{pods} of {of} must join the {counted(lack.beside, 'pod')} that {have}"
        return f"{beside}: {found} fit" if found else f"{beside}, which are in no domain together"
    found = ", ".join(_level(level) for level in lack.levels)
    keys = " or ".join(_topology(level.key) for level in lack.levels)
    return f"no {keys} takes all {pods} of {of} ({found})"


def domains_text(
    lack: UnitLack, worker_set: str, nodes: str, *, own: int, others: int = 0, further: bool = False
) -> str:
    """Why no domain takes the pods of a unit, and which `nodes` one pod finds, with the pods beside which each was
    tried (`own` and `others` as in `beside_text`): a group beside all of them; a set, some pods of which may fit,
    without its own; a whole job beside none of its own, unless they are `further` ones."""
    before = own if lack.within == TopologyScope.GROUP else 0
    after = own if lack.within == TopologyScope.SET or (further and not before) else 0
    unit = f"{beside_text(before, others)}{unit_text(lack, worker_set)}"
    return f"{unit}; {beside_text(after, others) if after else ''}{nodes}"


def _level(level: LevelLack) -> str:
    if not level.domains:
        return f"no node has the label {level.key}"
    return f"{counted(level.domains, _topology(level.key))}, at most {level.most} fit"


def counts_text(reasons: ReasonCounts, shape: PodShape | None = None) -> str:
    """How many nodes fit the next pod, and the others by reason."""
    if not reasons:
        return "there are no nodes"
    nodes = sum(count for _, count in reasons)
    fit = sum(count for reason, count in reasons if reason.kind == ReasonKind.FITS)
    others = ", ".join(
        f"{count} {reason_text(reason, shape)}" for reason, count in reasons if reason.kind != ReasonKind.FITS
    )
    return f"{fit} of {nodes} nodes fit" + (f": {others}" if others else "")


def reason_text(reason: Reason, shape: PodShape | None = None) -> str:
    """One reason for a number of nodes; `shape` is the pod's if known."""
    if reason.kind == ReasonKind.INSUFFICIENT:
        return _insufficient(reason, "at most ")
    return node_text(reason, shape)


def node_text(reason: Reason, shape: PodShape | None = None) -> str:
    """One reason for one node, with the pod's selector or affinity where that is it."""
    words = _WORDS[reason.kind](reason)
    selects = _SELECTS.get(reason.kind) if shape is not None else None
    return f"{words} ({said})" if selects is not None and shape is not None and (said := selects(shape)) else words


def kind_text(reason: Reason) -> str:
    """A reason without its numbers."""
    if reason.absent:
        similar = f"; some have {reason.of}" if reason.of else ""
        return f"without {reason.name}, which no node has{similar}"
    if reason.kind == ReasonKind.INSUFFICIENT:
        return f"insufficient {reason.name}"
    if (words := _OF_LIMITS.get(reason.kind)) is not None:
        return words.format(**{name: getattr(reason, name) for name in ("quota", "queue", "name")})
    return node_text(reason)


def meant_text(unknown: Iterable[str], known: Collection[str]) -> str:
    """The known resources that are similar to unknown ones, as a question in brackets; empty if none is."""
    meant = sorted({found for name in unknown if (found := similar_resource(name, known))})
    return f" ({did_you_mean(meant)})" if meant else ""


def quota_text(lack: QuotaLack, *, kept: bool = False) -> str:
    """What a quota or a queue lacks, whether an empty one would have enough, and whether the rest is `kept` for
    others."""
    limit = amount_text(unit_of(lack.resource), lack.hard)
    never = f"; even an empty namespace can't hold it (hard {limit})" if not lack.queue else ""
    never = never or "; even an empty queue can't hold it"
    others = "; what is left is kept for a job ahead of it" if kept else ""
    return reason_text(beyond_quota(lack)) + (never if lack.never else "") + others


def limit_name_text(name: LimitName) -> str:
    """A limit of a queue, or of what queues share: "nvidia.com/gpu of the capability of queue team-a"."""
    if name.limit == LimitKind.MAX_RUNNING:
        return f"one of the jobs that may run in queue {name.queue}"
    if name.limit == LimitKind.GUARANTEES:
        return f"{name.resource} beside the guarantees of other queues"
    if name.limit == LimitKind.NON_PREEMPTIBLE:
        return f"{name.resource} for jobs that can't be preempted of what queue {name.queue} deserves"
    return f"{name.resource} of the capability of queue {name.queue}"


def _insufficient(reason: Reason, most: str = "") -> str:
    if reason.absent:
        return kind_text(reason)
    needed, free = amount_text(reason.name, reason.needed), amount_text(reason.name, reason.free)
    return f"{kind_text(reason)} (needs {needed}, {most}{free} free)"


def _quota(reason: Reason) -> str:
    unit = unit_of(reason.name)
    needed, left = amount_text(unit, reason.needed), amount_text(unit, reason.free)
    return f"{kind_text(reason)} (needs {needed}, {left} left)"


def _capability(reason: Reason) -> str:
    needed, left, limit = (amount_text(reason.name, of) for of in (reason.needed, reason.free, reason.limit))
    return f"{kind_text(reason)} (needs {needed}, {left} left of its capability {limit})"


def _non_preemptible(reason: Reason) -> str:
    needed, left, limit = (amount_text(reason.name, of) for of in (reason.needed, reason.free, reason.limit))
    amounts = f"needs {needed}, {left} left of its deserved {limit}"
    return f"{kind_text(reason)} ({amounts}: its nonPreemptible is WithinDeserved)"


def _guarantees(reason: Reason) -> str:
    needed, left, limit = (amount_text(reason.name, of) for of in (reason.needed, reason.free, reason.limit))
    whose = f"the capability {limit} of queue {reason.queue}" if reason.queue else f"the {limit} that the nodes offer"
    return f"{kind_text(reason)} (needs {needed}, {left} left of {whose})"


def _taint(reason: Reason) -> str:
    return f"taint {taint_text(reason.taint)} not tolerated" if reason.taint is not None else "a taint not tolerated"


def _host_port(reason: Reason) -> str:
    protocol = "" if reason.name == "TCP" else f"/{reason.name}"
    return f"host port {reason.needed}{protocol} taken"


def _topology(key: str) -> str:
    return "node" if key == _HOSTNAME else key.rpartition("/")[2]


def _same(key: str) -> str:
    return f"{'on' if key == _HOSTNAME else 'in'} the same {_topology(key)} as"


_K = ReasonKind
_SELECTS: Mapping[ReasonKind, Callable[[PodShape], str]] = MappingProxyType(
    {_K.NODE_SELECTOR: selector_text, _K.NODE_AFFINITY: affinity_text}
)
_OF_LIMITS: Mapping[ReasonKind, str] = MappingProxyType(
    {
        _K.QUOTA: "quota {quota} has too little {name}",
        _K.CAPABILITY: "queue {queue} has too little {name}",
        _K.GUARANTEES: "the guarantees of other queues leave too little {name}",
        _K.MAX_RUNNING: "queue {queue} has as many jobs with nodes as its maxRunning",
        _K.MAX_WAITING: "queue {queue} has as many earlier waiting jobs as its maxWaiting",
        _K.NON_PREEMPTIBLE: "queue {queue} has too little {name} for jobs that can't be preempted",
        _K.MIN_RESOURCES: "all nodes together have less {name} free than the minResources of its group",
    }
)
_CLAIMS: Mapping[ReasonKind, str] = MappingProxyType(
    {
        _K.CLAIM_MISSING: "claim {name} doesn't exist: create it",
        _K.CLAIM_DELETING: "claim {name} is being deleted",
        _K.CLAIM_LOST: "claim {name} has lost its volume {of}",
        _K.CLAIM_UNBOUND: "claim {name} has no volume yet, and its binding doesn't wait for a pod",
        _K.CLAIM_BINDING: "claim {name} is being bound to volume {of}",
        _K.CLAIM_IN_USE: "claim {name} is in use by another pod (ReadWriteOncePod)",
        _K.VOLUME_MISSING: "volume {of} of claim {name} doesn't exist",
        _K.CLASS_MISSING: "StorageClass {of} of claim {name} doesn't exist",
        _K.NO_PROVISIONER: "StorageClass {of} of claim {name} has no provisioner",
        _K.VOLUME_AFFINITY: "not reached by the volume of claim {name} (its node affinity)",
        _K.VOLUME_ZONE: "not in the zone of the volume of claim {name}",
        _K.CLASS_TOPOLOGY: "the volume of claim {name} can't be made there",
        _K.VOLUME_LIMIT: "attaches no more volumes of {name} (at most {needed})",
    }
)


_DEVICES: Mapping[ReasonKind, str] = MappingProxyType(
    {
        _K.RESOURCE_CLAIM_MISSING: "resource claim {name} doesn't exist: create it",
        _K.RESOURCE_CLAIM_NOT_MADE: "resource claim {name} hasn't been made from its template yet",
        _K.RESOURCE_CLAIM_DELETING: "resource claim {name} is being deleted",
        _K.RESOURCE_CLAIM_BEYOND: "resource claim {name} asks for more than Arranger allocates ({of})",
        _K.DEVICE_CLASS_MISSING: "DeviceClass {of} of resource claim {name} doesn't exist",
        _K.DEVICES_UNKNOWN: "the devices for resource claim {name} are unknown: the API server doesn't show {of}",
        _K.CLAIM_TEMPLATE_MISSING: "ResourceClaimTemplate {of} for resource claim {name} doesn't exist: create it",
        _K.DEVICES_OFF: "resource claim {name} gets no devices: the setting devices is off",
        _K.DEVICES_ELSEWHERE: "not reached by the devices of resource claim {name}",
    }
)


def _insufficient_devices(reason: Reason) -> str:
    of = f" of {reason.of}" if reason.of else ""
    return f"insufficient devices for resource claim {reason.name} (needs {reason.needed or 'all'}{of})"


def _claim(reason: Reason) -> str:
    words = _CLAIMS.get(reason.kind) or _DEVICES[reason.kind]
    return words.format(name=reason.name, of=reason.of, needed=reason.needed)


_WORDS: Mapping[ReasonKind, Callable[[Reason], str]] = MappingProxyType(
    {
        _K.NOT_READY: lambda _: "not ready",
        _K.CORDONED: lambda _: "cordoned",
        _K.TAINT: _taint,
        _K.NODE_SELECTOR: lambda _: "node selector doesn't match",
        _K.NODE_AFFINITY: lambda _: "required node affinity doesn't match",
        _K.REFUSED_RECENTLY: lambda _: "refused one of its pods recently",
        _K.FAILED_THERE: lambda _: "a worker of the set failed there repeatedly",
        _K.HOST_PORT: _host_port,
        _K.NO_AFFINITY_LABEL: lambda reason: f"no label {reason.name} (affinity)",
        _K.AFFINITY: lambda reason: f"not {_same(reason.name)} the pods it must join (affinity)",
        _K.ANTI_AFFINITY: lambda reason: f"{_same(reason.name)} pods it must avoid (anti-affinity)",
        _K.AVOIDED: lambda reason: f"{_same(reason.name)} pods that refuse it (anti-affinity)",
        _K.NO_SPREAD_LABEL: lambda reason: f"no label {reason.name} (topology spread)",
        _K.TOPOLOGY_SPREAD: lambda reason: (
            f"topology spread: {_topology(reason.name)} would exceed maxSkew {reason.needed}"
        ),
        **dict.fromkeys((*_CLAIMS, *_DEVICES), _claim),
        _K.INSUFFICIENT_DEVICES: _insufficient_devices,
        _K.INSUFFICIENT: _insufficient,
        _K.QUOTA: _quota,
        _K.CAPABILITY: _capability,
        _K.GUARANTEES: _guarantees,
        _K.MAX_RUNNING: lambda reason: f"{kind_text(reason)} ({reason.limit})",
        _K.MAX_WAITING: lambda reason: f"{kind_text(reason)} ({reason.limit})",
        _K.NON_PREEMPTIBLE: _non_preemptible,
        _K.GROUP_CHECK: lambda reason: f"refused by {reason.name}: {reason.words}",
        _K.PERMIT: lambda reason: f"held back by {reason.name}: {reason.words}",
        _K.MIN_RESOURCES: _insufficient,
        _K.RESERVED: lambda _: "reserved for a job ahead of it",
        _K.OTHER_DOMAIN: lambda _: "not in the domain where the quorum fits",
        _K.REST_OF_QUORUM: lambda _: "kept for the rest of the quorum",
        _K.OTHER_TOPOLOGY: lambda reason: f"not in the {_topology(reason.name)} of the pods that it belongs to",
        _K.NO_TOPOLOGY_LABEL: lambda reason: f"no label {reason.name} (topology)",
        _K.FITS: lambda _: "fits",
        _K.OTHER: lambda reason: reason.words,
    }
)
