"""What all kinds have: names, labels, the queue and the priority of the object, and the TYJob that comes of it."""

import copy
import re
from collections.abc import Sequence
from typing import Any

from arranger.convert.fields import MAX_INT32, Fields, NoteKind
from arranger.convert.names import fitting, label, queue_name
from arranger.convert.rights import host_access
from arranger.convert.scheduler_keys import MOST_SECONDS, PREEMPTIBLE, instead_of, keeps_room
from arranger.convert.templates import Json, Template
from arranger.convert.whole_input import Flavor, Input
from arranger.model.fields import DNS_LABEL
from arranger.model.names import MAX_NAMES_LENGTH
from arranger.model.queue import MAX_QUEUE_NAME
from arranger.model.schema import definition

#: What the API server writes.
OF_THE_SERVER = (
    *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields"),
    *("resourceVersion", "selfLink", "uid"),
)
#: Labels and annotations that name a queue, the most telling first.
_QUEUES = (
    "kueue.x-k8s.io/queue-name",
    "scheduling.volcano.sh/queue-name",
    "volcano.sh/queue-name",
    "yunikorn.apache.org/queue",
)
_KUEUE = "kueue.x-k8s.io/queue-name"
_DEFAULT_NAMESPACE = "default"
_NO_EFFECT = (
    "kubectl.kubernetes.io/last-applied-configuration",
    "batch.kubernetes.io/job-tracking",
    *("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"),
)
#: Domains of labels and annotations that only the controllers of the source's kinds read.
_OPERATORS = re.compile(
    r"([a-z0-9-]+\.)*(kueue\.x-k8s\.io|volcano\.sh|ray\.io|jobset\.sigs\.k8s\.io|leaderworkerset\.sigs\.k8s\.io|"
    r"training\.kubeflow\.org|yunikorn\.apache\.org|batch\.kubernetes\.io)/.*"
)


