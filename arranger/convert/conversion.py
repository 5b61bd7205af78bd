"""Documents in, TYJobs and what is said of them out: the table of known kinds, and the last check of each TYJob."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from arranger.convert import batch_job, jobset, kubeflow, leader_worker_set, ray, volcano
from arranger.convert.fields import UNKNOWN, Fields, Note, Notes
from arranger.convert.reading import Document, kind_of
from arranger.convert.templates import Json
from arranger.messages.faults import fault_text
from arranger.model.names import GROUP
from arranger.model.validation import refused_later, validate

#: By group and kind: what makes objects of one of its kind, TYJobs and the claims that they name.
KINDS: Mapping[tuple[str, str], Callable[[Fields], list[Json]]] = {
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
    "Queue": "arranger queue create NAME (docs/queues.md)",
    "LocalQueue": "arranger queue create NAME (docs/queues.md)",
    "ClusterQueue": "arranger queue create NAME (docs/queues.md)",
    "TYJob": "is one already",
}
_APPLY = "apply it as it is, if the TYJobs need it"


class Conversion(msgspec.Struct, frozen=True):
    """What came of one object: `objects` are TYJobs, after the claims that they name. `faults` say why there are none,
    by the path of the field in the source."""

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
    """What comes of each document, in their order. Two TYJobs of one name are a fault of the second."""
    found: list[Conversion | Skipped] = []
    seen: dict[tuple[str, str, str], str] = {}
    for document in documents:
        each = _converted(document)
        if isinstance(each, Conversion):
            each = _once(each, seen)
        found.append(each)
    return found


def _converted(document: Document) -> Conversion | Skipped:
    group, kind = kind_of(document.value)
    make = KINDS.get((group, kind))
    name = _name_of(document.value)
    if make is None:
        if fault := _fault(document, group, kind):
            return Conversion(document, kind or "(no kind)", name, (), (), (fault,))
        return Skipped(document, kind, name, _reason(group, kind))
    notes = Notes()
    root = Fields(document.value, "", notes)
    root.ignore("apiVersion", "kind", "status")
    objects = make(root)
    root.close()
    said = sorted(notes.all(), key=lambda note: document.line(note.path))
    if notes.faults:
        # A field that nobody knows may be the cause. Other notes are about TYJobs that there won't be.
        said = [note for note in said if note.text.startswith(UNKNOWN)]
        wrong = sorted(notes.faults, key=lambda fault: document.line(fault[0]))
        return Conversion(document, kind, name, (), tuple(said), tuple(wrong))
    faults = tuple(fault for of in objects if of["kind"] == "TYJob" for fault in _refused(of))
    return Conversion(document, kind, name, () if faults else tuple(objects), tuple(said), faults)


def _refused(tyjob: Json) -> list[tuple[str, str]]:
    """Why a TYJob would be refused: then what it was made of is beyond what a TYJob can say."""
    faults = validate(tyjob) or refused_later(tyjob)
    return [("", f"the TYJob {tyjob['metadata']['name']} would be refused: {fault_text(of)}") for of in faults]


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
    groups = sorted(of for of, known in KINDS if known == kind)
    if groups:
        return "apiVersion", f"must be of {' or '.join(groups)}" + (f", and not of {group}" if group else "")
    return None


def _reason(group: str, kind: str) -> str:
    """Why an object of another kind isn't converted."""
    instead = _INSTEAD.get(kind)
    if instead is None and group in {of for of, _ in KINDS}:
        return "this kind isn't converted"
    return _APPLY if instead is None or (kind == "TYJob" and group != GROUP) else instead
