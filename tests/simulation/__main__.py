"""`python -m tests.simulation --seed 7 --steps 3000`: one seed, or many (`--seeds 500`), and the story of a failure."""

import argparse
import time
from collections import Counter

from tests.simulation.faults import SITES
from tests.simulation.invariants import Violation
from tests.simulation.run import told
from tests.simulation.world import World


def main() -> int:
    """Run seeds; 1 if one failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--trace", action="store_true", help="print the whole trace")
    given = parser.parse_args()
    failed, hits, steps, began_s = [], Counter[str](), 0, time.perf_counter()
    for seed in range(given.seed, given.seed + given.seeds):
        world = World(seed)
        try:
            digest = world.run(given.steps)
            if given.seeds == 1:
                print(f"seed {seed}: {world.steps} steps, digest {digest}")
        except Violation as violation:
            failed.append(seed)
            if given.trace:
                print("\n".join(world.trace))
            print(told(world, violation, full=given.seeds == 1), flush=True)
        else:
            if given.trace:
                print("\n".join(world.trace))
        hits += world.faults.hits
        steps += world.steps
    spent_s = time.perf_counter() - began_s
    print(f"{given.seeds} seeds, {steps} steps, {steps / spent_s:.0f} a second; failed: {failed or 'none'}")
    missed = [site for site in SITES if not hits[site]]
    print(
        f"fault sites hit: {len(SITES) - len(missed)} of {len(SITES)}",
        f"; never: {missed}" if missed and given.seeds > 1 else "",
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
