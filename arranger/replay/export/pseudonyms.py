"""A log without names: the names of nodes, pods, jobs, worker sets, namespaces, labels, addresses and processes become
pseudonyms such as `n-000123`, the same one for the same name. Free text is left out.

The order of names decides ties, so a pseudonym is the name's rank among all names of its sort. Cycles therefore give
equal plans, and `verify` passes. All names must be collected before the first is replaced. A pseudonym has no part of
its name; it only reveals the order of names and the sizes of groups. Users and namespaces are one sort, because a job
without a user counts as its namespace's, and either may be before the other.

The export keeps UIDs and resource versions, times, amounts, names of resources, Kubernetes' own label keys
(`*.kubernetes.io/…`), values that are numbers or booleans, and reasons of one CamelCase word. It also keeps a cycle's
reasons against nodes, with the names in them replaced. It leaves out the words of other programs and the messages of
statuses. Of the faults of a spec it keeps only the kinds. Every field with text needs a rule here: a field without a
rule is an error, not a leak.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from arranger.events import facts as f
from arranger.events import kinds as k
from arranger.events.log import EPOCH_WRITER
from arranger.model import faults as fa
from arranger.model import job as j
from arranger.model import node as n
from arranger.model import pod as p
from arranger.model import queue as qu
from arranger.model import quota as q
from arranger.model import reasons as r
from arranger.model.fields import ManifestField, NameOf
from arranger.model.names import (
    GROUP_PREFIX,
    JOB_LABEL,
    POD_PREFIX,
    ROLE_LABEL,
    USER_LABEL,
    WORKER_SET_LABEL,
    job_name,
    name_in_slot,
)
from arranger.model.pod import DISRUPTED, STOPPED
from arranger.model.pods_to_place import GROUP_NAME, group_kind, group_name, group_uid, pod_of, record_of
from arranger.model.queue import DEFAULT_QUEUE
from arranger.model.reasons import most_frequent_first
from arranger.projections.formats.pod_columns import PodColumns, columns_of, pods_in
from arranger.projections.jobs.parts import NOT_ITS_DOING, JobTimes, LeaderRecord, SetRecord, SlotTable, TakenRoom
from arranger.projections.jobs.records import JobRecord
from arranger.projections.jobs.run_times import JobKind
from arranger.projections.snapshot import DecayedImage, JobImage, NodeImage, StateImage
from arranger.projections.state import Assumed, NodesRequest
from arranger.replay.export import group_rules, volume_rules

LEFT_OUT = "(left out of this export)"

_HOSTNAME = "kubernetes.io/hostname"
#: The label of a namespace with its own name.
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_K = r.ReasonKind
_PUBLIC_KEY = re.compile(r"(arranger\.dev|([a-z0-9-]+\.)*(kubernetes|k8s)\.io)/.*")
_PLAIN_VALUE = re.compile(r"-?\d+|true|false|")
#: The names of groups of equal pods in the records of pods that no TYJob owns.
_EQUAL_PODS = re.compile(rf"{GROUP_NAME}(-\d+)?")
_WORD = re.compile(rf"({DISRUPTED}: )?[A-Z][A-Za-z0-9]{{0,63}}")
_ADDRESS = re.compile(r"[0-9.]+|[0-9a-f]*:[0-9a-f:.]*")
_ANY_ADDRESS = ("", "0.0.0.0", "127.0.0.1", "::", "::1")

#: Known reasons why a pod ended or can't start. Any other word could be from a program's last message.
_ENDED = re.compile(
    r"ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull|Error|OOMKilled|StartError|ContainerCannotRun|Preempting|OutOf(cpu|memory|pods)|"
    rf"{DISRUPTED}: (PreemptionByScheduler|DeletionByTaintManager|EvictionByEvictionAPI|DeletionByPodGC|"
    r"TerminationByKubelet)|" + "|".join(NOT_ITS_DOING)
)

#: Sort of name → prefix of its pseudonyms.
_SORTS = {
    **{kind.value: kind.value for kind in k.Watched},
    "node": "n",
    "pod": "p",
    "job": "j",
    "set": "s",
    "group": "g",
    "namespace": "ns",
    "key": "k",
    "value": "v",
    "member": "m",
    "resourcequota": "q",
    "priorityclass": "pc",
    "runtimeclass": "rt",
    "limitrange": "lr",
    "queue": "queue",
    "image": "i",
    **volume_rules.SORTS,
    "cluster": "c",
}


def _ranked(sort: str, names: list[str]) -> dict[str, str]:
    digits = max(4, len(str(len(names))))
    if sort == "address":
        return {name: _address(name, rank) for rank, name in enumerate(names, 1)}
    if sort == "queue":  # its place among the others stays
        before = {name: f"a-{_SORTS[sort]}" if name < DEFAULT_QUEUE else _SORTS[sort] for name in names}
        return {name: f"{before[name]}-{rank:0{digits}}" for rank, name in enumerate(names, 1)}
    return {name: f"{_SORTS[sort]}-{rank:0{digits}}" for rank, name in enumerate(names, 1)}


def _address(name: str, rank: int) -> str:
    if _ADDRESS.fullmatch(name):
        return f"10.{rank >> 16 & 255}.{rank >> 8 & 255}.{rank & 255}"
    return f"address-{rank:04}"


class Pseudonyms:
    """Replaces names in batches and snapshots. Pass all parts once to collect their names, call `begin`, and pass all
    parts again to replace the names."""

    def __init__(self) -> None:
        #: All names by their sort, and after `begin` the pseudonym of each.
        self._seen: dict[str, dict[str, None]] = {}
        self._pseudonyms: dict[str, dict[str, str]] | None = None
        #: Pod UID → its pseudonym, for the event of its deletion.
        self._pods: dict[str, str] = {}
        #: Part that many events share → the same part without names.
        self._known: dict[Any, Any] = {}

    def begin(self) -> None:
        """End the collection. From now on names are replaced; the caller starts at the first batch again."""
        self._pseudonyms = {sort: _ranked(sort, sorted(names)) for sort, names in self._seen.items()}
        self._pods.clear()
        self._known.clear()

    def batch(self, batch: k.Batch) -> k.Batch:
        events = tuple(self.walk(event) for event in batch.events)
        return k.Batch(self.writer(batch.writer), batch.seq, batch.time_ms, events)

    def walk(self, value: Any) -> Any:
        """Any part of an event or a snapshot, without names. Raises `TypeError` for text without a rule."""
        kind = type(value)
        if value is None or kind in (int, bool, float) or isinstance(value, Enum):
            return value
        if kind in _SHARED:
            known = self._known.get(value)
            if known is None:
                known = self._known[value] = self._struct(value, kind)
            return known
        special = _SPECIAL.get(kind)
        if special is not None:
            return special(self, value)
        if kind in (tuple, list):
            return kind(self.walk(item) for item in value)
        if kind is dict:
            return {key: self.walk(item) for key, item in value.items()}
        return self._struct(value, kind)

    def _struct(self, value: Any, kind: type) -> Any:
        rules = rules_of(kind)
        if issubclass(kind, msgspec.Struct):
            names = kind.__struct_fields__
        elif dataclasses.is_dataclass(kind):
            names = tuple(field.name for field in dataclasses.fields(kind))
        else:
            raise TypeError(f"there is no rule for {kind.__name__} {value!r}")
        fields = {}
        for name in names:
            rule, part = rules.get(name), getattr(value, name)
            fields[name] = rule(self, part) if rule is not None else self.walk(part)
        return kind(**fields)

    # --- names of one sort ---------------------------------------------------------------------------------

    def name(self, sort: str, name: str) -> str:
        """The pseudonym of a name; before `begin`, the name itself. The empty name stays empty. The record of a pod
        that no TYJob owns has its pod's name."""
        if not name or (sort == "set" and _EQUAL_PODS.fullmatch(name)):
            return name
        if sort == "job" and name.startswith(POD_PREFIX):
            return record_of(self.name("pod", pod_of(name)))
        if sort == "job" and name.startswith(GROUP_PREFIX):
            return group_name(self.name("group", name.removeprefix(GROUP_PREFIX)))
        if self._pseudonyms is None:
            self._seen.setdefault(sort, {})[name] = None
            return name
        return self._pseudonyms[sort][name]

    def job_uid(self, uid: str) -> str:
        """The UID of a job. It says nothing, but that of the record of a group has its names."""
        if not uid.startswith(GROUP_PREFIX):
            return uid
        namespace, name = uid.removeprefix(GROUP_PREFIX).split("/")[:2]
        return group_uid(self.name("namespace", namespace), self.name("group", name), group_kind(uid))

    def queue(self, name: str) -> str:
        """The pseudonym of a queue. The queue `default` keeps its name, because it exists without being created."""
        return name if name == DEFAULT_QUEUE else self.name("queue", name)

    def writer(self, name: str) -> str:
        """The writer with its role kept and its process replaced."""
        role, at, member = name.partition("@")
        if not at:
            return name if name == EPOCH_WRITER else self.name("member", name)
        return f"{role}@{self.name('member', member)}"

    def address(self, address: str) -> str:
        return address if address in _ANY_ADDRESS else self.name("address", address)

    def key(self, key: str) -> str:
        """The key of a label or taint. Kubernetes' own keys are public and stay."""
        return key if _PUBLIC_KEY.fullmatch(key) else self.name("key", key)

    def value(self, key: str, value: str) -> str:
        if key == _HOSTNAME:
            return self.name("node", value)
        if key == _NAMESPACE_NAME:
            return self.name("namespace", value)
        if key == JOB_LABEL:
            return self.name("job", value)
        if key == WORKER_SET_LABEL:
            return self.name("set", value)
        if key == USER_LABEL:
            return self.name("namespace", value)
        if key == ROLE_LABEL or _PLAIN_VALUE.fullmatch(value):
            return value
        return self.name("value", value)

    def labels(self, labels: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        return tuple(sorted((self.key(key), self.value(key, value)) for key, value in labels))

    def requirement(self, one: p.Requirement) -> p.Requirement:
        if one.field:
            return msgspec.structs.replace(one, values=tuple(self.name("node", value) for value in one.values))
        values = one.values if one.operator in ("Gt", "Lt") else tuple(self.value(one.key, v) for v in one.values)
        return p.Requirement(self.key(one.key), one.operator, values)

    def taint(self, one: n.Taint) -> n.Taint:
        """A taint. `toleration` replaces key and value in the same way, so that both still match."""
        return n.Taint(self.key(one.key), self.value(one.key, one.value), one.effect)

    def toleration(self, one: p.Toleration) -> p.Toleration:
        key = self.key(one.key) if one.key else ""
        return p.Toleration(key, one.operator, self.value(one.key, one.value), one.effect)

    def namespaces(self, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """The namespaces of a term; the empty name means the pod's own namespace."""
        return None if names is None else tuple(self.name("namespace", name) for name in names)

    def pod_seen(self, pod: k.PodSeen) -> k.PodSeen:
        """A pod. The name of a job's pod follows from the job and the slot."""
        told: k.PodSeen = self._struct(pod, k.PodSeen)
        name, owner = self.name("pod", pod.name) if pod.owner is None else "", pod.owner
        if owner is not None:
            job = self.name("job", job_name(pod.name, owner))
            named = msgspec.structs.replace(owner, group_name=self.name("set", owner.group_name))
            name = name_in_slot(job, named)
        told = msgspec.structs.replace(told, name=name)
        self._pods[pod.uid] = told.name
        return told

    def gone(self, event: k.ObjectGone) -> k.ObjectGone:
        """A deletion, by the rules for the object while it was there."""
        rules, texts = rules_of(k.SEEN[event.kind]), k.ObjectGone.__struct_fields__[2:]  # without the kind and the term
        told = {name: rules.get(name, left_out)(self, getattr(event, name)) for name in texts}
        if event.kind == k.Watched.POD:
            known = self._pods.pop(event.uid, None)
            told["name"] = known if known is not None else self.name("pod", event.name)
        return msgspec.structs.replace(event, **told)

    # --- reasons -------------------------------------------------------------------------------------------

    def shortage(self, facts: f.ShortageFacts) -> f.ShortageFacts:
        """Why a job waits, with the reasons in the order that a cycle gives on the replaced names."""
        told: f.ShortageFacts = self._struct(facts, type(facts))
        counts = Counter[r.Reason]()
        for reason, count in told.reasons:
            counts[reason] += count
        return msgspec.structs.replace(told, reasons=most_frequent_first(counts))

    def reason(self, reason: r.Reason) -> r.Reason:
        """Why a node refuses a pod. The text of another package's filter is left out."""
        if reason.kind in volume_rules.OF_CLAIMS or reason.kind == _K.VOLUME_LIMIT:
            name, of = volume_rules.claim_reason(self, reason)
            return msgspec.structs.replace(reason, name=name, of=of)
        label = reason.kind not in (_K.INSUFFICIENT, _K.HOST_PORT, *r.OF_LIMITS, *r.OF_PLUGINS)
        return msgspec.structs.replace(
            reason,
            name=self.key(reason.name) if label and reason.name else reason.name,
            taint=self.taint(reason.taint) if reason.taint is not None else None,
            quota=self.name("resourcequota", reason.quota),
            queue=self.queue(reason.queue),
            words=left_out(self, reason.words),
        )


# --- the rules, by type and field ------------------------------------------------------------------------------

Rule = Callable[[Pseudonyms, Any], Any]


def keep(_: Pseudonyms, value: Any) -> Any:
    """Keep the value: it reveals no name."""
    return value


def left_out(_: Pseudonyms, text: str) -> str:
    """Leave out free text, but keep the fact that there was any."""
    return LEFT_OUT if text else ""


def word(_: Pseudonyms, text: str) -> str:
    """Keep a reason of one word, as Kubernetes and Arranger write them. Leave out anything else."""
    return text if text in ("", STOPPED) or _WORD.fullmatch(text) else LEFT_OUT


def ending(_: Pseudonyms, text: str) -> str:
    """Keep the kubelet's word for a pod's end. Leave out anything else."""
    return text if _ENDED.fullmatch(text) else left_out(_, text)


def _named(sort: str) -> Rule:
    return lambda names, value: names.name(sort, value)


def _each_named(sort: str) -> Rule:
    return lambda names, values: tuple(names.name(sort, value) for value in values)


def _alike(*kinds: type[Any], **rules: Rule) -> dict[type[Any], dict[str, Rule]]:
    """The same rules for several types."""
    return dict.fromkeys(kinds, rules)


def _keys(sort: str) -> Rule:
    return lambda names, value: {names.name(sort, key): item for key, item in value.items()}


def _first(sort: str) -> Rule:
    return lambda names, value: tuple((names.name(sort, key), *rest) for key, *rest in value)


def _second(sort: str) -> Rule:
    return lambda names, value: tuple((key, names.name(sort, name)) for key, name in value)


def _job_uids(names: Pseudonyms, uids: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(names.job_uid, uids))


#: The rules for fields with text, but for those that `rules_of` finds. Fields without text need none, and nested types
#: have their own rules.
RULES: dict[type[Any], dict[str, Rule]] = {
    k.EpochBegun: {"reason": keep, "cluster": _named("cluster")},
    k.WatchClaimed: {"watcher": _named("member"), "cluster": _named("cluster")},
    k.ListingEnded: {"resource_version": keep},
    k.PodSeen: {
        "name": keep,  # replaced by `pod_seen` and `gone`
        "node": _named("node"),
        "phase": word,
        "requests": keep,
        "ip": Pseudonyms.address,
        "reason": word,
        "message": left_out,
        "waiting": word,
    },
    k.JobSeen: {
        "name": _named("job"),
        "uid": Pseudonyms.job_uid,
        "status_digest": keep,
        "user": _named("namespace"),
        "created_by": _named("namespace"),
        "permits": lambda _, permits: tuple(LEFT_OUT for _ in permits),
        "created_by_groups": left_out,  # whoever knows the names of groups could find out which they are
    },
    fa.Fault: {"field": left_out, "value": left_out, "name": left_out, "limits": lambda *_: ()},
    **volume_rules.RULES,
    **group_rules.rules(word, left_out),
    k.ProvisioningSeen: {"name": _named("request"), "class_name": word, "answer": keep, "message": left_out},
    NodesRequest: {"message": left_out},
    k.NodesRequested: {"class_name": word},
    qu.QueueSpec: {
        "guarantee": keep,
        "deserved": keep,
        "capability": keep,
        "queue_policy": keep,
    },
    qu.NamespaceRule: {"names": _each_named("namespace")},
    k.CycleTaken: {"config": keep},
    k.Placed: {"schedule_state": keep, "hosts": _job_uids},
    k.Preempted: {"leaving": keep},
    k.Reserved: {"awaits": _job_uids, "outlived": _job_uids},
    k.LimitKept: {"awaits": _job_uids},
    f.TakenBy: {"namespace": _named("namespace"), "name": _named("job"), "queue": Pseudonyms.queue},
    k.Waits: {"schedule_state": keep},
    f.LackOfNodes: {"group": _named("set"), "kept_by": _job_uids},
    f.BeyondLimit: {"kept_by": _job_uids},
    f.Objection: {"plugin": keep, "words": left_out},
    k.StageDecided: {"stage": keep, "reason": keep},
    **_alike(f.PodEnd, f.RefusedPods, f.PodsRefused, words=ending),
    **_alike(f.NodeLeft, f.FailedAgain, f.NodeLost, f.NodeClosed, node=_named("node")),
    **_alike(f.DeletedPods, f.LeaderGone, disruption=ending, node=_named("node")),
    **_alike(f.RoomTaken, f.PodsStayed, f.PodsLeftBehind, node=_named("node"), pod=left_out),
    **_alike(f.TooFew, f.WorkerEnded, f.WorkerAtLimit, worker_set=_named("set")),
    f.PodsNotReady: {"worker_set": _named("set"), "node": _named("node"), "words": ending},
    f.NoImage: {"worker_set": _named("set"), "words": ending},
    f.OutOfReach: {"claim": _named("persistentvolumeclaim")},
    f.RestartLimit: {"of": _named("set")},
    f.AddressChanged: {"was": Pseudonyms.address, "now": Pseudonyms.address},
    f.FailedJob: {"job": _named("job")},
    f.AdoptedMessage: {"message": left_out},
    k.EndedWorker: {"pod_uid": keep, "how": keep},
    k.PodsTried: {"reason": word, "message": left_out},
    k.EffectFailed: {"effect": keep, "reason": word, "message": left_out},
    n.NodeFacts: {"allocatable": keep, "labels": Pseudonyms.labels},
    p.HostPort: {"protocol": keep, "address": Pseudonyms.address},
    p.PodTerm: {
        "topology_key": Pseudonyms.key,
        "namespaces": Pseudonyms.namespaces,
        "selected": Pseudonyms.namespaces,
    },
    p.SpreadRule: {"topology_key": Pseudonyms.key},
    p.PodTraits: {"labels": Pseudonyms.labels, "claims": volume_rules.claims},
    p.PodShape: {
        "requests": keep,
        "node_selector": Pseudonyms.labels,
        "labels": Pseudonyms.labels,
        "runtime_class": _named("runtimeclass"),
        "overhead": keep,
    },
    p.OwnNeeds: {"requests": keep, "node_selector": Pseudonyms.labels},
    p.ContainerNeeds: {"requests": keep, "limits": keep},
    p.DeclaredNeeds: {"requests": keep, "limits": keep, "overhead": keep},
    p.LimitDefaults: {"requests": keep, "limits": keep},
    p.RuntimeNeeds: {"overhead": keep, "node_selector": Pseudonyms.labels},
    p.PodOwner: {"group_name": _named("set")},
    p.ContainerEnd: {"container": left_out, "reason": word, "message": left_out},
    p.Failure: {"worker_set": _named("set"), "node": _named("node")},
    j.PodGroup: {"name": _named("set"), "task": _named("set")},
    j.Topology: {"levels": lambda names, keys: tuple(map(names.key, keys))},
    f.LevelLack: {"key": Pseudonyms.key},
    j.QuotaTraits: {"limits": keep, "priority_class": _named("priorityclass")},
    q.QuotaScope: {
        "name": keep,
        "operator": keep,
        "values": _each_named("priorityclass"),
    },
    q.QuotaLack: {"quota": _named("resourcequota"), "resource": keep, "queue": Pseudonyms.queue, "limit": keep},
    q.LimitName: {"queue": Pseudonyms.queue, "resource": keep, "limit": keep},
    j.JobSpec: {
        "queue_policy": keep,
        "pod_policy": keep,
        "missing_runtimes": _each_named("runtimeclass"),
        "image": _named("image"),
        "task_minimums": group_rules.tasks,
        "min_resources": keep,
    },
    JobKind: {"user": _named("namespace"), "namespace": _named("namespace"), "image": _named("image")},
    j.Dependency: {"name": _named("job"), "on_failure": keep, "ended": keep},
    j.PlacedPods: {"node": _named("node")},
    j.JobStatusSeen: {
        "stage": keep,
        "schedule_state": keep,
        "leader_address": Pseudonyms.address,
        "message": left_out,
        "worker_restarts": _first("set"),
        "reason": word,
        "turned": keep,
        "at_end": _first("set"),
        "after": _first("job"),
    },
    JobRecord: {
        "sets": _keys("set"),
        "retired": keep,
        "left_behind": keep,
        "refusals": _keys("node"),
        "disruptions": lambda names, of: tuple((slot, ending(names, text)) for slot, text in of),
    },
    # Empty: they follow in the snapshot.
    SlotTable: dict.fromkeys(("nodes", "pods", "not_running", "members", "names", "hosts", "asked", "lent"), keep),
    LeaderRecord: {"address": Pseudonyms.address, "kept": keep},
    SetRecord: {"kept": keep, "avoids": _keys("node")},
    JobTimes: {"turned": keep},
    TakenRoom: {"nodes": _each_named("node")},
    NodeImage: {"name": _named("node"), "uid": keep, "version": keep, "used": keep},
    Assumed: {"node": _named("node"), "requests": keep},
    DecayedImage: {"queue": Pseudonyms.queue, "sums": keep},
    JobImage: {
        "placements": _second("node"),
        "bound": keep,
        "members": keep,
        "hosts": _job_uids,
        "asked": _job_uids,
        "lent": lambda names, of: tuple((slot, _job_uids(names, hosts)) for slot, hosts in of),
    },
    StateImage: {
        **dict.fromkeys(("terms", "listed", "verdicts", "unwatched", "heard", "orphaned"), keep),
        "cluster": _named("cluster"),
        **volume_rules.OF_STATES,
    },
}

#: Sort of name → the rule for a field that holds one, if it isn't that of all others.
_OF_SORTS: dict[str, Rule] = {
    "": keep, "queue": Pseudonyms.queue, "labels": Pseudonyms.labels, "job UID": Pseudonyms.job_uid,
}  # fmt: skip


@cache
def rules_of(kind: type) -> dict[str, Rule]:
    """The rules for the fields of a type: those of `RULES`, those that follow from what is declared beside its fields,
    that for the UID of a job, and those of each object that is watched. The name of such an object is of the sort that
    its kind is."""
    hints, watched, sorts = get_type_hints(kind, include_extras=True), k.WATCHED.get(kind), {"job_uid": "job UID"}
    if watched is not None:
        sorts |= {"namespace": "namespace", "name": watched.value, "uid": "", "resource_version": ""}
    found = {name: _of_sort(sort) for name, sort in sorts.items() if name in hints}
    for name, hint in hints.items():
        for extra in get_args(hint)[1:] if get_origin(hint) is Annotated else ():
            if isinstance(extra, NameOf) or (isinstance(extra, ManifestField) and extra.sort):
                found[name] = _of_sort(extra.sort, each=get_origin(get_args(hint)[0]) is tuple)
    return found | RULES.get(kind, {})


def _of_sort(sort: str, *, each: bool = False) -> Rule:
    return _OF_SORTS.get(sort) or (_each_named(sort) if each else _named(sort))


_SPECIAL: dict[type[Any], Rule] = {
    k.ObjectGone: Pseudonyms.gone,
    k.PodSeen: Pseudonyms.pod_seen,
    PodColumns: lambda names, of: columns_of([names.walk(pod) for pod in pods_in(of)]),
    **dict.fromkeys(get_args(f.ShortageFacts), Pseudonyms.shortage),
    r.Reason: Pseudonyms.reason,
    n.Taint: Pseudonyms.taint,
    p.Toleration: Pseudonyms.toleration,
    **volume_rules.SPECIAL,
    p.Requirement: Pseudonyms.requirement,
}

#: Types of values that many events share: each value is replaced once.
_SHARED = frozenset({n.NodeFacts, p.PodTraits, j.JobSpec})
