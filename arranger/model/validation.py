"""Every check of a TYJob, on the object as JSON: what the CRD's schema and rules say, said again.

An object can be older than the schema in `crds/tyjob.yaml`, or come from a server without CEL; then this is what
keeps it from harming other jobs. `TYJOB` below is the one table of checks; the tests hold it, the embedded cluster
and a real API server to the same verdicts.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from arranger.model.checks import (
    Check,
    Errors,
    FieldError,
    anything,
    both,
    flag,
    invalid,
    items,
    keyed,
    one_of,
    record,
    shown,
    text,
    whole,
    wrong_type,
)
from arranger.model.job import CleanPodPolicy
from arranger.model.names import LABEL_PREFIX, MAX_NAMES_LENGTH
from arranger.model.quantity import PATTERN, exact, is_integer


class PolicyNames(msgspec.Struct, frozen=True):
    """What a TYJob may give as `jobQueuePolicy` and `basicPolicy`."""

    queue: tuple[str, ...]
    pod: tuple[str, ...]


#: Those that come with Arranger: the enumerations in `crds/tyjob.yaml`.
BUILT_IN_POLICIES = PolicyNames(
    queue=("Priority", "DRF"),
    pod=("Gang", "BinPack", "LeaderFirst", "MinFragment", "JobAffinity", "JobAntiAffinity", "FragmentGradient"),
)

DEFAULT_RESTART_LIMIT = 3
DEFAULT_COUNTS = 1
DEFAULT_MIN_WORKERS = 1
DEFAULT_PRIORITY = 5

#: Workers that one job may have, all sets together.
MAX_WORKERS = 10_000

#: Resources that may be requested in fractions and without a limit; of others, whole ones are given away.
_DIVISIBLE = ("cpu", "memory", "ephemeral-storage")

_MAX_INT32 = (1 << 31) - 1

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_LABEL_REASON = (
    'must be a DNS label: lower-case letters, digits and "-", beginning and ending with a letter or a digit'
)
_QUANTITY = re.compile(PATTERN, re.ASCII)
_QUANTITY_REASON = "must be a quantity of 0 or more: a number as in 2, or a text as in '500m', '1.5', '16Gi'"


def validate(tyjob: Any, checks: Check | None = None) -> list[FieldError]:
    """What is wrong with a TYJob as JSON, in the order of its fields; empty when it is valid. Never raises.

    `checks` are those of `tyjob_checks` where other policies than the built-in ones are installed.
    """
    return list((checks or TYJOB)(tyjob, ""))


def _quantity(value: Any, path: str) -> Errors:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        yield wrong_type(path, value, 'integer or string, as in 2, "500m" or "16Gi"')
    elif isinstance(value, int):
        if value < 0:
            yield invalid(path, value, "should be greater than or equal to 0")
    elif len(value) > 32:
        yield FieldError(path, "Too long: may not be more than 32 characters")
    elif _QUANTITY.fullmatch(value) is None:
        yield invalid(path, value, _QUANTITY_REASON)


def _unset(reason: str) -> Check:
    """A string that has to be empty."""

    def check(value: Any, path: str) -> Errors:
        if not isinstance(value, str):
            yield wrong_type(path, value, "string")
        elif value:
            yield invalid(path, value, reason)

    return check


def _no_reserved_labels(labels: dict[str, str], path: str) -> Errors:
    for name in labels:
        if name.startswith(LABEL_PREFIX):
            reason = f"labels under {LABEL_PREFIX} are set by Arranger and must not be set here"
            yield FieldError(path, f"Invalid value: {shown(name)}: {reason}")


def _workers(spec: Mapping[str, Any]) -> int:
    return sum(int(_or_default(workers.get("counts"), DEFAULT_COUNTS)) for workers in spec["workerSets"])


def _or_default(value: Any, default: int) -> Any:
    return default if value is None else value


def _spec_as_a_whole(spec: dict[str, Any], path: str) -> Errors:
    """What holds between fields of a spec whose fields are well-typed."""
    leader_name = spec["leader"]["name"]
    if any(workers["name"] == leader_name for workers in spec["workerSets"]):
        reason = f"a worker set can't have the leader's name '{leader_name}': every name must be used once"
        yield _refused(f"{path}.workerSets", reason)
    total = _workers(spec)
    least = _or_default(spec.get("minWorkersNum"), DEFAULT_MIN_WORKERS)
    if least > total:
        reason = f"must not be above the sum of the worker sets' counts, which is {total}, but is {int(least)}"
        alone = '(a job of a leader alone says "workerSets: []" and "minWorkersNum: 0")'
        yield _refused(f"{path}.minWorkersNum", f"{reason} {alone}")
    if total > MAX_WORKERS:
        reason = f"the counts of all worker sets together must be at most {MAX_WORKERS}, but are {total}"
        yield _refused(f"{path}.workerSets", reason)


def _refused(path: str, reason: str) -> FieldError:
    """What a rule of the schema refuses: its message tells the values."""
    return FieldError(path, f"Invalid value: {reason}")


def _requests_and_limits(resources: dict[str, Any], path: str) -> Errors:
    """What the API server would refuse at the creation of a pod, said at `kubectl apply`."""
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, limit in limits.items():
        if name not in _DIVISIBLE and not name.startswith("hugepages-") and not is_integer(limit):
            yield _refused(f"{path}.limits", f"{name} must be a whole number as in 1, here {limit}")
    for name, request in requests.items():
        if name not in limits:
            if name not in _DIVISIBLE:
                yield FieldError(f"{path}.limits", f"Required value: {name} is requested: it must have an equal limit")
        elif name not in _DIVISIBLE and exact(request) != exact(limits[name]):
            yield _refused(f"{path}.requests", f"{name} must be equal to its limit of {limits[name]}, here {request}")
        elif exact(request) > exact(limits[name]):
            yield _refused(f"{path}.requests", f"{name} must not be above its limit of {limits[name]}, here {request}")


def _names_fit(tyjob: dict[str, Any], path: str) -> Errors:
    """The names of the pods fit into 63 characters."""
    room = MAX_NAMES_LENGTH - len(tyjob["metadata"]["name"])
    spec = tyjob["spec"]
    if len(spec["leader"]["name"]) > room:
        yield _refused("spec.leader.name", _too_long("the leader's name", tyjob, spec["leader"]["name"]))
    for workers in spec["workerSets"]:
        if len(workers["name"]) > room:
            yield _refused("spec.workerSets", _too_long("a worker set's name", tyjob, workers["name"]))


def _too_long(what: str, tyjob: dict[str, Any], name: str) -> str:
    own: str = tyjob["metadata"]["name"]
    most = f"together may have at most {MAX_NAMES_LENGTH} characters, so that pod names fit into 63"
    return f"too long: the job's name and {what} {most}, but '{own}' and '{name}' have {len(own) + len(name)}"


_REQUIREMENTS = items(
    record(
        {
            "key": text(least=1),
            "operator": one_of("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
            "values": items(text()),
        },
        required=("key", "operator"),
    )
)

_NODE_TERMS = record(
    {"nodeSelectorTerms": items(record({"matchExpressions": _REQUIREMENTS, "matchFields": _REQUIREMENTS}), least=1)},
    required=("nodeSelectorTerms",),
)

_PREFERRED_NODES = items(
    record(
        {
            "weight": whole(1, 100),
            "preference": record({"matchExpressions": _REQUIREMENTS, "matchFields": _REQUIREMENTS}),
        },
        required=("weight", "preference"),
    )
)

_LABEL_SELECTOR = record(
    {
        "matchLabels": keyed(text()),
        "matchExpressions": items(
            record(
                {
                    "key": text(least=1),
                    "operator": one_of("In", "NotIn", "Exists", "DoesNotExist"),
                    "values": items(text()),
                },
                required=("key", "operator"),
            )
        ),
    }
)

_POD_TERMS = record(
    {
        "requiredDuringSchedulingIgnoredDuringExecution": items(
            record(
                {
                    "topologyKey": text(least=1),
                    "labelSelector": _LABEL_SELECTOR,
                    "namespaces": items(text()),
                    "namespaceSelector": _LABEL_SELECTOR,
                    "matchLabelKeys": items(text()),
                    "mismatchLabelKeys": items(text()),
                },
                required=("topologyKey",),
            )
        )
    }
)

_SPREAD = record(
    {
        "topologyKey": text(least=1),
        "maxSkew": whole(1, _MAX_INT32),
        "minDomains": whole(1, _MAX_INT32),
        "whenUnsatisfiable": one_of("DoNotSchedule", "ScheduleAnyway"),
        "labelSelector": _LABEL_SELECTOR,
        "matchLabelKeys": items(text()),
        "nodeAffinityPolicy": one_of("Honor", "Ignore"),
        "nodeTaintsPolicy": one_of("Honor", "Ignore"),
    },
    required=("topologyKey", "maxSkew", "whenUnsatisfiable"),
)

_PORT = record(
    {
        "containerPort": whole(1, 65535),
        "hostPort": whole(0, 65535),
        "protocol": one_of("TCP", "UDP", "SCTP"),
        "hostIP": text(),
    },
    required=("containerPort",),
)

_TOLERATION = record(
    {
        "key": text(),
        "operator": one_of("", "Exists", "Equal"),
        "value": text(),
        "effect": one_of("", "NoSchedule", "PreferNoSchedule", "NoExecute"),
    }
)

_QUANTITIES = keyed(_quantity, most=32)
_RESOURCES = both(record({"requests": _QUANTITIES, "limits": _QUANTITIES}), _requests_and_limits)

_CONTAINER = record(
    {
        "name": text(least=1, most=63),
        "image": text(least=1),
        "restartPolicy": text(),
        "command": items(text()),
        "args": items(text()),
        "env": items(record({"name": text(least=1)}, required=("name",))),
        "ports": items(_PORT),
        "resources": _RESOURCES,
    },
    required=("name", "image"),
)

_POD_SPEC = record(
    {
        "nodeName": _unset("must not be set, Arranger chooses the node (use nodeSelector or affinity)"),
        "schedulerName": _unset("must not be set, Arranger places the job's pods itself"),
        "restartPolicy": one_of("Always", "OnFailure", "Never"),
        "containers": items(_CONTAINER, least=1, most=64),
        "initContainers": items(_CONTAINER, most=64),
        "resources": _RESOURCES,
        "overhead": _QUANTITIES,
        "volumes": items(record({"name": text(least=1)}, required=("name",))),
        "nodeSelector": keyed(text()),
        "tolerations": items(_TOLERATION),
        "affinity": record(
            {
                "nodeAffinity": record(
                    {
                        "requiredDuringSchedulingIgnoredDuringExecution": _NODE_TERMS,
                        "preferredDuringSchedulingIgnoredDuringExecution": _PREFERRED_NODES,
                    }
                ),
                "podAffinity": _POD_TERMS,
                "podAntiAffinity": _POD_TERMS,
            }
        ),
        "topologySpreadConstraints": items(_SPREAD),
        "hostNetwork": flag,
    },
    required=("containers",),
)

_TEMPLATE = record(
    {
        "metadata": record(
            {
                "labels": both(keyed(text(most=63), most=256), _no_reserved_labels),
                "annotations": keyed(text()),
            }
        ),
        "spec": _POD_SPEC,
    },
    required=("spec",),
)

_VOLUME_SOURCES = (
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "hostPath",
    "image",
    "nfs",
    "persistentVolumeClaim",
    "projected",
    "secret",
)
_SHARED_VOLUME = record(
    {
        "name": text(most=63, form=_DNS_LABEL, reason=_DNS_LABEL_REASON),
        **{source: record({}) for source in _VOLUME_SOURCES},
    },
    required=("name",),
)

_GROUP_NAME = text(most=MAX_NAMES_LENGTH - 1, form=_DNS_LABEL, reason=_DNS_LABEL_REASON)


def _spec(policies: PolicyNames) -> Check:
    fields = record(
        {
            "restartLimit": whole(0, 1_000_000),
            "volumes": items(
                _SHARED_VOLUME,
                most=64,
                key="name",
            ),
            "leader": record({"name": _GROUP_NAME, "template": _TEMPLATE}, required=("name", "template"), closed=True),
            "workerSets": items(
                record(
                    {"name": _GROUP_NAME, "template": _TEMPLATE, "counts": whole(1, MAX_WORKERS)},
                    required=("name", "template"),
                    closed=True,
                ),
                most=64,
                key="name",
            ),
            "cleanPodPolicy": one_of(*(policy.value for policy in CleanPodPolicy)),
            "terminating": flag,
            "suspend": flag,
            "ttlSecondsAfterFinished": whole(0, _MAX_INT32),
            "activeDeadlineSeconds": whole(1, _MAX_INT32),
            "minWorkersNum": whole(0, MAX_WORKERS),
            "priority": whole(1, 10),
            "schedulerPolicy": record(
                {"jobQueuePolicy": one_of(*policies.queue), "basicPolicy": one_of(*policies.pod)}, closed=True
            ),
        },
        required=("leader", "workerSets"),
        closed=True,
    )
    return both(fields, _spec_as_a_whole)


def tyjob_checks(policies: PolicyNames) -> Check:
    """The table: a TYJob, field by field, as `arranger crd` has it where these policies are installed."""
    fields = record(
        {
            "apiVersion": anything,
            "kind": anything,
            "metadata": record(
                {"name": text(most=MAX_NAMES_LENGTH - 1, form=_DNS_LABEL, reason=_DNS_LABEL_REASON)},
                required=("name",),
            ),
            "spec": _spec(policies),
            "status": anything,
        },
        required=("metadata", "spec"),
        closed=True,
    )
    return both(fields, _names_fit)


#: The table with the policies that come with Arranger, as `crds/tyjob.yaml` has it.
TYJOB = tyjob_checks(BUILT_IN_POLICIES)
