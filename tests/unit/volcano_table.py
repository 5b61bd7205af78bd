"""What Volcano and others give each queue of a cluster: cases with queues, nodes and jobs, and the amounts that result.

The `MEASURED` cases ran on Volcano's own scheduler, vc-scheduler 1.10.0, and a real API server, at least three times
with the same amounts. `source` is the plugin that divides: `proportion`, `capacity`, or `drf` with its hierarchy
(`hdrf`), each with the other plugins of the default configuration. The capacity plugin of 1.10.0 has no tree, so for
the cases `tree` it had that of a later revision. All objects of a wave were there before it could allocate anything.

The amounts of `PUBLISHED` cases are those of documents, papers and tests. In no case is room taken back.

A case that Arranger decides in another way says why. Amounts of CPU are in cores, of memory in GiB.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

Amounts = Mapping[str, int]

GPU, A100, V100 = "nvidia.com/gpu", "nvidia.com/a100", "nvidia.com/v100"
NONE: Amounts = MappingProxyType({})
CORE: Amounts = MappingProxyType({"cpu": 1})


class Queue(NamedTuple):
    """A queue. `priority` is Volcano's: Arranger has none."""

    parent: str = ""
    weight: int = 1
    guarantee: Amounts = NONE
    deserved: Amounts = NONE
    capability: Amounts = NONE
    priority: int = 0


class Jobs(NamedTuple):
    """So many equal jobs of a queue. The first `least` pods of a job get nodes together."""

    queue: str
    jobs: int
    pod: Amounts = CORE
    pods: int = 1
    least: int = 1


class Case(NamedTuple):
    """`waves` are jobs that come at once; each wave comes when the one before has what it can get. `others` is what
    each queue gets there, and `ours` what it gets here, if it differs."""

    name: str
    source: str
    nodes: Sequence[Amounts]
    queues: Mapping[str, Queue]
    waves: Sequence[Sequence[Jobs]]
    others: Mapping[str, Amounts]
    ours: Mapping[str, Amounts] | None = None
    why: str = ""


def cpu(amount: int) -> Amounts:
    return {"cpu": amount}


def cpus(**amounts: int) -> Mapping[str, Amounts]:
    """Queue → cores."""
    return {name: cpu(amount) for name, amount in amounts.items()}


def flat(*names: str) -> Mapping[str, Queue]:
    """Equal queues."""
    return {name: Queue() for name in names}


def each(count: int, *queues: str) -> list[Jobs]:
    """So many jobs of one pod with one core in each queue."""
    return [Jobs(queue, count) for queue in queues]


def one(pods: int, *queues: str) -> list[Jobs]:
    """One job with so many pods of one core in each queue."""
    return [Jobs(queue, 1, pods=pods) for queue in queues]


#: Why a case differs.
FRACTIONS = (
    "Volcano divides into fractions and starts no pod beyond a queue's fraction, so their rests stay free. "
    "Here shares are whole units, and nothing that fits a waiting job stays free."
)
NOT_A_LIMIT = (
    "In Volcano what a queue deserves is also a limit of what it gets, even while the rest stays free. Here a share "
    "only gives the order, and the limits are capability and the guarantees of others."
)
ON_TOP = (
    "In Volcano a guarantee is a lower bound of the part by weight. Here it is met first, and the weights divide what "
    "nobody is entitled to. State the same amounts as `deserved` to get the others' division."
)
BY_WEIGHT = (
    "The capacity plugin has no weights: what is left goes on in proportion to what queues deserve. Here it goes by "
    "weight, so give the queues these weights."
)
RESCALED = (
    "Volcano's hierarchical DRF counts all children of a parent at the lowest share among them. So a parent of unequal "
    "leaves seems to use less than it does, and gets more than its weight says. Here a parent counts what it uses."
)
NO_PRIORITY = (
    "Arranger's queues have no priority: the queue with the lowest ratio of used to share is next, ties by name."
)

