"""Every check of a TYJob, on the object as JSON: the same rules as in the CRD's schema.

An object can be older than the schema in `crds/tyjob.yaml`, or come from a server without CEL; then this check
protects other jobs from it. `TYJOB` below is the one table of checks; tests verify that it, the embedded cluster
and a real API server give the same verdicts.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from arranger.model.checks import Check, Faults, anything, both, flag, items, one_of, record, text, whole
from arranger.model.faults import Fault, FaultKind
from arranger.model.fields import DNS_LABEL, MAX_INT32, Among, ManifestField, Text, Whole, checks, checks_of
from arranger.model.foreign_labels import kueue_labels, names_queue_of_kueue
from arranger.model.job import (
    MAX_WORKERS,
    JobSpec,
    OnFailure,
    RendezvousScope,
    RestartEvent,
    RestartScope,
    StartAfter,
    SuccessType,
    TopologyMode,
    TopologyScope,
)
from arranger.model.names import MAX_NAMES_LENGTH
from arranger.model.pod_rules import mounts_without_volume, refused_in_pods
from arranger.model.schema import definition
from arranger.model.template import worker_sets
from arranger.model.variables import ALWAYS, SETS, unset_variables


class PolicyNames(msgspec.Struct, frozen=True):
    """The allowed values of a TYJob's `jobQueuePolicy` and `basicPolicy`."""

    queue: tuple[str, ...]
    pod: tuple[str, ...]


#: The built-in policies.
BUILT_IN_POLICIES = PolicyNames(
    queue=("Priority", "DRF"),
    pod=(
        "Gang",
        "BinPack",
        "LeaderFirst",
        "MinFragment",
        "JobAffinity",
        "JobAntiAffinity",
        "MostAllocated",
        "FragmentGradient",
    ),
)

#: What scales a job. Of these fields, its record has what follows for its worker sets.
SCALING = (
    ManifestField(
        "replicas",
        Whole(0, MAX_WORKERS),
        "How many workers the scaled set has, or with groupSize how many worker groups, in place of its counts: 0 to "
        "10000; its counts if unset. `kubectl scale` sets it, and an autoscaler needs it in the manifest. Can be "
        "changed while the job runs.",
    ),
    ManifestField(
        "scaledSet",
        Text(MAX_NAMES_LENGTH - 1),
        "The worker set that replicas and the scale subresource count, by name; the first one if unset.",
    ),
)


def policy_fields(policies: PolicyNames) -> tuple[ManifestField, ...]:
    """The fields of `schedulerPolicy` with these policies."""
    return (
        ManifestField(
            "jobQueuePolicy",
            Among(policies.queue),
            "Order among jobs; if unset, the one that Arranger is configured with, by default Priority.",
        ),
        ManifestField(
            "basicPolicy",
            Among(policies.pod),
            "How the job's pods choose nodes; if unset, the one that Arranger is configured with, by default "
            "MostAllocated.",
        ),
    )


DEFAULT_COUNTS = 1
DEFAULT_MIN_WORKERS = 1
#: The port of torch.distributed.
DEFAULT_RENDEZVOUS_PORT = 29500

#: The maximum number of jobs that a job waits for.
MAX_AFTER = 32

#: The most bytes of an object in etcd, by its default `--max-request-bytes`.
_POD_BYTES = 3 << 19

#: The fields of the metadata of any object.
METADATA = frozenset(
    {
        *("annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers"),
        *("generateName", "generation", "labels", "managedFields", "name", "namespace", "ownerReferences"),
        *("resourceVersion", "selfLink", "uid"),
    }
)

_Default = TypeVar("_Default", int, None)

_K = FaultKind


def validate(tyjob: Any, checks: Check | None = None) -> list[Fault]:
    """The faults in a TYJob as JSON, in the order of its fields; empty if it is valid. Never raises.

    `checks` come from `tyjob_checks` if other policies than the built-in ones are installed.
    """
    return list((checks or TYJOB)(tyjob, ""))


def unknown_metadata(of: Mapping[str, Any]) -> list[Fault]:
    """The unknown fields of an object's metadata, which the API server checks by itself."""
    found = of.get("metadata")
    names = [name for name in found if name not in METADATA] if isinstance(found, Mapping) else []
    return [Fault(f"metadata.{name}", _K.UNKNOWN_FIELD, limits=tuple(sorted(METADATA))) for name in names]


