"""Queues: the shares of 1,000 queues in four levels and the order of 10,000 jobs, in the thread's own time.

Half of the cluster is used when the cycle begins, and the queues demand more than it has. A cycle in a full cluster
compares the queues once, because no job gets nodes. In the other one each job gets nodes, so that each compares them
again. Placing the jobs is not part of it (`cycle` is the benchmark of that).
"""

import random
import time
from collections.abc import Callable
from functools import partial

from arranger.scheduling.queue_order import QueueOrder
from arranger.scheduling.queue_shares import Amounts, QueueClaims, queue_shares
from benchmarks.report import Figure
from benchmarks.workload import GIB

_TIMES = 9
_SIZES = (5, 30, 200, 765)
_TOTAL = {"cpu": 320_000_000, "memory": 5000 * 256 * GIB, "nvidia.com/gpu": 40_000}


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    sizes = (2, 3, 5, 10) if quick else _SIZES
    queues = _queues(random.Random(1), sizes)
    names = [queue.name for queue in queues if queue.demand]
    used = {queue.name: {name: amount // 3 for name, amount in queue.demand.items()} for queue in queues}
    shares = queue_shares(queues, _TOTAL)
    order = partial(QueueOrder, queues, _TOTAL, shares=shares, used=used, waiting=names)
    jobs, share = 10_000 // (100 if quick else 1), {"cpu": 8_000, "memory": 32 * GIB, "nvidia.com/gpu": 1}
    shares_ms = _least_ms(lambda: queue_shares(queues, _TOTAL))
    waiting_ms = _least_ms(lambda: _cycle(order(), names, jobs, {}))
    placed_ms = _least_ms(lambda: _cycle(order(), names, jobs, share))
    full = sum(shares[queue.name]["cpu"] for queue in queues if not queue.parent) == _TOTAL["cpu"]
    note = f"{len(queues):,} queues, {len(sizes)} levels, {len(_TOTAL)} resources"
    return [
        Figure(name="shares", value=shares_ms, unit="ms", note=note),
        Figure(name="  they fill the cluster", value=float(full or quick), at_least=1.0),
        Figure(name=f"order of {jobs:,} jobs, none placed", value=waiting_ms, unit="ms"),
        Figure(name="  with the shares", value=shares_ms + waiting_ms, unit="ms", at_most=20),
        Figure(name=f"order of {jobs:,} jobs, all placed", value=placed_ms, unit="ms"),
    ]


def _queues(rng: random.Random, sizes: tuple[int, ...]) -> list[QueueClaims]:
    """Queues of all kinds; those of the last level have jobs, and on average twice what there is for each."""
    queues, above = [], [""]
    for level, size in enumerate(sizes):
        names = [f"queue-{level}-{number:04}" for number in range(size)]
        last = level == len(sizes) - 1
        for number, name in enumerate(names):
            demand = {one: rng.randrange(4 * amount // size) for one, amount in _TOTAL.items()} if last else {}
            queues.append(
                QueueClaims(
                    name=name,
                    parent=above[number % len(above)],
                    weight=rng.randrange(1, 10),
                    guarantee=_some(rng, demand, 20),
                    deserved=_some(rng, demand, 4),
                    capability=_some(rng, demand, 1),
                    demand=demand,
                )
            )
        above = names
    return queues


def _some(rng: random.Random, demand: Amounts, part: int) -> dict[str, int]:
    """For a third of the queues a part of the demand."""
    return {one: amount // part for one, amount in demand.items()} if rng.random() < 1 / 3 else {}


def _cycle(order: QueueOrder, names: list[str], jobs: int, amounts: Amounts) -> None:
    """Each queue gives its turns; with amounts, each of its jobs gets them."""
    left = dict.fromkeys(names, -(-jobs // len(names)))
    while (name := order.head()) is not None:
        if amounts:
            order.give(name, amounts)
        left[name] -= 1
        if not left[name]:
            order.finish(name)


def _least_ms(work: Callable[[], object]) -> float:
    times = []
    for _ in range(_TIMES):
        began_s = time.thread_time()
        work()
        times.append(time.thread_time() - began_s)
    return 1000 * min(times)
