"""`python -m tests.simulation --seed 7 --steps 3000`: one seed, or many (`--seeds 500`), and the trace of a failure."""

import argparse
import time
from collections import Counter

from tests.simulation.faults import SITES
from tests.simulation.invariants import Violation
from tests.simulation.run import outcomes
from tests.simulation.world import World

#: The interval of progress reports in a long run.
_TOLD_EVERY = 100


def main() -> int:
    """Run seeds; returns 1 if one failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--jobs", type=int, default=0, help="how many seeds at once; 0: as many as there are cores")
    parser.add_argument("--trace", action="store_true", help="print the whole trace of one seed")
    given = parser.parse_args()
    if given.trace:
        return _traced(given.seed, given.steps)
    failed, hits, steps, cpu_s, began_s = [], Counter[str](), 0, 0.0, time.perf_counter()
    one = given.seeds == 1
    for number, outcome in enumerate(
        outcomes(range(given.seed, given.seed + given.seeds), given.steps, jobs=1 if one else given.jobs), start=1
    ):
        if outcome.failure:
            failed.append(outcome.seed)
            print(outcome.told if one else outcome.failure, flush=True)
        elif one:
            print(f"seed {outcome.seed}: {outcome.steps} steps, digest {outcome.digest}")
        hits += outcome.hits
        steps += outcome.steps
        cpu_s += outcome.cpu_s
        if number % _TOLD_EVERY == 0:
            print(f"{number} seeds, {steps:,} steps, {len(failed)} failed", flush=True)
    spent_s = time.perf_counter() - began_s
    speed = f"{steps / spent_s:,.0f} a second, {steps / cpu_s:,.0f} a second of one core"
    print(f"{given.seeds} seeds, {steps:,} steps, {speed}; failed: {failed or 'none'}")
    missed = [site for site in SITES if not hits[site]]
    never = f"; never: {', '.join(missed)}" if missed and not one else ""
    print(f"fault sites hit: {len(SITES) - len(missed)} of {len(SITES)}{never}")
    return 1 if failed else 0


def _traced(seed: int, steps: int) -> int:
    world = World(seed)
    try:
        world.run(steps)
    except Violation as violation:
        print("\n".join(world.trace))
        print(f"violated: {violation}")
        return 1
    print("\n".join(world.trace))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
