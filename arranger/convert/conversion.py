"""Documents in, TYJobs and Queues and what is said of them out: the table of known kinds, and the last check."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from arranger.convert import (
    batch_job,
    jobset,
    kubeflow,
    kueue_queues,
    leader_worker_set,
    ray,
    volcano,
    volcano_queues,
)
from arranger.convert.fields import UNKNOWN, Fields, Note, Notes
from arranger.convert.queue_parts import a_queue
from arranger.convert.reading import Document, kind_of
from arranger.convert.templates import Json
from arranger.convert.whole_input import KUEUE, VOLCANO, Input, whole_input
from arranger.messages.faults import fault_text
from arranger.model.names import GROUP
from arranger.model.near_names import near_names
from arranger.model.queue import QUEUE_KIND
from arranger.model.queue_rules import validate_queue
from arranger.model.validation import refused_later, validate

Make = Callable[[Fields, Input], list[Json]]
#: By group and kind: what makes objects of one of its kind, TYJobs and the claims that they name.
JOBS: Mapping[tuple[str, str], Make] = {
    ("batch.volcano.sh", "Job"): volcano.jobs_of,
    ("kubeflow.org", "TFJob"): kubeflow.tensorflow_jobs_of,
    ("kubeflow.org", "PyTorchJob"): kubeflow.pytorch_jobs_of,
    ("kubeflow.org", "MPIJob"): kubeflow.mpi_jobs_of,
    ("ray.io", "RayCluster"): ray.clusters_of,
    ("ray.io", "RayJob"): ray.jobs_of,
    ("jobset.x-k8s.io", "JobSet"): jobset.jobs_of,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): leader_worker_set.jobs_of,
    ("batch", "Job"): batch_job.jobs_of,
}
#: The same of kinds that become Queues.
QUEUES: Mapping[tuple[str, str], Make] = {
    (VOLCANO, "Queue"): volcano_queues.queues_of,
    (KUEUE, "ClusterQueue"): kueue_queues.cluster_queues_of,
    (KUEUE, "Cohort"): kueue_queues.cohorts_of,
}
#: All kinds of which something is to be said field by field. Of the last, no object comes.
KINDS: Mapping[tuple[str, str], Make] = {
    **JOBS,
    **QUEUES,
    (KUEUE, "LocalQueue"): kueue_queues.local_queues_of,
    (KUEUE, "ResourceFlavor"): kueue_queues.resource_flavors_of,
}

#: The versions of each group, and those of kinds that have others.
_VERSIONS: Mapping[str, tuple[str, ...]] = {
    "batch.volcano.sh": ("v1alpha1",),
    "kubeflow.org": ("v1",),
    "kubeflow.org MPIJob": ("v2beta1", "v1"),
    "ray.io": ("v1", "v1alpha1"),
    "jobset.x-k8s.io": ("v1alpha2",),
    "leaderworkerset.x-k8s.io": ("v1",),
    "batch": ("v1",),
    VOLCANO: ("v1beta1",),
    KUEUE: ("v1beta2", "v1beta1"),
}

_TEMPLATE_OF_JOBS = "convert the Job of its template, and apply that TYJob each time"
#: Kinds that aren't converted, with what to do instead; others are applied as they are.
_INSTEAD = {
    "CronJob": _TEMPLATE_OF_JOBS,
    "RayCronJob": _TEMPLATE_OF_JOBS,
    "JobFlow": "convert its Jobs, and name the earlier ones in spec.after",
    "RayService": "a service: keep it with KubeRay, or convert its RayCluster",
    "TrainJob": "convert the JobSet that the trainer makes of it: kubectl get jobset NAME -o yaml",
    "Deployment": "a service: its pods may name Arranger as their scheduler (docs/operations.md)",
    "StatefulSet": "a service: its pods may name Arranger as their scheduler (docs/operations.md)",
    "Pod": "may name Arranger as its scheduler (docs/operations.md)",
    "PodGroup": "the TYJob itself says which pods get nodes together (minCount, minWorkersNum)",
    "Workload": "the TYJob itself is what waits and runs",
    "WorkloadPriorityClass": "give the TYJobs a priority (1 to 10) or a priorityClassName (docs/jobs.md, Priority)",
    "AdmissionCheck": "group checks and permits of a package hold jobs back (docs/operations.md, Plugins)",
    "Topology": "the topology of a TYJob names the labels of nodes itself (docs/jobs.md, Topology)",
    "NamespaceQueue": "a Queue below another one, with namespaces of its own (docs/queues.md)",
    "TYJob": "is one already",
}
_APPLY = "apply it as it is, if the TYJobs need it"
#: How alike a misspelt kind is to the one that is meant, as `near_names` measures it.
_MISSPELT = 0.85


class Conversion(msgspec.Struct, frozen=True):
    """What came of one object: `objects` are TYJobs, after the claims that they name, or Queues, after those above
    them. `faults` say why there are none, by the path of the field in the source."""

    document: Document
    kind: str
    name: str
    objects: tuple[Json, ...]
    notes: tuple[Note, ...]
    faults: tuple[tuple[str, str], ...]


class Skipped(msgspec.Struct, frozen=True):
    """An object of a kind that isn't converted, and why."""

    document: Document
    kind: str
    name: str
    reason: str


