"""Every check of a TYJob, on the object as JSON: the same rules as in the CRD's schema.

An object can be older than the schema in `crds/tyjob.yaml`, or come from a server without CEL; then this check
protects other jobs from it. `TYJOB` below is the one table of checks; tests verify that it, the embedded cluster
and a real API server give the same verdicts.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from arranger.model.checks import Check, Errors, FieldError, anything, both, flag, items, one_of, record, text, whole
from arranger.model.job import CleanPodPolicy
from arranger.model.names import MAX_NAMES_LENGTH
from arranger.model.pod_rules import mounts_without_volume, refused
from arranger.model.schema import definition


class PolicyNames(msgspec.Struct, frozen=True):
    """The allowed values of a TYJob's `jobQueuePolicy` and `basicPolicy`."""

    queue: tuple[str, ...]
    pod: tuple[str, ...]


#: The built-in policies: the enumerations in `crds/tyjob.yaml`.
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

DEFAULT_RESTART_LIMIT = 3
DEFAULT_COUNTS = 1
DEFAULT_MIN_WORKERS = 1
DEFAULT_PRIORITY = 5

#: The maximum number of workers of one job, all sets together.
MAX_WORKERS = 10_000

_MAX_INT32 = (1 << 31) - 1

_Default = TypeVar("_Default", int, None)

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_LABEL_REASON = (
    'must be a DNS label: lower-case letters, digits and "-", beginning and ending with a letter or a digit'
)


def validate(tyjob: Any, checks: Check | None = None) -> list[FieldError]:
    """The errors in a TYJob as JSON, in the order of its fields; empty if it is valid. Never raises.

    `checks` come from `tyjob_checks` if other policies than the built-in ones are installed.
    """
    return list((checks or TYJOB)(tyjob, ""))


def whole_of(fields: Mapping[str, Any], name: str, default: _Default) -> int | _Default:
    """A whole number that passed its check, or the default if it is absent or null."""
    value = fields.get(name)
    return default if value is None else int(value)


def workers_of(sets: Iterable[Mapping[str, Any]]) -> int:
    return sum(whole_of(workers, "counts", DEFAULT_COUNTS) for workers in sets)


def _spec_as_a_whole(spec: dict[str, Any], path: str) -> Errors:
    """The rules between fields of a spec whose fields are well-typed."""
    leader_name = spec["leader"]["name"]
    if any(workers["name"] == leader_name for workers in spec["workerSets"]):
        reason = f"a worker set can't have the leader's name '{leader_name}': every name must be used once"
        yield refused(f"{path}.workerSets", reason)
    yield from _mounts(spec, path)
    total = workers_of(spec["workerSets"])
    least = whole_of(spec, "minWorkersNum", DEFAULT_MIN_WORKERS)
    if least > total:
        reason = f"must not be above the sum of the worker sets' counts, which is {total}, but is {least}"
        alone = '(a job of a leader alone says "workerSets: []" and "minWorkersNum: 0")'
        yield refused(f"{path}.minWorkersNum", f"{reason} {alone}")
    if total > MAX_WORKERS:
        reason = f"the counts of all worker sets together must be at most {MAX_WORKERS}, but are {total}"
        yield refused(f"{path}.workerSets", reason)


def _mounts(spec: dict[str, Any], path: str) -> Errors:
    shared = frozenset(volume["name"] for volume in spec.get("volumes") or ())
    missing = "mounts a volume that neither the template nor spec.volumes has"
    for kind in ("containers", "initContainers"):
        for name in mounts_without_volume(spec["leader"]["template"], kind, shared):
            yield refused(f"{path}.leader.template.spec.{kind}", f"container '{name}' {missing}")
    for kind, what in (("containers", "a container"), ("initContainers", "an init container")):
        for workers in spec["workerSets"]:
            if mounts_without_volume(workers["template"], kind, shared):
                yield refused(f"{path}.workerSets", f"{what} of '{workers['name']}' {missing}")


def _names_fit(tyjob: dict[str, Any], path: str) -> Errors:
    """The names of the pods must fit into 63 characters, and that of the leader's Service must be valid."""
    room = MAX_NAMES_LENGTH - len(tyjob["metadata"]["name"])
    spec = tyjob["spec"]
    if len(spec["leader"]["name"]) > room:
        yield refused("spec.leader.name", _too_long("the leader's name", tyjob, spec["leader"]["name"]))
    if spec.get("leaderService") and not tyjob["metadata"]["name"][0].isalpha():
        reason = "needs a job whose name begins with a letter, as the name of a Service does"
        yield refused("spec.leaderService", reason)
    for workers in spec["workerSets"]:
        if len(workers["name"]) > room:
            yield refused("spec.workerSets", _too_long("a worker set's name", tyjob, workers["name"]))


def _too_long(what: str, tyjob: dict[str, Any], name: str) -> str:
    own: str = tyjob["metadata"]["name"]
    most = f"together may have at most {MAX_NAMES_LENGTH} characters, so that pod names fit into 63"
    return f"too long: the job's name and {what} {most}, but '{own}' and '{name}' have {len(own) + len(name)}"


_TEMPLATE = definition("PodTemplateSpec")
_VOLUME = definition("Volume")
#: Of a job or of one of its groups.
_NAME = text(most=MAX_NAMES_LENGTH - 1, form=_DNS_LABEL, reason=_DNS_LABEL_REASON)


def _spec(policies: PolicyNames) -> Check:
    fields = record(
        {
            "restartLimit": whole(0, 1_000_000),
            "volumes": items(_VOLUME, most=64, keys=("name",)),
            "leader": record({"name": _NAME, "template": _TEMPLATE}, required=("name", "template"), closed=True),
            "workerSets": items(
                record(
                    {"name": _NAME, "template": _TEMPLATE, "counts": whole(1, MAX_WORKERS)},
                    required=("name", "template"),
                    closed=True,
                ),
                most=64,
                keys=("name",),
            ),
            "leaderService": flag,
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
