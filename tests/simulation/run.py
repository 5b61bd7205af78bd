"""Run one seed or many, in this process or in a pool of processes, with the outcome and the report of each failure.

Seeds are independent of each other, so they run on all cores; outcomes are in the order of the seeds.
"""

import gc
import multiprocessing
import multiprocessing.connection
import os
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.simulation.invariants import Violation
from tests.simulation.world import World

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Outcome:
    """The outcome of one seed. `failure` is one line, `told` the full report; both are empty for a success."""

    seed: int
    steps: int
    digest: str
    cpu_s: float
    failure: str = ""
    told: str = ""
    hits: Counter[str] = field(default_factory=Counter)


def cores() -> int:
    """The number of processes that can run in parallel."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_seed(seed: int, steps: int) -> Outcome:
    """Run one seed in this process. A coroutine that was never awaited is a failure too."""
    began_s = time.process_time()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", RuntimeWarning)
        outcome = _run(seed, steps)
        gc.collect()  # unawaited coroutines are reported when they are collected
    forgotten = [str(one.message) for one in warned if "never awaited" in str(one.message)]
    failure, told = outcome.failure, outcome.told
    if forgotten and not failure:
        failure = f"seed {seed}: {forgotten[0]}"
        told = "\n".join([failure, *forgotten, f"again: make sim SEED={seed} STEPS={steps}"])
    cpu_s = time.process_time() - began_s
    return Outcome(seed, outcome.steps, outcome.digest, cpu_s, failure, told, outcome.hits)


def _run(seed: int, steps: int) -> Outcome:
    world, digest, failure, told = World(seed), "", "", ""
    try:
        digest = world.run(steps)
    except Violation as violation:
        failure, told = _line(world, violation), _story(world, violation)
    except Exception as problem:  # an error of the simulation itself; not every exception can leave the process
        violation = Violation(f"the simulation fails: {problem!r}")
        violation.__cause__ = problem
        failure, told = _line(world, violation), _story(world, violation)
    return Outcome(seed, world.steps, digest, 0.0, failure, told, world.faults.hits)


def _line(world: World, violation: Violation) -> str:
    return f"seed {world.seed} step {world.steps} of {world.limit}: {violation}"


def _story(world: World, violation: Violation) -> str:
    cause = ""
    if violation.__cause__ is not None:
        cause = "\n" + "".join(traceback.format_exception(violation.__cause__))
    again = f"make sim SEED={world.seed} STEPS={world.limit}"
    return f"{_line(world, violation)}{cause}\n{world.story(violation.job)}\nagain: {again}"


@contextmanager
def pool(jobs: int = 0, *, niceness: int = 0) -> Iterator[Executor]:
    """Processes that run seeds; for `jobs` of 0 one per core. At the end, pending seeds are cancelled."""
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(
        jobs or cores(), mp_context=context, initializer=_begin_in_pool, initargs=(niceness,)
    )
    try:
        yield executor
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _begin_in_pool(niceness: int) -> None:
    """Freeze the present objects, so that collections after each seed skip them. End when the parent is killed: a
    pool's processes would otherwise wait for work without end."""
    gc.freeze()
    os.nice(niceness)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def outcomes(seeds: Iterable[int], steps: int, *, jobs: int = 0) -> Iterator[Outcome]:
    """The outcomes, in the order of the seeds."""
    if jobs == 1:
        gc.freeze()  # as in the pool's processes
        yield from (run_seed(seed, steps) for seed in seeds)
        return
    with pool(jobs) as executor:
        yield from in_order(executor, run_seed, ((seed, steps) for seed in seeds))


def in_order(executor: Executor, work: Callable[..., _Answer], each: Iterable[tuple[Any, ...]]) -> Iterator[_Answer]:
    """The results, in the order of the arguments."""
    begun: list[Future[_Answer]] = [executor.submit(work, *arguments) for arguments in each]
    for future in begun:
        yield future.result()
