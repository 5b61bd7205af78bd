"""The change by which `apply` makes a job what is given, as `kubectl apply` computes it for custom resources.

What was applied last is in an annotation of the job, the same that kubectl uses. What was applied then and isn't given
now is removed. What others set meanwhile and nobody applied is left alone. Lists are replaced as a whole.

So `spec.replicas`, which `kubectl scale` and autoscalers write, stays. Other `counts` of the set that it counts would
be written without effect, and are refused: nobody who gives another number wants that. The same `counts` again are not,
because whoever applies a manifest again and again doesn't mean to fight an autoscaler.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from arranger.client.jobs import APPLIED
from arranger.errors import UsageError
from arranger.kube.cluster import Object
from arranger.model.template import worker_sets
from arranger.model.validation import scaled_set, validate


def noted(given: Object) -> Object:
    """The object to create: the given one with the note of what was applied."""
    metadata = given["metadata"]
    note = {APPLIED: msgspec.json.encode(given).decode() + "\n"}
    return {**given, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **note}}}


def change(now: Object, given: Object) -> Object:
    """The merge patch that makes the job what is given; empty if it is that already. Raises `UsageError` for `counts`
    that would have no effect."""
    # Others have labels and annotations there, so that these are never removed as a whole.
    maps: Object = {name: {} for name in ("annotations", "labels") if name in now["metadata"]}
    found = _patch(_applied_last(now), {**given, "metadata": {**maps, **given["metadata"]}}, now)
    if not found:
        return {}
    _check_counts(now, given, found)
    note = noted(given)["metadata"]["annotations"][APPLIED]
    metadata = found.get("metadata") or {}
    version = now["metadata"]["resourceVersion"]
    annotations = {**(metadata.get("annotations") or {}), APPLIED: note}
    return {**found, "metadata": {**metadata, "resourceVersion": version, "annotations": annotations}}


def _check_counts(now: Object, given: Object, patch: Object) -> None:
    """Raise `UsageError` if the patch changes the `counts` of the scaled set while a number that isn't given counts."""
    if validate(given):  # the API server says what is wrong
        return
    spec = {**now["spec"], **(patch.get("spec") or {})}
    replicas, number = spec.get("replicas"), scaled_set(spec)
    if replicas is None or number is None or given["spec"].get("replicas") is not None:
        return
    workers = worker_sets(spec)[number]
    name, count = workers["name"], workers.get("counts")
    before = [of.get("counts") for of in worker_sets(now["spec"]) if of["name"] == name]
    if count not in (None, replicas, *before):
        said = f"spec.workerSets[{number}].counts: {count} would have no effect"
        why = f"the job was scaled, and spec.replicas ({replicas}) is the number of workers of {name}"
        hint = f"give spec.replicas: {count} too, or use scale({now['metadata']['name']!r}, {count})"
        raise UsageError(f"{said}: {why}", hint=hint)


def _applied_last(now: Object) -> Object:
    note = (now["metadata"].get("annotations") or {}).get(APPLIED, "")
    try:
        return msgspec.json.decode(note, type=Object)
    except msgspec.MsgspecError:  # nobody has applied the job, or somebody has edited the note
        return {}


def _patch(earlier: Mapping[str, Any], given: Mapping[str, Any], now: Mapping[str, Any]) -> Object:
    found: Object = {name: None for name in earlier if name not in given and name in now}
    for name, value in given.items():
        before = now.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            last = earlier.get(name)
            if inner := _patch(last if isinstance(last, dict) else {}, value, before):
                found[name] = inner
        elif value != before:
            found[name] = value
    return found