class Head:
    """The metadata of an object, and what its labels and annotations decide. Made with the names of the leader and of
    the worker sets, because these and the job's name have to fit into the names of pods."""

    def __init__(self, root: Fields, around: Input, queue: Sequence[str] = ()) -> None:
        """`queue` is the path of the field that names the queue, if the kind has one."""
        self._around = around
        self._metadata = root.record("metadata")
        self.labels = self._metadata.record("labels")
        self.annotations = self._metadata.record("annotations")
        self.namespace = self._metadata.text("namespace")
        self.source_name = self._name()
        self.name = ""
        self._room = MAX_NAMES_LENGTH
        #: Whether Kueue starts the object.
        self.kueue = _KUEUE in self.labels or _KUEUE in self.annotations
        #: Where the ClusterQueue is named of which the object gets its nodes in Kueue, and that, if it is in the input.
        self._cluster_queue: tuple[Fields, str, str] | None = None
        self.queue = self._queue(root, queue)
        #: The longest time with nodes; None without a limit.
        self.most_s = self._most_s()
        #: The rights of which it was said that a user needs them.
        self._needed: set[str] = set()
        #: Whether its pods give no room to others, by the paths of the labels and annotations that say so.
        self.keep_room = {
            fields.at(name): keeps_room(fields.text(name))
            for fields in (self.labels, self.annotations)
            for name in PREEMPTIBLE
            if name in fields
        }
        self._metadata.ignore(*OF_THE_SERVER)
        self._metadata.lost(
            "ownerReferences", "the TYJob has no owner: whoever made this object doesn't make the TYJob"
        )
        self._metadata.lost("finalizers", "whoever removes this finalizer doesn't know the TYJob")

    def _name(self) -> str:
        name, prefix = self._metadata.text("name"), self._metadata.text("generateName")
        if not name and not prefix:
            self._metadata.fault("name", "Required value", of=[self._metadata.at("generateName")])
        if not name:
            name = prefix.rstrip("-.") or "job"
            words = f"the TYJob has the fixed name {name}: give each another one, such as {name}-1"
            self._metadata.to_do("generateName", words)
        return name

    def named(self, parts: Sequence[str], paths: Sequence[tuple[Fields, str]] = ()) -> list[str]:
        """Names for the leader and the worker sets: DNS labels, all different, that fit with the job's name. Sets
        `name`. `paths` are where they come from, if they are the user's."""
        for number, part in enumerate(parts[: len(paths)]):
            if part in parts[:number] and paths[parts.index(part)][1]:
                (fields, field), (others, of) = paths[number], paths[parts.index(part)]
                fields.fault(field, f"Duplicate value: another one is named {part}", of=[others.at(of)])
        names: list[str] = []
        for number, part in enumerate(parts):
            name = base = label(part)[:30].strip("-") if len(part) > 30 else label(part)
            while name in names:
                name = f"{base}-{number}"
            names.append(name)
            if name != part and number < len(paths):
                fields, field = paths[number]
                fields.changed(
                    field, f"the worker set's name is {name}: lower-case letters, digits and '-', at most 30"
                )
        self._room = MAX_NAMES_LENGTH - max(map(len, names), default=1)
        self.name = fitting(self.source_name, self._room)
        if self.name != self.source_name:
            words = (
                f"the TYJob's name is {self.name}: host and pod names begin with it, so it has to be a short DNS label"
            )
            self._metadata.changed("name", words)
        return names

    def _queue(self, root: Fields, path: Sequence[str]) -> str:
        """The queue of the object: that of Kueue, which starts it, then that of its own field, and then those of other
        labels and annotations. Of another queue that is named it is said which one counts."""
        of_labels = [(fields, name) for fields in (self.labels, self.annotations) for name in _QUEUES if name in fields]
        named = [each for each in of_labels if each[1] == _KUEUE]
        if path:
            *above, last = path
            for each in above:
                root = root.record(each)
            named.append((root, last))
        named += [each for each in of_labels if each[1] != _KUEUE]
        named = [(fields, name) for fields, name in named if fields.text(name)]
        if not named:
            return ""
        (first, key), *others = named
        for fields, name in others:
            if fields.text(name) != first.text(key):
                fields.lost(name, f"left out, because the queue {first.text(key)} of {first.at(key)} counts")
        return self.queue_of(first, key)

    def _most_s(self) -> int | None:
        """The time after which Kueue stops what it started."""
        value = self.labels.text(MOST_SECONDS)
        if not value.isdecimal() or not 0 < int(value) <= MAX_INT32:
            self.labels.lost(MOST_SECONDS, "not a number of seconds: set activeDeadlineSeconds of the TYJob")
            return None
        if not self.kueue:
            self.labels.lost(MOST_SECONDS, "without a queue of Kueue it has no effect: see activeDeadlineSeconds")
            return None
        self.labels.changed(MOST_SECONDS, "the TYJob fails after this time with nodes (activeDeadlineSeconds)")
        return int(value)

    def suffixed(self, suffix: str) -> str:
        """The job's name with a suffix, cut to fit as well."""
        return f"{self.name[: self._room - len(suffix)].rstrip('-')}{suffix}"

    def queue_of(self, fields: Fields, name: str) -> str:
        """The Queue that a field names, with what to do for it."""
        named = fields.text(name)
        of_tree = named.rpartition(".")[2] if name.startswith("yunikorn") else named
        if name == _KUEUE and (cluster_queue := self._local_queue(fields, name, named)):
            self._cluster_queue = (fields, name, cluster_queue)
            return self._queue_of_local(fields, name, queue_name(cluster_queue))
        local = self._without_local_queue(named) if of_tree and name == _KUEUE else ""
        if not local and of_tree and (made := queue_name(of_tree)) in self._around.queues:
            if made != of_tree:
                fields.changed(name, f"the Queue's name is {made}")
            return made
        if not of_tree or of_tree == "default":
            if local:
                fields.to_do(name, f"the job is in the Queue default, as all that name none.{local}")
            return of_tree
        if len(of_tree) > MAX_QUEUE_NAME or DNS_LABEL.fullmatch(of_tree) is None:
            words = (
                f"a Queue can't have this name: name another in spec.queue of the TYJob, at most {MAX_QUEUE_NAME} "
                "lower-case letters, digits and '-'"
            )
            fields.to_do(name, words)
            return ""
        fields.to_do(
            name, f"the job waits for a Queue named {of_tree}: arranger queue create {of_tree} (docs/queues.md).{local}"
        )
        return of_tree

    def _local_queue(self, fields: Fields, name: str, named: str) -> str:
        """The ClusterQueue of the LocalQueue of this name in the object's namespace; empty without one. An object
        without a namespace is one of the namespace `default`, as kubectl takes it in a context that names no other."""
        local = self._around.local
        if found := local.get((self.namespace, named), ""):
            return found
        others = {"": _DEFAULT_NAMESPACE, _DEFAULT_NAMESPACE: ""}
        found = local.get((others[self.namespace], named), "") if self.namespace in others else ""
        if found:
            which = "the LocalQueue" if self.namespace else "this object"
            words = f"{which} names no namespace: it counts as one of the namespace {_DEFAULT_NAMESPACE}"
            fields.changed(name, f"{words}, as with kubectl")
        return found

    def _without_local_queue(self, named: str) -> str:
        """Why the input has no LocalQueue of this name in the object's namespace, as the end of a note."""
        there = sorted(namespace for namespace, name in self._around.local if name == named)
        if not there:
            return (
                " Convert its LocalQueue with it: that says which Queue. A LocalQueue is its namespace's alone, and a "
                "Queue is all namespaces': give those of teams names apart"
            )
        own = f"this object of {self.namespace}" if self.namespace else "this object names none"
        if not there[0]:
            return f" The LocalQueue {named} of the input names no namespace, and this object is of {self.namespace}"
        more = "" if self.namespace else ": set metadata.namespace"
        return f" The LocalQueue {named} of the input is of the namespace {' or '.join(there)}, and {own}{more}"

    def _queue_of_local(self, fields: Fields, name: str, queue: str) -> str:
        """The Queue of the ClusterQueue of a LocalQueue that is in the input."""
        if queue in self._around.queues:
            fields.changed(name, f"the Queue {queue}, of the ClusterQueue of this LocalQueue")
        else:
            words = f"the job waits for a Queue named {queue}, of the ClusterQueue of this LocalQueue: convert that too"
            fields.to_do(name, f"{words}, or arranger queue create {queue} (docs/queues.md)")
        return queue

    def give_flavor(self, templates: Sequence[Json]) -> None:
        """Write what Kueue adds to pods of the object's ClusterQueue into these templates, if it has one flavor."""
        if self._cluster_queue is None:
            return
        fields, name, queue = self._cluster_queue
        names = self._around.flavors_of.get(queue, ())
        if len(names) > 1:
            words = (
                f"Kueue chooses one of the flavors {', '.join(names)} for each pod, and adds its node selector and "
                "tolerations: give the templates those of one"
            )
            fields.to_do(name, words)
            return
        for flavor_name in names:
            flavor = self._around.flavors.get(flavor_name)
            if flavor is None:
                words = f"Kueue adds what the ResourceFlavor {flavor_name} says to pods: convert that with it"
                fields.to_do(name, words)
            elif flavor.selector or flavor.tolerations:
                self._write_flavor(fields, name, flavor_name, flavor, templates)

    @staticmethod
    def _write_flavor(fields: Fields, name: str, flavor_name: str, flavor: Flavor, templates: Sequence[Json]) -> None:
        for template in templates:
            spec = template["spec"]
            selector = spec.get("nodeSelector") or {}
            if any(selector.get(key, value) != value for key, value in flavor.selector.items()):
                words = (
                    f"a template selects other nodes than the ResourceFlavor {flavor_name}, so Kueue never starts the "
                    "object: correct its nodeSelector"
                )
                fields.to_do(name, words)
                continue
            there = spec.get("tolerations") or []
            tolerations = [*there, *(copy.deepcopy(dict(of)) for of in flavor.tolerations if of not in there)]
            made = {"nodeSelector": {**selector, **flavor.selector}, "tolerations": tolerations}
            spec |= {field: value for field, value in made.items() if value}
            words = (
                f"the templates have the node selector and the tolerations of the ResourceFlavor {flavor_name}, which "
                "Kueue adds to pods"
            )
            fields.changed(name, words)

    def need(self, rights: Sequence[tuple[str, str]]) -> None:
        """Say which rights a user needs to apply the TYJob, each once, with the path of the first field that asks."""
        for right, path in rights:
            if right not in self._needed:
                self._needed.add(right)
                words = (
                    f'its user needs the right to "use" {right} in the namespace, which nobody has until you give it'
                )
                words += " (docs/operations.md, Tenants)"
                self.labels.notes.add(NoteKind.TO_DO, path, words)

    def metadata(self, name: str = "") -> Json:
        """The metadata of the TYJob with this name."""
        made: Json = {"name": name or self.name}
        if self.namespace:
            made["namespace"] = self.namespace
        for field, source in (("labels", self.labels), ("annotations", self.annotations)):
            if carried := kept(source):
                made[field] = carried
        return made


