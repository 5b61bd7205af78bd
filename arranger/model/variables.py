"""Variables of a job's pods that only some pods have, and references to them that stay as they are.

Kubernetes replaces `$(NAME)` in a container's command, arguments and variables by the variable of that name. Without
such a variable it leaves the text as it is, without a word, and the program gets `$(NAME)`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from arranger.model.faults import Fault, FaultKind
from arranger.model.job import RendezvousScope
from arranger.model.near_names import near_names
from arranger.model.template import worker_sets

MEMBERS_FILE, LEADER_ADDRESS, SETS = "TYJOB_MEMBERS_FILE", "TYJOB_LEADER_ADDRESS", "TYJOB_SETS"
#: The variables that only a rendezvous sets.
RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK")
#: The variables that each pod has.
ALWAYS = (
    *("TYJOB_NAME", "TYJOB_NAMESPACE", "TYJOB_ATTEMPT", "TYJOB_ROLE", "TYJOB_WORKER_SET", "TYJOB_WORKER_INDEX"),
    *("TYJOB_WORKER_COUNT", "TYJOB_GROUP_INDEX", "TYJOB_GROUP_RANK", "TYJOB_GROUP_SIZE", "TYJOB_RANK"),
    *("TYJOB_WORLD_SIZE", SETS, "TYJOB_GPUS"),
)
_OURS = (*ALWAYS, MEMBERS_FILE, LEADER_ADDRESS, *RENDEZVOUS)
#: A name as Kubernetes replaces it, or an escaped `$`.
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_PREFIX = "TYJOB_"

Json = Mapping[str, Any]


def unset_variables(spec: Json) -> list[Fault]:
    """The references in the templates of a valid TYJob's spec to variables of Arranger that the pod won't have, each
    with its field, the variable as `name`, and in `limits` the field that would set it, or the nearest variable."""
    found: list[Fault] = []
    if spec.get("leader") is not None:
        found += _unset(spec["leader"]["template"]["spec"], "spec.leader.template.spec", _leader_lacks(spec))
    for number, of in enumerate(worker_sets(spec)):
        path = f"spec.workerSets[{number}]"
        lacks = _set_lacks(of, path) | ({} if spec.get("leader") is not None else {LEADER_ADDRESS: "spec.leader"})
        found += _unset(of["template"]["spec"], f"{path}.template.spec", lacks)
    return found


def _leader_lacks(spec: Json) -> dict[str, str]:
    """The variables that the leader lacks, with the fields that would set them."""
    meetings = [of.get("rendezvous") or {} for of in worker_sets(spec)]
    of_job = [of for of in meetings if of.get("scope") == str(RendezvousScope.JOB)]
    lacks = {name: "spec.workerSets[].rendezvous.scope: Job" for name in RENDEZVOUS if not of_job}
    if not any(of.get("membersFile") is True for of in of_job):
        lacks[MEMBERS_FILE] = "spec.workerSets[].rendezvous.membersFile with scope: Job"
    if spec.get("leaderService") is not True:
        lacks[LEADER_ADDRESS] = "spec.leaderService"
    return lacks


def _set_lacks(of: Json, path: str) -> dict[str, str]:
    """The variables that the pods of a worker set lack because of its rendezvous."""
    rendezvous = of.get("rendezvous")
    lacks = {name: f"{path}.rendezvous" for name in RENDEZVOUS if rendezvous is None}
    if (rendezvous or {}).get("membersFile") is not True:
        lacks[MEMBERS_FILE] = f"{path}.rendezvous.membersFile"
    return lacks


def _unset(spec: Json, path: str, lacks: Mapping[str, str]) -> Iterator[Fault]:
    """The references of a template to what its pods lack, each variable once."""
    said: set[str] = set()
    for field, name in _references(spec, path):
        unknown = name.startswith(_PREFIX) and name not in _OURS
        if name not in said and (unknown or name in lacks):
            said.add(name)
            limits = near_names(name, _OURS) if unknown else [lacks[name]]
            yield Fault(field, FaultKind.UNSET_VARIABLE, name=name, limits=tuple(limits))


def _references(spec: Json, path: str) -> Iterator[tuple[str, str]]:
    """The references of a template's containers to variables that they don't set themselves, with their fields."""
    for kind in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(kind) or ()):
            if container.get("envFrom"):  # it may have any variable
                continue
            own = {of.get("name") for of in container.get("env") or ()}
            for where, text in _texts(container):
                names = [name for name in _REFERENCE.findall(text) if name and name not in own]
                yield from ((f"{path}.{kind}[{number}].{where}", name) for name in names)


def _texts(container: Json) -> Iterator[tuple[str, str]]:
    """The texts of a container in which variables are replaced, with their fields."""
    for kind in ("command", "args"):
        for number, text in enumerate(container.get(kind) or ()):
            yield f"{kind}[{number}]", text or ""
    for number, variable in enumerate(container.get("env") or ()):
        yield f"env[{number}].value", variable.get("value") or ""