def refused_later(tyjob: Mapping[str, Any]) -> list[Fault]:
    """The faults of a TYJob that is valid by the schema, but whose pods the API server would refuse, whatever the
    cluster. Without this check, it would get nodes first."""
    spec = tyjob["spec"]
    parts = [("spec.leader", spec["leader"])] if spec.get("leader") else []
    parts += [(f"spec.workerSets[{number}]", part) for number, part in enumerate(worker_sets(spec))]
    sets = len(sets_text(spec)) if parts else 0
    return [
        fault
        for path, part in parts
        for check in (refused_in_pods(part["template"], f"{path}.template"), _size(part["template"], path, sets))
        for fault in check
    ]


def _size(template: Mapping[str, Any], path: str, sets: int) -> Faults:
    """The fault of a template whose pods no API server with etcd's default limit stores. Only what certainly is in a
    pod counts: all texts of the template, and in each container the names of the variables that it gets, and
    TYJOB_SETS of `sets` bytes."""
    spec, told = template["spec"], 0
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        more = set(ALWAYS) - {of.get("name") for of in container.get("env") or ()}
        told += sum(map(len, more)) + (sets if SETS in more else 0)
    size = len(msgspec.json.encode(template)) + told  # at least as much as its texts
    if size > _POD_BYTES and (size := _texts(template) + told) > _POD_BYTES:
        yield Fault(f"{path}.template", FaultKind.POD_TOO_LARGE, str(size), limits=(str(_POD_BYTES),))


def _texts(value: Any) -> int:
    """The bytes of all texts in a JSON value, without the names of fields."""
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, Mapping):
        return sum(map(_texts, value.values()))
    return sum(map(_texts, value)) if isinstance(value, list) else 0


def warnings(tyjob: Mapping[str, Any]) -> list[Fault]:
    """What a valid TYJob probably doesn't mean, though nothing forbids it."""
    return [*kueue_labels(tyjob), *unset_variables(tyjob["spec"])]


def relabelled(tyjob: Mapping[str, Any], warned: Iterable[Fault]) -> bool:
    """Whether labels of a TYJob, which have no generation, have changed since it was warned of these."""
    return names_queue_of_kueue(tyjob["metadata"]) != any(of.kind == FaultKind.KUEUE_LABEL for of in warned)


def whole_of(fields: Mapping[str, Any], name: str, default: _Default) -> int | _Default:
    """A whole number that passed its check, or the default if it is absent or null."""
    value = fields.get(name)
    return default if value is None else int(value)


def scaled_set(spec: Mapping[str, Any]) -> int | None:
    """The position of the worker set that `replicas` counts: the one that `scaledSet` names, else the first; None if
    there is no such set."""
    named = spec.get("scaledSet")
    for number, workers in enumerate(worker_sets(spec)):
        if named is None or workers["name"] == named:
            return number
    return None


def group_size_of(workers: Mapping[str, Any]) -> int:
    """How many pods each worker group of a worker set has; 1 for a set without worker groups, and for a leader."""
    return whole_of(workers, "groupSize", 1)


def counts_of(spec: Mapping[str, Any]) -> list[int]:
    """How many workers each worker set has: as many worker groups as it counts, times their size."""
    return [
        count * group_size_of(workers) for count, workers in zip(_group_counts(spec), worker_sets(spec), strict=True)
    ]


def _group_counts(spec: Mapping[str, Any]) -> list[int]:
    """How many worker groups each worker set has: of the scaled set `replicas` where it is given, else `counts`."""
    counts = [whole_of(workers, "counts", DEFAULT_COUNTS) for workers in worker_sets(spec)]
    replicas, scaled = whole_of(spec, "replicas", None), scaled_set(spec)
    if replicas is not None and scaled is not None:
        counts[scaled] = replicas
    return counts


def sets_text(spec: Mapping[str, Any]) -> str:
    """The worker sets as JSON, for the variable TYJOB_SETS: name, count and minimum in workers, size of worker groups,
    and the rank of the first pod: the leader, if there is one, has rank 0, and the sets follow in their order."""
    counts, leaders = counts_of(spec), leaders_of(spec)
    found = [
        {
            "name": of["name"],
            "count": count,
            "minCount": (of.get("minCount") or 0) * group_size_of(of),
            "groupSize": group_size_of(of),
            "firstRank": leaders + sum(counts[:number]),
        }
        for number, (of, count) in enumerate(zip(worker_sets(spec), counts, strict=True))
    ]
    return msgspec.json.encode(found).decode()


def leaders_of(spec: Mapping[str, Any]) -> int:
    """1 for a job with a leader, else 0."""
    return int(spec.get("leader") is not None)


