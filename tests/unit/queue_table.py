"""Good and bad Queues, as JSON: the own check, the embedded cluster and a real API server must accept what is good, and
refuse what is bad naming the same field."""

from typing import Any

from tests.unit.tyjob_table import EXISTS, GONE, Bad, Good, Object, tyjob_with

GPU = "nvidia.com/gpu"


def queue(name: str = "research", **spec: Any) -> Object:
    """A small valid Queue."""
    return {"apiVersion": "arranger.dev/v1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def _good(case: str, changes: dict[str, Any]) -> Good:
    return Good(case, tyjob_with(changes, base=queue()))


def _bad(case: str, field: str, says: str, changes: dict[str, Any]) -> Bad:
    return Bad(case, tyjob_with(changes, base=queue()), field, says)


EVERY_FIELD: Object = {
    "parent": "all",
    "weight": 65535,
    "guarantee": {"cpu": 2, GPU: "4"},
    "deserved": {"cpu": "2", GPU: 4, "memory": "1Gi"},
    "capability": {"cpu": "2500m", GPU: 8, "memory": "1.5Gi", "hugepages-2Mi": "4Mi", "ephemeral-storage": "1e9"},
    "reclaimable": False,
    "namespaces": {"selector": {"matchLabels": {"team": "rl"}, "matchExpressions": [EXISTS]}},
    "maxPriority": -5,
    "maxRunning": 0,
    "maxWaiting": 1000000,
    "jobQueuePolicy": "DRF",
    "userFairness": True,
    "minRuntimeSeconds": 600,
    "preemption": {"surplus": "Never", "priority": "Allowed", "reclaim": "Never"},
    "provisioning": "Request",
    "scheduledFailed": "Never",
    "state": "Closed",
    "nonPreemptible": "WithinDeserved",
}

GOOD: list[Good] = [
    _good("nothing set", {}),
    _good("every field set", {"spec": EVERY_FIELD}),
    _good("every field null", {"spec": dict.fromkeys(EVERY_FIELD)}),
    _good("namespaces by name", {"spec/namespaces": {"names": ["rl", "default"]}}),
    _good("namespaces by an empty selector", {"spec/namespaces": {"selector": {}}}),
    _good("the queue default", {"metadata/name": "default", "spec/weight": 2}),
    _good("the longest name", {"metadata/name": "q" * 63}),
    _good("amounts of other resources", {"spec/guarantee": {"cpu": 9}, "spec/capability": {"memory": 1}}),
    _good("amounts of zero", {"spec/capability": {GPU: 0}, "spec/deserved": {GPU: "0"}}),
    _good("no preemption given", {"spec/preemption": {}}),
    _good("the highest priority of all", {"spec/maxPriority": 2147483647}),
    _good("jobs that can't be preempted may borrow", {"spec/nonPreemptible": "MayBorrow"}),
    _good("a status", {"status": {"waiting": 3}}),
]

BAD: list[Bad] = [
    _bad("no spec", "spec", "Required value", {"spec": GONE}),
    _bad("a name with a dot", "metadata.name", "must be a DNS label", {"metadata/name": "a.b"}),
    _bad("a long name", "metadata.name", "Too long: may not be more than 63", {"metadata/name": "q" * 64}),
    _bad("its own parent", "spec.parent", "a queue can't be its own parent", {"spec/parent": "research"}),
    _bad("a parent that can't be", "spec.parent", "must be a DNS label", {"spec/parent": "Upper"}),
    _bad("an empty parent", "spec.parent", "must be a DNS label", {"spec/parent": ""}),
    _bad("a long parent", "spec.parent", "Too long: may not be more than 63", {"spec/parent": "q" * 64}),
    _bad("a parent that is a number", "spec.parent", "must be of type string", {"spec/parent": 5}),
    _bad("weight 0", "spec.weight", "should be greater than or equal to 1", {"spec/weight": 0}),
    _bad("weight 65536", "spec.weight", "should be less than or equal to 65535", {"spec/weight": 65536}),
    _bad("a weight as text", "spec.weight", "must be of type integer", {"spec/weight": "2"}),
    *(
        case
        for field in ("guarantee", "deserved", "capability")
        for case in (
            _bad(f"{field} as a list", f"spec.{field}", "must be of type object", {f"spec/{field}": []}),
            _bad(f"{field} of no quantity", f"spec.{field}.cpu", "Invalid value", {f"spec/{field}": {"cpu": "many"}}),
            _bad(f"{field} below 0", f"spec.{field}.cpu", "greater than or equal to 0", {f"spec/{field}": {"cpu": -1}}),
            _bad(f"{field} of no resource", f"spec.{field}", "gpus is not a resource", {f"spec/{field}": {"gpus": 1}}),
            *(
                _bad(f"{field} of {of} GPUs", f"spec.{field}",
                     f"{GPU} must be a whole number of at most {1 << 53}, here {of}",
                     {f"spec/{field}": {GPU: of}})
                for of in ("500m", "9E")
            ),
            _bad(f"{field} of too many resources", f"spec.{field}", "must have at most 32 items",
                 {f"spec/{field}": {f"example.com/r{number}": 1 for number in range(33)}}),
        )
    ),
    _bad("a guarantee above deserved", "spec.guarantee", "cpu must not be above deserved, which is 1, but is 1001m",
         {"spec/guarantee": {"cpu": "1001m"}, "spec/deserved": {"cpu": 1}}),
    _bad("a guarantee above capability", "spec.guarantee", "must not be above capability, which is 1Gi, but is 2Gi",
         {"spec/guarantee": {"memory": "2Gi", "cpu": 1}, "spec/capability": {"memory": "1Gi"}}),
    _bad("deserved above capability", "spec.deserved", f"{GPU} must not be above capability, which is 0, but is 8",
         {"spec/deserved": {GPU: 8}, "spec/capability": {GPU: 0}}),
    _bad("reclaimable as text", "spec.reclaimable", "must be of type boolean", {"spec/reclaimable": "yes"}),
    _bad("namespaces by neither", "spec.namespaces", "should have at least 1 properties", {"spec/namespaces": {}}),
    _bad("namespaces by both", "spec.namespaces", "must have at most 1 item",
         {"spec/namespaces": {"names": ["a"], "selector": {}}}),
    _bad("no names of namespaces", "spec.namespaces.names", "should have at least 1 items",
         {"spec/namespaces": {"names": []}}),
    _bad("a namespace twice", "spec.namespaces.names[1]", "Duplicate value",
         {"spec/namespaces": {"names": ["a", "a"]}}),
    _bad("too many namespaces", "spec.namespaces.names", "must have at most 256 items",
         {"spec/namespaces": {"names": [f"n{number}" for number in range(257)]}}),
    _bad("a namespace that can't be", "spec.namespaces.names[0]", "must be a DNS label",
         {"spec/namespaces": {"names": ["a_b"]}}),
    _bad("a selector without values", "spec.namespaces.selector.matchExpressions[0].values",
         "must be given where the operator is In or NotIn",
         {"spec/namespaces": {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}}),
    _bad("a selector with values", "spec.namespaces.selector.matchExpressions[0].values",
         "must be empty where the operator is Exists or DoesNotExist",
         {"spec/namespaces": {"selector": {"matchExpressions": [{**EXISTS, "values": ["b"]}]}}}),
    _bad("a selector with another operator", "spec.namespaces.selector.matchExpressions[0].operator",
         'supported values: "In", "NotIn", "Exists", "DoesNotExist"',
         {"spec/namespaces": {"selector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}}}),
    _bad("a priority beyond 32 bits", "spec.maxPriority", "should be less than or equal to 2147483647",
         {"spec/maxPriority": 1 << 31}),
    _bad("maxRunning -1", "spec.maxRunning", "should be greater than or equal to 0", {"spec/maxRunning": -1}),
    _bad("maxWaiting above", "spec.maxWaiting", "should be less than or equal to 1000000",
         {"spec/maxWaiting": 1000001}),
    _bad("another policy", "spec.jobQueuePolicy", 'supported values: "Priority", "DRF"',
         {"spec/jobQueuePolicy": "Fair"}),
    _bad("userFairness as a number", "spec.userFairness", "must be of type boolean", {"spec/userFairness": 1}),
    _bad("minRuntimeSeconds -1", "spec.minRuntimeSeconds", "greater than or equal to 0",
         {"spec/minRuntimeSeconds": -1}),
    _bad("another mode of preemption", "spec.preemption.reclaim", 'supported values: "Allowed", "Never"',
         {"spec/preemption": {"reclaim": "Always"}}),
    _bad("another way of provisioning", "spec.provisioning", 'supported values: "None", "Request", "Pending"',
         {"spec/provisioning": "Always"}),
    _bad("another word for never", "spec.scheduledFailed", 'supported values: "AfterGrace", "Never"',
         {"spec/scheduledFailed": "No"}),
    _bad("another word for borrowing", "spec.nonPreemptible", 'supported values: "MayBorrow", "WithinDeserved"',
         {"spec/nonPreemptible": "Never"}),
    *(
        _bad(f"only what is deserved of {deserved}", "spec.nonPreemptible", "state amounts in deserved, or leave",
             {"spec/nonPreemptible": "WithinDeserved", **deserved})
        for deserved in ({}, {"spec/deserved": {}}, {"spec/deserved": None})
    ),
    _bad("another state", "spec.state", 'supported values: "Open", "Closed"', {"spec/state": "Closing"}),
    _bad("unknown field of the spec", "spec.limit", "unknown field", {"spec/limit": {}}),
    _bad("unknown field of preemption", "spec.preemption.user", "unknown field", {"spec/preemption/user": "Never"}),
    _bad("unknown field of the selector", "spec.namespaces.selector.matchNames", "unknown field",
         {"spec/namespaces": {"selector": {"matchNames": []}}}),
]  # fmt: skip