PROPORTION: list[Case] = [
    Case("a queue alone has all", "proportion", [cpu(12)], flat("a", "b"), [each(20, "a")], cpus(a=12)),
    Case("equal weights", "proportion", [cpu(12)], flat("a", "b"), [each(12, "a", "b")], cpus(a=6, b=6)),
    Case("weights 1 and 2", "proportion", [cpu(12)], {"a": Queue(), "b": Queue(weight=2)}, [each(12, "a", "b")],
         cpus(a=4, b=8)),
    Case("weights 3, 2 and 1", "proportion", [cpu(12)],
         {"a": Queue(weight=3), "b": Queue(weight=2), "c": Queue()}, [each(12, "a", "b", "c")], cpus(a=6, b=4, c=2)),
    Case("weights on three nodes", "proportion", [cpu(8)] * 3,
         {"a": Queue(), "b": Queue(weight=2), "c": Queue(weight=3)}, [each(24, "a", "b", "c")], cpus(a=4, b=8, c=12)),
    Case("what one doesn't want goes to the other", "proportion", [cpu(12)], flat("a", "b"),
         [[Jobs("a", 2), Jobs("b", 12)]], cpus(a=2, b=10)),
    Case("what one doesn't want goes to the others by weight", "proportion", [cpu(13)],
         {"a": Queue(), "b": Queue(weight=2), "c": Queue()}, [[Jobs("a", 1), *each(13, "b", "c")]],
         cpus(a=1, b=8, c=4)),
    Case("thirds of a core", "proportion", [cpu(10)], {"a": Queue(), "b": Queue(weight=2)}, [each(12, "a", "b")],
         cpus(a=3, b=6), cpus(a=3, b=7), FRACTIONS),
    Case("a capability below the part by weight", "proportion", [cpu(12)],
         {"a": Queue(capability=cpu(3)), "b": Queue()}, [each(12, "a", "b")], cpus(a=3, b=9)),
    Case("a capability above the demand", "proportion", [cpu(12)],
         {"a": Queue(capability=cpu(10)), "b": Queue()}, [[Jobs("a", 4), Jobs("b", 12)]], cpus(a=4, b=8)),
    Case("capabilities leave nodes empty", "proportion", [cpu(12)],
         {"a": Queue(capability=cpu(3)), "b": Queue(capability=cpu(4))}, [each(12, "a", "b")], cpus(a=3, b=4)),
    Case("a capability and weights", "proportion", [cpu(12)],
         {"a": Queue(weight=4, capability=cpu(2)), "b": Queue(weight=2), "c": Queue(weight=3)},
         [each(12, "a", "b", "c")], cpus(a=2, b=4, c=6)),
    Case("a guarantee is kept without a job", "proportion", [cpu(12)], {"a": Queue(guarantee=cpu(5)), "b": Queue()},
         [each(12, "b")], cpus(b=7)),
    Case("a guarantee is kept beside a few jobs", "proportion", [cpu(12)],
         {"a": Queue(guarantee=cpu(5)), "b": Queue()}, [[Jobs("a", 2), Jobs("b", 12)]], cpus(a=2, b=7)),
    Case("a guarantee above the part by weight", "proportion", [cpu(12)],
         {"a": Queue(guarantee=cpu(8)), "b": Queue(weight=3)}, [each(12, "a", "b")],
         cpus(a=8, b=4), cpus(a=9, b=3), ON_TOP),
    Case("a guarantee below the part by weight", "proportion", [cpu(12)],
         {"a": Queue(guarantee=cpu(2)), "b": Queue()}, [each(12, "a", "b")], cpus(a=6, b=6), cpus(a=7, b=5), ON_TOP),
    Case("the same, stated as deserved", "proportion", [cpu(12)],
         {"a": Queue(guarantee=cpu(2), deserved=cpu(6)), "b": Queue(deserved=cpu(6))}, [each(12, "a", "b")],
         cpus(a=6, b=6)),
    Case("one wants CPU, the other CPU and memory", "proportion", [{"cpu": 12, "memory": 12}], flat("a", "b"),
         [[Jobs("a", 12), Jobs("b", 12, {"cpu": 1, "memory": 1})]], {"a": cpu(6), "b": {"cpu": 6, "memory": 6}}),
    Case("one wants CPU, the other memory", "proportion", [{"cpu": 12, "memory": 12}], flat("a", "b"),
         [[Jobs("a", 12), Jobs("b", 12, {"memory": 1})]], {"a": cpu(11), "b": {"memory": 12}},
         {"a": cpu(12), "b": {"memory": 12}},
         "Volcano divides by the weights of all queues that want more of any resource. So what is left is halved again "
         "and again, and the last core is never divided wholly. Here each resource is divided alone."),
    Case("each wants more of another resource", "proportion", [{"cpu": 12, "memory": 12}], flat("a", "b"),
         [[Jobs("a", 12, {"cpu": 2, "memory": 1}), Jobs("b", 12, {"cpu": 1, "memory": 2})]],
         {"a": {"cpu": 6, "memory": 3}, "b": {"cpu": 3, "memory": 6}},
         {"a": {"cpu": 8, "memory": 4}, "b": {"cpu": 4, "memory": 8}}, NOT_A_LIMIT),
    Case("pods of four cores beside pods of one", "proportion", [cpu(16)], flat("a", "b"),
         [[Jobs("a", 4, cpu(4)), Jobs("b", 16)]], cpus(a=8, b=8)),
    Case("pods that don't divide the part by weight", "proportion", [cpu(3)] * 2, flat("a", "b"),
         [[Jobs("a", 4, cpu(2)), Jobs("b", 6)]], cpus(a=2, b=3), cpus(a=4, b=2), NOT_A_LIMIT),
    Case("GPUs by weight", "proportion", [{"cpu": 64, GPU: 8}] * 2, {"a": Queue(), "b": Queue(weight=3)},
         [[Jobs("a", 16, {"cpu": 4, GPU: 1}), Jobs("b", 16, {"cpu": 4, GPU: 1})]],
         {"a": {"cpu": 16, GPU: 4}, "b": {"cpu": 48, GPU: 12}}),
    Case("GPUs for one, only CPU for the other", "proportion", [{"cpu": 16, GPU: 8}], flat("a", "b"),
         [[Jobs("a", 8, {"cpu": 1, GPU: 1}), Jobs("b", 16)]], {"a": {"cpu": 8, GPU: 8}, "b": cpu(8)}),
    Case("the later queue finds no room", "proportion", [cpu(12)], flat("a", "b"), [each(12, "a"), each(12, "b")],
         cpus(a=12)),
    Case("the later queue takes what is free", "proportion", [cpu(12)], flat("a", "b"),
         [each(8, "a"), each(12, "a", "b")], cpus(a=8, b=4)),
    Case("the later queue comes to its part", "proportion", [cpu(12)], flat("a", "b"),
         [each(4, "a"), each(12, "a", "b")], cpus(a=6, b=6)),
    Case("three waves by weight", "proportion", [cpu(24)], {"a": Queue(), "b": Queue(weight=2), "c": Queue(weight=3)},
         [each(3, "a"), each(6, "b"), each(24, "a", "b", "c")], cpus(a=4, b=8, c=12)),
    Case("jobs of many pods", "proportion", [cpu(24)], {"a": Queue(), "b": Queue(weight=3)},
         [[Jobs("a", 2, pods=12), Jobs("b", 2, pods=12)]], cpus(a=6, b=18)),
    Case("gangs that fit", "proportion", [cpu(16)], flat("a", "b"),
         [[Jobs("a", 4, pods=4, least=4), Jobs("b", 16)]], cpus(a=8, b=8)),
    Case("a gang above the capability", "proportion", [cpu(12)], {"a": Queue(capability=cpu(3)), "b": Queue()},
         [[Jobs("a", 1, pods=4, least=4), Jobs("b", 6)]], cpus(b=6)),
    Case("a gang above the part by weight", "proportion", [cpu(12)], flat("a", "b"),
         [[Jobs("a", 1, pods=8, least=8), Jobs("b", 12)]], cpus(b=6), cpus(a=8, b=4), NOT_A_LIMIT),
    Case("the priority of queues", "proportion", [cpu(2)], {"a": Queue(priority=1), "b": Queue(priority=10)},
         [[Jobs("a", 1, cpu(2)), Jobs("b", 1, cpu(2))]], {}, cpus(a=2), NO_PRIORITY),
    Case("memory is used up, a job wants only CPU", "proportion", [{"cpu": 2, "memory": 2}] * 2,
         {"a": Queue(capability={"cpu": 2, "memory": 2}), "b": Queue(capability={"cpu": 3, "memory": 3})},
         [[Jobs("a", 1, {"cpu": 1, "memory": 2}), Jobs("b", 1, {"cpu": 2, "memory": 1})], [Jobs("a", 1)]],
         {"a": {"cpu": 2, "memory": 2}, "b": {"cpu": 2, "memory": 1}}),
    Case("CPU is used up, a job wants only memory", "proportion", [{"cpu": 2, "memory": 2}] * 2,
         {"a": Queue(capability={"cpu": 2, "memory": 2}), "b": Queue(capability={"cpu": 3, "memory": 3})},
         [[Jobs("a", 1, {"cpu": 1, "memory": 2}), Jobs("b", 1, {"cpu": 2, "memory": 1})],
          [Jobs("b", 1, {"memory": 1})]],
         {"a": {"cpu": 1, "memory": 2}, "b": {"cpu": 2, "memory": 2}}),
    Case("memory is used up, a job wants both", "proportion", [{"cpu": 2, "memory": 2}] * 2,
         {"a": Queue(capability={"cpu": 2, "memory": 2}), "b": Queue(capability={"cpu": 3, "memory": 3})},
         [[Jobs("a", 1, {"cpu": 1, "memory": 2}), Jobs("b", 1, {"cpu": 2, "memory": 1})],
          [Jobs("a", 1, {"cpu": 1, "memory": 1})]],
         {"a": {"cpu": 1, "memory": 2}, "b": {"cpu": 2, "memory": 1}}),
    Case("the guarantees of three queues, GPUs", "proportion", [{"cpu": 90, GPU: 30}],
         {"q1": Queue(guarantee={GPU: 5}), "q2": Queue(), "q3": Queue(capability={GPU: 10})},
         [[Jobs(name, 30, {GPU: 1}) for name in ("q1", "q2", "q3")]],
         {"q1": {GPU: 10}, "q2": {GPU: 10}, "q3": {GPU: 10}},
         {"q1": {GPU: 14}, "q2": {GPU: 8}, "q3": {GPU: 8}}, ON_TOP),
]  # fmt: skip

