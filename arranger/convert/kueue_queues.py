"""ClusterQueues and Cohorts of Kueue, which become Queues, and LocalQueues and ResourceFlavors, which don't.

What Kueue limits by flavor, a Queue limits for the whole cluster: quotas are added up over the flavors of a resource.
"""

import msgspec

from arranger.convert.fields import Fields, NoteKind
from arranger.convert.names import queue_name
from arranger.convert.queue_parts import QueueHead, amount_of, quantity_of, weight, without_unknown
from arranger.convert.templates import Json
from arranger.convert.whole_input import NO_NAMESPACE, Input, Totals, cohort_field, written
from arranger.model.checks import items
from arranger.model.schema import definition

_PER_KIND = "a Queue has no amounts for one kind of node: templates select it (nodeSelector, tolerations), as its"
#: Nobody can submit to a Cohort. Whoever could submit to its Queue would pass by the limits of those below it.
_FOR_NONE = "itself, as none may to a cohort (spec.namespaces): jobs go to the Queues below it"
_TOGETHER = "what the input has below it is its capability, so convert all ClusterQueues of a cohort at once"

_TEMPLATES = (
    "jobs that are converted together with it, their LocalQueue and a ClusterQueue of this flavor alone have it: give "
    "the templates of its other jobs"
)


#: Why a limit is lost.
_NO_LIMIT = "another flavor of the resource has no such limit, and amounts are of the whole cluster"


class Quota(msgspec.Struct):
    """The quota of one resource over all its flavors, in the resource's unit."""

    nominal: int = 0
    #: What is never lent, and the most that is lent and borrowed; None without such a limit of any flavor.
    kept: int = 0
    lent: int | None = 0
    borrowed: int | None = 0

    def add(self, nominal: int, lent: int | None, borrowed: int | None) -> None:
        """Add the quota of one flavor."""
        self.nominal += nominal
        self.kept += 0 if lent is None else max(nominal - lent, 0)
        self.lent = None if lent is None or self.lent is None else self.lent + lent
        self.borrowed = None if borrowed is None or self.borrowed is None else self.borrowed + borrowed


def cluster_queues_of(root: Fields, around: Input) -> list[Json]:
    """The Queue of a ClusterQueue."""
    head, spec, parent, quotas = _read(root, around, "ClusterQueue", "cohort")
    if quotas:
        words = "a resource that isn't named has no limit: Kueue admits nothing that asks for it"
        spec.changed("resourceGroups", words)
    else:
        words = "without amounts the Queue has no limit: Kueue admits nothing to it"
        spec.say(NoteKind.CHANGED, "resourceGroups", words)
    _flavors(spec)
    made: Json = {
        "parent": parent,
        "weight": _weight(spec),
        "guarantee": written({name: of.kept for name, of in quotas.items() if of.kept}),
        "deserved": written({name: of.nominal for name, of in quotas.items()}),
        "capability": written(_capability(root, spec, parent, quotas, around)),
        **_who(spec),
        "userFairness": _submitters(spec),
        "preemption": _preemption(spec, in_cohort=bool(parent)),
    }
    if spec.one_of("queueingStrategy", "BestEffortFIFO", "StrictFIFO") == "StrictFIFO":
        spec.lost("queueingStrategy", "a job that doesn't fit never blocks those behind it")
    for name in ("admissionChecks", "admissionChecksStrategy"):
        spec.lost(name, "group checks and permits of a package hold jobs back (docs/operations.md, Plugins)")
    return [head.queue(made)]


def _capability(root: Fields, spec: Fields, parent: str, quotas: dict[str, Quota], around: Input) -> Totals:
    """The most that a ClusterQueue may use, by resource, where it has a limit of its own. What is above all that its
    cohort has is none."""
    if not parent:
        return {name: of.nominal for name, of in quotas.items()}
    of_cohort = around.totals.get(spec.text(cohort_field({"apiVersion": root.text("apiVersion")}, "ClusterQueue")), {})
    most = {name: of.nominal + of.borrowed for name, of in quotas.items() if of.borrowed is not None}
    for name in [name for name, value in most.items() if value > of_cohort.get(name, value)]:
        del most[name]
        words = f"no capability for {name}: it would be above that of the Queue {parent}, which limits it already"
        spec.changed("resourceGroups", words)
    return most


