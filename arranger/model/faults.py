"""What can be wrong with a TYJob or a Queue, as facts. `arranger.messages.faults` turns them into text."""

from enum import StrEnum

import msgspec


class FaultKind(StrEnum):
    """The kinds of faults. A kind determines which fields of its `Fault` are set."""

    WRONG_TYPE = "WrongType"
    REQUIRED = "Required"
    UNKNOWN_FIELD = "UnknownField"
    BELOW_MINIMUM = "BelowMinimum"
    ABOVE_MAXIMUM = "AboveMaximum"
    TOO_SHORT = "TooShort"
    TOO_LONG = "TooLong"
    TOO_FEW_ITEMS = "TooFewItems"
    TOO_MANY_ITEMS = "TooManyItems"
    TOO_FEW_FIELDS = "TooFewFields"
    TOO_MANY_FIELDS = "TooManyFields"
    DUPLICATE = "Duplicate"
    NOT_SUPPORTED = "NotSupported"
    WRONG_FORM = "WrongForm"
    NO_DNS_LABEL = "NoDnsLabel"
    #: Arranger sets the field itself.
    MUST_BE_EMPTY = "MustBeEmpty"
    QUANTITY_OF_WRONG_TYPE = "QuantityOfWrongType"
    QUANTITY_TOO_LARGE = "QuantityTooLarge"
    NO_QUANTITY = "NoQuantity"
    # Rules between the fields of a pod template.
    LIMIT_NOT_WHOLE = "LimitNotWhole"
    NO_LIMIT = "NoLimit"
    NOT_THE_LIMIT = "NotTheLimit"
    ABOVE_THE_LIMIT = "AboveTheLimit"
    NO_RESOURCE = "NoResource"
    RESERVED_LABEL = "ReservedLabel"
    NAME_OF_A_CONTAINER = "NameOfAContainer"
    NOT_ONE_HANDLER = "NotOneHandler"
    EMPTY_KEY = "EmptyKey"
    VALUE_WITH_EXISTS = "ValueWithExists"
    NO_VALUES = "NoValues"
    VALUES_WITH_EXISTS = "ValuesWithExists"
    # What the API server refuses only in a pod.
    ANNOTATIONS_TOO_LARGE = "AnnotationsTooLarge"
    POD_TOO_LARGE = "PodTooLarge"
    NO_QUALIFIED_NAME = "NoQualifiedName"
    NO_LABEL_VALUE = "NoLabelValue"
    # Rules between the fields of a TYJob.
    NAME_OF_THE_LEADER = "NameOfTheLeader"
    MIN_WORKERS_ABOVE_COUNTS = "MinWorkersAboveCounts"
    MIN_WORKERS_WITHOUT_SETS = "MinWorkersWithoutSets"
    MIN_COUNT_ABOVE_COUNTS = "MinCountAboveCounts"
    TOO_MANY_WORKERS = "TooManyWorkers"
    TWO_PRIORITIES = "TwoPriorities"
    NO_SUCH_SET = "NoSuchSet"
    NOTHING_TO_SCALE = "NothingToScale"
    REPLICAS_BELOW_MIN_COUNT = "ReplicasBelowMinCount"
    #: `limits` are the least replicas, and the least workers of all sets.
    REPLICAS_BELOW_MIN_WORKERS = "ReplicasBelowMinWorkers"
    NO_VOLUME_IN_LEADER = "NoVolumeInLeader"
    NO_VOLUME_IN_SET = "NoVolumeInSet"
    NO_VOLUME_IN_INIT_OF_SET = "NoVolumeInInitOfSet"
    LEADER_NAME_TOO_LONG = "LeaderNameTooLong"
    SET_NAME_TOO_LONG = "SetNameTooLong"
    NO_SERVICE_NAME = "NoServiceName"
    SEVERAL_PORTS = "SeveralPorts"
    GROUP_RESTARTED_IN_PART = "GroupRestartedInPart"
    NO_GROUP_SIZE = "NoGroupSize"
    AFTER_ITSELF = "AfterItself"
    NO_LEADER = "NoLeader"
    NO_WORKER_SET = "NoWorkerSet"
    NO_LEADER_NOR_SET = "NoLeaderNorSet"
    NO_MIN_WORKERS = "NoMinWorkers"
    SETS_WITHOUT_TYPE = "SetsWithoutType"
    STARTS_AFTER_NO_LEADER = "StartsAfterNoLeader"
    STARTS_AFTER_NO_SET = "StartsAfterNoSet"
    STARTS_AFTER_ITSELF = "StartsAfterItself"
    IMMUTABLE = "Immutable"
    # Rules between the fields of a Queue.
    OWN_PARENT = "OwnParent"
    #: `value` says that only what is deserved may be used, and nothing is.
    NOTHING_DESERVED = "NothingDeserved"
    #: `limits` are the amount and its field.
    ABOVE_THE_AMOUNT = "AboveTheAmount"
    #: A warning: `name` is a variable that a template refers to and that its pods don't have, `limits` the field that
    #: would set it, or else the variable with the nearest name.
    UNSET_VARIABLE = "UnsetVariable"
    #: Warnings: a TYJob has the label by which Kueue finds a queue, on itself, or in a template.
    KUEUE_LABEL = "KueueLabel"
    KUEUE_LABEL_OF_PODS = "KueueLabelOfPods"
    #: `value` is the number of faults that aren't listed.
    FURTHER = "Further"


class Fault(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One wrong field of a TYJob or a Queue: its path (`spec.priority`), and the offending value as shown to the user.

    `name` is the resource, container, worker set or job that the rule concerns. `limits` are the limits or the allowed
    values; of a wrong number of fields, the limit and then the known fields.
    """

    field: str
    kind: FaultKind
    value: str = ""
    name: str = ""
    limits: tuple[str, ...] = ()
