"""The product's guards, and how each is turned off: what the simulation must notice every time.

`python -m tests.simulation.guards` prints how many seeds each needs.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from arranger.events.memory_log import MemoryLog
from arranger.lifecycle import stages
from arranger.projections import fold
from arranger.workers.applier import Applier
from tests.simulation.invariants import Violation
from tests.simulation.run import in_order, pool
from tests.simulation.world import World

#: Within so many seeds each broken rule is found.
SEEDS = range(40)
STEPS = 800


@contextmanager
def _appends_twice() -> Iterator[None]:
    """The log forgets who has appended what."""
    append = MemoryLog.append

    async def forgetful(self: MemoryLog, *args: Any, **more: Any) -> Any:
        self.home.writers.clear()
        return await append(self, *args, **more)

    with mock.patch.object(MemoryLog, "append", forgetful):
        yield


@contextmanager
def _any_pod_is_ours() -> Iterator[None]:
    async def ours(*_: Any) -> bool:
        return True

    with mock.patch.object(Applier, "_ours", ours):
        yield


def _without(owner: Any, name: str, answer: Any) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: mock.patch.object(owner, name, lambda *_, **__: answer)


GUARDS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "an observation's term": _without(fold._Fold, "_current", True),
    "a decision's version and attempt": _without(fold, "_outdated", ""),
    "the whole quorum": _without(fold, "_misplaced", ""),
    "room on the nodes, decided and unconfirmed included": _without(fold, "lacking", ""),
    "a superseded cycle": lambda: mock.patch.object(
        fold._Fold, "cycle_refused", property(lambda _: "", lambda *_: None), create=True
    ),
    "the identity of an append": _appends_twice,
    "the owner's UID of a pod that exists already": _any_pod_is_ours,
    "the deadline of a part of a quorum": _without(stages, "_incomplete", None),
}


def seeds_until_caught(guard: str) -> tuple[int, str]:
    """How many seeds it takes, and what was violated; 0 if none notices."""
    with GUARDS[guard]():
        for number, seed in enumerate(SEEDS, start=1):
            try:
                World(seed).run(STEPS)
            except Violation as violation:
                return number, str(violation)
            except (AssertionError, KeyError, ValueError) as problem:  # the fold itself can't go on
                return number, repr(problem)
    return 0, ""


def main() -> None:
    """The table of `docs/simulation.md`, and what was violated."""
    with pool() as executor:
        for guard, (seeds, what) in zip(
            GUARDS, in_order(executor, seeds_until_caught, [(each,) for each in GUARDS]), strict=True
        ):
            print(f"| {guard} | {seeds or 'NEVER'} | {what[:120]}", flush=True)


if __name__ == "__main__":
    main()