CAPACITY: list[Case] = [
    Case("each gets what it deserves", "capacity", [cpu(12)],
         {"a": Queue(deserved=cpu(4)), "b": Queue(deserved=cpu(8))}, [each(12, "a", "b")], cpus(a=4, b=8)),
    Case("what one deserves is lent", "capacity", [cpu(12)],
         {"a": Queue(deserved=cpu(6)), "b": Queue(deserved=cpu(6))}, [each(12, "b")], cpus(b=12)),
    Case("what one doesn't want is lent", "capacity", [cpu(12)],
         {"a": Queue(deserved=cpu(6)), "b": Queue(deserved=cpu(6))}, [[Jobs("a", 2), Jobs("b", 12)]], cpus(a=2, b=10)),
    Case("deserved amounts above the cluster", "capacity", [cpu(12)],
         {"a": Queue(deserved=cpu(12)), "b": Queue(deserved=cpu(6))}, [each(12, "a", "b")], cpus(a=8, b=4)),
    Case("more than all deserve", "capacity", [cpu(12)],
         {"a": Queue(deserved=cpu(2)), "b": Queue(deserved=cpu(4))}, [each(12, "a", "b")],
         cpus(a=4, b=8), cpus(a=5, b=7), BY_WEIGHT),
    Case("more than all deserve, weights alike", "capacity", [cpu(12)],
         {"a": Queue(deserved=cpu(2)), "b": Queue(deserved=cpu(4), weight=2)}, [each(12, "a", "b")], cpus(a=4, b=8)),
    Case("a capability above what is deserved", "capacity", [cpu(12)],
         {"a": Queue(deserved=cpu(4), capability=cpu(5)), "b": Queue(deserved=cpu(4))}, [each(12, "a", "b")],
         cpus(a=5, b=7)),
    Case("a guarantee isn't lent", "capacity", [cpu(12)],
         {"a": Queue(guarantee=cpu(4), deserved=cpu(4)), "b": Queue(deserved=cpu(8))}, [each(12, "b")], cpus(b=8)),
    Case("guarantees within deserved amounts", "capacity", [cpu(12)],
         {"a": Queue(guarantee=cpu(2), deserved=cpu(4)), "b": Queue(guarantee=cpu(2), deserved=cpu(8))},
         [each(12, "a", "b")], cpus(a=4, b=8)),
    Case("a queue that deserves nothing", "capacity", [cpu(12)], {"a": Queue(deserved=cpu(6)), "b": Queue()},
         [each(12, "a", "b")], cpus(a=1, b=11), cpus(a=9, b=3),
         "In vc-scheduler 1.10.0 the ratio of a queue that deserves nothing stays 0, so it is always next. Here what a "
         "queue deserves comes first, and the weights divide the rest."),
    Case("allocatable below the capability", "capacity", [{"cpu": 2, "memory": 4}] * 2,
         {"q1": Queue(capability={"cpu": 2, "memory": 2})},
         [[Jobs("q1", 1, {"cpu": 1, "memory": 1})], [Jobs("q1", 1, {"cpu": 1, "memory": 1})]],
         {"q1": {"cpu": 2, "memory": 2}}),
    Case("not allocatable above the capability", "capacity", [{"cpu": 2, "memory": 4}] * 2,
         {"q2": Queue(capability={"cpu": 1, "memory": 1})},
         [[Jobs("q2", 1, {"cpu": 1, "memory": 1})], [Jobs("q2", 1, {"cpu": 1, "memory": 1})]],
         {"q2": {"cpu": 1, "memory": 1}}),
    Case("the later queue finds no room", "capacity", [cpu(12)],
         {"a": Queue(deserved=cpu(6)), "b": Queue(deserved=cpu(6))}, [each(12, "a"), each(12, "b")], cpus(a=12)),
    Case("the later queue comes to what it deserves", "capacity", [cpu(12)],
         {"a": Queue(deserved=cpu(4)), "b": Queue(deserved=cpu(8))}, [each(3, "a"), each(12, "a", "b")],
         cpus(a=4, b=8)),
    Case("two kinds of GPUs, deserved differently", "capacity", [{"cpu": 99, A100: 20, V100: 20}],
         {"q1": Queue(guarantee={A100: 2, V100: 2}, deserved={A100: 4, V100: 10}),
          "q2": Queue(guarantee={A100: 2, V100: 2}, deserved={A100: 16, V100: 10})},
         [[Jobs(name, 20, {kind: 1}) for name in ("q1", "q2") for kind in (A100, V100)]],
         {"q1": {A100: 4, V100: 11}, "q2": {A100: 16, V100: 9}}),
    Case("one uses all but the other's guarantee", "capacity", [{"cpu": 99, A100: 20}],
         {"q1": Queue(guarantee={A100: 2}, deserved={A100: 4}), "q2": Queue(guarantee={A100: 2}, deserved={A100: 16})},
         [[Jobs("q1", 20, {A100: 1})]], {"q1": {A100: 18}}),
]  # fmt: skip

