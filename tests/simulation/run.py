"""How a failure is told: seed, step, what was violated, and the story of the job concerned."""

import traceback

from tests.simulation.invariants import Violation
from tests.simulation.world import World


def told(world: World, violation: Violation, *, full: bool = True) -> str:
    """A failure as text; without `full` on one line."""
    head = f"seed {world.seed} step {world.steps} of {world.limit}: {violation}"
    if not full:
        return head
    cause = ""
    if violation.__cause__ is not None:
        cause = "\n" + "".join(traceback.format_exception(violation.__cause__))
    again = f"make sim SEED={world.seed} STEPS={world.limit}"
    return f"{head}{cause}\n{world.story(violation.job)}\nagain: {again}"
