"""The seeds of every `make test`: fixed ones, new ones, and those that once found a bug."""

import hashlib
import os
import random
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Executor, Future
from pathlib import Path

from tests.depth import extent
from tests.simulation.faults import SITES
from tests.simulation.run import Outcome, run_seed

#: The number of steps with faults for each seed.
STEPS = 3000

#: Some of a thousand seeds, in which every fault site occurs.
_CHOSEN = (
    *(9027, 50000, 50008, 50013, 50025, 50027, 50034, 50041, 50045, 50052, 50053, 50056, 50081, 50099),
    *(
        73009,
        73048,
        73049,
        74004,
        90013,
        91001,
        91013,
        91119,
        91140,
        91160,
        91171,
        91174,
        91175,
        91179,
        91220,
        92134,
        92157,
    ),
    93007,
    94005,
    98012,
    847545581,
    433392110,
    100620141,
    942205708,
    60135238,
    140826939,
    13468595,
    689038857,
    910003,
    14,
    9118,
    7008,
)

FIXED = extent(_CHOSEN, soak=tuple(range(500)))

#: The number of seeds drawn in every session; the summary of the tests lists them, passed or failed.
FRESH = extent(8, soak=100)

_ROOT = Path(__file__).parents[2]


def drawn(count: int) -> list[int]:
    """Seeds that nobody has seen before. With CI=true they are drawn from the sources, as Hypothesis does too: each
    change has seeds of its own, and the same sources give the same result again."""
    chance: random.Random = random.SystemRandom()
    if os.environ.get("CI") == "true":
        digest = hashlib.sha256()
        for path in sorted([*_ROOT.glob("arranger/**/*.py"), *_ROOT.glob("tests/**/*.py")]):
            digest.update(path.read_bytes())
        chance = random.Random(digest.digest())
    return [chance.randrange(10**9) for _ in range(count)]


class Running:
    """Seeds that run in the processes of a pool, all submitted at once."""

    def __init__(self, executor: Executor, fixed: Iterable[int], fresh: int) -> None:
        self._began_s = time.perf_counter()
        self.fresh = drawn(fresh)
        self._begun: dict[int, Future[Outcome]] = {
            seed: executor.submit(run_seed, seed, STEPS) for seed in (*fixed, *self.fresh)
        }

    def outcome(self, seed: int) -> Outcome:
        """The outcome of one seed; waits for it."""
        return self._begun[seed].result()

    def summary(self) -> list[str]:
        """The finished seeds, in a few lines."""
        ended = [future for future in self._begun.values() if future.done() and not future.cancelled()]
        done, spent_s = [future.result() for future in ended], time.perf_counter() - self._began_s
        steps, cpu_s = sum(outcome.steps for outcome in done), sum(outcome.cpu_s for outcome in done)
        hits = sum((outcome.hits for outcome in done), Counter[str]())
        speed = f"{steps / max(cpu_s, 0.001):,.0f} a second of one core"
        return [
            f"{len(done)} seeds, {steps:,} steps in {spent_s:.0f} s, {speed}",
            f"fault sites hit: {sum(hits[site] > 0 for site in SITES)} of {len(SITES)}",
            f"fresh seeds: {' '.join(str(outcome.seed) for outcome in done if outcome.seed in self.fresh) or 'none'}",
            *(f"FAILED: {outcome.failure}" for outcome in done if outcome.failure),
        ]