def cohorts_of(root: Fields, around: Input) -> list[Json]:
    """The Queue of a Cohort, which is above those of its ClusterQueues."""
    head, spec, parent, quotas = _read(root, around, "Cohort", "parent")
    total: Totals = around.totals.get(head.source_name, {})
    whole = {name: total.get(name, of.nominal) for name, of in quotas.items()}
    if not parent and total:
        head.metadata.changed("name", _TOGETHER)
    head.metadata.changed("name", f"no namespace may submit jobs to this Queue {_FOR_NONE}")
    capability = {name: whole[name] + of.borrowed for name, of in quotas.items() if of.borrowed is not None}
    kept = {name: whole[name] - of.lent for name, of in quotas.items() if of.lent is not None and of.lent < whole[name]}
    made: Json = {
        "parent": parent,
        "weight": _weight(spec),
        "guarantee": written(kept if parent else {}),
        "deserved": written({name: whole[name] for name, of in quotas.items() if of.nominal}),
        "capability": written(capability if parent else total),
        "namespaces": NO_NAMESPACE,
    }
    return [head.queue(made)]


def _read(root: Fields, around: Input, kind: str, what: str) -> tuple[QueueHead, Fields, str, dict[str, Quota]]:
    """Read what both kinds have: the metadata, the spec, the Queue of the cohort above (empty without one, which faults
    call `what`), and the quotas by resource."""
    head, spec = QueueHead(root), root.record("spec")
    field = cohort_field({"apiVersion": root.text("apiVersion")}, kind)
    parent = _parent(head, spec, field, around)
    if parent in around.parents:
        spec.changed(field, f"the Queue {parent} above it is in the output too: {_TOGETHER}")
        spec.changed(field, f"Queue {parent}: no namespace may submit jobs to it {_FOR_NONE}")
    return head, spec, parent, _quotas(spec, field, what)


def local_queues_of(root: Fields, around: Input) -> list[Json]:
    """Nothing but what takes the place of a LocalQueue: jobs name the Queue of its ClusterQueue."""
    head, spec = QueueHead(root), root.record("spec")
    source = spec.text("clusterQueue")
    queue, namespace = queue_name(source) if source else "", head.namespace or "NAMESPACE"
    if source:
        words = (
            f"no object takes its place: TYJobs that are converted with it name the Queue {queue}. For all jobs of the "
            f"namespace: kubectl annotate namespace {namespace} arranger.dev/queue={queue}"
        )
        if queue not in around.queues:
            words += f". Convert its ClusterQueue too, or arranger queue create {queue}"
        spec.to_do("clusterQueue", words)
    else:
        spec.say(NoteKind.NO_EQUIVALENT, "clusterQueue", "a LocalQueue without a ClusterQueue has no effect")
    if spec.one_of("stopPolicy", "None", "Hold", "HoldAndDrain") != "None":
        spec.lost("stopPolicy", f"to stop one namespace, take it out of the namespaces of the Queue {queue}")
    spec.lost("fairSharing", "submitters of a Queue weigh alike (userFairness)")
    spec.lost("wallTimePolicy", "a Queue has no budget of hours: give jobs an activeDeadlineSeconds")
    for source_of in (head.labels, head.annotations):
        source_of.ignore(*source_of.names())
    return []


