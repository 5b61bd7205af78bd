"""What the objects of the input say of one another: which Queue a LocalQueue stands for, what the ClusterQueues of a
cohort have together, and which Queues others name as their parents though no object stands for them.

Read before anything is converted, and tolerant: what is wrong in an object is told when it is converted itself.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from arranger.convert.names import queue_name
from arranger.convert.reading import Document, kind_of
from arranger.model.checks import items
from arranger.model.pod_rules import amounts_of_nodes, quantity
from arranger.model.quantity import amount
from arranger.model.quantity import quantity as as_written
from arranger.model.queue import MAX_DEPTH, MAX_WEIGHT
from arranger.model.schema import definition

KUEUE = "kueue.x-k8s.io"
VOLCANO = "scheduling.volcano.sh"
#: The queue above all others of Volcano, which is there by itself.
VOLCANO_ROOT = "root"
#: The path of a queue in Volcano's tree, such as root/research/robots, and the weights of its parts.
HIERARCHY, HIERARCHY_WEIGHTS = "volcano.sh/hierarchy", "volcano.sh/hierarchy-weights"
#: The namespaces of a Queue that is for none: the API server labels each with its own name, and no name is empty.
NO_NAMESPACE: Mapping[str, Any] = {"selector": {"matchLabels": {"kubernetes.io/metadata.name": ""}}}
_WEIGHT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")

Totals = Mapping[str, int]
_TOLERATIONS = items(definition("Toleration"))


class Flavor(msgspec.Struct, frozen=True):
    """What Kueue writes into the pods that it gives a ResourceFlavor: a node selector and tolerations."""

    selector: Mapping[str, str]
    tolerations: Sequence[Mapping[str, Any]]


class Input(msgspec.Struct, frozen=True):
    """What the input has as a whole. Names are those of the source, unless they are of Queues."""

    #: The Queues that come of its objects, and those of them that come of ClusterQueues.
    queues: frozenset[str] = frozenset()
    of_cluster_queues: frozenset[str] = frozenset()
    #: The ClusterQueue of each LocalQueue, by the namespace and the name of this.
    local: Mapping[tuple[str, str], str] = {}
    #: The nominal quota of each cohort with all below it, by resource, in the resource's unit.
    totals: Mapping[str, Totals] = {}
    #: The specs of Queues that are named as parents, and that no object stands for.
    parents: Mapping[str, Mapping[str, Any]] = {}
    #: The names of the flavors of each ClusterQueue, and the ResourceFlavors.
    flavors_of: Mapping[str, Sequence[str]] = {}
    flavors: Mapping[str, Flavor] = {}


def whole_input(documents: Iterable[Document]) -> Input:
    """Read what the objects say of one another."""
    by_kind: dict[tuple[str, str], list[Any]] = {}
    for document in documents:
        by_kind.setdefault(kind_of(document.value), []).append(document.value)
    volcano = by_kind.get((VOLCANO, "Queue"), [])
    cluster, cohorts = by_kind.get((KUEUE, "ClusterQueue"), []), by_kind.get((KUEUE, "Cohort"), [])
    made = _queue_names((*volcano, *cluster, *cohorts))
    totals = _totals(cluster, cohorts)
    parents: dict[str, Mapping[str, Any]] = {
        queue_name(name): ({"capability": written(total)} if total else {}) | {"namespaces": NO_NAMESPACE}
        for name, total in totals.items()
    }
    for of in volcano:
        parents |= dict(_above(of))
    return Input(
        made,
        _queue_names(cluster),
        {
            (_text(metadata, "namespace"), _text(metadata, "name")): _text(_record(of, "spec"), "clusterQueue")
            for of in by_kind.get((KUEUE, "LocalQueue"), [])
            if (metadata := _record(of, "metadata"))
        },
        totals,
        {name: spec for name, spec in parents.items() if name not in made},
        {_text(_record(of, "metadata"), "name"): _flavor_names(of) for of in cluster},
        {_text(_record(of, "metadata"), "name"): _flavor(of) for of in by_kind.get((KUEUE, "ResourceFlavor"), [])},
    )


def _flavor_names(queue: Any) -> list[str]:
    groups = _records(_record(queue, "spec"), "resourceGroups")
    return list(dict.fromkeys(_text(of, "name") for group in groups for of in _records(group, "flavors")))


def _flavor(of: Any) -> Flavor:
    spec = _record(of, "spec")
    tolerations = _records(spec, "tolerations")
    labels = {name: value for name, value in _record(spec, "nodeLabels").items() if isinstance(value, str)}
    return Flavor(labels, [] if list(_TOLERATIONS(tolerations, "")) else tolerations)


def _queue_names(objects: Iterable[Any]) -> frozenset[str]:
    return frozenset(queue_name(name) for of in objects if (name := _text(_record(of, "metadata"), "name")))


def written(total: Totals) -> dict[str, int | str]:
    """Amounts as Kubernetes writes them; whole numbers as numbers."""
    texts = {name: as_written(name, value) for name, value in sorted(total.items())}
    return {name: int(text) if text.isdecimal() else text for name, text in texts.items()}


def cohort_field(root: Any, kind: str) -> str:
    """The field of a ClusterQueue or a Cohort that names the cohort above it, in this version of Kueue's API."""
    version = str(root.get("apiVersion")).rpartition("/")[2]
    old = version.startswith("v1alpha") or version == "v1beta1"
    return {"ClusterQueue": "cohort", "Cohort": "parent"}[kind] + ("" if old else "Name")


