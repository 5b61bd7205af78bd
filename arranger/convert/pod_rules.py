"""Rules of a pod template about other pods (affinity, anti-affinity, spreading) that select by the labels which the
source's operator gives its pods. Pods of a TYJob have Arranger's labels instead, so the rules select by those.

Only labels that are the same for all pods of the leader or of a worker set can be selected by: the scheduler places a
pod by these (`names.known_labels`). Of a selector that needs others, such as the index of a pod, a note says so.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from arranger.convert.fields import NoteKind
from arranger.convert.templates import Json, Template
from arranger.model.checks import below
from arranger.model.names import JOB_LABEL, LEADER_ROLE, ROLE_LABEL, WORKER_ROLE, WORKER_SET_LABEL, known_labels

#: Arranger's labels with the values of which a pod has one each; without values, the label alone.
Selected = Mapping[str, Sequence[str]]
#: Labels that operators give their pods, also where no module knows what they stand for.
_OPERATORS = re.compile(
    r"([a-z0-9-]+\.)*(kueue\.x-k8s\.io|volcano\.sh|ray\.io|jobset\.sigs\.k8s\.io|leaderworkerset\.sigs\.k8s\.io|"
    r"training\.kubeflow\.org|batch\.kubernetes\.io)/.*|controller-uid|job-name"
)
_OWN = (JOB_LABEL, ROLE_LABEL, WORKER_SET_LABEL)
_INSTEAD = f"select by {JOB_LABEL}, {ROLE_LABEL} and {WORKER_SET_LABEL}"


class Label(msgspec.Struct, frozen=True):
    """What stands for a label of the source's pods."""

    #: What selects the pods that have a value of it; None if nothing does.
    selected: Callable[[str], Selected | None]
    #: Arranger's labels that tell as much, the most telling first; all pods of TYJobs have the last.
    place: tuple[str, ...] = ()


#: A label for which nothing stands.
NOTHING = Label(lambda _: None)
#: One that is another in each TYJob, with values that nobody knows before.
OF_THE_JOB = Label(lambda _: None, (JOB_LABEL,))


def job_label(names: Mapping[str, Sequence[str]]) -> Label:
    """The label with the object's name; `names` are those of its TYJobs. TYJobs of others have their objects' names."""
    return Label(lambda value: {JOB_LABEL: names.get(value, (value,))}, (JOB_LABEL,))


def set_label(sets: Mapping[str, str], leader: str = "") -> Label:
    """A label with the part of the object; `sets` are the worker sets by its values, and `leader` is the value of the
    leader. Other values are those of other objects' parts."""

    def selected(value: str) -> Selected:
        if leader and value == leader:
            return {ROLE_LABEL: (LEADER_ROLE,)}
        return {WORKER_SET_LABEL: (sets.get(value, value),)}

    return Label(selected, (WORKER_SET_LABEL, ROLE_LABEL))


def role_label(leader: str, worker: str) -> Label:
    """A label that tells the leader from the workers, by its values."""
    roles = {leader: LEADER_ROLE, worker: WORKER_ROLE}
    return Label(lambda value: {ROLE_LABEL: (roles[value],)} if value in roles else None, (ROLE_LABEL,))


def known_label(values: Mapping[str, Selected], place: tuple[str, ...] = ()) -> Label:
    """A label with these values alone."""
    return Label(values.get, place)


def every_label(*values: str) -> Label:
    """A label that all pods of the operator have, with one of these values; any value without them."""
    return Label(lambda value: {JOB_LABEL: ()} if value in values or not values else None, (JOB_LABEL,))


class Pods(msgspec.Struct, frozen=True):
    """The pods of an object: what stands for the labels that its operator gives them, and the names of its TYJobs."""

    labels: Mapping[str, Label]
    jobs: Sequence[str]


def select_own(template: Template, pods: Pods, job: str, part: str, *, leader: bool = False) -> None:
    """Let the rules of a template of this worker set, or of the leader, select by Arranger's labels in place of those
    of its operator, and say so."""
    known = known_labels(job, part, leader=leader)
    for path, rule in _rules(template):
        selector = rule.get("labelSelector")
        if selector is not None:
            _Rule(template, pods, known, path).rewrite(rule, selector)


def _rules(template: Template) -> Iterator[tuple[str, Json]]:
    """All rules about other pods with their paths."""
    spec, path = template.spec, f"{template.path}.spec"
    for kind in ("podAffinity", "podAntiAffinity"):
        of_kind = (spec.get("affinity") or {}).get(kind) or {}
        for field, inner in (
            ("requiredDuringSchedulingIgnoredDuringExecution", ""),
            ("preferredDuringSchedulingIgnoredDuringExecution", ".podAffinityTerm"),
        ):
            for number, term in enumerate(of_kind.get(field) or ()):
                yield f"{path}.affinity.{kind}.{field}[{number}]{inner}", term[inner[1:]] if inner else term
    for number, rule in enumerate(spec.get("topologySpreadConstraints") or ()):
        yield f"{path}.topologySpreadConstraints[{number}]", rule


