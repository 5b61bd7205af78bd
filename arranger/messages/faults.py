"""What is wrong with a TYJob or a Queue, in the words of the Kubernetes API server where that has the same check."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from arranger.model.faults import Fault, FaultKind
from arranger.model.fields import ChangesUntil, declared
from arranger.model.job import JobSpec
from arranger.model.names import LABEL_PREFIX
from arranger.model.near_names import near_names
from arranger.model.text import one_line

#: The fields of a TYJob that may be changed at any time, beside some of its worker sets.
_CHANGEABLE = (
    *[each.name for each in declared(JobSpec) if each.field.changes == ChangesUntil.EVER],
    *("replicas", "scaledSet"),
)

#: Limit of the message for one wrong field, in characters: it quotes the user's text.
_LIMIT = 300


def faults_text(faults: Iterable[Fault]) -> str:
    """The faults on one line; empty for none."""
    faults = tuple(faults)
    fixed = ", ".join(fault.field for fault in faults if fault.kind == FaultKind.IMMUTABLE)
    return f"{fixed}: {_WORDS[FaultKind.IMMUTABLE]}" if fixed else "; ".join(map(fault_text, faults))


def fault_text(fault: Fault) -> str:
    """One fault with its field."""
    limits = fault.limits
    if fault.kind == FaultKind.UNSET_VARIABLE:
        return one_line(f"{fault.field}: {_unset(fault)}")[:_LIMIT]
    if fault.kind == FaultKind.UNKNOWN_FIELD and (close := _nearest(fault)):
        return one_line(f"{fault.field}: unknown field, did you mean {close}?")[:_LIMIT]
    words = _WORDS[fault.kind].format(
        value=fault.value,
        name=fault.name,
        limit=limits[0] if limits else "",
        listed=", ".join(limits),
        quoted=", ".join(f'"{limit}"' for limit in limits),
        fields=", ".join(limits[1:]),
        length=len(fault.value) + len(fault.name),
        setter=_SETTERS.get(fault.field.rpartition(".")[2], "Arranger sets it"),
    )
    return one_line(" ".join((f"{fault.field}: {words}" if fault.field else words).split()))[:_LIMIT]


def _unset(fault: Fault) -> str:
    """What a reference to a variable that isn't there does, and what would set the variable."""
    limit = fault.limits[0] if fault.limits else ""
    more = f" ({limit} sets it)" if limit.startswith("spec.") else f", did you mean $({limit})?" if limit else ""
    return f"$({fault.name}) stays as it is: the pod has no such variable{more}"


def meant_text(faults: Iterable[Fault]) -> str:
    """For each unknown field the one that was meant, as far as one has a similar name; empty for none."""
    found = [(of.field, _nearest(of)) for of in faults if of.kind == FaultKind.UNKNOWN_FIELD]
    return ", ".join(f"did you mean {close} in place of {field}?" for field, close in found if close)


def _nearest(fault: Fault) -> str:
    """The known field whose name is nearest to an unknown one's; empty if none is similar."""
    name = fault.field.rpartition(".")[2]
    return next(iter(near_names(name, fault.limits)), "")


#: Name of a field that must be empty → why.
_SETTERS = {
    "nodeName": "Arranger chooses the node (use nodeSelector or affinity)",
    "schedulerName": "Arranger places the job's pods itself",
    "schedulingGates": "Arranger makes the pods with a node (use spec.suspend)",
}

_NAMES_TOO_LONG = (
    "Invalid value: too long: the job's name and {} together may have at most {{limit}} characters, so that pod names "
    "fit into 63, but '{{name}}' and '{{value}}' have {{length}}"
)
_LABEL = "at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or a digit"
_NO_VOLUME = "Invalid value: {} '{{name}}' mounts a volume that neither the template nor spec.volumes has"

_ABOVE_COUNTS = "Invalid value: must not be above the sum of the worker sets' counts, which is {limit}, but is {value}"