def converted(documents: Iterable[Document]) -> list[Conversion | Skipped]:
    """What comes of each document, in their order. Two objects of one kind and name are a fault of the second."""
    documents = list(documents)
    around = whole_input(documents)
    found: list[Conversion | Skipped] = []
    seen: dict[tuple[str, str, str], str] = {}
    for document in documents:
        each = _converted(document, around)
        if isinstance(each, Conversion):
            each = _once(_below_others(each, around, seen), seen)
        found.append(each)
    return found


def _below_others(found: Conversion, around: Input, seen: Mapping[tuple[str, str, str], str]) -> Conversion:
    """With the Queues above its own that no object stands for, unless they are there already."""
    above: list[Json] = []
    for queue in found.objects:
        name = queue["spec"].get("parent", "") if queue["kind"] == QUEUE_KIND else ""
        while name in around.parents and (QUEUE_KIND, "", name) not in seen and name not in _names(above):
            above.insert(0, a_queue({"name": name}, dict(around.parents[name])))
            name = around.parents[name].get("parent", "")
    return msgspec.structs.replace(found, objects=(*above, *found.objects))


def _names(objects: Iterable[Json]) -> list[str]:
    return [of["metadata"]["name"] for of in objects]


def _converted(document: Document, around: Input) -> Conversion | Skipped:
    group, kind = kind_of(document.value)
    make = KINDS.get((group, kind))
    name = _name_of(document.value)
    if make is None:
        if fault := _fault(document, group, kind):
            return Conversion(document, kind or "(no kind)", name, (), (), (fault,))
        return Skipped(document, kind, name, _reason(group, kind))
    notes = Notes()
    root = Fields(document.value, "", notes)
    root.ignore("kind", "status")
    version, known = root.text("apiVersion"), _VERSIONS.get(f"{group} {kind}", _VERSIONS[group])
    if version.rpartition("/")[2] not in known:
        versions = " or ".join(f"{group}/{each}" for each in known)
        root.fault("apiVersion", f"Unsupported value: {version}: this kind is converted of {versions}")
    objects = make(root, around)
    root.close()
    said = sorted(notes.all(), key=lambda note: document.line(note.path))
    if notes.faults:
        # A field that nobody knows may be the cause. Other notes are about TYJobs that there won't be.
        said = [note for note in said if note.text.startswith(UNKNOWN)]
        wrong = sorted(notes.faults, key=lambda fault: document.line(fault[0]))
        return Conversion(document, kind, name, (), tuple(said), tuple(wrong))
    faults = tuple(fault for of in objects for fault in _refused(of))
    return Conversion(document, kind, name, () if faults else tuple(objects), tuple(said), faults)


def _refused(of: Json) -> list[tuple[str, str]]:
    """Why a TYJob or a Queue would be refused: then what it was made of is beyond what it can say."""
    kind, name = of["kind"], of["metadata"]["name"]
    checks = {"TYJob": lambda: validate(of) or refused_later(of), QUEUE_KIND: lambda: validate_queue(of)}
    faults = checks[kind]() if kind in checks else ()
    return [("", f"the {kind} {name} would be refused: {fault_text(fault)}") for fault in faults]


def _once(found: Conversion, seen: dict[tuple[str, str, str], str]) -> Conversion:
    where = f"{found.document.file}:{found.document.line()}"
    for of in found.objects:
        key = (of["kind"], of["metadata"].get("namespace", ""), of["metadata"]["name"])
        if key in seen:
            words = f"another {of['kind']} named {key[2]} comes of {seen[key]}: convert them apart, or rename one"
            return msgspec.structs.replace(found, objects=(), faults=(("metadata.name", words),))
    seen |= {(of["kind"], of["metadata"].get("namespace", ""), of["metadata"]["name"]): where for of in found.objects}
    return found


def _name_of(value: object) -> str:
    metadata = value.get("metadata") if isinstance(value, dict) else None
    name = metadata.get("name") or metadata.get("generateName") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def _fault(document: Document, group: str, kind: str) -> tuple[str, str] | None:
    """What is wrong with a document that is of no known kind: the path of the field, and words."""
    if not isinstance(document.value, dict):
        return "", "not a Kubernetes object"
    if not kind:
        return "kind", "Required value"
    if close := _meant_kind(group, kind):
        return "kind", f"unknown kind, did you mean {close}?"
    groups = sorted(of for of, known in KINDS if known == kind)
    if groups and kind != QUEUE_KIND:  # many groups have Queues
        return "apiVersion", f"must be of {' or '.join(groups)}" + (f", and not of {group}" if group else "")
    return None


def _meant_kind(group: str, kind: str) -> str:
    """The kind of the group that a misspelt one probably means; empty if none is that near. Other kinds of these groups
    have names like theirs: MXJob is no MPIJob."""
    if kind in _INSTEAD:
        return ""
    return next(iter(near_names(kind, [known for of, known in KINDS if of == group], alike=_MISSPELT)), "")


def _reason(group: str, kind: str) -> str:
    """Why an object of another kind isn't converted."""
    if group == GROUP:
        return _INSTEAD["TYJob"] if kind in ("TYJob", QUEUE_KIND) else _APPLY
    instead = _INSTEAD.get(kind) if kind != "TYJob" else None
    if instead is None and group in {of for of, _ in KINDS}:
        return "this kind isn't converted"
    return instead or _APPLY
