"""Cases of kube-scheduler: its unit tests of the plugin DefaultPreemption, and what its documentation says of it.

Nodes have five cores, as there; its sizes small, medium, large and very large are 1, 2, 3 and 5 cores. Each pod is a
job. Priorities: low 1, mid 4, high 7, negative 0.

In these tests of others a victim is gone. Here it waits again: it may run elsewhere, and may take room itself.
"""

from arranger.model.pod import HostPort, PodRules, PodTerm, Requirement, SpreadRule
from tests.unit.preemption_table import NEVER, NOBODY, PRIORITY, Case, Job, Queue, cores, cpu

SMALL, MEDIUM, LARGE, HUGE = cpu(1), cpu(2), cpu(3), cpu(5)
NEG, LOW, MID, HIGH = 0, 1, 4, 7

HOST, ZONE = "kubernetes.io/hostname", "zone"
_FOO = (Requirement("foo", "Exists", ()),)
_FOO_LABEL = {"foo": "yes"}
REPELS = PodRules(anti_affinity=(PodTerm(HOST, _FOO),))
NEAR = PodRules(affinity=(PodTerm(HOST, _FOO),))
SPREAD = PodRules(spread=(SpreadRule(ZONE, 1, _FOO), SpreadRule(HOST, 1, _FOO)))
PORT = PodRules(host_ports=(HostPort(8080),))

DRY, BEST, DOC = "kube-scheduler, dry run", "kube-scheduler, best candidate", "kube-scheduler, documentation"
POST = "kube-scheduler, PostFilter"

GREEDY = (
    "kube-scheduler compares what each node would cost for one pod. Arranger's search is for quorums over many nodes: "
    "it takes the first that are enough in the order of harm, and spares who isn't needed. It finds no set that is "
    "better but comes later in that order."
)