def least_workers(spec: Mapping[str, Any]) -> int:
    """How many workers a quorum needs in all: minWorkersNum (if unset, 1, or the sum of the sets' minimums if any set
    has one or there is none), or that sum if it is more. Without a leader, it is at least 1."""
    minimums = [
        int(workers["minCount"]) * group_size_of(workers)
        for workers in worker_sets(spec)
        if workers.get("minCount") is not None
    ]
    default = sum(minimums) if minimums or not worker_sets(spec) else DEFAULT_MIN_WORKERS
    return max(whole_of(spec, "minWorkersNum", default), sum(minimums), 1 - leaders_of(spec))


def _spec_as_a_whole(spec: dict[str, Any], path: str) -> Faults:
    """The rules between fields of a spec whose fields are well-typed."""
    leader = spec.get("leader")
    leader_name = leader["name"] if leader is not None else ""
    if leader is None:
        yield from _leaderless(spec, path)
    elif any(workers["name"] == leader_name for workers in worker_sets(spec)):
        yield Fault(f"{path}.workerSets", _K.NAME_OF_THE_LEADER, name=leader_name)
    if spec.get("priority") is not None and spec.get("priorityClassName") is not None:
        yield Fault(f"{path}.priorityClassName", _K.TWO_PRIORITIES)
    yield from _mounts(spec, path)
    yield from _scale(spec, path)
    yield from _success(spec, path)
    yield from _starts(spec, path)
    yield from _numbers(spec, path)
    if len(_job_ports(spec)) > 1:
        yield Fault(f"{path}.workerSets", _K.SEVERAL_PORTS)


def _numbers(spec: dict[str, Any], path: str) -> Faults:
    """The rules about how many workers all sets have together."""
    total, sets, leaders = sum(counts_of(spec)), worker_sets(spec), leaders_of(spec)
    minimums = leaders and (not sets or any(workers.get("minCount") is not None for workers in sets))
    least = whole_of(spec, "minWorkersNum", 0 if minimums else DEFAULT_MIN_WORKERS)
    if least > total and (leaders or sets):
        yield _too_few_workers(spec, path, least, total)
    if total > MAX_WORKERS:
        yield Fault(f"{path}.workerSets", _K.TOO_MANY_WORKERS, str(total), limits=(str(MAX_WORKERS),))


def _leaderless(spec: dict[str, Any], path: str) -> Faults:
    """The rules about a job of equals."""
    if not worker_sets(spec):
        yield Fault(f"{path}.workerSets", _K.NO_LEADER_NOR_SET)
    if spec.get("leaderService"):
        yield Fault(f"{path}.leaderService", _K.NO_LEADER)
    if whole_of(spec, "minWorkersNum", 1) == 0:
        yield Fault(f"{path}.minWorkersNum", _K.NO_MIN_WORKERS)


def _success(spec: dict[str, Any], path: str) -> Faults:
    """The rules about whose end is the job's."""
    policy = spec.get("successPolicy") or {}
    kind, sets = policy.get("type"), policy.get("sets")
    if kind == SuccessType.LEADER and spec.get("leader") is None:
        yield Fault(f"{path}.successPolicy.type", _K.NO_LEADER)
    if kind == SuccessType.ALL_WORKERS and not worker_sets(spec):
        yield Fault(f"{path}.successPolicy.type", _K.NO_WORKER_SET)
    if (kind == SuccessType.SETS) != (sets is not None):
        yield Fault(f"{path}.successPolicy.sets", _K.SETS_WITHOUT_TYPE)
    names = {workers["name"] for workers in worker_sets(spec)}
    if missing := [name for name in sets or () if name not in names]:
        yield Fault(f"{path}.successPolicy.sets", _K.NO_SUCH_SET, name=missing[0])


def _starts(spec: dict[str, Any], path: str) -> Faults:
    """The rules about what worker sets start after. The CRD's rules find the cycles of one or two sets."""
    after = {of["name"]: of["startAfter"] for of in worker_sets(spec) if of.get("startAfter") is not None}
    names, leads = {of["name"] for of in worker_sets(spec)}, frozenset(StartAfter)
    if found := [name for name in after if after[name] in leads and spec.get("leader") is None]:
        yield Fault(f"{path}.workerSets", _K.STARTS_AFTER_NO_LEADER, after[found[0]], found[0])
    if found := [name for name in after if after[name] not in leads | names]:
        yield Fault(f"{path}.workerSets", _K.STARTS_AFTER_NO_SET, after[found[0]], found[0], tuple(StartAfter))
    if found := [name for name in after if name in _chain(after, after[name])]:
        yield Fault(f"{path}.workerSets", _K.STARTS_AFTER_ITSELF, after[found[0]], found[0])


