"""Pod templates as a TYJob takes them: what the API server or Arranger would refuse is left out with a note, and what
the source's operator told its pods is told in Arranger's way."""

import copy
import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from arranger.convert.fields import ConversionProblem, Fields, NoteKind, Notes, wrong
from arranger.convert.scheduler_keys import PREEMPTIBLE, instead_of, keeps_room
from arranger.messages.faults import meant_text
from arranger.model.checks import anything, below, items, keyed, record
from arranger.model.faults import Fault, FaultKind
from arranger.model.names import LABEL_PREFIX
from arranger.model.pod_rules import quantity
from arranger.model.schema import definition

Json = dict[str, Any]

#: Labels that the API server adds to the template of a Job, and that belong to that Job alone.
_OF_THE_SERVER = (
    *("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"),
    "batch.kubernetes.io/job-completion-index",
)
#: Schedulers whose name says nothing beyond the kind of the object, or beyond what Arranger does.
_USUAL_SCHEDULERS = (
    "",
    "default-scheduler",
    "volcano",
    "kube-batch",
    "kueue",
    "yunikorn",
    "scheduler-plugins-scheduler",
)
_NO_EFFECT = ("name", "namespace", "generateName", "creationTimestamp")
_KUEUE = "kueue.x-k8s.io/"
_TOPOLOGY = {
    "kueue.x-k8s.io/podset-required-topology": "Required",
    "kueue.x-k8s.io/podset-preferred-topology": "Preferred",
}
#: Templates whose containers' amounts are in their place, whatever they are.
_AMOUNTS = keyed(anything)
_OF_CONTAINERS = items(record({"resources": record({"requests": _AMOUNTS, "limits": _AMOUNTS})}))
_CONTAINERS = record(
    {"spec": record({"containers": _OF_CONTAINERS, "initContainers": _OF_CONTAINERS})}, required=("spec",)
)
_KEY_OF_REFERENCE = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class Template(msgspec.Struct):
    """A pod template (`value`) that passes the checks of a TYJob's, and its path in the source."""

    path: str
    value: Json
    notes: Notes
    #: As in a worker set, from the annotations of Kueue; None without them.
    topology: Json | None = None
    #: Whether its pods give no room to others, by the paths of the labels and annotations that say so.
    keep_room: dict[str, bool] = msgspec.field(default_factory=dict)

    @property
    def spec(self) -> Json:
        spec: Json = self.value["spec"]
        return spec

    def copy(self) -> "Template":
        """A template of its own, whose notes are those of the same object."""
        return Template(self.path, copy.deepcopy(self.value), self.notes, self.topology, self.keep_room)

    def containers(self) -> Iterator[tuple[str, Json]]:
        """All containers with their paths, those that initialise first."""
        for kind in ("initContainers", "containers"):
            for number, container in enumerate(self.spec.get(kind) or ()):
                yield f"{self.path}.spec.{kind}[{number}]", container

    def tell(self, variables: Mapping[str, str]) -> None:
        """Give all containers these variables, but for those that they set themselves."""
        for _, container in self.containers():
            own = container.get("env") or []
            names = {of["name"] for of in own}
            new = [{"name": name, "value": value} for name, value in variables.items() if name not in names]
            if new or own:
                container["env"] = new + own

    def add_volume(self, name: str, source: Json, mount_path: str) -> None:
        """Mount a volume into all containers that mount nothing there."""
        volumes = self.spec.get("volumes") or []
        if all(of["name"] != name for of in volumes):
            self.spec["volumes"] = [*volumes, {"name": name, **source}]
        for _, container in self.containers():
            mounts = container.get("volumeMounts") or []
            if all(of["mountPath"].rstrip("/") != mount_path.rstrip("/") for of in mounts):
                container["volumeMounts"] = [*mounts, {"name": name, "mountPath": mount_path}]

    def add_files(self, name: str, files: Mapping[str, str], mount_path: str) -> None:
        """Mount a folder with these files, which stand in annotations of the pod."""
        metadata = self.value.setdefault("metadata", {})
        metadata["annotations"] = (metadata.get("annotations") or {}) | {
            f"files.{name}/{file}": content for file, content in files.items()
        }
        items = [
            {"path": file, "fieldRef": {"fieldPath": f"metadata.annotations['files.{name}/{file}']"}} for file in files
        ]
        self.add_volume(name, {"downwardAPI": {"items": items}}, mount_path)

    def rename_hosts(self, pattern: re.Pattern[str], to: Callable[[re.Match[str]], str]) -> None:
        """Replace the host names of the source's pods in commands, arguments and variables by those of the TYJob's."""
        for path, container in self.containers():
            for field in ("command", "args"):
                texts = container.get(field) or []
                for number, text in enumerate(texts):
                    texts[number] = self._renamed(f"{path}.{field}[{number}]", text, pattern, to)
            for number, variable in enumerate(container.get("env") or ()):
                if variable.get("value"):
                    where = f"{path}.env[{number}].value"
                    variable["value"] = self._renamed(where, variable["value"], pattern, to)

    def point_out(self, pattern: re.Pattern[str], words: str) -> None:
        """Say these words of commands, arguments and variables in which the pattern is found."""
        for path, container in self.containers():
            texts = [
                (f"{field}[{n}]", of)
                for field in ("command", "args")
                for n, of in enumerate(container.get(field) or ())
            ]
            texts += [(f"env[{n}].value", of.get("value") or "") for n, of in enumerate(container.get("env") or ())]
            for where, text in texts:
                if pattern.search(text):
                    self.notes.add(NoteKind.TO_DO, f"{path}.{where}", words)

    def _renamed(self, path: str, text: str, pattern: re.Pattern[str], to: Callable[[re.Match[str]], str]) -> str:
        changes = {match[0]: to(match) for match in pattern.finditer(text)}
        for old, new in changes.items():
            if old != new:
                self.notes.add(NoteKind.CHANGED, path, f"the host {old} is {new} here")
        return pattern.sub(to, text)

    def answer_references(self, known: Mapping[str, str]) -> None:
        """Replace variables that refer to labels and annotations which the source's operator gives to pods by these
        values, by the name of the label or annotation. Other names that the pod lacks are told."""
        for path, container in self.containers():
            for number, variable in enumerate(container.get("env") or ()):
                name = self._missing(variable.get("valueFrom"))
                if name in known:
                    variable.pop("valueFrom")
                    variable["value"] = known[name]
                elif name:
                    words = f"pods have no {name}: {variable['name']} is empty; docs/jobs.md has what they are told"
                    self.notes.add(NoteKind.TO_DO, f"{path}.env[{number}].valueFrom", words)
        self._say_empty_files()

    def _say_empty_files(self) -> None:
        """Say which files of the downward API would be empty."""
        for number, volume in enumerate(self.spec.get("volumes") or ()):
            path = f"{self.path}.spec.volumes[{number}]"
            sources = [volume, *((volume.get("projected") or {}).get("sources") or ())]
            for item in [item for of in sources for item in (of.get("downwardAPI") or {}).get("items") or ()]:
                if name := self._missing(item):
                    words = (
                        f"pods have no {name}: the file {item['path']} is empty; docs/jobs.md has what they are told"
                    )
                    self.notes.add(NoteKind.TO_DO, path, words)

    def _missing(self, source: Json | None) -> str:
        """The name of a label or annotation that a field reference names and the pod lacks; empty for none."""
        metadata = self.value.get("metadata") or {}
        match = _KEY_OF_REFERENCE.fullmatch(((source or {}).get("fieldRef") or {}).get("fieldPath") or "")
        if match is None or match[2] in (metadata.get(match[1]) or {}) or match[2].startswith(LABEL_PREFIX):
            return ""
        return match[2]