KUBE: list[Case] = [
    Case("nobody, as it fits", DRY, cores(2, 5), [Job("p1", LARGE, MID, "n1")], [Job("p", LARGE, HIGH)], NOBODY,
         "p1 p"),
    Case("either of two nodes with equal pods", DRY, cores(2, 5),
         [Job("p1", LARGE, MID, "n1"), Job("p2", LARGE, MID, "n2")], [Job("p", LARGE, HIGH)],
         {"p": {"p2": PRIORITY}}, "p1 p"),
    Case("nobody, as all others have a higher priority", DRY, cores(2, 5),
         [Job("p1", LARGE, MID, "n1"), Job("p2", LARGE, MID, "n2")], [Job("p", LARGE, LOW)], NOBODY, "p1 p2"),
    Case("nobody, as all others have the same priority", DRY, cores(2, 5),
         [Job("p1", LARGE, MID, "n1"), Job("p2", LARGE, MID, "n2")], [Job("p", LARGE, MID)], NOBODY, "p1 p2"),
    Case("a low one that is too small to help is spared", DRY, cores(2, 5),
         [Job("p1.1", SMALL, LOW, "n1"), Job("p1.2", LARGE, MID, "n1"), Job("p2", LARGE, MID, "n2")],
         [Job("p", LARGE, HIGH)], {"p": {"p2": PRIORITY}}, "p1.1 p1.2 p"),
    Case("victims of several priorities on one node", DRY, cores(2, 5),
         [Job("p1.1", SMALL, MID, "n1"), Job("p1.2", SMALL, LOW, "n1"), Job("p1.3", MEDIUM, MID, "n1"),
          Job("p1.4", SMALL, HIGH, "n1"), Job("p2", LARGE, HIGH, "n2")],
         [Job("p", LARGE, HIGH)], {"p": {"p1.2": PRIORITY, "p1.3": PRIORITY}}, "p1.1 p1.3 p1.4 p2 p"),
    Case("of equal ones the one that started last", DRY, cores(2, 5),
         [Job("p2", LARGE, HIGH, "n2"), Job("p1.4", SMALL, HIGH, "n1"), Job("p1.3", MEDIUM, MID, "n1"),
          Job("p1.2", SMALL, LOW, "n1"), Job("p1.1", SMALL, LOW, "n1")],
         [Job("p", LARGE, HIGH)], {"p": {"p1.1": PRIORITY, "p1.3": PRIORITY}}, "p1.2 p1.3 p1.4 p2 p"),
    Case("a pod that repels it", DRY, cores(2, 5),
         [Job("p1.1", SMALL, LOW, "n1", labels=_FOO_LABEL, rules=REPELS), Job("p1.2", SMALL, MID, "n1"),
          Job("p1.3", SMALL, HIGH, "n1"), Job("p2", HUGE, HIGH, "n2")],
         [Job("p", SMALL, HIGH, labels=_FOO_LABEL)], {"p": {"p1.1": PRIORITY}}, "p1.2 p1.3 p2 p"),
    Case("a pod that it repels", DRY, cores(1, 5),
         [Job("p1", SMALL, LOW, labels=_FOO_LABEL), Job("p2", SMALL, LOW)],
         [Job("p", SMALL, HIGH, rules=REPELS)], {"p": {"p1": PRIORITY}}, "p2 p"),
    Case("nobody, as the pod that repels it has its priority", DRY, cores(1, 5),
         [Job("p1", SMALL, HIGH, labels=_FOO_LABEL, rules=REPELS), Job("p2", SMALL, LOW)],
         [Job("p", SMALL, HIGH, labels=_FOO_LABEL)], NOBODY, "p1 p2"),
    Case("the spread over zones and nodes", DRY, cores(3, 5),
         [Job("a1", SMALL, MID, "n1", labels=_FOO_LABEL), Job("a2", SMALL, LOW, "n1", labels=_FOO_LABEL),
          Job("b1", SMALL, LOW, "n2", labels=_FOO_LABEL), Job("x1", SMALL, HIGH, "n3", labels=_FOO_LABEL),
          Job("x2", SMALL, HIGH, "n3", labels=_FOO_LABEL)],
         [Job("p", SMALL, HIGH, labels=_FOO_LABEL, rules=SPREAD)], {"p": {"b1": PRIORITY}}, "a1 a2 b1 x1 x2 p",
         labels={"n1": {ZONE: "1"}, "n2": {ZONE: "1"}, "n3": {ZONE: "2"}}),
    Case("a port of the node", DRY, cores(1, 5),
         [Job("p1", SMALL, LOW, rules=PORT), Job("p2", SMALL, LOW)], [Job("p", SMALL, HIGH, rules=PORT)],
         {"p": {"p1": PRIORITY}}, "p2 p"),
    Case("nobody, as the port is held by one of the same priority", DRY, cores(1, 5),
         [Job("p1", SMALL, HIGH, rules=PORT), Job("p2", SMALL, LOW)], [Job("p", SMALL, HIGH, rules=PORT)], NOBODY,
         "p1 p2"),
    Case("the number of pods of a node", POST, {"n1": cpu(5, pods=1), "n2": cpu(5, pods=1)},
         [Job("p1", SMALL, HIGH, "n1"), Job("p2", SMALL, LOW, "n2")], [Job("p", SMALL, HIGH)],
         {"p": {"p2": PRIORITY}}, "p1 p"),
    Case("nobody, as the node is too small without them", POST, cores(2, 2),
         [Job("p1", SMALL, LOW, "n1"), Job("p2", SMALL, LOW, "n2")], [Job("p", LARGE, HIGH)], NOBODY, "p1 p2"),
    Case("nobody, as one node is too small and the others have no lower ones", POST,
         {"n1": cpu(3), "n2": cpu(2), "n3": cpu(3)},
         [Job("p1", LARGE, HIGH, "n1"), Job("p2", MEDIUM, LOW, "n2"), Job("p3", LARGE, HIGH, "n3")],
         [Job("p", LARGE, HIGH)], NOBODY, "p1 p2 p3"),
    Case("only nodes that it may use", POST, cores(2, 3),
         [Job("p1", LARGE, LOW, "n1"), Job("p2", LARGE, MID, "n2")],
         [Job("p", LARGE, HIGH, selector={"pool": "b"})], {"p": {"p2": PRIORITY}, "p2": {"p1": PRIORITY}},
         "p2 p", labels={"n2": {"pool": "b"}}),
    Case("nobody, as no node is one that it may use", POST, cores(2, 3),
         [Job("p1", LARGE, LOW, "n1"), Job("p2", LARGE, MID, "n2")],
         [Job("p", LARGE, HIGH, selector={"pool": "c"})], NOBODY, "p1 p2", labels={"n2": {"pool": "b"}}),
    Case("an extended resource", DRY, {"n1": {"cpu": 5, "example.com/fpga": 1}},
         [Job("plain", SMALL, LOW), Job("user", cpu(1, **{"example.com/fpga": 1}), MID)],
         [Job("p", cpu(1, **{"example.com/fpga": 1}), HIGH)], {"p": {"user": PRIORITY}}, "plain p"),
    Case("the node whose highest priority is lowest", BEST, cores(3, 5),
         [Job("p1.1", MEDIUM, MID, "n1"), Job("p1.2", LARGE, MID, "n1"), Job("p2.1", MEDIUM, MID, "n2"),
          Job("p2.2", MEDIUM, LOW, "n2"), Job("p3.1", MEDIUM, LOW, "n3"), Job("p3.2", MEDIUM, LOW, "n3")],
         [Job("p", HUGE, HIGH)], {"p": {"p3.1": PRIORITY, "p3.2": PRIORITY}}, "p1.1 p1.2 p2.1 p2.2 p"),
    Case("one mid and one low rather than two mid", BEST, cores(3, 5),
         [Job("p1.1", MEDIUM, MID, "n1"), Job("p1.2", LARGE, MID, "n1"), Job("p2.1", LARGE, MID, "n2"),
          Job("p2.2", MEDIUM, LOW, "n2"), Job("p3.1", MEDIUM, MID, "n3"), Job("p3.2", MEDIUM, MID, "n3")],
         [Job("p", HUGE, HIGH)], {"p": {"p3.1": PRIORITY, "p3.2": PRIORITY}, "p3.1": {"p2.2": PRIORITY}},
         "p1.1 p1.2 p2.1 p3.1 p", {"p": {"p2.1": PRIORITY, "p2.2": PRIORITY}}, GREEDY),
    Case("the fewest among equal priorities", BEST, cores(3, 5),
         [Job("p1.1", SMALL, MID, "n1"), Job("p1.2", SMALL, NEG, "n1"), Job("p1.3", SMALL, MID, "n1"),
          Job("p1.4", SMALL, NEG, "n1"), Job("p2.1", LARGE, MID, "n2"), Job("p2.2", MEDIUM, NEG, "n2"),
          Job("p3.1", MEDIUM, MID, "n3"), Job("p3.2", SMALL, NEG, "n3"), Job("p3.3", SMALL, LOW, "n3")],
         [Job("p", HUGE, HIGH)],
         {"p": {"p3.1": PRIORITY, "p3.2": PRIORITY, "p3.3": PRIORITY}, "p3.1": {"p2.2": PRIORITY}},
         "p1.1 p1.2 p1.3 p1.4 p2.1 p3.1 p3.3 p", {"p": {"p2.1": PRIORITY, "p2.2": PRIORITY}}, GREEDY),
    Case("one mid and lows rather than more mids", BEST, cores(4, 5),
         [Job("p1.1", SMALL, MID, "n1"), Job("p1.2", SMALL, LOW, "n1"), Job("p1.3", SMALL, LOW, "n1"),
          Job("p2.1", LARGE, HIGH, "n2"), Job("p3.1", MEDIUM, MID, "n3"), Job("p3.2", SMALL, LOW, "n3"),
          Job("p3.3", SMALL, LOW, "n3"), Job("p3.4", SMALL, LOW, "n3"), Job("p4.1", MEDIUM, MID, "n4"),
          Job("p4.2", SMALL, MID, "n4"), Job("p4.3", SMALL, MID, "n4"), Job("p4.4", SMALL, NEG, "n4")],
         [Job("p", HUGE, HIGH + 1)], {"p": {f"p4.{number}": PRIORITY for number in range(1, 5)}},
         "p1.1 p1.2 p1.3 p2.1 p3.1 p3.2 p3.3 p3.4 p4.1 p4.2 p4.3 p",
         {"p": {"p1.1": PRIORITY, "p1.2": PRIORITY, "p1.3": PRIORITY}}, GREEDY),
    Case("the node whose pods started last", BEST, cores(3, 5),
         [Job("p3.1", MEDIUM, MID, "n3"), Job("p3.2", MEDIUM, MID, "n3"), Job("p1.1", MEDIUM, MID, "n1"),
          Job("p1.2", MEDIUM, MID, "n1"), Job("p2.1", MEDIUM, MID, "n2"), Job("p2.2", MEDIUM, MID, "n2")],
         [Job("p", HUGE, HIGH)], {"p": {"p2.1": PRIORITY, "p2.2": PRIORITY}}, "p1.1 p1.2 p3.1 p3.2 p"),
    Case("the node whose first start is the latest", BEST, cores(3, 5),
         [Job("p2.2", MEDIUM, MID, "n2"), Job("p1.2", MEDIUM, MID, "n1"), Job("p3.1", MEDIUM, MID, "n3"),
          Job("p1.1", MEDIUM, MID, "n1"), Job("p2.1", MEDIUM, MID, "n2"), Job("p3.2", MEDIUM, MID, "n3")],
         [Job("p", HUGE, HIGH)], {"p": {"p3.1": PRIORITY, "p3.2": PRIORITY}}, "p1.1 p1.2 p2.1 p2.2 p"),
    Case("the latest start counts among the highest priorities", BEST, cores(3, 5),
         [Job("p2.2", MEDIUM, LOW, "n2"), Job("p1.2", MEDIUM, MID, "n1"), Job("p3.1", MEDIUM, LOW, "n3"),
          Job("p1.1", MEDIUM, LOW, "n1"), Job("p3.2", MEDIUM, MID, "n3"), Job("p2.1", MEDIUM, MID, "n2")],
         [Job("p", HUGE, HIGH)], {"p": {"p2.1": PRIORITY, "p2.2": PRIORITY}, "p2.1": {"p1.1": PRIORITY}},
         "p1.2 p2.1 p3.1 p3.2 p"),
    Case("pods that leave already are waited for", "kube-scheduler, eligibility", cores(2, 5),
         [Job("p1", LARGE, LOW, "n1"), Job("p2", LARGE, LOW, "n2")], [Job("p", HUGE, HIGH)], NOBODY, "p2 p",
         ends=("p1",)),
    Case("no third pod gets the room", "kube-scheduler, nominated pods", cores(1, 5),
         [Job("p1", HUGE, LOW)], [Job("p", LARGE, MID)], {"p": {"p1": PRIORITY}}, "p third",
         late=[Job("third", MEDIUM, LOW), Job("fourth", LARGE, LOW)]),
    Case("one of a higher priority comes while room is awaited", "kube-scheduler, nominated pods", cores(1, 5),
         [Job("p1", HUGE, LOW)], [Job("p", HUGE, MID)], {"p": {"p1": PRIORITY}, "higher": {"p": PRIORITY}}, "higher",
         late=[Job("higher", HUGE, HIGH)]),
    Case("a queue whose jobs take nothing", "kube-scheduler, preemptionPolicy Never", cores(1, 5),
         [Job("p1", HUGE, LOW)], [Job("p", HUGE, HIGH)], NOBODY, "p1", queues={"default": Queue(preemption=NEVER)}),
    Case("nobody beside the pod that it needs", DOC, cores(1, 5),
         [Job("p1", LARGE, LOW, labels=_FOO_LABEL), Job("p2", SMALL, HIGH)],
         [Job("p", LARGE, HIGH, rules=NEAR)], NOBODY, "p1 p2"),
    Case("nobody on another node for the sake of a zone", DOC, cores(2, 5),
         [Job("p1", LARGE, LOW, "n2", labels={"app": "a"}), Job("p2", HUGE, HIGH, "n1")],
         [Job("p", LARGE, HIGH, selector={HOST: "n1"})], NOBODY, "p1 p2"),
    Case("a PodDisruptionBudget of the one that started last", "kube-scheduler, PodDisruptionBudgets", cores(2, 3),
         [Job("free", LARGE, LOW, "n1"), Job("guarded", LARGE, LOW, "n2")], [Job("p", LARGE, HIGH)],
         {"p": {"guarded": PRIORITY}}, "free p", {"p": {"free": PRIORITY}},
         "Arranger doesn't watch budgets, so they don't count in the choice. `preemptible: false` protects a job."),
    Case("pods of other owners", DOC, cores(1, 5), [], [Job("p", LARGE, HIGH)], NOBODY, "",
         {"p": {"foreign": PRIORITY}},
         "Arranger takes room only from pods of TYJobs. Pods that other programs made are theirs to end.",
         foreign={"n1": cpu(3)}),
]  # fmt: skip
