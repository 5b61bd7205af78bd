"""How the whole path grows: twice the small jobs, twice the nodes, and two and four processes of every role.

All of it on one real API server, from the first TYJob to the last pod, in turn and round by round (see `create`). The
ratios are those of time, or of processor time, within a round. All processes share the machine's processors with the
API server: on few of them, a further process can't bring more pods a second.
"""

import asyncio
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.create import MIX, Round, Size, bare_loop, through_arranger
from benchmarks.parts import ApiServer, add_nodes, api_server
from benchmarks.report import Figure
from tests.servers import real_redis

#: Jobs of 1+3, and the processes of every role.
_Case = tuple[int, int]


@dataclass(frozen=True)
class Scale:
    """How much of it."""

    #: The jobs of the single case; twice as many are compared with them.
    jobs: int
    nodes: int
    rounds: int
    processes: tuple[int, ...]


@dataclass
class _Taken:
    """The rounds of each case."""

    rounds: dict[_Case, list[Round]] = field(default_factory=dict)

    def ratio(self, one: _Case, other: _Case, *, cpu: bool = False) -> float:
        """The median over the rounds of what `one` took as a multiple of `other`."""
        pairs = zip(self.rounds[one], self.rounds[other], strict=True)
        return statistics.median(a.cpu_s / b.cpu_s if cpu else a.applied_s / b.applied_s for a, b in pairs)


_SCALE = Scale(jobs=1_000, nodes=1_000, rounds=3, processes=(1, 2, 4))
_QUICK = Scale(jobs=2, nodes=4, rounds=1, processes=(1, 2))


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    return list(asyncio.run(_run(_QUICK if quick else _SCALE, real=not quick)))


async def _run(scale: Scale, *, real: bool) -> list[Figure]:
    cases = [(2 * scale.jobs, 1), *((scale.jobs, processes) for processes in scale.processes)]
    taken = _Taken()
    with real_redis() as redis:
        async with api_server(real=real) as api:
            await add_nodes(api.cluster, scale.nodes)
            await bare_loop(api, _size(scale, scale.jobs))  # warms the server up
            for _ in range(scale.rounds):
                for case in cases:
                    taken.rounds.setdefault(case, []).append(await _round(api, redis.url, scale, case))
    return list(_figures(scale, taken))


async def _round(api: ApiServer, redis_url: str, scale: Scale, case: _Case) -> Round:
    jobs, processes = case
    return await through_arranger(api, redis_url, _size(scale, jobs), mix=MIX * processes)


def _size(scale: Scale, jobs: int) -> Size:
    return Size(name=f"{jobs:,} jobs", jobs=((jobs, 3),), nodes=scale.nodes, rounds=scale.rounds, from_apply=True)


def _figures(scale: Scale, taken: _Taken) -> Iterator[Figure]:
    single = (scale.jobs, 1)
    note = f"{scale.jobs:,} and {2 * scale.jobs:,} jobs of 1+3, {scale.nodes:,} nodes, median of {scale.rounds}"
    yield Figure(
        name="twice the small jobs: time", value=taken.ratio((2 * scale.jobs, 1), single), unit="times",
        at_most=2.1, note=note,
    )  # fmt: skip
    for processes in scale.processes[1:]:
        case = (scale.jobs, processes)
        before = (scale.jobs, scale.processes[scale.processes.index(processes) - 1])
        further = (taken.ratio(case, before, cpu=True) - 1) / (processes - before[1])
        yield Figure(
            name=f"{processes} processes: time, as a multiple of one", value=taken.ratio(case, single), unit="times"
        )
        yield Figure(name="  more processor time with each further process", value=100 * further, unit="%", at_most=10)