class _Rule:
    """One rule, at this path; `known` are the labels of its own pod that the scheduler knows."""

    def __init__(self, template: Template, pods: Pods, known: Mapping[str, str], path: str) -> None:
        self._notes = template.notes
        self._given = (template.value.get("metadata") or {}).get("labels") or {}
        self._labels = pods.labels
        self._jobs = pods.jobs
        self._known = known
        self._path = path

    def rewrite(self, rule: Json, selector: Json) -> None:
        more: list[Json] = []
        path = f"{self._path}.labelSelector"
        equal = dict(selector.get("matchLabels") or {})
        for key in [key for key in equal if self._foreign(key)]:
            found = self._required(below(f"{path}.matchLabels", key), key, "In", [equal[key]])
            if found is not None:
                del equal[key]
                more += found
        for number, each in enumerate(selector.get("matchExpressions") or ()):
            found = None
            if self._foreign(each["key"]):
                where = f"{path}.matchExpressions[{number}]"
                found = self._required(where, each["key"], each["operator"], each.get("values") or ())
            more += [each] if found is None else found
        if not equal and not rule.get("mismatchLabelKeys"):
            more += self._of_this_object(path, more)
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
            more += self._own_values(rule, field, operator)
        self._write(selector, equal, more)

    def _of_this_object(self, path: str, made: Sequence[Json]) -> list[Json]:
        """The object's own TYJobs, if a rule selects a part of one by nothing else. The operator's pods are all of one
        kind, but other TYJobs may have worker sets of the same name that are something else."""
        parts = [
            of for of in made if of["key"] in (ROLE_LABEL, WORKER_SET_LABEL) and of["operator"] in ("In", "Exists")
        ]
        of_jobs = any(of["key"] == JOB_LABEL and of.get("values") for of in made)
        if not parts or of_jobs or any(of["key"] not in _OWN for of in made):
            return []
        found: Json = {"key": JOB_LABEL, "operator": "In", "values": list(self._jobs)}
        words = f"selects by {_shown(found)} too, which is this object alone: parts of other TYJobs may have this name"
        self._notes.add(NoteKind.CHANGED, path, words)
        return [found]

    @staticmethod
    def _write(selector: Json, equal: Json, expressions: list[Json]) -> None:
        for each in [each for each in expressions if each["key"] in _OWN and each["operator"] == "In"]:
            if len(each["values"]) == 1 and each["key"] not in equal:
                equal[each["key"]] = each["values"][0]
                expressions.remove(each)
        for field, value in (("matchLabels", equal), ("matchExpressions", expressions)):
            if value:
                selector[field] = value
            else:
                selector.pop(field, None)

    def _foreign(self, key: str) -> bool:
        """Whether only the source's operator gives pods this label."""
        return key not in self._given and (key in self._labels or _OPERATORS.fullmatch(key) is not None)

    def _required(self, path: str, key: str, operator: str, values: Sequence[str]) -> list[Json] | None:
        """What is required in place of this; None, with a note, if nothing says the same."""
        label = self._labels.get(key, NOTHING)
        found = _present(label, operator) if operator in ("Exists", "DoesNotExist") else _of(label, operator, values)
        if found is None:
            follows = "leaves none out" if operator in ("NotIn", "DoesNotExist") else "selects none of them"
            words = f"pods of TYJobs have no label {key}, so this {follows}: {_INSTEAD}"
            self._notes.add(NoteKind.TO_DO, path, words)
            return None
        shown = " and ".join(map(_shown, found))
        self._notes.add(NoteKind.CHANGED, path, f"selects by {shown}: pods of TYJobs have no label {key}")
        return found

    def _own_values(self, rule: Json, field: str, operator: str) -> list[Json]:
        """Requirements in place of the keys whose values must be those of the pod itself, or others."""
        found: list[Json] = []
        for number, key in enumerate(rule.get(field) or ()):
            if not self._foreign(key):
                continue
            path, place = f"{self._path}.{field}[{number}]", self._labels.get(key, NOTHING).place
            own = next((label for label in place if label in self._known), None)
            if own is None:
                words = f"pods of TYJobs have no label {key}, so this has no effect: {_INSTEAD}"
                self._notes.add(NoteKind.TO_DO, path, words)
                continue
            found.append({"key": own, "operator": operator, "values": [self._known[own]]})
            rule[field] = [each for each in rule[field] if each != key]
            words = f"selects by {_shown(found[-1])}: pods of TYJobs have no label {key}"
            self._notes.add(NoteKind.CHANGED, path, words)
        if field in rule and not rule[field]:
            del rule[field]
        return found


def _present(label: Label, operator: str) -> list[Json] | None:
    return [{"key": label.place[-1], "operator": operator}] if label.place else None


def _of(label: Label, operator: str, values: Sequence[str]) -> list[Json] | None:
    """The requirements that select the pods with one of these values (`In`), or without (`NotIn`)."""
    found: list[Selected] = []
    for value in values:
        selected = label.selected(value)
        if selected is None:
            return None
        found.append(selected)
    names = {name: None for of in found for name in of}
    if operator == "NotIn":
        return None if any(len(of) > 1 for of in found) else _requirements(names, found, operator)
    differ = [name for name in names if len({tuple(of.get(name, ())) for of in found}) > 1]
    if len(differ) > 1 or any(len(of) != len(names) for of in found):
        return None
    return _requirements(names, found, operator)


def _requirements(names: Mapping[str, None], found: Sequence[Selected], operator: str) -> list[Json]:
    made: list[Json] = []
    for name in names:
        values = list(dict.fromkeys(value for of in found for value in of.get(name, ())))
        present = "Exists" if operator == "In" else "DoesNotExist"
        made.append(
            {"key": name, "operator": operator, "values": values} if values else {"key": name, "operator": present}
        )
    return made


def _shown(requirement: Json) -> str:
    """A requirement as kubectl writes it, with a few of its values."""
    key, values = requirement["key"], requirement.get("values") or ()
    if not values:
        return f"!{key}" if requirement["operator"] == "DoesNotExist" else str(key)
    equal = "!=" if requirement["operator"] == "NotIn" else "="
    if len(values) == 1:
        return f"{key}{equal}{values[0]}"
    more = ", ..." if len(values) > 3 else ""
    return f"{key} {'notin' if equal == '!=' else 'in'} ({', '.join(values[:3])}{more})"