def template_of(fields: Fields, name: str = "template") -> Template:
    """Take a pod template. In place of one that the API server would refuse, its faults are noted, and a template that
    has a container and the restart policy alone is returned."""
    path, value = fields.at(name), fields.raw(name)
    template = Template(path, value, fields.notes)
    try:
        if value is None:
            raise fields.problem(name, "Required value: a pod template")
        if not isinstance(value, dict):
            raise wrong(definition("PodTemplateSpec")(value, path))
        _left_out(template)
        _decimals(value.get("spec"))
        _without_unknown(template)
        _metadata(template)
    except ConversionProblem as problem:
        fields.notes.fault(problem)
        spec = value.get("spec") if isinstance(value, dict) else None
        policy = spec.get("restartPolicy") if isinstance(spec, dict) else None
        template = stand_in(path, fields.notes, policy)
    return template


def stand_in(path: str, notes: Notes, restart_policy: Any = None) -> Template:
    """A template in place of one that is missing or wrong, for which a fault is noted."""
    return Template(path, {"spec": {"containers": [{"name": "main"}], "restartPolicy": restart_policy}}, notes)


def _left_out(template: Template) -> None:
    """What Arranger decides itself."""
    spec, path = template.value.get("spec"), f"{template.path}.spec"
    if not isinstance(spec, dict):
        return
    scheduler = spec.pop("schedulerName", None)
    if scheduler is not None and scheduler not in _USUAL_SCHEDULERS:
        words = f"Arranger places the pods, and not the scheduler {scheduler}"
        template.notes.add(NoteKind.CHANGED, f"{path}.schedulerName", words)
    for name, words in (
        ("nodeName", "Arranger chooses the node: use nodeSelector or affinity"),
        ("schedulingGates", "Arranger makes pods with a node: use spec.suspend of the TYJob"),
        ("schedulingGroup", "the TYJob itself says which pods get nodes together"),
        ("ephemeralContainers", "a template has none: they are added to pods that run"),
    ):
        if spec.pop(name, None):
            template.notes.add(NoteKind.NO_EQUIVALENT, f"{path}.{name}", words)


