"""What a what-if found, for programs: both plans, and the continuations of both."""

import msgspec

from arranger.replay.what_if.one_cycle import JobDifference, Plan
from arranger.replay.what_if.utilisation import Figures, Likeness


class Continuations(msgspec.Struct, frozen=True):
    """The continuations of both plans, and how close the unchanged one is to the log."""

    as_it_was: Figures = msgspec.field(name="asItWas")
    what_if: Figures = msgspec.field(name="whatIf")
    likeness_to_log: Likeness = msgspec.field(name="likenessToLog")


class WhatIf(msgspec.Struct, frozen=True):
    """Both plans, on the state at the offset `base`. `cycle` is the offset of a recorded cycle, 0 for none, and
    `reproduced` says whether the first plan equals its record. `otherwise` has the changes in words, and `edits` those
    of the state. `until` is None if nothing was continued."""

    base: int
    cycle: int
    time_ms: int
    otherwise: str
    edits: list[str]
    reproduced: bool | None
    as_it_was: Plan = msgspec.field(name="asItWas")
    what_if: Plan = msgspec.field(name="whatIf")
    differences: tuple[JobDifference, ...]
    until: Continuations | None
