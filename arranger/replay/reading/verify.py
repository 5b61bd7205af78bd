"""Verify: repeat every recorded cycle from its own inputs and compare the results byte for byte.

The inputs of a cycle are the state at its `base`, its configuration and its time. Other entries may be between the base
and the record of the cycle. So the log is read twice. A `Survey` collects the inputs of all cycles and folds nothing. A
`Verification` then folds the log once, repeats each cycle at its base, and keeps the result until it reads the record.
Superseded cycles are verified too.

Both sides are compared in the present encoding of the log, so a record in an older encoding counts by its content.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from arranger.events import kinds as k
from arranger.events.codec import encode_batch
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.projections.state import Changes, State
from arranger.replay.reading.describe import as_object, decided_for, describe, label_of
from arranger.replay.reading.history import Span, advance
from arranger.scheduling import BUILT_IN, Policies, take_cycle

#: The decisions that only a cycle makes.
_OF_CYCLES = (k.Placed, k.Preempted, k.Reserved, k.LimitKept, k.Waits)


class PlanDifference(msgspec.Struct, frozen=True):
    """The first decision in which a record and the repeated cycle differ. `recorded` and `retaken` are in words; None
    if that side has no such decision. `fields` has the differing fields by name, as (recorded, retaken).

    `cycle` is the offset of the cycle's record, 0 for a decision outside of any cycle.
    """

    cycle: int
    base: int
    offset: int
    job: str
    kind: str
    what: str
    recorded: str | None
    retaken: str | None
    fields: dict[str, tuple[Any, Any]]


class UnknownVersions(msgspec.Struct, frozen=True):
    """A cycle that can't be repeated, because it used policy versions that aren't installed."""

    cycle: int
    missing: tuple[tuple[str, int], ...]


class Report(msgspec.Struct):
    """The result of a verification. Every cycle counts as exactly one of `identical`, `different`, `other_versions` and
    `out_of_reach` (its base is before the oldest state that the log can give)."""

    cycles: int = 0
    decisions: int = 0
    identical: int = 0
    different: int = 0
    other_versions: int = 0
    out_of_reach: int = 0
    stray_decisions: int = 0
    events_folded: int = 0
    first_difference: PlanDifference | None = None
    first_other_version: UnknownVersions | None = None

    @property
    def sound(self) -> bool:
        """Whether all cycles within reach were repeated and nothing differs."""
        return not (self.different or self.other_versions or self.stray_decisions)


class CycleInputs(msgspec.Struct, frozen=True):
    """The inputs of one cycle: its time and its configuration; `offset` is that of its record."""

    offset: int
    time_ms: int
    config: CycleConfig


class Survey:
    """The first pass: collects the cycles of the segment by base, about 100 bytes each. It folds nothing."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.by_base: dict[int, list[CycleInputs]] = {}
        #: The offset of the last event read.
        self.reached = 0
        self._configs: dict[CycleConfig, CycleConfig] = {}

    def feed(self, entry: Entry) -> None:
        self.reached = entry.last
        offset, taken = cycle_in(entry) or (0, None)
        if taken is not None and self.span.holds(entry, offset):
            config = self._configs.setdefault(taken.config, taken.config)
            self.by_base.setdefault(taken.base, []).append(CycleInputs(offset, taken.time_ms, config))

    @property
    def first_base(self) -> int | None:
        """The smallest base; None if there are no cycles."""
        return min(self.by_base, default=None)


