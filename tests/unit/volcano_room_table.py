"""What Volcano's own scheduler does where room is taken back: who gives room, and who runs once nothing changes.

Each case ran on vc-scheduler 1.10.0 and a real API server, at least three times. Nodes, queues, PodGroups and pods were
made by hand and were there before the scheduler started, those that run with their nodes. A stand-in for kubelets
reported pods as running and ended those that were deleted. As Volcano's job controller does, it made a new pod for each
that had left.

The PodGroups had no `minResources`, so `enqueue` let each in, though no node had room. The actions were `enqueue,
allocate, preempt, reclaim, backfill`. `plugins` says how the plugins stood:

- `SHIPPED` as in its default configuration, with `proportion`: `priority`, `gang` (not asked whom to preempt) and
  `conformance` decide first, and `drf` (not asked either), `predicates`, `proportion`, `nodeorder` and `binpack` only
  where those name nobody.
- `TOGETHER` has all of them decide together, `gang` too, so that a victim must suit each.

The jobs of a case are those of `preemption_table`, with the nodes of all their pods in `on`, one for each pod. A case
that Arranger decides in another way says why. Amounts of CPU are in cores, all others in units.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from tests.unit.preemption_table import GPU, Amounts, Job, Queue, cores, cpu, gpu, gpus

SHIPPED, TOGETHER = "shipped", "together"
LOW, MIDDLE, HIGH = 1, 5, 9
NO_LABELS: Mapping[str, Mapping[str, str]] = MappingProxyType({})


class Outcome(NamedTuple):
    """Jobs, with the number of their pods where that isn't all of them: `low:2 high`. Jobs whose names differ only in
    a number are equal and count together, because in Volcano it is chance which of them gives room.

    `gave` are those from whom pods were taken, in all; `runs` are those that run in the end."""

    gave: str
    runs: str


class Case(NamedTuple):
    """The running jobs started one after the other. Then the waiting jobs come, all at once. `others` is what Volcano
    did, `also` what it did in other runs, and `ours` what Arranger does, if it differs."""

    name: str
    nodes: Mapping[str, Amounts]
    running: Sequence[Job]
    waiting: Sequence[Job]
    others: Outcome
    ours: Outcome | None = None
    why: str = ""
    also: Sequence[Outcome] = ()
    plugins: str = SHIPPED
    queues: Mapping[str, Queue] = MappingProxyType({})
    labels: Mapping[str, Mapping[str, str]] = NO_LABELS


def singles(name: str, count: int, on: str = "", priority: int = LOW, queue: str = "") -> list[Job]:
    """So many equal jobs of one pod of one core."""
    return [Job(f"{name}{number + 1}", cpu(1), priority, on, queue=queue) for number in range(count)]


def equal(*names: str) -> Mapping[str, Queue]:
    """Queues of equal weight."""
    return {name: Queue() for name in names}


#: Why a case differs.
WHICH_NODE = (
    "Volcano looks only at the node with the best score, whoever gives room there. Here a few sets of victims are "
    "compared: their priorities first, then how many they are."
)
BROKEN = (
    "With its shipped plugins Volcano takes as many pods of a gang as it needs. The others hold their nodes without a "
    "quorum. Here a gang leaves whole."
)
KEPT = (
    "If `gang` is asked, Volcano never takes a pod of a minimum, so no gang gives room, whatever its priority. Here a "
    "whole job may, unless it has `preemptible: false`."
)
IN_VAIN = (
    "Volcano reclaims pod by pod, as far as the share reaches or a node has victims, and doesn't ask whether the rest "
    "of the gang then fits. It doesn't start, the victims don't come back, and their room stays idle. Here nobody "
    "gives room unless the whole quorum gets its nodes."
)
BY_CHANCE = (
    "Volcano first chooses at random pods that bring the queue down to its share, and only among these the lowest "
    "priority. Here the lowest priority of the queue is first."
)
NOT_NEEDED = (
    "Volcano takes pods from the lowest priority on until there is enough, and takes also those that then turn out not "
    "to be needed. They come back. Here they are spared."
)
SURPLUS_FIRST = (
    "With its shipped plugins Volcano goes by priority alone. Here pods that no quorum needs come first, because their "
    "job runs on."
)
OWN_FIRST = (
    "In some runs Volcano takes from the own queue first, and whoever gave room then takes it from the other queue. "
    "Here a queue above its share gives room first, so one job leaves instead of two."
)
QUORUM = "Volcano reclaims for every pod of a job, up to the share. Here others give room only for its quorum."

#: Four jobs, by their priorities.
PRIORITIES = [Job(name, cpu(1), of, "n1") for name, of in (("three", 3), ("one", 1), ("four", 4), ("two", 2))]
#: A full node for each of four equal jobs.
FULL = [Job(f"a{number}", cpu(4), LOW, f"n{number}", queue="q1") for number in (1, 2, 3, 4)]

#: One queue, and priorities in it.
PREEMPT: list[Case] = [
    Case("one victim", cores(1, 4), [Job("low", cpu(4), LOW, "n1")], [Job("high", cpu(4), HIGH)],
         Outcome("low", "high")),
    Case("several victims", cores(1, 4), singles("a", 4, "n1"), [Job("high", cpu(4), HIGH)], Outcome("a", "high")),
    Case("the lowest priorities, and no more than is needed", cores(1, 4), PRIORITIES, [Job("high", cpu(2), HIGH)],
         Outcome("one two", "three four high")),
    Case("the lower of two priorities", cores(1, 4), [Job("a", cpu(2), 3, "n1"), Job("b", cpu(2), LOW, "n1")],
         [Job("high", cpu(2), HIGH)], Outcome("b", "a high")),
    Case("the lower of two priorities, which started first", cores(1, 4),
         [Job("a", cpu(2), LOW, "n1"), Job("b", cpu(2), 3, "n1")], [Job("high", cpu(2), HIGH)],
         Outcome("a", "b high")),
    Case("never an equal priority", cores(1, 4), [Job("a", cpu(4), MIDDLE, "n1")], [Job("b", cpu(4), MIDDLE)],
         Outcome("", "a")),
    Case("never a higher priority", cores(1, 4), [Job("a", cpu(4), HIGH, "n1")], [Job("b", cpu(4), LOW)],
         Outcome("", "a")),
    Case("not preemptable", cores(1, 4), [Job("low", cpu(4), LOW, "n1", preemptible=False)],
         [Job("high", cpu(4), HIGH)], Outcome("", "low")),
    Case("not preemptable, beside a higher priority", cores(1, 4),
         [Job("low", cpu(2), LOW, "n1", preemptible=False), Job("middle", cpu(2), MIDDLE, "n1")],
         [Job("high", cpu(2), HIGH)], Outcome("middle", "low high")),
    Case("nobody in vain", cores(1, 4), [Job("low", cpu(2), LOW, "n1"), Job("high", cpu(2), HIGH, "n1")],
         [Job("middle", cpu(4), MIDDLE)], Outcome("", "low high")),
    Case("nobody for a pod larger than the node", cores(1, 4), [Job("low", cpu(4), LOW, "n1")],
         [Job("high", cpu(5), HIGH)], Outcome("", "low")),
    Case("what is idle and one victim", cores(1, 4), [Job("low", cpu(2), LOW, "n1")], [Job("high", cpu(4), HIGH)],
         Outcome("low", "high")),
    Case("what is idle counts before a second victim", cores(1, 4),
         [*singles("a", 2, "n1"), Job("c", cpu(1), MIDDLE, "n1")], [Job("high", cpu(3), HIGH)],
         Outcome("a", "c high")),
    Case("another node is idle", cores(2, 4), [Job("low", cpu(4), LOW, "n1")], [Job("high", cpu(4), HIGH)],
         Outcome("", "low high")),
    Case("the victim runs on elsewhere", {"n1": cpu(4), "n2": cpu(2)}, [Job("low", cpu(2), LOW, "n1")],
         [Job("high", cpu(4), HIGH)], Outcome("low", "low high")),
    Case("the node of the lower priority", cores(2, 4), [Job("a", cpu(4), MIDDLE, "n1"), Job("b", cpu(4), LOW, "n2")],
         [Job("high", cpu(4), HIGH)], Outcome("a b", "a high"), Outcome("b", "a high"), WHICH_NODE),
    Case("the node with one victim", cores(2, 4),
         [Job("a1", cpu(2), LOW, "n1"), Job("a2", cpu(2), LOW, "n1"), Job("c", cpu(4), LOW, "n2")],
         [Job("high", cpu(4), HIGH)], Outcome("a", "c high"), Outcome("c", "a high"), WHICH_NODE,
         also=[Outcome("c", "a high")]),
    Case("the node that the selector names", cores(2, 4), [Job("a", cpu(4), MIDDLE, "n1"), Job("b", cpu(4), LOW, "n2")],
         [Job("high", cpu(4), HIGH, selector={"zone": "east"})], Outcome("a b", "a high"),
         labels={"n1": {"zone": "east"}, "n2": {"zone": "west"}}),
    Case("a gang on two nodes", cores(2, 4), [Job("a1", cpu(4), LOW, "n1"), Job("a2", cpu(4), LOW, "n2")],
         [Job("gang", cpu(4), HIGH, pods=2)], Outcome("a", "gang")),
    Case("a gang on an idle node and a victim's", cores(2, 4), [Job("low", cpu(4), LOW, "n2")],
         [Job("gang", cpu(4), HIGH, pods=2)], Outcome("low", "gang")),
    Case("nobody for a part of a gang", cores(2, 4), [Job("low", cpu(4), LOW, "n1"), Job("top", cpu(4), HIGH, "n2")],
         [Job("gang", cpu(4), MIDDLE, pods=2)], Outcome("", "low top")),
    Case("a gang takes two of three nodes", cores(3, 4),
         [Job("a", cpu(4), 3, "n1"), Job("b", cpu(4), 2, "n2"), Job("c", cpu(4), LOW, "n3")],
         [Job("gang", cpu(4), HIGH, pods=2)], Outcome("a b c", "a gang"), Outcome("b c", "a gang"), WHICH_NODE,
         also=[Outcome("b c", "a gang")]),
    Case("a gang on one node", cores(1, 4), singles("a", 4, "n1"), [Job("gang", cpu(1), HIGH, pods=3)],
         Outcome("a:3", "a:1 gang")),
    Case("GPUs of a node", gpus(2, 8), [Job("a", gpu(8), LOW, "n1"), Job("b", gpu(8), HIGH, "n2")],
         [Job("gang", gpu(4), MIDDLE, pods=2)], Outcome("a", "b gang")),
    Case("two wait, the higher priority first", cores(1, 4), [Job("low", cpu(4), LOW, "n1")],
         [Job("middle", cpu(4), MIDDLE), Job("high", cpu(4), HIGH)], Outcome("low", "high")),
    Case("two wait, and both get room", cores(1, 4), singles("a", 4, "n1"),
         [Job("middle", cpu(1), MIDDLE), Job("high", cpu(2), HIGH)], Outcome("a:3", "a:1 middle high")),
    Case("a job with its minimum takes nothing for more pods", cores(1, 4),
         [Job("low", cpu(1), LOW, "n1 n1", pods=2), Job("high", cpu(1), HIGH, "n1 n1", pods=4, least=2)], [],
         Outcome("", "low high:2")),
    Case("its minimum, and nothing for more pods", cores(1, 4), singles("a", 4, "n1"),
         [Job("high", cpu(1), HIGH, pods=4, least=2)], Outcome("a:2", "a:2 high:2")),
    Case("a pod above the minimum", cores(1, 4), [Job("low", cpu(1), LOW, "n1 n1 n1 n1", pods=4, least=2)],
         [Job("high", cpu(1), HIGH)], Outcome("low:1", "low:3 high")),
    Case("a pod above the minimum, gangs kept", cores(1, 4), [Job("low", cpu(1), LOW, "n1 n1 n1 n1", pods=4, least=2)],
         [Job("high", cpu(1), HIGH)], Outcome("low:1", "low:3 high"), plugins=TOGETHER),
    Case("all pods above the minimum, gangs kept", cores(1, 4),
         [Job("low", cpu(1), LOW, "n1 n1 n1 n1", pods=4, least=2)], [Job("high", cpu(1), HIGH, pods=2)],
         Outcome("low:2", "low:2 high"), plugins=TOGETHER),
    Case("the surplus of two jobs, gangs kept", cores(1, 6),
         [Job("a", cpu(1), LOW, "n1 n1 n1", pods=3, least=1), Job("b", cpu(1), 2, "n1 n1 n1", pods=3, least=1)],
         [Job("gang", cpu(1), HIGH, pods=4)], Outcome("a:2 b:2", "a:1 b:1 gang"), plugins=TOGETHER),
    Case("the surplus before a job of a lower priority, gangs kept", cores(1, 6),
         [Job("low", cpu(3), LOW, "n1"), Job("elastic", cpu(1), 3, "n1 n1 n1", pods=3, least=1)],
         [Job("high", cpu(2), HIGH)], Outcome("elastic:2", "low elastic:1 high"), plugins=TOGETHER),
    Case("more than what is above the minimum, gangs kept", cores(1, 4),
         [Job("low", cpu(1), LOW, "n1 n1 n1 n1", pods=4, least=2)], [Job("high", cpu(3), HIGH)], Outcome("", "low"),
         Outcome("low", "high"), KEPT, plugins=TOGETHER),
    Case("a gang gives room", cores(1, 4), [Job("low", cpu(1), LOW, "n1 n1 n1 n1", pods=4)],
         [Job("high", cpu(1), HIGH)], Outcome("low:1", "low:3 high"), Outcome("low", "high"), BROKEN),
    Case("a gang gives room, gangs kept", cores(1, 4), [Job("low", cpu(1), LOW, "n1 n1 n1 n1", pods=4)],
         [Job("high", cpu(1), HIGH)], Outcome("", "low"), Outcome("low", "high"), KEPT, plugins=TOGETHER),
    Case("a gang gives all of its room", cores(1, 4), [Job("low", cpu(2), LOW, "n1 n1", pods=2)],
         [Job("high", cpu(4), HIGH)], Outcome("low", "high")),
    Case("a gang on two nodes gives the room of one", cores(2, 4), [Job("low", cpu(4), LOW, "n1 n2", pods=2)],
         [Job("high", cpu(4), HIGH)], Outcome("low:1", "low:1 high"), Outcome("low", "high"), BROKEN),
    Case("only within the queue", cores(1, 4),
         [Job("a", cpu(2), LOW, "n1", queue="q1"), Job("b", cpu(2), MIDDLE, "n1", queue="q2")],
         [Job("high", cpu(2), HIGH, queue="q2")], Outcome("b", "a high"), queues=equal("q1", "q2")),
    Case("the capability of the queue", cores(1, 12), [Job("low", cpu(3), LOW, "n1", queue="q1")],
         [Job("high", cpu(3), HIGH, queue="q1")], Outcome("low", "high"), queues={"q1": Queue(capability=cpu(4))}),
    Case("three wait for a node, and each takes one pod", cores(1, 8), singles("a", 8, "n1"),
         singles("high", 3, priority=HIGH), Outcome("a:3", "a:5 high")),
    Case("what a victim leaves beyond its taker is for the next one", cores(1, 4),
         [Job("low", cpu(2), LOW, "n1"), Job("other", cpu(2), 2, "n1")],
         [Job("high", cpu(1), HIGH), Job("next", cpu(1), 8)], Outcome("low", "other high next")),
    Case("several lower priorities or one higher", cores(2, 4), [*singles("a", 4, "n1"), Job("b", cpu(4), 2, "n2")],
         [Job("high", cpu(4), HIGH)], Outcome("a", "b high")),
    Case("two gangs wait for three nodes", cores(3, 4), [job._replace(queue="") for job in FULL[:3]],
         [Job("middle", cpu(4), MIDDLE, pods=2), Job("high", cpu(4), HIGH, pods=2)], Outcome("a:2", "a:1 high")),
    Case("a small job of the lowest priority isn't needed", cores(1, 4),
         [Job("low", cpu(1), LOW, "n1"), Job("next", cpu(3), 2, "n1")], [Job("high", cpu(3), HIGH)],
         Outcome("low next", "low high"), Outcome("next", "low high"), NOT_NEEDED),
    Case("jobs without the resource aren't needed", {"n1": {"cpu": 8, GPU: 2}},
         [*[Job(f"a{number}", cpu(2), LOW, "n1") for number in (1, 2)],
          *[Job(f"b{number}", {"cpu": 2, GPU: 1}, 3, "n1") for number in (1, 2)]],
         [Job("high", {"cpu": 1, GPU: 1}, HIGH)], Outcome("a b:1", "a b:1 high"), Outcome("b:1", "a b:1 high"),
         NOT_NEEDED),
    Case("a job and pods above the minimum", cores(1, 8),
         [Job("low", cpu(2), LOW, "n1"), Job("elastic", cpu(1), 3, "n1 n1 n1 n1 n1 n1", pods=6, least=4)],
         [Job("high", cpu(4), HIGH)], Outcome("low elastic:2", "elastic:4 high")),
    Case("a job of a lower priority beside a surplus", cores(1, 6),
         [Job("low", cpu(3), LOW, "n1"), Job("elastic", cpu(1), 3, "n1 n1 n1", pods=3, least=1)],
         [Job("high", cpu(2), HIGH)], Outcome("low", "elastic high"), Outcome("elastic:2", "low elastic:1 high"),
         SURPLUS_FIRST),
    Case("a pod above the minimum that hasn't the highest index", cores(2, 4),
         [Job("other", cpu(3), LOW, "n1"), Job("top", cpu(3), HIGH, "n2"),
          Job("low", cpu(1), LOW, "n1 n2", pods=2, least=1)], [Job("high", cpu(4), MIDDLE)],
         Outcome("other low:1", "top low:1 high")),
]  # fmt: skip

#: Between queues.
RECLAIM: list[Case] = [
    Case("one pod of a queue that uses all", cores(1, 4), singles("a", 4, "n1", queue="q1"),
         [Job("w", cpu(1), queue="q2")], Outcome("a:1", "a:3 w"), queues=equal("q1", "q2")),
    Case("the share and no more", cores(1, 4), singles("a", 4, "n1", queue="q1"), singles("w", 3, queue="q2"),
         Outcome("a:2", "a:2 w:2"), queues=equal("q1", "q2")),
    Case("the share by weight", cores(1, 8), singles("a", 8, "n1", queue="q1"), singles("w", 8, queue="q2"),
         Outcome("a:6", "a:2 w:6"), queues={"q1": Queue(weight=1), "q2": Queue(weight=3)}),
    Case("the share by weight, of the smaller queue", cores(1, 8), singles("a", 8, "n1", queue="q1"),
         singles("w", 4, queue="q2"), Outcome("a:2", "a:6 w:2"),
         queues={"q1": Queue(weight=3), "q2": Queue(weight=1)}),
    Case("not reclaimable", cores(1, 4), singles("a", 4, "n1", queue="q1"), [Job("w", cpu(1), queue="q2")],
         Outcome("", "a"), queues={"q1": Queue(reclaimable=False), "q2": Queue()}),
    Case("not reclaimable, beside one that is", cores(1, 6),
         [*singles("a", 3, "n1", queue="q1"), *singles("d", 3, "n1", queue="q2")], [Job("w", cpu(1), queue="q3")],
         Outcome("d:1", "a d:2 w"), queues={"q1": Queue(reclaimable=False), "q2": Queue(), "q3": Queue()}),
    Case("three queues get their shares", cores(1, 6), singles("a", 6, "n1", queue="q1"),
         [*singles("u", 2, queue="q2"), *singles("w", 2, queue="q3")], Outcome("a:4", "a:2 u w"),
         queues=equal("q1", "q2", "q3")),
    Case("only of the queue above its share", cores(1, 6),
         [*singles("a", 4, "n1", queue="q1"), *singles("e", 2, "n1", queue="q2")], singles("w", 2, queue="q3"),
         Outcome("a:2", "a:2 e w"), queues=equal("q1", "q2", "q3")),
    Case("the shares are kept", cores(1, 4), [*singles("a", 2, "n1", queue="q1"), *singles("c", 2, "n1", queue="q2")],
         singles("w", 1, priority=HIGH, queue="q2"), Outcome("c:1", "a c:1 w"), queues=equal("q1", "q2")),
    Case("the shares are kept, within the queue it is preemption", cores(1, 4),
         [*singles("a", 2, "n1", queue="q1"), *singles("c", 2, "n1", MIDDLE, queue="q2")],
         singles("w", 1, priority=HIGH, queue="q2"), Outcome("c:1", "a c:1 w"), queues=equal("q1", "q2")),
    Case("a queue without jobs has no share", cores(1, 6),
         [*singles("a", 4, "n1", queue="q1"), *singles("e", 2, "n1", queue="q2")], singles("w", 1, queue="q2"),
         Outcome("a:1", "a:3 e w"), queues=equal("q1", "q2", "q3")),
    Case("a priority is no protection from other queues", cores(1, 4), singles("a", 4, "n1", HIGH, queue="q1"),
         [Job("w", cpu(1), LOW, queue="q2")], Outcome("a:1", "a:3 w"), queues=equal("q1", "q2")),
    Case("the lowest priority of the queue above its share", cores(1, 4),
         [job._replace(queue="q1") for job in PRIORITIES], singles("w", 2, queue="q2"),
         Outcome("one four two", "three four w"), Outcome("one two", "three four w"), BY_CHANCE,
         also=[Outcome("three one two", "three four w")], queues=equal("q1", "q2")),
    Case("not preemptable in the other queue", cores(1, 4),
         [Job("a", cpu(2), LOW, "n1", queue="q1", preemptible=False), Job("b", cpu(2), HIGH, "n1", queue="q1")],
         [Job("w", cpu(2), queue="q2")], Outcome("b", "a w"), queues=equal("q1", "q2")),
    Case("nothing that is preemptable", cores(1, 4), [Job("a", cpu(4), LOW, "n1", queue="q1", preemptible=False)],
         [Job("w", cpu(2), HIGH, queue="q2")], Outcome("", "a"), queues=equal("q1", "q2")),
    Case("a gang within the share", cores(1, 4), singles("a", 4, "n1", queue="q1"),
         [Job("gang", cpu(1), pods=2, queue="q2")], Outcome("a:2", "a:2 gang"), queues=equal("q1", "q2")),
    Case("a gang above the share", cores(1, 4), singles("a", 4, "n1", queue="q1"),
         [Job("gang", cpu(1), pods=3, queue="q2")], Outcome("a:2", "a:2"), Outcome("", "a"), IN_VAIN,
         queues=equal("q1", "q2")),
    Case("a pod above the share", cores(1, 4), singles("a", 4, "n1", queue="q1"), [Job("w", cpu(3), queue="q2")],
         Outcome("", "a"), queues=equal("q1", "q2")),
    Case("a gang within the share on two nodes", cores(4, 4), FULL, [Job("gang", cpu(4), pods=2, queue="q2")],
         Outcome("a:2", "a:2 gang"), queues=equal("q1", "q2")),
    Case("a gang above the share on several nodes", cores(4, 4), FULL, [Job("gang", cpu(4), pods=3, queue="q2")],
         Outcome("a:2", "a:2"), Outcome("", "a"), IN_VAIN, queues=equal("q1", "q2")),
    Case("a pod larger than every node", cores(2, 2),
         [*singles("a", 2, "n1", queue="q1"), *singles("c", 2, "n2", queue="q1")], [Job("w", cpu(3), queue="q2")],
         Outcome("", "a c"), queues={"q1": Queue(weight=1), "q2": Queue(weight=3)}),
    Case("a gang of which one pod fits nowhere", cores(2, 3),
         [*singles("a", 3, "n1", queue="q1"), Job("stays", cpu(2), LOW, "n2", queue="q1", preemptible=False),
          *singles("d", 1, "n2", queue="q1")], [Job("gang", cpu(2), pods=2, queue="q2")], Outcome("a:2", "a:1 stays d"),
         Outcome("", "a stays d"), IN_VAIN, queues={"q1": Queue(weight=1), "q2": Queue(weight=3)}),
    Case("pods above the minimum", cores(1, 4), [Job("a", cpu(1), LOW, "n1 n1 n1 n1", pods=4, least=1, queue="q1")],
         [Job("w", cpu(1), queue="q2")], Outcome("a:1", "a:3 w"), queues=equal("q1", "q2")),
    Case("pods above the minimum, as many as the share", cores(1, 4),
         [Job("a", cpu(1), LOW, "n1 n1 n1 n1", pods=4, least=2, queue="q1")], [Job("gang", cpu(1), pods=2, queue="q2")],
         Outcome("a:2", "a:2 gang"), queues=equal("q1", "q2")),
    Case("pods above the minimum within the share", cores(1, 4),
         [Job("a", cpu(1), LOW, "n1 n1", pods=2, least=1, queue="q1"), *singles("b", 2, "n1", queue="q2")],
         singles("w", 1, priority=HIGH, queue="q2"), Outcome("b:1", "a b:1 w"), queues=equal("q1", "q2")),
    Case("a gang gives room to a queue", cores(1, 4), [Job("a", cpu(1), LOW, "n1 n1 n1 n1", pods=4, queue="q1")],
         [Job("w", cpu(1), queue="q2")], Outcome("a:1", "a:3 w"), Outcome("a", "w"), BROKEN, queues=equal("q1", "q2")),
    Case("a gang gives room to a queue, gangs kept", cores(1, 4),
         [Job("a", cpu(1), LOW, "n1 n1 n1 n1", pods=4, queue="q1")], [Job("w", cpu(1), queue="q2")], Outcome("", "a"),
         Outcome("a", "w"), KEPT, queues=equal("q1", "q2"), plugins=TOGETHER),
    Case("the surplus, gangs kept", cores(1, 4), [Job("a", cpu(1), LOW, "n1 n1 n1 n1", pods=4, least=1, queue="q1")],
         [Job("w", cpu(2), queue="q2")], Outcome("a:2", "a:2 w"), queues=equal("q1", "q2"), plugins=TOGETHER),
    Case("a job larger than the share of its queue", cores(1, 4), [Job("a", cpu(4), LOW, "n1", queue="q1")],
         [Job("w", cpu(2), queue="q2")], Outcome("a", "w"), queues=equal("q1", "q2")),
    Case("jobs that don't divide the share", cores(1, 6),
         [Job(f"a{number}", cpu(2), LOW, "n1", queue="q1") for number in (1, 2, 3)],
         [Job("w1", cpu(2), queue="q2"), Job("w2", cpu(2), queue="q2")], Outcome("a:1", "a:2 w:1"),
         queues=equal("q1", "q2")),
    Case("the node with one victim, of another queue", cores(2, 4),
         [Job("a1", cpu(2), LOW, "n1", queue="q1"), Job("a2", cpu(2), LOW, "n1", queue="q1"),
          Job("c", cpu(4), LOW, "n2", queue="q1")], [Job("w", cpu(4), queue="q2")], Outcome("a", "c w"),
         Outcome("c", "a w"), WHICH_NODE, queues=equal("q1", "q2")),
    Case("what is idle and one victim of another queue", cores(1, 4), singles("a", 3, "n1", queue="q1"),
         [Job("w", cpu(2), queue="q2")], Outcome("a:1", "a:2 w"), queues=equal("q1", "q2")),
    Case("GPUs of another queue", gpus(2, 4),
         [Job(f"a{number}", gpu(2), LOW, node, queue="q1") for number, node in enumerate(("n1", "n1", "n2", "n2"))],
         [Job("w", gpu(4), queue="q2")], Outcome("a:2", "a:2 w"), queues=equal("q1", "q2")),
    Case("another queue above its share, before a lower priority in the own", cores(1, 4),
         [*singles("a", 3, "n1", queue="q1"), Job("low", cpu(1), LOW, "n1", queue="q2")],
         [Job("high", cpu(1), HIGH, queue="q2")], Outcome("a:1 low", "a:2 low high"), Outcome("a:1", "a:2 low high"),
         OWN_FIRST, also=[Outcome("a:1", "a:2 low high")], queues=equal("q1", "q2")),
    Case("three queues by weight", cores(1, 12), singles("a", 12, "n1", queue="q1"),
         [*singles("v", 8, queue="q2"), *singles("w", 8, queue="q3")], Outcome("a:10", "a:2 v:4 w:6"),
         queues={"q1": Queue(weight=1), "q2": Queue(weight=2), "q3": Queue(weight=3)}),
    Case("a gang on three nodes", cores(3, 4),
         [Job(f"a{number}", cpu(1), LOW, f"n{number % 3 + 1}", queue="q1") for number in range(12)],
         [Job("gang", cpu(2), pods=3, queue="q2")], Outcome("a:6", "a:6 gang"), queues=equal("q1", "q2")),
    Case("pods above the minimum before whole jobs", cores(1, 6),
         [*singles("a", 3, "n1", queue="q1"), Job("b", cpu(1), LOW, "n1 n1 n1", pods=3, least=1, queue="q1")],
         [Job("gang", cpu(1), pods=2, queue="q2")], Outcome("b:2", "a b:1 gang"), queues=equal("q1", "q2")),
    Case("a job takes room for its minimum", cores(1, 8), singles("a", 8, "n1", queue="q1"),
         [Job("w", cpu(1), pods=4, least=2, queue="q2")], Outcome("a:4", "a:4 w"), Outcome("a:2", "a:6 w:2"), QUORUM,
         queues=equal("q1", "q2")),
    Case("the capability of the queue that takes", cores(1, 4), singles("a", 4, "n1", queue="q1"),
         singles("w", 3, queue="q2"), Outcome("a:1", "a:3 w:1"),
         queues={"q1": Queue(), "q2": Queue(capability=cpu(1))}),
    Case("two queues are at their shares, and then take only from themselves", cores(1, 4),
         [*singles("a", 3, "n1", queue="q1"), *singles("b", 1, "n1", queue="q2")],
         [*singles("v", 2, priority=HIGH, queue="q1"), *singles("w", 2, priority=HIGH, queue="q2")],
         Outcome("a b", "v w"), queues=equal("q1", "q2")),
    Case("cores of a queue that also uses GPUs", {"n1": {"cpu": 8, GPU: 4}},
         [Job(f"a{number}", {"cpu": 2, GPU: 1}, LOW, "n1", queue="q1") for number in (1, 2, 3, 4)],
         [Job("w", cpu(2), queue="q2")], Outcome("a:1", "a:3 w"), queues=equal("q1", "q2")),
    Case("jobs of another queue without the resource aren't needed", {"n1": {"cpu": 8, GPU: 2}},
         [*[Job(f"a{number}", cpu(2), LOW, "n1", queue="q1") for number in (1, 2)],
          *[Job(f"b{number}", {"cpu": 2, GPU: 1}, 3, "n1", queue="q1") for number in (1, 2)]],
         [Job("w", {"cpu": 1, GPU: 1}, queue="q2")], Outcome("a b:1", "a b:1 w"), Outcome("b:1", "a b:1 w"), NOT_NEEDED,
         also=[Outcome("b:1", "a b:1 w")], queues=equal("q1", "q2")),
    Case("the node on which enough is preemptable", cores(2, 2),
         [Job("a1", cpu(1), LOW, "n1", queue="q1"), Job("stays", cpu(1), LOW, "n1", queue="q1", preemptible=False),
          Job("b1", cpu(1), LOW, "n2", queue="q1"), Job("b2", cpu(1), LOW, "n2", queue="q1")],
         [Job("w", cpu(2), queue="q2")], Outcome("b", "a stays w"), queues=equal("q1", "q2")),
    Case("victims on two nodes", cores(2, 2),
         [Job("a1", cpu(2), LOW, "n1", queue="q1"), Job("a2", cpu(2), LOW, "n2", queue="q1")],
         [Job("gang", cpu(1), pods=2, queue="q2")], Outcome("a:1", "a:1 gang"), queues=equal("q1", "q2")),
    Case("the lowest priorities are on a node that can't be freed", cores(2, 4),
         [Job("stays", cpu(2), LOW, "n1", queue="q1", preemptible=False), *singles("a", 2, "n1", queue="q1"),
          *singles("b", 4, "n2", 2, queue="q1")], [Job("w", cpu(4), queue="q2")], Outcome("a b", "stays b:2 w"),
         queues=equal("q1", "q2")),
    Case("the lowest priorities are on nodes that take too much to free", {"n1": cpu(2), "n2": cpu(2), "n3": cpu(4)},
         [Job("a1", cpu(1), LOW, "n1", queue="q1"), Job("stay1", cpu(1), LOW, "n1", queue="q1", preemptible=False),
          Job("a2", cpu(1), LOW, "n2", queue="q1"), Job("stay2", cpu(1), LOW, "n2", queue="q1", preemptible=False),
          Job("b1", cpu(2), 2, "n3", queue="q1"), Job("b2", cpu(2), 2, "n3", queue="q1")],
         [Job("gang", cpu(2), pods=2, queue="q2")], Outcome("b", "a stay gang"), queues=equal("q1", "q2")),
]  # fmt: skip