HDRF: list[Case] = [
    Case("equal leaves", "hdrf", [cpu(12)], flat("a", "b"), [one(12, "a", "b")], cpus(a=6, b=6)),
    Case("weights 1 and 2", "hdrf", [cpu(12)], {"a": Queue(), "b": Queue(weight=2)}, [one(12, "a", "b")],
         cpus(a=4, b=8)),
    Case("a queue beside a parent of two", "hdrf", [cpu(12)],
         {"d": Queue(), "a": Queue(), "a1": Queue("a"), "a2": Queue("a")}, [one(12, "d", "a1", "a2")],
         cpus(d=5, a1=4, a2=3), cpus(d=6, a1=3, a2=3), RESCALED),
    Case("a queue of double weight beside a parent of two", "hdrf", [cpu(12)],
         {"d": Queue(weight=2), "a": Queue(), "a1": Queue("a"), "a2": Queue("a")}, [one(12, "d", "a1", "a2")],
         cpus(d=7, a1=3, a2=2), cpus(d=8, a1=2, a2=2), RESCALED),
    Case("two parents of two", "hdrf", [cpu(16)],
         {"a": Queue(), "b": Queue(), "a1": Queue("a"), "a2": Queue("a"), "b1": Queue("b"), "b2": Queue("b")},
         [one(16, "a1", "a2", "b1", "b2")], cpus(a1=4, a2=4, b1=4, b2=4)),
    Case("unequal leaves beside a queue", "hdrf", [cpu(10)],
         {"d": Queue(weight=5), "a": Queue(weight=5), "a1": Queue("a", weight=2), "a2": Queue("a", weight=3)},
         [one(10, "d", "a1", "a2")], cpus(d=4, a1=2, a2=4), cpus(d=5, a1=2, a2=3), RESCALED),
    Case("an idle queue beside a parent of two", "hdrf", [cpu(10)],
         {"d": Queue(weight=5), "a": Queue(weight=5), "a1": Queue("a", weight=2), "a2": Queue("a", weight=3)},
         [one(10, "a1", "a2")], cpus(a1=4, a2=6)),
    Case("an idle leaf lends to its sibling first", "hdrf", [cpu(12)],
         {"a": Queue(), "a1": Queue("a"), "a2": Queue("a"), "b": Queue()}, [[Jobs("a1", 1), *one(12, "a2", "b")]],
         cpus(a1=1, a2=5, b=6)),
    Case("a saturated leaf", "hdrf", [{"cpu": 30, "memory": 30}],
         {"n1": Queue(), "n2": Queue(), "n3": Queue(), "n31": Queue("n3"), "n32": Queue("n3"), "n4": Queue()},
         [[*one(30, "n1", "n2", "n31"), Jobs("n32", 1, {"memory": 1}, pods=30),
           Jobs("n4", 1, {"memory": 1}, pods=30)]],
         {**cpus(n1=10, n2=10, n31=10), "n32": {"memory": 15}, "n4": {"memory": 15}}),
    Case("the example of DRF", "hdrf", [{"cpu": 9, "memory": 18}], flat("a", "b"),
         [[Jobs("a", 1, {"cpu": 1, "memory": 4}, pods=9), Jobs("b", 1, {"cpu": 3, "memory": 1}, pods=9)]],
         {"a": {"cpu": 3, "memory": 12}, "b": {"cpu": 6, "memory": 2}}),
    Case("the later leaf comes to its part", "hdrf", [cpu(12)],
         {"a": Queue(), "a1": Queue("a"), "a2": Queue("a"), "b": Queue()}, [one(2, "a1"), one(12, "a1", "a2", "b")],
         cpus(a1=4, a2=3, b=5), cpus(a1=3, a2=3, b=6), RESCALED),
]  # fmt: skip