def _decimals(spec: Any) -> None:
    """Write amounts such as 0.5, which the API server takes in pods, as texts, as a TYJob has them."""
    for kind in ("containers", "initContainers"):
        containers = spec.get(kind) if isinstance(spec, dict) else None
        for container in containers if isinstance(containers, list) else ():
            resources = container.get("resources") if isinstance(container, dict) else None
            for amounts in resources.values() if isinstance(resources, dict) else ():
                for name, amount in amounts.items() if isinstance(amounts, dict) else ():
                    if isinstance(amount, float) and math.isfinite(amount):
                        amounts[name] = format(Decimal(repr(amount)), "f")


def _without_unknown(template: Template) -> None:
    """Leave out what the API server doesn't know, with a note."""
    for name in ("status",):
        template.value.pop(name, None)
    check = definition("PodTemplateSpec")
    faults = list(check(template.value, template.path))
    while faults:
        unknown = [of for of in faults if of.kind == FaultKind.UNKNOWN_FIELD]
        others = [of for of in faults if of.kind not in (FaultKind.UNKNOWN_FIELD, FaultKind.RESERVED_LABEL)]
        if others:
            raise wrong(dict.fromkeys([*others, *_amounts(template)]))
        for fault in unknown:
            meant = meant_text([fault]).replace(f" in place of {fault.field}?", "?")
            words = "unknown field of a pod, left out" + (f", {meant}" if meant else "")
            template.notes.add(NoteKind.NO_EQUIVALENT, fault.field, words)
            if not _removed(template.value, fault.field.removeprefix(template.path).removeprefix(".")):
                raise wrong([fault])
        if not unknown:
            _without_reserved_labels(template)
        faults = list(check(template.value, template.path))


def _amounts(template: Template) -> Iterator[Fault]:
    """What is wrong with amounts beside others that are no quantities, because of which the check of the template says
    nothing of these."""
    if list(_CONTAINERS(template.value, "")):
        return
    for path, container in template.containers():
        resources: Json = copy.deepcopy(container.get("resources") or {})
        amounts = [resources.get(kind) or {} for kind in ("requests", "limits")]
        for name in dict.fromkeys(name for of in amounts for name, value in of.items() if list(quantity(value, ""))):
            for of in amounts:
                of.pop(name, None)
        yield from definition("ResourceRequirements")(resources, f"{path}.resources")


def _without_reserved_labels(template: Template) -> None:
    path, labels = f"{template.path}.metadata.labels", template.value["metadata"]["labels"]
    for name in [name for name in labels if name.startswith(LABEL_PREFIX)]:
        del labels[name]
        template.notes.add(NoteKind.NO_EQUIVALENT, below(path, name), "Arranger sets the labels of this domain itself")


def _removed(value: Any, path: str) -> bool:
    """Remove the field with this path; whether there is one."""
    if isinstance(value, list):
        match = re.match(r"\[(\d+)\]", path)
        return match is not None and _removed(value[int(match[1])], path[match.end() :].removeprefix("."))
    for key in list(value) if isinstance(value, dict) else ():
        name = below("", key)
        if path == name:
            del value[key]
            return True
        if (
            path.startswith(name)
            and path[len(name)] in ".["
            and _removed(value[key], path[len(name) :].removeprefix("."))
        ):
            return True
    return False


def _metadata(template: Template) -> None:
    """Labels and annotations without those of the API server; those of schedulers say where pods go."""
    metadata = template.value.get("metadata")
    if not metadata:
        template.value.pop("metadata", None)
        return
    for name in _NO_EFFECT:
        metadata.pop(name, None)
    for name in _OF_THE_SERVER:
        (metadata.get("labels") or {}).pop(name, None)
    annotations = metadata.get("annotations") or {}
    for name, mode in _TOPOLOGY.items():
        if level := annotations.pop(name, None):
            template.topology = {"levels": [level], "mode": mode}
    _without_schedulers(template, metadata)
    for name in [name for name in metadata if not metadata[name]]:
        del metadata[name]
    if not metadata:
        del template.value["metadata"]


def _without_schedulers(template: Template, metadata: Json) -> None:
    """Take what other schedulers read of a pod. Kueue's webhook gates pods with its labels: those of a TYJob have their
    node when they are made, and the API server refuses a pod with both. Volcano counts pods with its group's name."""
    for field in ("labels", "annotations"):
        kept = metadata.get(field) or {}
        for name in list(kept):
            path = below(f"{template.path}.metadata.{field}", name)
            words = instead_of(name)
            if name in PREEMPTIBLE:
                template.keep_room[path] = keeps_room(kept[name])
            elif name.startswith(_KUEUE):
                words = words or "only Kueue reads it, and it would gate pods that have their nodes already"
            elif not words:
                continue
            del kept[name]
            if words:
                template.notes.add(NoteKind.NO_EQUIVALENT, path, words)


__all__ = ["ConversionProblem", "Json", "Template", "template_of"]
