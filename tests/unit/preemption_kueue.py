"""Cases of Kueue: its unit tests of preemption within a ClusterQueue and a cohort, of fair sharing and of hierarchical
cohorts. A victim waits again there too, but no such test goes on with it; here it may take room itself in the end.

`nominalQuota` is `deserved`, and the nodes together have what a cohort has. Kueue admits without nodes; here one node
has it all. Workloads are gangs of one pod. Its priorities −1, 0 and 1 are 1, 2 and 3.
"""

from tests.unit.preemption_table import (
    GPU,
    NEVER,
    NOBODY,
    PRIORITY,
    RECLAIM,
    Amounts,
    Case,
    Job,
    Queue,
    cores,
    cpu,
    gpu,
    gpus,
)

ONE, COHORT, FAIR, TREE = "Kueue, one ClusterQueue", "Kueue, cohort", "Kueue, fair sharing", "Kueue, hierarchy"
LOW, MID, HIGH = 1, 2, 3

#: Two queues that deserve half of 12 cores each.
HALVES = {"c1": Queue(cpu(6)), "c2": Queue(cpu(6))}
#: Three queues that deserve three GPUs of nine each.
THIRDS = {name: Queue(gpu(3)) for name in "abc"}


def units(queue: str, count: int, first: int = 1, priority: int = MID) -> list[Job]:
    """So many jobs with one GPU each: a1, a2, …"""
    return [Job(f"{queue}{number}", gpu(1), priority, queue=queue) for number in range(first, first + count)]


def job(queue: str, name: str, amount: Amounts, priority: int = MID) -> Job:
    return Job(name, amount, priority, queue=queue)