_K = FaultKind
_WORDS: Mapping[FaultKind, str] = MappingProxyType(
    {
        _K.WRONG_TYPE: 'Invalid value: "{value}": must be of type {limit}',
        _K.REQUIRED: "Required value",
        _K.UNKNOWN_FIELD: "unknown field, known are: {listed}",
        _K.BELOW_MINIMUM: "Invalid value: {value}: should be greater than or equal to {limit}",
        _K.ABOVE_MAXIMUM: "Invalid value: {value}: should be less than or equal to {limit}",
        _K.TOO_SHORT: "Invalid value: {value}: should be at least {limit} chars long",
        _K.TOO_LONG: "Too long: may not be more than {limit} characters",
        _K.TOO_FEW_ITEMS: "Invalid value: {value}: should have at least {limit} items",
        _K.TOO_MANY_ITEMS: "Too many: {value}: must have at most {limit} items",
        _K.TOO_FEW_FIELDS: "Invalid value: {value}: should have at least {limit} properties: {fields}",
        _K.TOO_MANY_FIELDS: "Too many: {value}: must have at most {limit} items: {fields}",
        _K.DUPLICATE: "Duplicate value: {value} must be used once",
        _K.NOT_SUPPORTED: "Unsupported value: {value}: supported values: {quoted}",
        _K.WRONG_FORM: "Invalid value: {value}: should match '{limit}'",
        _K.NO_DNS_LABEL: (
            'Invalid value: {value}: must be a DNS label: lower-case letters, digits and "-", beginning and ending '
            "with a letter or a digit"
        ),
        _K.MUST_BE_EMPTY: "Invalid value: {value}: must not be set, {setter}",
        _K.ANNOTATIONS_TOO_LARGE: (
            "Too long: the names and values of all annotations of a pod may have {limit} bytes, but have {value}"
        ),
        _K.POD_TOO_LARGE: (
            "Too long: a pod may have {limit} bytes, but has at least {value} with the variables that each of its "
            "containers gets"
        ),
        _K.NO_QUALIFIED_NAME: f"Invalid value: {{value}}: must be {_LABEL}, after a DNS name and '/' or without one",
        _K.NO_LABEL_VALUE: f"Invalid value: {{value}}: must be {_LABEL}, or empty",
        _K.QUANTITY_OF_WRONG_TYPE: (
            'Invalid value: "{value}": must be of type integer or string, as in 2, "500m" or "16Gi"'
        ),
        _K.QUANTITY_TOO_LARGE: "Invalid value: {value}: should be less than 2^63",
        _K.NO_QUANTITY: (
            "Invalid value: {value}: must be a quantity of 0 or more: a number as in 2, or a text as in '500m', '1.5', "
            "'16Gi'"
        ),
        _K.LIMIT_NOT_WHOLE: "Invalid value: {name} must be a whole number of at most {limit}, here {value}",
        _K.NO_LIMIT: "Required value: {name} is requested: it must have an equal limit",
        _K.NOT_THE_LIMIT: "Invalid value: {name} must be equal to its limit of {limit}, here {value}",
        _K.ABOVE_THE_LIMIT: "Invalid value: {name} must not be above its limit of {limit}, here {value}",
        _K.NO_RESOURCE: (
            "Invalid value: {name} is not a resource: it must be cpu, memory, ephemeral-storage, hugepages-* or one "
            "with a domain as in nvidia.com/gpu"
        ),
        _K.RESERVED_LABEL: (
            f"Invalid value: {{value}}: labels under {LABEL_PREFIX} are set by Arranger and must not be set here"
        ),
        _K.NAME_OF_A_CONTAINER: "Invalid value: an init container can't have a container's name: '{name}'",
        _K.NOT_ONE_HANDLER: "Invalid value: must have exactly one of exec, httpGet, tcpSocket and grpc",
        _K.EMPTY_KEY: "Invalid value: must be Exists where the key is empty, which tolerates every taint",
        _K.VALUE_WITH_EXISTS: "Invalid value: must be empty where the operator is Exists",
        _K.NO_VALUES: "Required value: must be given where the operator is In or NotIn",
        _K.VALUES_WITH_EXISTS: "Invalid value: must be empty where the operator is Exists or DoesNotExist",
        _K.NAME_OF_THE_LEADER: (
            "Invalid value: a worker set can't have the leader's name '{name}': every name must be used once"
        ),
        _K.MIN_WORKERS_ABOVE_COUNTS: _ABOVE_COUNTS,
        _K.MIN_WORKERS_WITHOUT_SETS: (f"{_ABOVE_COUNTS} (a job of a leader alone needs none: leave it out)"),
        _K.MIN_COUNT_ABOVE_COUNTS: (
            "Invalid value: minCount of worker set '{name}' must not be above its counts, which is {limit}, but is "
            "{value}"
        ),
        _K.TOO_MANY_WORKERS: (
            "Invalid value: the counts of all worker sets together must be at most {limit}, but are {value}"
        ),
        _K.TWO_PRIORITIES: "Invalid value: must not be given beside priority: one of them decides",
        _K.NO_SUCH_SET: "Invalid value: must be the name of a worker set, but there is no '{name}'",
        _K.NOTHING_TO_SCALE: "Invalid value: there is no worker set to scale",
        _K.REPLICAS_BELOW_MIN_COUNT: (
            "Invalid value: must not be below minCount of worker set '{name}', which is {limit}, but is {value}"
        ),
        _K.REPLICAS_BELOW_MIN_WORKERS: (
            "Invalid value: must be at least {limit}, so that all worker sets together have minWorkersNum, which is "
            "{fields}, but is {value}"
        ),
        _K.NO_VOLUME_IN_LEADER: _NO_VOLUME.format("container"),
        _K.NO_VOLUME_IN_SET: _NO_VOLUME.format("a container of"),
        _K.NO_VOLUME_IN_INIT_OF_SET: _NO_VOLUME.format("an init container of"),
        _K.LEADER_NAME_TOO_LONG: _NAMES_TOO_LONG.format("the leader's name"),
        _K.SET_NAME_TOO_LONG: _NAMES_TOO_LONG.format("a worker set's name"),
        _K.NO_SERVICE_NAME: (
            "Invalid value: needs a job whose name begins with a letter, as the name of a Service does"
        ),
        _K.SEVERAL_PORTS: "Invalid value: worker sets with a rendezvous of the scope Job must have the same port",
        _K.GROUP_RESTARTED_IN_PART: (
            "Invalid value: must be Group, Set or Job where groupSize is above 1: a worker group is restarted whole"
        ),
        _K.NO_GROUP_SIZE: "Invalid value: Group needs groupSize",
        _K.AFTER_ITSELF: "Invalid value: a job can't wait for itself",
        _K.NO_LEADER: "Invalid value: there is no leader",
        _K.NO_WORKER_SET: "Invalid value: there is no worker set",
        _K.NO_LEADER_NOR_SET: "Invalid value: a job without a leader needs a worker set",
        _K.NO_MIN_WORKERS: "Invalid value: must be at least 1 in a job without a leader",
        _K.SETS_WITHOUT_TYPE: "Invalid value: must be given where the type is Sets, and only there",
        _K.STARTS_AFTER_NO_LEADER: (
            "Invalid value: startAfter of worker set '{name}' is {value}, but there is no leader"
        ),
        _K.STARTS_AFTER_NO_SET: (
            "Invalid value: startAfter of worker set '{name}' must be {listed} or the name of another worker set, but "
            "there is no '{value}'"
        ),
        _K.STARTS_AFTER_ITSELF: (
            "Invalid value: worker set '{name}' would start after itself: its startAfter is '{value}'"
        ),
        _K.IMMUTABLE: (
            "can't be changed once the job has started or ended: delete the job and create it again; only "
            f"{', '.join(_CHANGEABLE)}, and counts, minCount and restart of worker sets can be changed"
        ),
        _K.OWN_PARENT: "Invalid value: a queue can't be its own parent",
        _K.NOTHING_DESERVED: (
            "Invalid value: {value} limits jobs that can't be preempted to what the queue deserves, which is nothing: "
            "state amounts in deserved, or leave the field out"
        ),
        _K.ABOVE_THE_AMOUNT: "Invalid value: {name} must not be above {fields}, which is {limit}, but is {value}",
        _K.KUEUE_LABEL: "Kueue starts no TYJobs, and Arranger doesn't read its label: name the Queue in spec.queue",
        _K.KUEUE_LABEL_OF_PODS: (
            "Kueue's webhook may gate pods with this label, and they have their nodes already: leave it out, and name "
            "the Queue in spec.queue"
        ),
        _K.FURTHER: "and {value} more",
    }
)
