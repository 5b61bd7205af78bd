"""The waits of a job that are over: for how long it waited to start, and for what."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from arranger.model.reasons import Reason
from arranger.replay.explain.awaited import What, reasons_text, waited_text, waits_to_start
from arranger.replay.explain.story import Interval

#: What each job waits for, usually for no time; told from so long on.
_AT_ONCE, _WORTH_MS = (What.FIRST_CYCLE, What.CONTROLLER), 1000


class Waited(msgspec.Struct, frozen=True):
    """Earlier waits for one thing that are over: `what` it was (`What`), `text` in words, and their total duration. For
    nodes, `reasons` (in words, `of` as facts) are those of the longest interval, or of the last one if the job was
    given up in that. `further`: pods beyond the quorum waited. An explanation as of `offset` gives the details. Those
    that aren't of further pods add up to the time that the job waited to start."""

    further: bool
    span_ms: int
    reasons: str
    of: tuple[Reason, ...]
    offset: int
    what: str = What.QUORUM_NODES
    text: str = ""

    @property
    def for_quorum(self) -> bool:
        """Whether the job waited for nodes for its quorum."""
        return self.what == What.QUORUM_NODES


class Spent(msgspec.Struct):
    """The total time in one stage while waiting for one thing, over `times` intervals. `waits`: it is time that the job
    waited to start. Time in which it was suspended isn't."""

    stage: str
    waiting_for: str
    span_ms: int = 0
    times: int = 0
    waits: bool = False


def spent(intervals: Sequence[Interval]) -> tuple[Spent, ...]:
    """The intervals added up by stage and awaited thing, the longest first."""
    found: dict[tuple[str, str], Spent] = {}
    for interval in intervals:
        waits = waits_to_start(interval.stage, interval.awaited)
        first = Spent(interval.stage, interval.waiting_for, waits=waits)
        of = found.setdefault((interval.stage, interval.waiting_for), first)
        of.span_ms += _span_ms(interval)
        of.times += 1
    return tuple(sorted(found.values(), key=lambda one: -one.span_ms))


def _span_ms(interval: Interval) -> int:
    return max(interval.until_ms - interval.since_ms, 0)


def waited(intervals: Sequence[Interval], *, failed: bool = False) -> list[Waited]:
    """The waits that are over: those to start by what the job waited for, the longest first, and one for pods beyond
    the quorum. A job that has `failed` for want of nodes did so in the last wait for its quorum, whatever it lacked in
    earlier ones: that one comes first."""
    last = [each for each in intervals if each.awaited.what == What.QUORUM_NODES][-1:] if failed else []
    at = [each.since_offset for each in last]
    found = sorted(_to_start(intervals, last), key=lambda one: (one.offset not in at, -one.span_ms))
    if all(one.what in _AT_ONCE for one in found) and sum(one.span_ms for one in found) < _WORTH_MS:
        found = []  # every job waits for a cycle, and nearly all for no time worth a line
    further = [each for each in intervals if each.awaited.what == What.FURTHER_NODES]
    return found + ([_waited(further)] if further and not further[-1].lasts else [])


def _to_start(intervals: Sequence[Interval], last: Sequence[Interval]) -> Iterator[Waited]:
    """The waits to start that are over, by what the job waited for. The one that lasts began with the first of the
    intervals in a row that are for the same."""
    of_text: dict[str, list[Interval]] = {}
    for text, row in groupby(intervals, key=_text_of):
        in_a_row = [*row]
        if text and not in_a_row[-1].lasts:
            of_text.setdefault(text, []).extend(in_a_row)
    for of in of_text.values():
        if any(map(_span_ms, of)):
            yield _waited(of, last if last and last[0] in of else ())


def _text_of(interval: Interval) -> str:
    """What the job waited for to start; empty if it didn't."""
    return waited_text(interval.awaited) if waits_to_start(interval.stage, interval.awaited) else ""


def _waited(of: Sequence[Interval], last: Sequence[Interval] = ()) -> Waited:
    """Intervals of one thing, told by the longest of them, or by the `last` one."""
    told = last[0] if last else max(of, key=_span_ms)
    what, reasons = told.awaited.what, told.awaited.reasons
    further, nodes = what == What.FURTHER_NODES, what in (What.FURTHER_NODES, What.QUORUM_NODES)
    span_ms = sum(map(_span_ms, of))
    words = reasons_text(reasons) if nodes and not told.awaited.unseen else ""
    return Waited(further, span_ms, words, reasons, told.since_offset, what, waited_text(told.awaited))