def _chain(after: Mapping[str, str], name: str) -> list[str]:
    """What comes before a worker set, the set itself first, each once."""
    chain: list[str] = []
    while name not in chain:
        chain.append(name)
        name = after.get(name, name)
    return chain


def _scale(spec: dict[str, Any], path: str) -> Faults:
    """The rules about `scaledSet`, and about how many workers of each set a quorum needs."""
    scaled, replicas = scaled_set(spec), whole_of(spec, "replicas", None)
    if scaled is None and spec.get("scaledSet") is not None:
        yield Fault(f"{path}.scaledSet", _K.NO_SUCH_SET, name=spec["scaledSet"])
    elif scaled is None and replicas is not None:
        yield Fault(f"{path}.replicas", _K.NOTHING_TO_SCALE)
    for number, (workers, count) in enumerate(zip(worker_sets(spec), _group_counts(spec), strict=True)):
        least = whole_of(workers, "minCount", 0)
        if least > count and number == scaled and replicas is not None:
            yield Fault(f"{path}.replicas", _K.REPLICAS_BELOW_MIN_COUNT, str(count), workers["name"], (str(least),))
        elif least > count:
            yield Fault(f"{path}.workerSets", _K.MIN_COUNT_ABOVE_COUNTS, str(least), workers["name"], (str(count),))


def _too_few_workers(spec: dict[str, Any], path: str, least: int, total: int) -> Fault:
    """The fault of a spec with fewer workers than its quorum needs: of `replicas` if they are given."""
    scaled, replicas = scaled_set(spec), whole_of(spec, "replicas", None)
    if scaled is None or replicas is None:
        kind = _K.MIN_WORKERS_ABOVE_COUNTS if worker_sets(spec) else _K.MIN_WORKERS_WITHOUT_SETS
        return Fault(f"{path}.minWorkersNum", kind, str(least), limits=(str(total),))
    needed = replicas - (total - least) // group_size_of(worker_sets(spec)[scaled])
    return Fault(f"{path}.replicas", _K.REPLICAS_BELOW_MIN_WORKERS, str(replicas), limits=(str(needed), str(least)))


def _scopes(workers: dict[str, Any], path: str) -> Faults:
    """The rules about what is restarted, and who meets, in worker groups."""
    restart = (workers.get("restart") or {}).get("scope")
    if restart == RestartScope.WORKER and group_size_of(workers) > 1:
        yield Fault(f"{path}.restart.scope", _K.GROUP_RESTARTED_IN_PART)
    for field in ("restart", "rendezvous") if workers.get("groupSize") is None else ():
        if (workers.get(field) or {}).get("scope") == RestartScope.GROUP:
            yield Fault(f"{path}.{field}.scope", _K.NO_GROUP_SIZE)


def _job_ports(spec: dict[str, Any]) -> set[int]:
    """The ports of the rendezvous that the whole job has: its pods all get the address of one."""
    found = [workers.get("rendezvous") or {} for workers in worker_sets(spec)]
    scoped = [of for of in found if of.get("scope") == RendezvousScope.JOB]
    return {whole_of(of, "port", DEFAULT_RENDEZVOUS_PORT) for of in scoped}


def _mounts(spec: dict[str, Any], path: str) -> Faults:
    shared = frozenset(volume["name"] for volume in spec.get("volumes") or ())
    leader = spec.get("leader")
    for kind in ("containers", "initContainers"):
        for name in mounts_without_volume(leader["template"], kind, shared) if leader is not None else ():
            yield Fault(f"{path}.leader.template.spec.{kind}", _K.NO_VOLUME_IN_LEADER, name=name)
    for kind, fault in (("containers", _K.NO_VOLUME_IN_SET), ("initContainers", _K.NO_VOLUME_IN_INIT_OF_SET)):
        for workers in worker_sets(spec):
            if mounts_without_volume(workers["template"], kind, shared):
                yield Fault(f"{path}.workerSets", fault, name=workers["name"])