class Verification:
    """The second pass: folds the log, repeats each cycle at its base, and compares the result with the record.

    `state` must not be after the first base, or it must be the oldest state available. `policies` are the installed
    ones; each cycle is repeated with those that it used. `plan` is called with the offset of each cycle's record and
    the digest of the repeated plan.
    """

    def __init__(
        self,
        state: State,
        survey: Survey,
        *,
        policies: Policies = BUILT_IN,
        plan: Callable[[int, str], object] | None = None,
    ) -> None:
        self.state = state
        self._policies = policies
        self._plan = plan
        self.report = Report()
        self._survey = survey
        self._began = state.offset
        #: Offset of a cycle's record → the events of the repeated cycle, kept until the record is read.
        self._retaken: dict[int, tuple[k.Event, ...]] = {}
        for inputs in survey.by_base.values():
            before = sum(cycle.offset <= state.offset for cycle in inputs)
            self.report.cycles += before
            self.report.out_of_reach += before
        self._retake()

    def feed(self, entry: Entry) -> None:
        """Compare the entry with the repeated cycle, and fold it. Raises `DamagedEntry`."""
        offset, taken = cycle_in(entry) or (0, None)
        if taken is None:
            self._look_for_strays(entry)
        elif self._survey.span.holds(entry, offset):
            self._compare(entry, offset, taken)
        advance(self.state, entry, Changes())
        self.report.events_folded += len(entry.batch.events)
        self._retake()

    def _retake(self) -> None:
        for inputs in self._survey.by_base.get(self.state.offset, ()):
            config = inputs.config
            if inputs.offset > self.state.offset and not self._policies.missing(config):
                policies = self._policies.recorded(config)
                self._retaken[inputs.offset] = take_cycle(self.state, config, inputs.time_ms, policies=policies)

    def _compare(self, entry: Entry, offset: int, taken: k.CycleTaken) -> None:
        report = self.report
        events = entry.batch.events
        report.cycles += 1
        report.decisions += len(events) - 1
        missing = self._policies.missing(taken.config)
        retaken = self._retaken.pop(offset, None)
        if retaken is not None and self._plan is not None:
            self._plan(offset, plan_digest(retaken))
        if missing:
            report.other_versions += 1
            report.first_other_version = report.first_other_version or UnknownVersions(offset, missing)
        elif retaken is None and taken.base < self._began:
            report.out_of_reach += 1
        elif retaken is not None and _encoded(retaken) == _encoded(events):
            report.identical += 1
        else:
            report.different += 1
            if report.first_difference is None:
                report.first_difference = _cycle_difference(entry, offset, taken.base, retaken, self.state)

    def _look_for_strays(self, entry: Entry) -> None:
        """Count decisions of cycles outside of a cycle. No scheduler writes them, and the fold rejects them."""
        for number, event in enumerate(entry.batch.events):
            offset = entry.first + number
            if not isinstance(event, _OF_CYCLES) or not self._survey.span.holds(entry, offset):
                continue
            self.report.stray_decisions += 1
            if self.report.first_difference is None:
                job = label_of(self.state, decided_for(event))
                what = "the decision is outside of any cycle"
                self.report.first_difference = PlanDifference(
                    0, 0, offset, job, k.kind_of(event), what, describe(event, self.state), None, {}
                )


def _cycle_difference(
    entry: Entry, offset: int, base: int, retaken: tuple[k.Event, ...] | None, state: State
) -> PlanDifference:
    if retaken is None:
        what = f"its base, offset {base}, is not the end of an entry before it, so no process ever had that state"
        recorded = describe(entry.batch.events[0], state)
        return PlanDifference(offset, base, offset, "", "CycleTaken", what, recorded, None, {})
    found = difference(entry.first, entry.batch.events, retaken, state)
    return msgspec.structs.replace(found, cycle=offset, base=base)


def difference(first: int, recorded: tuple[k.Event, ...], retaken: tuple[k.Event, ...], state: State) -> PlanDifference:
    """The first event in which the two sequences differ, and they must differ. The recorded one begins at offset
    `first`. `state` gives the names of jobs. `cycle` and `base` of the result are 0."""
    number = next(
        (i for i, pair in enumerate(zip(recorded, retaken, strict=False)) if _encoded(pair[:1]) != _encoded(pair[1:])),
        min(len(recorded), len(retaken)),
    )
    one = recorded[number] if number < len(recorded) else None
    again = retaken[number] if number < len(retaken) else None
    shown = one if one is not None else again
    assert shown is not None
    return PlanDifference(
        cycle=0,
        base=0,
        offset=first + number,
        job=label_of(state, decided_for(shown)),
        kind=k.kind_of(shown),
        what=_what(one, again),
        recorded=_words(one, state),
        retaken=_words(again, state),
        fields=_differing(one, again),
    )


def plan_digest(events: tuple[k.Event, ...]) -> str:
    """A digest of 32 hexadecimal digits, equal exactly for equal plans. Cycles without events are equal too."""
    return hashlib.blake2b(_encoded(events), digest_size=16).hexdigest()


def cycle_in(entry: Entry) -> tuple[int, k.CycleTaken] | None:
    """The offset of the cycle's record in this entry, and the record; None if there is none."""
    for offset, event in enumerate(entry.batch.events, start=entry.first):
        if type(event) is k.CycleTaken:
            return offset, event
    return None


def _encoded(events: tuple[k.Event, ...]) -> bytes:
    return encode_batch(k.Batch("", 1, 0, events)) if events else b""


def _words(event: k.Event | None, state: State) -> str | None:
    return None if event is None else f"{k.kind_of(event)}: {describe(event, state)}"


def _what(recorded: k.Event | None, retaken: k.Event | None) -> str:
    if recorded is None:
        return "the record lacks a decision that the cycle makes"
    if retaken is None:
        return "the record has a decision that the cycle doesn't make"
    if type(recorded) is not type(retaken) or decided_for(recorded) != decided_for(retaken):
        return "the cycle makes another decision instead"
    return "the decision has other contents"


def _differing(recorded: k.Event | None, retaken: k.Event | None) -> dict[str, tuple[Any, Any]]:
    if recorded is None or retaken is None or type(recorded) is not type(retaken):
        return {}
    pairs = {name: (getattr(recorded, name), getattr(retaken, name)) for name in recorded.__struct_fields__}
    return {name: (as_object(a), as_object(b)) for name, (a, b) in pairs.items() if a != b}