def of(cpu: int, memory: int, **more: int) -> Amounts:
    return {"cpu": cpu, "memory": memory, **more}


TREE: list[Case] = [
    Case("leaves up to their capabilities", "tree", [of(8, 8)],
         {"q1": Queue(capability=of(4, 4)), "q2": Queue(capability=of(4, 4)),
          "q11": Queue("q1", capability=of(1, 1)), "q12": Queue("q1", capability=of(3, 3))},
         [[Jobs("q11", 3, of(1, 1)), Jobs("q12", 5, of(1, 1))]], {"q11": of(1, 1), "q12": of(3, 3)}),
    Case("a leaf borrows what its sibling deserves", "tree", [of(8, 8)],
         {"q3": Queue(deserved=of(4, 4), capability=of(4, 4)), "q4": Queue(deserved=of(2, 2), capability=of(4, 4)),
          "q31": Queue("q3", deserved=of(2, 2), capability=of(4, 4)),
          "q32": Queue("q3", deserved=of(2, 2), capability=of(4, 4))},
         [[Jobs("q31", 1, of(2, 2), pods=2, least=2)]], {"q31": of(4, 4)}),
    Case("the capability of the parent is used up", "tree", [of(8, 8)],
         {"q3": Queue(deserved=of(4, 4), capability=of(4, 4)),
          "q31": Queue("q3", deserved=of(2, 2), capability=of(4, 4)),
          "q32": Queue("q3", deserved=of(2, 2), capability=of(4, 4)), "q33": Queue("q3", capability=of(4, 4))},
         [[Jobs("q31", 1, of(2, 2)), Jobs("q32", 1, of(2, 2))], [Jobs("q33", 1, of(3, 3))]],
         {"q31": of(2, 2), "q32": of(2, 2)}),
    Case("a capability of memory alone", "tree", [of(8, 8)],
         {"q5": Queue(capability={"memory": 4}), "q51": Queue("q5", capability={"memory": 2})},
         [[Jobs("q51", 1), Jobs("q51", 4, of(1, 1))]], {"q51": of(3, 2)}),
    Case("leaves within the capability of their parent", "tree", [of(8, 8)],
         {"q6": Queue(capability=of(2, 4)), "q61": Queue("q6"), "q62": Queue("q6")},
         [[Jobs("q61", 1, of(2, 4))], [Jobs("q62", 1, of(2, 4))]], {"q61": of(2, 4)}),
    Case("what is left of the parent's capability", "tree", [cpu(12)],
         {"a": Queue(capability=cpu(6)), "a1": Queue("a"), "a2": Queue("a"), "b": Queue()},
         [each(4, "a1"), each(12, "a2", "b")], cpus(a1=4, a2=2, b=6)),
    Case("a leaf's guarantee isn't lent", "tree", [cpu(12)],
         {"a": Queue(guarantee=cpu(4), deserved=cpu(4)), "a1": Queue("a", guarantee=cpu(4), deserved=cpu(4)),
          "a2": Queue("a"), "b": Queue(deserved=cpu(8))}, [each(12, "b")], cpus(b=8)),
    Case("leaves of one parent get what they deserve", "tree", [cpu(6)],
         {"a": Queue(deserved=cpu(6)), "a1": Queue("a", deserved=cpu(2)), "a2": Queue("a", deserved=cpu(4))},
         [each(12, "a1", "a2")], cpus(a1=2, a2=4)),
    Case("leaves of one parent get more than they deserve", "tree", [cpu(12)],
         {"a": Queue(deserved=cpu(6)), "a1": Queue("a", deserved=cpu(2)), "a2": Queue("a", deserved=cpu(4), weight=2)},
         [each(12, "a1", "a2")], cpus(a1=4, a2=8)),
    Case("a job of a queue with children", "tree", [cpu(12)], {"a": Queue(), "a1": Queue("a"), "b": Queue()},
         [each(2, "a", "b")], {}, cpus(a=2, b=2),
         "In Volcano only leaves may have jobs, and one job of another queue stops the whole cycle. Here a queue's own "
         "jobs are one more child of it."),
    Case("leaves of two parents", "tree", [cpu(12)],
         {"a": Queue(deserved=cpu(4)), "a1": Queue("a", deserved=cpu(4)), "b": Queue(deserved=cpu(8)),
          "b1": Queue("b", deserved=cpu(8))}, [each(12, "a1"), each(12, "b1")], cpus(a1=12)),
]  # fmt: skip

