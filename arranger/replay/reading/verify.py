"""Verify: every recorded cycle taken again from its own inputs, and compared byte for byte.

A cycle's inputs are the state at its `base`, its configuration and the time that it was told; other entries may lie
between its base and its own place in the log. So the log is read twice: a `Survey` notes the inputs of every cycle
without folding anything, and a `Verification` folds once, takes each cycle again when it stands at its base, and
keeps the result until it comes to the record. Superseded cycles are held to the same: they were cycles too.

What is compared are the encodings of the events as the present version of the log writes them, so a record of an
older encoding is judged by what it says.
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
from arranger.replay.reading.describe import as_object, describe, label_of
from arranger.replay.reading.history import Span, advance
from arranger.scheduling import BUILT_IN, Policies, take_cycle


class Difference(msgspec.Struct, frozen=True):
    """The first decision of a cycle that comes out differently. `recorded` and `retaken` are in words, None where
    that side has no such decision; `fields` are those that differ, by name, as (recorded, retaken).

    `cycle` is the offset of the cycle's record, 0 for a decision that stands outside of any cycle.
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
    """A cycle that was taken by policy versions which aren't installed: it can't be taken again here."""

    cycle: int
    missing: tuple[tuple[str, int], ...]


class Report(msgspec.Struct):
    """What a verification found. Every cycle is counted under exactly one of `identical`, `different`,
    `other_versions` and `out_of_reach` (its base lies before the oldest state that the log can give)."""

    cycles: int = 0
    decisions: int = 0
    identical: int = 0
    different: int = 0
    other_versions: int = 0
    out_of_reach: int = 0
    stray_decisions: int = 0
    events_folded: int = 0
    first_difference: Difference | None = None
    first_other_version: UnknownVersions | None = None

    @property
    def sound(self) -> bool:
        """Every cycle that could be reached was taken again, and nothing differs."""
        return not (self.different or self.other_versions or self.stray_decisions)


class _Inputs(msgspec.Struct, frozen=True):
    """Of one cycle: the offset of its record, the time that it was told, and the configuration."""

    offset: int
    time_ms: int
    config: CycleConfig


class Survey:
    """The first reading: which cycles the stretch holds, by their base. A hundred bytes a cycle; nothing is folded."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.by_base: dict[int, list[_Inputs]] = {}
        #: Offset of the last event read.
        self.reached = 0
        self._configs: dict[CycleConfig, CycleConfig] = {}

    def feed(self, entry: Entry) -> None:
        """Note the cycle in this entry, if any."""
        self.reached = entry.last
        offset, taken = cycle_in(entry) or (0, None)
        if taken is not None and self.span.holds(entry, offset):
            config = self._configs.setdefault(taken.config, taken.config)
            self.by_base.setdefault(taken.base, []).append(_Inputs(offset, taken.time_ms, config))

    @property
    def first_base(self) -> int | None:
        """The smallest base; None without any cycle."""
        return min(self.by_base, default=None)


class Verification:
    """The second reading: folds, takes each cycle again at its base, and compares when its record comes.

    `state` must be one at or before the first base, or the oldest that can be had. `policies` are those installed;
    each cycle is taken by those of them that it had. `plan` is told the digest of each plan as it is taken here, by the
    offset of the cycle's record.
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
        #: Offset of a cycle's record → its events as they are taken here, from its base until its record.
        self._retaken: dict[int, tuple[k.Event, ...]] = {}
        for inputs in survey.by_base.values():
            before = sum(cycle.offset <= state.offset for cycle in inputs)
            self.report.cycles += before
            self.report.out_of_reach += before
        self._retake()

    def feed(self, entry: Entry) -> None:
        """Compare what the entry records with what was taken again, and fold it. Raises `DamagedEntry`."""
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
        """Placements and reasons without a cycle: the fold refuses them, and no scheduler writes them."""
        for number, event in enumerate(entry.batch.events):
            offset = entry.first + number
            if not isinstance(event, (k.Placed, k.Waits)) or not self._survey.span.holds(entry, offset):
                continue
            self.report.stray_decisions += 1
            if self.report.first_difference is None:
                job = label_of(self.state, event.job_uid)
                what = "the decision stands outside of any cycle"
                self.report.first_difference = Difference(
                    0, 0, offset, job, k.kind_of(event), what, describe(event, self.state), None, {}
                )


def _cycle_difference(
    entry: Entry, offset: int, base: int, retaken: tuple[k.Event, ...] | None, state: State
) -> Difference:
    if retaken is None:
        what = f"its base, offset {base}, is not the end of an entry before it: no state was ever seen there"
        recorded = describe(entry.batch.events[0], state)
        return Difference(offset, base, offset, "", "CycleTaken", what, recorded, None, {})
    found = difference(entry.first, entry.batch.events, retaken, state)
    return msgspec.structs.replace(found, cycle=offset, base=base)


def difference(first: int, recorded: tuple[k.Event, ...], retaken: tuple[k.Event, ...], state: State) -> Difference:
    """The first of these events, which begin at offset `first`, in which record and retake differ; they do somewhere.
    `state` is for names. The cycle isn't filled in."""
    number = next(
        (i for i, pair in enumerate(zip(recorded, retaken, strict=False)) if _encoded(pair[:1]) != _encoded(pair[1:])),
        min(len(recorded), len(retaken)),
    )
    one = recorded[number] if number < len(recorded) else None
    again = retaken[number] if number < len(retaken) else None
    shown = one if one is not None else again
    assert shown is not None
    return Difference(
        cycle=0,
        base=0,
        offset=first + number,
        job=label_of(state, getattr(shown, "job_uid", "")),
        kind=k.kind_of(shown),
        what=_what(one, again),
        recorded=_words(one, state),
        retaken=_words(again, state),
        fields=_differing(one, again),
    )


def plan_digest(events: tuple[k.Event, ...]) -> str:
    """32 hexadecimal digits that are equal exactly for equal plans; those of a cycle that says nothing are too."""
    return hashlib.blake2b(_encoded(events), digest_size=16).hexdigest()


def cycle_in(entry: Entry) -> tuple[int, k.CycleTaken] | None:
    """The offset of the cycle's record in this entry, and the record; None if it holds none."""
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
        return "the record lacks a decision that the cycle takes"
    if retaken is None:
        return "the record has a decision that the cycle doesn't take"
    if type(recorded) is not type(retaken) or getattr(recorded, "job_uid", "") != getattr(retaken, "job_uid", ""):
        return "another decision comes in its place"
    return "the decision says something else"


def _differing(recorded: k.Event | None, retaken: k.Event | None) -> dict[str, tuple[Any, Any]]:
    if recorded is None or retaken is None or type(recorded) is not type(retaken):
        return {}
    pairs = {name: (getattr(recorded, name), getattr(retaken, name)) for name in recorded.__struct_fields__}
    return {name: (as_object(a), as_object(b)) for name, (a, b) in pairs.items() if a != b}