def kept(source: Fields) -> dict[str, str]:
    """Labels or annotations that mean something beyond the controllers of the source."""
    source.ignore(*_NO_EFFECT)
    carried = {}
    for name in source.names():
        if name in _NO_EFFECT or name in _QUEUES:
            continue
        if source.taken(name):
            continue
        if words := instead_of(name):
            source.lost(name, words)
        elif _OPERATORS.fullmatch(name):
            source.lost(name, "only the controller of this object's kind reads it")
        else:
            carried[name] = source.text(name)
    return carried


def point_out_hosts(head: Head, template: Template) -> None:
    """Say which host names can't be replaced, because a shell or a program computes them."""
    computed = re.compile(rf"(?<![\w.-]){re.escape(head.source_name)}-[\w-]*[${{%]")
    template.point_out(computed, f"host names are SET-N.{head.name} here: what computes others has to be changed")


def tyjob(head: Head, spec: Json, name: str = "") -> Json:
    """A TYJob, with another name than the head's if one is given; fields of the spec that are None or an empty text are
    absent."""
    limits = [limit for limit in (spec.get("activeDeadlineSeconds"), head.most_s) if limit is not None]
    spec = spec | {"activeDeadlineSeconds": min(limits, default=None)}
    made = {name: value for name, value in spec.items() if value not in (None, "")}
    leader = made.get("leader")
    head.give_flavor([of["template"] for of in (*([leader] if leader else ()), *made.get("workerSets", ()))])
    return {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "metadata": head.metadata(name), "spec": made}