KUEUE: list[Case] = [
    Case("the lowest priority", ONE, cores(1, 6),
         [Job("low", cpu(2), LOW), Job("mid", cpu(2), MID), Job("high", cpu(2), HIGH)], [Job("in", cpu(2), HIGH)],
         {"in": {"low": PRIORITY}}, "mid high in"),
    Case("two, the lowest first", ONE, cores(1, 6),
         [Job("low", cpu(2), LOW), Job("mid", cpu(2), MID), Job("high", cpu(2), HIGH)], [Job("in", cpu(3), HIGH)],
         {"in": {"low": PRIORITY, "mid": PRIORITY}}, "high in"),
    Case("nothing for the lowest", ONE, cores(1, 6), [Job("low", cpu(3), LOW), Job("mid", cpu(3), MID)],
         [Job("in", cpu(1), LOW)], NOBODY, "low mid"),
    Case("too few of lower priority", ONE, cores(1, 6), [Job("low", cpu(3), LOW), Job("mid", cpu(3), MID)],
         [Job("in", cpu(4), MID)], NOBODY, "low mid"),
    Case("some is free", ONE, cores(1, 6),
         [Job("low", cpu(1), LOW), Job("mid", cpu(1), MID), Job("high", cpu(3), HIGH)], [Job("in", cpu(2), HIGH)],
         {"in": {"low": PRIORITY}}, "mid high in"),
    Case("the smallest set is without the lowest", ONE, cores(1, 6),
         [Job("low", cpu(1), LOW), Job("mid", cpu(2), MID), Job("high", cpu(3), HIGH)], [Job("in", cpu(2), HIGH)],
         {"in": {"mid": PRIORITY}}, "low high in"),
    Case("withinClusterQueue Never", ONE, cores(1, 6), [Job("low", cpu(6), LOW, queue="c1")],
         [Job("in", cpu(6), HIGH, queue="c1")], NOBODY, "low", queues={"c1": Queue(preemption=NEVER)}),
    Case("from a queue that borrows", COHORT, cores(1, 12),
         [job("c1", "c1-low", cpu(3), LOW), job("c2", "c2-mid", cpu(3)), job("c2", "c2-high", cpu(6), HIGH)],
         [job("c1", "in", cpu(3), HIGH)], {"in": {"c2-mid": RECLAIM}}, "c1-low c2-high in", queues=HALVES),
    Case("nothing of a resource that nobody borrows", COHORT, {"n1": {"cpu": 12, GPU: 4}},
         [job("c1", "c1-gpu", gpu(4)), job("c2", "c2-cpu", cpu(11))], [job("c2", "in", gpu(2), HIGH)], NOBODY,
         "c1-gpu c2-cpu",
         queues={"c1": Queue({"cpu": 1, GPU: 4}), "c2": Queue(cpu(11))}),
    Case("nobody borrows, and what is free is enough", COHORT, cores(1, 12),
         [job("c1", "c1-high", cpu(4), HIGH), job("c2", "c2-low", cpu(4), LOW)], [job("c1", "in", cpu(4), HIGH)],
         NOBODY, "c1-high c2-low in", queues=HALVES),
    Case("others borrow, but it would too", COHORT, cores(1, 12),
         [job("c1", "c1-high", cpu(4), HIGH), job("c2", "c2-low-1", cpu(4), LOW), job("c2", "c2-low-2", cpu(4), LOW)],
         [job("c1", "in", cpu(4), HIGH)], NOBODY, "c1-high c2-low-1 c2-low-2", queues=HALVES),
    Case("its own low one, while its queue borrows", COHORT, cores(1, 12),
         [job("c1", "c1-med", cpu(4)), job("c1", "c1-low", cpu(4), LOW), job("c2", "c2-low-1", cpu(4), LOW)],
         [job("c1", "in", cpu(4), HIGH)], {"in": {"c1-low": PRIORITY}}, "c1-med c2-low-1 in", queues=HALVES),
    Case("its own, in a cohort of one queue", COHORT, cores(1, 6),
         [job("l1", "l1-med", cpu(4)), job("l1", "l1-low", cpu(2), LOW)], [job("l1", "in", cpu(4), HIGH)],
         {"in": {"l1-med": PRIORITY}}, "l1-low in", queues={"l1": Queue(cpu(6))}),
    Case("reclaimWithinCohort Any", COHORT, cores(1, 10),
         [job("c1", "c1-1", cpu(4)), job("c1", "c1-2", cpu(4), HIGH), job("c2", "c2", cpu(2))],
         [job("c2", "in", cpu(4))], {"in": {"c1-1": RECLAIM}}, "c1-2 c2 in",
         queues={"c1": Queue(cpu(4)), "c2": Queue(cpu(6))}),
    Case("reclaimWithinCohort LowerPriority", COHORT, cores(1, 12),
         [job("c1", "c1", cpu(2)), job("c2", "c2-1", cpu(5)), job("c2", "c2-2", cpu(5))], [job("c1", "in", cpu(4))],
         {"in": {"c2-2": RECLAIM}}, "c1 c2-1 in", NOBODY,
         "Arranger has no such mode: what a queue has above its share is taken whatever its priority, and Never "
         "switches that off.", queues=HALVES),
    Case("borrowingLimit", COHORT, cores(1, 12),
         [job("c1", "c1-low", cpu(4), LOW), job("c2", "c2", cpu(2))], [job("c1", "in", cpu(4), HIGH)],
         {"in": {"c1-low": PRIORITY}}, "c2 in",
         queues={"c1": Queue(cpu(4), capability=cpu(6)), "c2": Queue(cpu(8))}),
    Case("lendingLimit", COHORT, cores(1, 12), [job("c1", "c1", cpu(4), LOW)], [job("c1", "in", cpu(4), HIGH)],
         {"in": {"c1": PRIORITY}}, "in",
         queues={"c1": Queue(cpu(6)), "c2": Queue(cpu(6), guarantee=cpu(6))}),
    Case("from its own queue and others together", COHORT, cores(1, 12),
         [job("c1", "c1-low", cpu(3), LOW), job("c1", "c1-mid", cpu(2)), job("c2", "c2-low", cpu(3), LOW),
          job("c2", "c2-mid", cpu(4))],
         [job("c1", "in", cpu(4))], {"in": {"c1-low": PRIORITY, "c2-low": RECLAIM}}, "c1-mid c2-mid in", queues=HALVES),
    Case("what it deserves, from who uses most", FAIR, gpus(1, 9), [*units("a", 3), *units("b", 5), *units("c", 1)],
         [Job("in", gpu(1), MID, queue="c")], {"in": {"b5": RECLAIM}}, "a1 a2 a3 b1 b2 b3 b4 c1 in", queues=THIRDS),
    Case("what nobody deserves, from who uses most", FAIR, gpus(1, 9),
         [*units("a", 3), *units("b", 5), *units("c", 1)], [Job("in", gpu(1), MID, queue="a")],
         {"in": {"b5": RECLAIM}}, "a1 a2 a3 b1 b2 b3 b4 c1 in", queues=THIRDS),
    Case("a larger one of a queue that uses less", FAIR, gpus(3, 3),
         [Job("a1", gpu(3), MID, "n1", queue="a"), Job("a2", gpu(1), MID, "n2", queue="a"),
          Job("b1", gpu(2), MID, "n2", queue="b"), Job("b2", gpu(3), MID, "n3", queue="b")],
         [Job("in", gpu(3), MID, queue="c")], {"in": {"b2": RECLAIM}}, "a1 a2 b1 in", {"in": {"a1": RECLAIM}},
         "Kueue takes the one that was admitted last in the queue that uses most, else one of the next queue. Arranger "
         "tries all jobs of queues above their share, the least loss first.", queues=THIRDS),
    Case("one of each queue that borrows", FAIR, gpus(1, 16),
         [Job("a1", gpu(1), MID, queue="a"), Job("a2", gpu(1), MID, queue="a"), Job("a3", gpu(6), MID, queue="a"),
          Job("b1", gpu(1), MID, queue="b"), Job("b2", gpu(1), MID, queue="b"), Job("b3", gpu(6), MID, queue="b")],
         [Job("in", gpu(4), MID, queue="c")], {"in": {"a1": RECLAIM, "a2": RECLAIM, "b1": RECLAIM, "b2": RECLAIM}},
         "a3 b3 in", queues={"a": Queue(gpu(6)), "b": Queue(gpu(6)), "c": Queue(gpu(4))}),
    Case("all have what they deserve", FAIR, gpus(1, 9), [*units("a", 3), *units("b", 3), *units("c", 3)],
         [Job("in", gpu(1), MID, queue="c")], NOBODY, "a1 a2 a3 b1 b2 b3 c1 c2 c3", queues=THIRDS),
    Case("nothing if the other would then have less", FAIR, gpus(1, 8), [*units("a", 3), *units("b", 5)],
         [Job("in", gpu(2), MID, queue="a")], NOBODY, "a1 a2 a3 b1 b2 b3 b4 b5", queues=THIRDS),
    Case("its own low ones while another queue has most", FAIR, gpus(1, 9),
         [*units("a", 2, priority=LOW), *units("a", 2, 3), *units("b", 5)], [Job("in", gpu(2), MID, queue="a")],
         {"in": {"a1": PRIORITY, "a2": PRIORITY}, "a1": {"b5": RECLAIM}}, "a1 a3 a4 b1 b2 b3 b4 in", queues=THIRDS),
    Case("an own low one and one of who uses most", FAIR, gpus(1, 9),
         [*units("a", 1, priority=LOW), *units("a", 2, 2), *units("b", 6)], [Job("in", gpu(2), MID, queue="a")],
         {"in": {"b5": RECLAIM, "b6": RECLAIM}}, "a1 a2 a3 b1 b2 b3 b4 in", {"in": {"a1": PRIORITY, "b1": RECLAIM}},
         "Of nine GPUs, a's share is five here, in whole units: so it takes all from the queue above its share.",
         queues=THIRDS),
    Case("a huge one if there is no other", FAIR, gpus(1, 9), [Job("b1", gpu(9), MID, queue="b")],
         [Job("in", gpu(2), MID, queue="a")], {"in": {"b1": RECLAIM}}, "in", queues=THIRDS),
    Case("nothing huge for something huge", FAIR, gpus(1, 9),
         [Job("a1", gpu(2), MID, queue="a"), Job("b1", gpu(7), MID, queue="b")], [Job("in", gpu(5), MID, queue="a")],
         NOBODY, "a1 b1", queues=THIRDS),
    Case("not two smaller ones for something huge", FAIR, gpus(1, 9),
         [Job("b1", gpu(2), MID, queue="b"), Job("b2", gpu(2), MID, queue="b"), Job("b3", gpu(3), MID, queue="b")],
         [Job("in", gpu(6), MID, queue="a")], NOBODY, "b1 b2 b3", queues=THIRDS),
    Case("a queue below a cohort takes what the cohort deserves", TREE, cores(1, 2), [job("borrowing", "old", cpu(2))],
         [job("q", "in", cpu(2))], {"in": {"old": RECLAIM}}, "in",
         queues={"c": Queue(cpu(2)), "q": Queue(parent="c"), "borrowing": Queue()}),
    Case("not from a queue with what it deserves, though of low priority", TREE, cores(1, 4),
         [job("nominal", "nominal", cpu(2), LOW), job("borrowing", "old", cpu(2))], [job("q", "in", cpu(2))],
         {"in": {"old": RECLAIM}}, "nominal in",
         queues={"c": Queue(cpu(2)), "q": Queue(parent="c"), "borrowing": Queue(), "nominal": Queue(cpu(2))}),
    Case("two of a higher priority", TREE, cores(1, 2),
         [job("borrowing", "old1", cpu(1), HIGH), job("borrowing", "old2", cpu(1), HIGH + 1)],
         [job("q", "in", cpu(2))], {"in": {"old1": RECLAIM, "old2": RECLAIM}}, "in",
         queues={"c": Queue(cpu(2)), "q": Queue(parent="c"), "borrowing": Queue()}),
    Case("in its cohort and its own queue", TREE, cores(1, 3),
         [job("same", "keeps", cpu(1), HIGH), job("same", "gives", cpu(1)), job("q", "own", cpu(1), LOW)],
         [job("q", "in", cpu(2), HIGH)], NOBODY, "keeps gives own", {"in": {"own": PRIORITY, "gives": RECLAIM}},
         "Kueue borrows by taking from others (borrowWithinCohort). In Arranger a queue never gets more than its share "
         "that way: half of three cores, of which the job wants two.",
         queues={"c": Queue(cpu(3)), "q": Queue(parent="c"), "same": Queue(parent="c")}),
]  # fmt: skip