MEASURED = [*PROPORTION, *CAPACITY, *HDRF, *TREE]

PUBLISHED: list[Case] = [
    # What vc-scheduler 1.10.0 gives here varies, and the test that expects this compares nothing.
    Case("complementary leaves", "Volcano: the rescaling test of hdrf_test.go", [of(10, 10)],
         {"sci": Queue(), "eng": Queue(), "dev": Queue("eng"), "prod": Queue("eng")},
         [[Jobs("sci", 1, of(1, 1), pods=10), Jobs("dev", 1, pods=10), Jobs("prod", 1, {"memory": 1}, pods=10)]],
         {"sci": of(5, 5), "dev": cpu(5), "prod": {"memory": 5}}),
    Case("GPUs up to the capabilities of leaves", "Volcano: capacity_test.go, hierarchy, case11",
         [of(8, 8, **{GPU: 8})],
         {"q1": Queue(), "q11": Queue("q1", capability=of(4, 4, **{GPU: 4})),
          "q12": Queue("q1", capability=of(4, 4, **{GPU: 4}))},
         [[Jobs("q11", 1, of(1, 1, **{GPU: 4})), Jobs("q12", 1, of(1, 1, **{GPU: 4}))]],
         {"q11": of(1, 1, **{GPU: 4}), "q12": of(1, 1, **{GPU: 4})}),
    Case("guarantees of four queues, GPUs", "Volcano 1.10.0: queue-guarantee-resource-reservation-design.md",
         [{GPU: 30}],
         {"q1": Queue(guarantee={GPU: 5}), "q2": Queue(), "q3": Queue(capability={GPU: 10}),
          "q4": Queue(weight=2, guarantee={GPU: 10})},
         [[Jobs(name, 30, {GPU: 1}) for name in ("q1", "q2", "q3", "q4")]],
         {"q1": {GPU: 6}, "q2": {GPU: 6}, "q3": {GPU: 6}, "q4": {GPU: 12}},
         {"q1": {GPU: 8}, "q2": {GPU: 3}, "q3": {GPU: 3}, "q4": {GPU: 16}}, ON_TOP),
    Case("a team borrows all of the other's quota", "Kueue: Cluster Queue, Borrowing example", [of(21, 84)],
         {"a": Queue(deserved=of(9, 36)), "b": Queue(deserved=of(12, 48))}, [[Jobs("a", 30, of(1, 4))]],
         {"a": of(21, 84)}),
    Case("each team gets its quota", "Kueue: Cluster Queue, Borrowing example", [of(21, 84)],
         {"a": Queue(deserved=of(9, 36)), "b": Queue(deserved=of(12, 48))},
         [[Jobs("a", 9, of(1, 4))], [Jobs("a", 9, of(1, 4)), Jobs("b", 30, of(1, 4))]],
         {"a": of(9, 36), "b": of(12, 48)}),
    Case("a team borrows up to its limit", "Kueue: Cluster Queue, BorrowingLimit", [cpu(21)],
         {"a": Queue(deserved=cpu(9), capability=cpu(10)), "b": Queue(deserved=cpu(12))}, [each(30, "a")], cpus(a=10)),
    Case("a team without a limit borrows all", "Kueue: Cluster Queue, BorrowingLimit", [cpu(21)],
         {"a": Queue(deserved=cpu(9), capability=cpu(10)), "b": Queue(deserved=cpu(12))}, [each(30, "b")], cpus(b=21)),
    Case("a team lends up to its limit", "Kueue: Cluster Queue, LendingLimit", [cpu(21)],
         {"a": Queue(deserved=cpu(9)), "b": Queue(guarantee=cpu(11), deserved=cpu(12))}, [each(30, "a")], cpus(a=10)),
    Case("three departments, 60, 10 and 30 percent", "YARN: capacities of CapacityScheduler", [cpu(100)],
         {"engineering": Queue(deserved=cpu(60)), "support": Queue(deserved=cpu(10)),
          "marketing": Queue(deserved=cpu(30))}, [each(100, "engineering", "support", "marketing")],
         cpus(engineering=60, support=10, marketing=30)),
    Case("tasks of two users", "Ghodsi et al., Dominant Resource Fairness, NSDI 2011, section 4.1", [of(9, 18)],
         flat("a", "b"), [[Jobs("a", 9, of(1, 4)), Jobs("b", 9, of(3, 1))]], {"a": of(3, 12), "b": of(6, 2)}),
]  # fmt: skip
