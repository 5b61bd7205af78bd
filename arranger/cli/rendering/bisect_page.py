"""The output of `arranger bisect`: the event, its changes, and the other intervals in which the condition held."""

from typing import Any

import msgspec

from arranger.cli.rendering.log_line import as_json
from arranger.cli.rendering.output import Times, print_table, print_text, say
from arranger.cli.rendering.output import ToldTime as Moment
from arranger.replay.bisect.search import EARLIER, ConditionRun, FoundEvent

#: The number of intervals that are shown.
_INTERVALS_SHOWN = 4


class ToldCondition(msgspec.Struct):
    """One condition, the intervals in which it held, and the event that is reported."""

    condition: str
    run: ConditionRun
    found: FoundEvent | None = None

    def json(self) -> dict[str, Any]:
        return {
            "condition": self.condition,
            "holds": self.run.holds,
            "intervals": [{"first": first, "last": last} for first, last in self.intervals],
            "found": _found_json(self.found),
        }

    @property
    def intervals(self) -> list[tuple[int, int | None]]:
        """The first and last offset of each interval; the end is None if the condition still holds."""
        run = self.run
        lasting = [(run.last if run.starts else max(run.began, run.asked) + 1, None)] if run.holds else []
        return [*run.over, *lasting]


class BisectAnswer(msgspec.Struct):
    """The result of a search. `also` is the second condition of `--blocked`. For conditions that take cycles, `came` is
    the offset at which the job was first seen, 0 if before the log, and `ended` says whether it has ended; otherwise
    `came` is -1. `infeasible` is the offset since which no empty cluster has room for the job, 0 if one has."""

    told: ToldCondition
    reached: int
    also: ToldCondition | None = None
    last: bool = False
    blocked: bool = False
    came: int = -1
    ended: bool = False
    infeasible: int = 0

    def to_be_told(self, run: ConditionRun) -> bool:
        """Whether a run has an event to report. With `--blocked`, intervals before the job's creation don't count."""
        return run.starts > 0 and not (self.blocked and not run.holds and run.ended <= self.came)

    @property
    def found(self) -> FoundEvent | None:
        return self.told.found

    def json(self) -> dict[str, Any]:
        run = self.told.run
        return {
            **self.told.json(),
            "heldBefore": run.held_before,
            "starts": run.starts,
            "from": run.began + 1,
            "to": self.reached,
            "asked": None if run.asked < 0 else [run.asked + 1, self._last_asked],
            "came": max(self.came, 0) or None,
            "infeasibleSince": self.infeasible or None,
            "also": None if self.also is None else self.also.json(),
        }

    @property
    def _last_asked(self) -> int:
        return self.told.run.unasked - 1 if self.told.run.unasked else self.reached

    @property
    def _where(self) -> str:
        return f"offsets {max(self.told.run.began, self.told.run.asked) + 1} to {self._last_asked}"

    def print(self) -> None:
        run, condition = self.told.run, self.told.condition
        if run.began < 0:
            print_text(f"the log has no events in that range: {condition}")
            return
        if run.asked < 0:
            why = "the job had ended" if self.ended else "not everything had been listed"
            print_text(f"{condition}: this can't be checked in that range, because {why}")
            return
        if self.found is None:
            print_text(f"{condition}: {self._never()}")
        else:
            self._print_told(self.told, self.found)
        if self.also is not None and self.also.found is not None:
            say()
            self._print_told(self.also, self.also.found)
        self._print_limits()

    def _print_told(self, told: ToldCondition, found: FoundEvent) -> None:
        print_text(self._headline(told))
        over = told.run.over
        if found.event.offset < self.came and (not self.last or (not told.run.holds and over[-1][1] < self.came)):
            then = f"this is what its first spec would have got before (--from {self.came} leaves that out)"
            print_text(f"the job was created at offset {self.came} only; {then}")
        self._print_intervals(told, found)
        _print_found(found)

    def _headline(self, told: ToldCondition) -> str:
        run = told.run
        before = "; it also held at the beginning" if run.held_before and max(run.began, run.asked) > 0 else ""
        if not self.last:
            return f"{told.condition} from this event on, the first such event (searched: only {self._where}{before})"
        if run.holds:
            return f"{told.condition} since this event (searched: {self._where})"
        until = f"from this event to offset {run.over[-1][1]}, but no longer from offset {run.ended} on"
        return f"{told.condition} {until} (searched: {self._where})"

    def _print_intervals(self, told: ToldCondition, found: FoundEvent) -> None:
        """Print the other intervals if the last one is reported, without those before a blocked job's creation."""
        intervals = [(a, b) for a, b in told.intervals if not self.blocked or b is None or b >= self.came]
        if not self.last or len(intervals) < 2:
            return
        intervals[-1] = found.event.offset, intervals[-1][1]
        shown = [f"{a} to {b}" if b is not None else f"from {a} on" for a, b in intervals[-_INTERVALS_SHOWN:]]
        fewer = f", the last {_INTERVALS_SHOWN}" if len(intervals) > _INTERVALS_SHOWN else ""
        text = f"it held {len(intervals)} times{fewer}, at offsets {', '.join(shown[:-1])} and {shown[-1]}"
        print_text(f"{text}; this event began the last time")

    def _never(self) -> str:
        """The text if there is no event to report."""
        run, came = self.told.run, f"the job was created at offset {self.came}"
        later = self.came > max(run.asked, 0)
        if run.held_before and run.holds:
            created = "it has been blocked since it was created" if self.blocked else "the job was created"
            since = f"; {created} at offset {self.came}" if later else ""
            return f"it always holds in {self._where}{since}"
        if run.over and run.ended <= self.came:
            first, last = run.over[-1]
            return f"never since {came} (it held before that, the last time at offsets {first} to {last})"
        if not run.held_before:
            return f"it never holds in {self._where}"
        return f"it holds at the beginning, and no longer from offset {run.ended} on, in {self._where}"

    def _print_limits(self) -> None:
        if self.infeasible:
            print_text(f"since offset {self.infeasible}, the job doesn't fit even an empty cluster of these nodes")
        if self.told.run.unasked:
            print_text(f"the job ended at offset {self.told.run.unasked}: later offsets aren't checked")


def _found_json(found: FoundEvent | None) -> dict[str, Any] | None:
    if found is None:
        return None
    event, of_earlier = as_json(found.event), found.of_same_name
    return {"event": event, "batch": found.batch, "changed": found.changed, "ofEarlierJob": of_earlier}


def _print_found(found: FoundEvent) -> None:
    line = found.event
    text = f"{line.reason}: {line.text}" if line.reason else line.text
    of = EARLIER if line.subject == line.job else EARLIER.replace("(", "(of ")
    subject = line.subject + (of if found.of_same_name else "")
    say()
    print_table(
        ("offset", "time", "kind", "subject", "verdict", "text"),
        [(line.offset, Moment(line.time_ms), line.kind, subject, line.verdict, text)],
        right=("offset",),
        times=Times.of([]),
    )
    say()
    rows = [(one.subject, one.what, one.before or "-", one.after or "-") for one in found.changed]
    print_table(("changed", "what", "before", "after"), rows, empty="no other change to show")