def resource_flavors_of(root: Fields, around: Input) -> list[Json]:
    """Nothing but what takes the place of a ResourceFlavor: templates select their nodes."""
    head, spec = QueueHead(root), root.record("spec")
    head.metadata.lost("name", "no object takes its place: a Queue has no amounts for one kind of node")
    labels = spec.pairs("nodeLabels")
    if labels:
        selector = ", ".join(f"{name}: {value}" for name, value in labels.items())
        spec.to_do("nodeLabels", f"{_TEMPLATES} the nodeSelector {{{selector}}}: Kueue adds it to pods")
    if spec.raw("tolerations", items(definition("Toleration"))):
        spec.to_do("tolerations", f"{_TEMPLATES} these tolerations: Kueue adds them to pods")
    # Kueue asks whether a pod tolerates them, and so does every scheduler of the nodes themselves.
    for taint in spec.records("nodeTaints"):
        taint.ignore("key", "value", "effect", "timeAdded")
    spec.lost("topologyName", "give TYJobs a topology, with the labels of nodes (docs/jobs.md, Topology)")
    spec.lost("resourceWeights", "of the resources of a Queue, the one that it uses most of its share counts")
    for source_of in (head.labels, head.annotations):
        source_of.ignore(*source_of.names())
    return []


def _parent(head: QueueHead, spec: Fields, field: str, around: Input) -> str:
    """The name of the Queue of the cohort above; empty without one."""
    cohort = spec.text(field)
    parent = queue_name(cohort) if cohort else ""
    if parent and (parent == head.name or parent in around.of_cluster_queues):
        words = f"the Queue {parent} can't be a cohort and a ClusterQueue: rename one of them"
        spec.fault(field, words, of=[head.metadata.at("name")])
    return parent


def _weight(spec: Fields) -> int | None:
    sharing = spec.record("fairSharing")
    return weight(sharing, "weight", quantity_of(sharing, "weight"))


# --- quotas ----------------------------------------------------------------------------------------------------


def _quotas(spec: Fields, field: str, what: str) -> dict[str, Quota]:
    """The quotas by resource. `field` names the cohort above, without which nothing is lent or borrowed."""
    quotas: dict[str, Quota] = {}
    for group in spec.records("resourceGroups"):
        covered = group.texts("coveredResources")
        if "coveredResources" not in group:
            group.fault("coveredResources", "Required value")
        for flavor in group.records("flavors"):
            if not flavor.text("name"):
                flavor.fault("name", "Required value")
            resources = flavor.records("resources")
            names = [_resource(spec, of, field, what, quotas) for of in resources]
            if covered and names != covered and all(of.sound("name") for of in resources):
                flavor.fault("resources", f"must be those of coveredResources, in this order: {', '.join(covered)}")
    _limits_of_some(spec, what, quotas)
    return quotas


def _limits_of_some(spec: Fields, what: str, quotas: dict[str, Quota]) -> None:
    """Say which limits are lost because another flavor of the resource has none. What a flavor of a ClusterQueue
    doesn't lend is in its guarantee all the same."""
    flavors = (of for group in spec.records("resourceGroups") for of in group.records("flavors"))
    for of in (resource for flavor in flavors for resource in flavor.records("resources")):
        quota = quotas.get(of.text("name"))
        if quota is not None and quota.borrowed is None and "borrowingLimit" in of:
            of.lost("borrowingLimit", _NO_LIMIT)
        if quota is not None and quota.lent is None and "lendingLimit" in of and what != "cohort":
            of.lost("lendingLimit", _NO_LIMIT)


def _resource(spec: Fields, of: Fields, field: str, what: str, quotas: dict[str, Quota]) -> str:
    """Take the quota of one resource of one flavor; its name."""
    name = of.text("name")
    if not name:
        of.fault("name", "Required value")
        of.ignore(*of.names())
        return name
    nominal, lent, borrowed = (amount_of(of, each, name) for each in ("nominalQuota", "lendingLimit", "borrowingLimit"))
    if nominal is None:
        of.fault("nominalQuota", "Required value")
    for each in ("lendingLimit", "borrowingLimit"):
        if each in of and not spec.text(field):
            of.fault(each, f"must be unset without a {what}", of=[spec.at(field)])
    nominal = nominal or 0
    if what == "cohort" and (lent or 0) > nominal:
        of.fault("lendingLimit", "must not be above nominalQuota", of=[of.at("nominalQuota")])
    if without_unknown(of, "name", name):
        quotas.setdefault(name, Quota()).add(nominal, lent, borrowed)
    return name