def hierarchy(path: str, weights: str) -> list[tuple[str, Fraction]]:
    """The queues on the way from the root of Volcano to a queue, and their weights; empty for no such way."""
    names, numbers = path.split("/"), weights.split("/") if weights else []
    once = all(names) and len({*names}) == len(names)
    if names[0] != VOLCANO_ROOT or not once or len(names) > MAX_DEPTH + 1:
        return []
    if numbers and (len(numbers) != len(names) or not all(map(_WEIGHT.fullmatch, numbers))):
        return []
    return [(name, Fraction(numbers[at] if numbers else 1)) for at, name in enumerate(names)][1:]


def _above(queue: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The Queues above a queue of Volcano that its annotations name."""
    notes = _record(_record(queue, "metadata"), "annotations")
    way = hierarchy(_text(notes, HIERARCHY), _text(notes, HIERARCHY_WEIGHTS))
    if _text(_record(queue, "spec"), "parent") not in ("", VOLCANO_ROOT):
        return
    above = ""
    for name, weight in way[:-1]:
        whole = min(round(weight), MAX_WEIGHT)
        yield (
            queue_name(name),
            ({"parent": queue_name(above)} if above else {}) | ({"weight": whole} if whole > 1 else {}),
        )
        above = name


def _totals(cluster: Iterable[Any], cohorts: Iterable[Any]) -> Mapping[str, Totals]:
    """The nominal quota of each cohort that is there or named, with all below it."""
    own: dict[str, dict[str, int]] = {}
    above: dict[str, str] = {}
    for of in cluster:
        if cohort := _text(_record(of, "spec"), cohort_field(of, "ClusterQueue")):
            _add(own.setdefault(cohort, {}), _nominal(of))
    for of in cohorts:
        name = _text(_record(of, "metadata"), "name")
        _add(own.setdefault(name, {}), _nominal(of))
        if parent := _text(_record(of, "spec"), cohort_field(of, "Cohort")):
            above[name] = parent
            own.setdefault(parent, {})
    totals = {name: dict(amounts) for name, amounts in own.items() if name}
    for name, amounts in own.items():
        seen, parent = {name}, above.get(name, "")
        while parent and parent not in seen:
            _add(totals[parent], amounts)
            seen.add(parent)
            parent = above.get(parent, "")
    return totals


def _add(total: dict[str, int], more: Totals) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _nominal(queue: Any) -> dict[str, int]:
    """The nominal quota by resource, of all flavors."""
    total: dict[str, int] = {}
    for group in _records(_record(queue, "spec"), "resourceGroups"):
        for flavor in _records(group, "flavors"):
            for resource in _records(flavor, "resources"):
                name, value = _text(resource, "name"), resource.get("nominalQuota")
                if is_resource(name) and value is not None and not list(quantity(value, "")):
                    _add(total, {name: amount(name, value)})
    return total


def is_resource(name: str) -> bool:
    """Whether a Queue can have an amount of it."""
    return bool(name) and not list(amounts_of_nodes({name: 1}, ""))


def _record(of: Any, name: str) -> Mapping[str, Any]:
    found = of.get(name) if isinstance(of, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _records(of: Any, name: str) -> list[Mapping[str, Any]]:
    found = of.get(name) if isinstance(of, Mapping) else None
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _text(of: Any, name: str) -> str:
    found = of.get(name) if isinstance(of, Mapping) else None
    return found if isinstance(found, str) else ""
