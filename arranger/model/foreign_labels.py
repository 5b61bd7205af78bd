"""The label by which Kueue finds a queue, on a TYJob or in its templates: left over from another kind of job.

Kueue's integration of pods adds a scheduling gate to pods with this label. Pods of a TYJob have their node when they
are created, and the API server refuses a pod with both.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from arranger.model.checks import below
from arranger.model.faults import Fault, FaultKind
from arranger.model.template import worker_sets

KUEUE_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"

Json = Mapping[str, Any]


def names_queue_of_kueue(metadata: Json) -> bool:
    """Whether an object has the label itself."""
    return bool((metadata.get("labels") or {}).get(KUEUE_QUEUE_LABEL))


def kueue_labels(tyjob: Json) -> Iterator[Fault]:
    """Where a valid TYJob has the label."""
    if names_queue_of_kueue(tyjob["metadata"]):
        yield Fault(below("metadata.labels", KUEUE_QUEUE_LABEL), FaultKind.KUEUE_LABEL)
    spec = tyjob["spec"]
    parts = [("spec.leader", spec["leader"])] if spec.get("leader") is not None else []
    parts += [(f"spec.workerSets[{number}]", of) for number, of in enumerate(worker_sets(spec))]
    for path, of in parts:
        if names_queue_of_kueue(of["template"].get("metadata") or {}):
            field = below(f"{path}.template.metadata.labels", KUEUE_QUEUE_LABEL)
            yield Fault(field, FaultKind.KUEUE_LABEL_OF_PODS)