def _flavors(spec: Fields) -> None:
    """Say what is lost with the flavors."""
    flavors = [of for group in spec.records("resourceGroups") for of in group.records("flavors")]
    for of in flavors:
        of.lost("name", f"{_PER_KIND} ResourceFlavor says")
    several = any(len(group.records("flavors")) > 1 for group in spec.records("resourceGroups"))
    if several:
        for group in spec.records("resourceGroups"):
            if len(names := [of.text("name") for of in group.records("flavors")]) > 1:
                words = (
                    f"added up over {' and '.join(names)}: amounts are of the whole cluster, so no queue limits one "
                    "kind of node, and a guarantee may be fulfilled on any"
                )
                group.changed("flavors", words)
    for name in ("flavorFungibility", "concurrentAdmissionPolicy"):
        # The API server writes the first into each object.
        if several:
            spec.lost(name, "nothing tries a second kind of node: a pod's template selects its nodes")
        spec.ignore(name)


# --- who may use it, and how -----------------------------------------------------------------------------------


def _who(spec: Fields) -> Json:
    """The namespaces whose jobs may use it, and whether any may start."""
    selector = spec.raw("namespaceSelector", definition("LabelSelector"))
    stopped = spec.one_of("stopPolicy", "None", "Hold", "HoldAndDrain")
    if stopped == "HoldAndDrain":
        spec.changed("stopPolicy", "jobs that have nodes run on (state: Closed)")
    namespaces = {"selector": selector} if selector and any(selector.values()) else None
    if "namespaceSelector" not in spec:
        words = "no namespace may use it, as in Kueue, by a selector of none: give it those that may (spec.namespaces)"
        spec.say(NoteKind.CHANGED, "namespaceSelector", words)
        namespaces = dict(NO_NAMESPACE)
    return {"namespaces": namespaces, "state": "Closed" if stopped != "None" else None}


def _submitters(spec: Fields) -> bool | None:
    scope = spec.record("admissionScope")
    modes = ("NoAdmissionFairSharing", "UsageBasedAdmissionFairSharing")
    if scope.one_of("admissionMode", *modes) == modes[0]:
        return None
    words = (
        "submitters take turns by what they use now (userFairness): a submitter is the label arranger.dev/user of a "
        "TYJob, else its namespace, and no LocalQueue"
    )
    scope.changed("admissionMode", words)
    return True


def _preemption(spec: Fields, *, in_cohort: bool) -> Json:
    """Kueue takes nothing back unless the queue says so, and a Queue does unless it says that it doesn't."""
    policy = spec.record("preemption")
    within = policy.one_of("withinClusterQueue", "Never", "LowerPriority", "LowerOrNewerEqualPriority")
    reclaims = policy.one_of("reclaimWithinCohort", "Never", "LowerPriority", "Any")
    if within == "LowerOrNewerEqualPriority":
        policy.changed("withinClusterQueue", "jobs of the same priority keep their nodes")
    if reclaims == "LowerPriority":
        words = "what others use above their share is taken back whatever their priority (preemption.reclaim)"
        policy.changed("reclaimWithinCohort", words)
    borrow = policy.record("borrowWithinCohort")
    if borrow.one_of("policy", "Never", "LowerPriority") != "Never":
        words = "nothing is taken from other queues for a queue above its share"
        borrow.lost("policy", words)
        borrow.lost("maxPriorityThreshold", words)
    borrow.ignore("maxPriorityThreshold")
    never = {"priority": within == "Never", "reclaim": in_cohort and reclaims == "Never"}
    return {name: "Never" for name, of in never.items() if of}