def claim_of(metadata: Json, source: Fields, name: str = "spec") -> Json:
    """The claim with this metadata that the source's operator would make; a field of the source has its spec."""
    spec = source.raw(name, definition("PersistentVolumeClaimSpec"))
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec or {}}


def success(sets: Sequence[str], others: int) -> Json | None:
    """The success policy by which these worker sets decide; None without any, and without other sets."""
    return {"type": "Sets", "sets": [*sets]} if sets and others else None


def worker_set(name: str, template: Template, counts: int, **more: Any) -> Json:
    """A worker set; further fields that are None are absent. The template's topology is the set's, if none is given."""
    made = {"topology": template.topology} | more
    given = {field: value for field, value in made.items() if value is not None}
    return {"name": name, "counts": counts, **given, "template": template.value}


def precedence(head: Head, templates: Sequence[Template], own: tuple[Fields, str] | None = None) -> Json:
    """Who gives room to whom: the PriorityClass of the job, that of its own field if it has one, else the first that a
    template names; and that the job gives no room, if it or any template says so. Says which rights the TYJob takes."""
    head.need([("tyjobs/hostaccess", path) for of in templates for path in host_access(of)])
    return {"priorityClassName": _class_of(head, templates, own), "preemptible": _preemptible(head, templates)}


def _class_of(head: Head, templates: Sequence[Template], own: tuple[Fields, str] | None) -> str | None:
    classes = [(own[0].text(own[1]), own[0].at(own[1]))] if own else []
    classes += [(of.spec.get("priorityClassName") or "", f"{of.path}.spec.priorityClassName") for of in templates]
    classes = [(name, path) for name, path in classes if name]
    head.need([(f"the PriorityClass {name}, which must exist,", path) for name, path in classes])
    if not classes:
        return None
    named = classes[0][0]
    for name, path in classes:
        if name != named:
            words = f"the order of jobs follows {named}, the priorityClassName of the TYJob"
            head.labels.notes.add(NoteKind.CHANGED, path, words)
    return named


def _preemptible(head: Head, templates: Sequence[Template]) -> bool | None:
    """False if the pods of one part give no room; None if nobody says so."""
    said = head.keep_room | {path: keeps for of in templates for path, keeps in of.keep_room.items()}
    if not any(said.values()):
        return None
    everyone = any(head.keep_room.values()) or all(any(of.keep_room.values()) for of in templates)
    for path, keeps in said.items():
        if not (keeps and everyone):
            words = "no pod of the TYJob gives room to others (preemptible: false): it holds for the job as a whole"
            head.labels.notes.add(NoteKind.CHANGED, path, words)
    return False


def suspended(head: Head, fields: Fields) -> bool | None:
    """Whether the TYJob is suspended. What waits for Kueue waits for Arranger's own queue instead."""
    if not fields.flag("suspend"):
        return None
    if head.kueue:
        fields.changed(
            "suspend", "the TYJob isn't suspended: this asks Kueue to start it, and Arranger has queues itself"
        )
        return None
    return True


def deadline(fields: Fields) -> int | None:
    """The time that a job may take."""
    seconds = fields.whole("activeDeadlineSeconds", least=1)
    fields.changed("activeDeadlineSeconds", "only time with nodes counts: waiting in the queue doesn't")
    return seconds
