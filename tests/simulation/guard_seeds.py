"""The seeds that notice at least cost that a guard is off.

`python -m tests.simulation.guard_seeds` finds them, prints them and writes `guard_seeds.json`: about twenty minutes on
two cores. Run it after a change that gives the seeds other traces, once `make test` says that many recorded runs notice
nothing any more. With names of guards, it finds only theirs.
"""

import json
import sys
from pathlib import Path

from tests.simulation.guards import GUARDS, noticed
from tests.simulation.run import in_order, pool

_FILE = Path(__file__).with_suffix(".json")
#: The seed and the number of steps with faults of each guard's run.
RECORDED: dict[str, tuple[int, int]] = {guard: (run[0], run[1]) for guard, run in json.loads(_FILE.read_text()).items()}
#: A guard whose recorded run notices nothing has all of these seeds, with so many steps with faults, to be noticed.
_OTHERS, _STEPS = range(80), 800
#: The number of steps with faults of the runs that are tried. Some damage shows only at the end of a run, which comes
#: sooner in a shorter run.
_LENGTHS = (_STEPS, 100, 200, 400)
#: So many seeds are tried of each length; of longer runs as many as it takes, if none of the others notices.
_SEEDS, _LONG_STEPS, _SEEDS_OF_LONG = 16, 3000, 110


def seeds_until_noticed(guard: str) -> int:
    """The number of seeds until one notices that the guard is off, beginning with the recorded one; 0 if none does."""
    seed, steps = RECORDED.get(guard, (0, _STEPS))
    runs = [(seed, steps), *((other, max(steps, _STEPS)) for other in _OTHERS)]
    return next((number for number, run in enumerate(runs, start=1) if noticed(guard, *run)[0]), 0)


def cheapest(guard: str) -> tuple[int, int, int, str]:
    """The seed and the number of steps with faults of a run that notices early that the guard is off, the step, and
    what it notices. The step is 0 if no run does."""
    best, run, what = sys.maxsize, (0, _STEPS), ""
    for steps in _LENGTHS:
        for seed in range(_SEEDS):
            step, told = noticed(guard, seed, steps, within=best - 1)
            if step and not _notices_anyway(guard, seed, steps):
                best, run, what = step, (seed, steps), told
        if best <= steps:
            break
    for seed in range(0 if what else _SEEDS_OF_LONG):
        step, told = noticed(guard, seed, _LONG_STEPS)
        if step and not _notices_anyway(guard, seed, _LONG_STEPS):
            return seed, _LONG_STEPS, step, told
    return *run, best if what else 0, what


def _notices_anyway(guard: str, seed: int, steps: int) -> bool:
    """Whether the run finds something with the guard on. That is a fault of its own, and not the guard's."""
    step, told = noticed(guard, seed, steps, off=False)
    if step:
        print(f"with no guard off, seed {seed} of {steps} steps: {told}", flush=True)
    return bool(step)


def main(chosen: list[str]) -> None:
    """Find the runs of these guards, or of all, and record them."""
    found = dict(RECORDED)
    names = chosen or list(GUARDS)
    with pool() as executor:
        for guard, (seed, steps, step, what) in zip(
            names, in_order(executor, cheapest, [(each,) for each in names]), strict=True
        ):
            found[guard] = (seed, steps)
            print(f"{step or 'NEVER':>5}  {guard}: seed {seed} of {steps} steps; {what[:100]}", flush=True)
            _record(found)


def _record(found: dict[str, tuple[int, int]]) -> None:
    lines = (f"  {json.dumps(guard)}: {json.dumps(found[guard])}" for guard in GUARDS if guard in found)
    _FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