def _names_fit(tyjob: dict[str, Any], path: str) -> Faults:
    """The names of the pods must fit into 63 characters, those of the Services must be valid, and a job that is waited
    for must be another one."""
    own, spec = tyjob["metadata"]["name"], tyjob["spec"]
    if any(of["name"] == own for of in spec.get("after") or ()):
        yield Fault("spec.after", _K.AFTER_ITSELF)
    room, limits = MAX_NAMES_LENGTH - len(own), (str(MAX_NAMES_LENGTH),)
    leader_name = (spec.get("leader") or {}).get("name", "")
    if len(leader_name) > room:
        yield Fault("spec.leader.name", _K.LEADER_NAME_TOO_LONG, leader_name, own, limits)
    if spec.get("leaderService") and not own[0].isalpha():
        yield Fault("spec.leaderService", _K.NO_SERVICE_NAME)
    if not own[0].isalpha() and any(workers.get("rendezvous") is not None for workers in worker_sets(spec)):
        yield Fault("spec.workerSets", _K.NO_SERVICE_NAME)
    for workers in worker_sets(spec):
        if len(workers["name"]) > room:
            yield Fault("spec.workerSets", _K.SET_NAME_TOO_LONG, workers["name"], own, limits)


_TEMPLATE = definition("PodTemplateSpec")
_VOLUME = definition("Volume")
#: A number of restarts.
_LIMIT = whole(0, 1_000_000)
#: The name of a job or of one of its groups.
_NAME = text(most=MAX_NAMES_LENGTH - 1, form=DNS_LABEL, fault=_K.NO_DNS_LABEL)

_LEADER = record(
    {
        "name": _NAME,
        "template": _TEMPLATE,
        "restart": record({"limit": _LIMIT, "windowSeconds": whole(1, MAX_INT32)}, closed=True),
    },
    required=("name", "template"),
    closed=True,
)
_RESTART = record(
    {
        "scope": one_of(*(scope.value for scope in RestartScope)),
        "event": one_of(*(event.value for event in RestartEvent)),
        "limit": _LIMIT,
        "windowSeconds": whole(1, MAX_INT32),
    },
    closed=True,
)
_RENDEZVOUS = record(
    {
        "port": whole(1, 65535),
        "scope": one_of(*(scope.value for scope in RendezvousScope)),
        "membersFile": flag,
    },
    closed=True,
)
#: The key of a label.
_LABEL_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
)


def _topology(*scopes: TopologyScope) -> Check:
    fields = {
        "levels": items(text(most=317, form=_LABEL_KEY), least=1, most=8, unique=True),
        "mode": one_of(*(mode.value for mode in TopologyMode)),
        "within": one_of(*(scope.value for scope in scopes)),
    }
    return record(fields, required=("levels",), closed=True)


_DEPENDENCY = record(
    {"name": _NAME, "onFailure": one_of(*(each.value for each in OnFailure))}, required=("name",), closed=True
)
_SUCCESS = record(
    {
        "type": one_of(*(kind.value for kind in SuccessType)),
        "sets": items(text(most=MAX_NAMES_LENGTH - 1), least=1, most=64, unique=True),
    },
    required=("type",),
    closed=True,
)
_WORKER_SET = both(
    record(
        {
            "name": _NAME,
            "template": _TEMPLATE,
            "counts": whole(1, MAX_WORKERS),
            "minCount": whole(0, MAX_WORKERS),
            "groupSize": whole(1, MAX_WORKERS),
            "restart": _RESTART,
            "rendezvous": _RENDEZVOUS,
            "topology": _topology(TopologyScope.SET, TopologyScope.GROUP),
            "startAfter": text(most=MAX_NAMES_LENGTH - 1),
        },
        required=("name", "template"),
        closed=True,
    ),
    _scopes,
)


def _spec(policies: PolicyNames) -> Check:
    fields = record(
        {
            "volumes": items(_VOLUME, most=64, keys=("name",)),
            "leader": _LEADER,
            "workerSets": items(_WORKER_SET, most=64, keys=("name",)),
            "topology": _topology(*TopologyScope),
            "successPolicy": _SUCCESS,
            **checks_of(SCALING),
            "after": items(_DEPENDENCY, most=MAX_AFTER, keys=("name",)),
            "schedulerPolicy": record(checks_of(policy_fields(policies)), closed=True),
            **checks(JobSpec),
        },
        closed=True,
    )
    return both(fields, _spec_as_a_whole)


def tyjob_checks(policies: PolicyNames) -> Check:
    """The table: a TYJob, field by field, the same as `arranger crd` with these policies installed."""
    fields = record(
        {
            "apiVersion": anything,
            "kind": anything,
            "metadata": record({"name": _NAME}, required=("name",)),
            "spec": _spec(policies),
            "status": anything,
        },
        required=("metadata", "spec"),
        closed=True,
    )
    return both(fields, _names_fit)


#: The table with the built-in policies, the same as in `crds/tyjob.yaml`.
TYJOB = tyjob_checks(BUILT_IN_POLICIES)
