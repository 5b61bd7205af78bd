"""The output of `arranger what-if`, for people and as JSON: both plans, and the continuations of both."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from arranger.cli.rendering.output import Times, ToldTime, duration, local_time, print_table, print_text, say
from arranger.cli.rendering.plans import plan_text, print_jobs, print_summary
from arranger.model.text import counted, few
from arranger.replay.what_if.comparison import Continuations, ContinuedStart, WhatIf, other_starts, untried
from arranger.replay.what_if.one_cycle import CyclePlan, Inputs, JobPlan, differences
from arranger.replay.what_if.utilisation import Figures, Likeness, Utilisation

#: The number of jobs that a note names.
_NAMES_SHOWN = 5
#: The run that is compared with that of the changes. It is no record of what was: its starts may differ from those.
_UNCHANGED = "without changes"
#: The number of starts that are listed.
_STARTS_SHOWN = 20


class Sequel(msgspec.Struct, frozen=True):
    """The continuations of both plans, and how close the unchanged one is to the log."""

    one: Utilisation
    other: Utilisation
    alike: Likeness
    #: They continued until no further event was due.
    drained: bool = False

    @property
    def for_programs(self) -> Continuations:
        """Both continuations, with the starts that differ."""
        one, other = (
            Figures(*(getattr(of, name) for name in Figures.__struct_fields__)) for of in (self.one, self.other)
        )
        return Continuations(one, other, self.alike, other_starts(self.one, self.other))

    def print(self, lasting_ms: int | None) -> None:
        print_continuations(self.for_programs, lasting_ms, drained=self.drained)


def print_continuations(of: Continuations, lasting_ms: int | None = None, *, drained: bool = False) -> None:
    rows = [(name, words(of.as_it_was), words(of.what_if)) for name, words in _FIGURES]
    print_table(("figure", _UNCHANGED, "what if"), rows, times=Times.of([]))
    say()
    _print_starts(of.starts)
    for line in _notes(of, lasting_ms, drained=drained):
        print_text(line, indent=2)


def _print_starts(starts: Sequence[ContinuedStart]) -> None:
    if not starts:
        return
    told = [
        (
            of.job,
            of.attempt,
            _at(of.as_it_was_ms),
            _at(of.what_if_ms),
            _for(of.as_it_was_wait_ms),
            _for(of.what_if_wait_ms),
        )
        for of in starts[:_STARTS_SHOWN]
    ]
    names = ("start of", "attempt", _UNCHANGED, "what if", "waited", "waited, what if")
    print_table(names, told, times=Times.of([]), right=names[4:], optional=names[4:])
    if len(starts) > _STARTS_SHOWN:
        print_text(f"and {len(starts) - _STARTS_SHOWN} more starts that differ: --output json has them")
    say()


def _notes(of: Continuations, lasting_ms: int | None, *, drained: bool) -> Iterator[str]:
    one, other = of.as_it_was, of.what_if
    if one.waiting_at_end or other.waiting_at_end:
        yield "jobs that still wait at the end count with their waiting time so far"
    held, waits = (
        few(list(dict.fromkeys(names)), _NAMES_SHOWN)
        for names in ((*one.endless_jobs, *other.endless_jobs), (*one.waiting_jobs, *other.waiting_jobs))
    )
    if drained and waits:
        yield f"a run stopped when nothing more could happen; still waiting at its end: {waits}"
    if drained and held:
        yield (
            f"the log shows no end of {held}, so the nodes that they hold never become free; --lasting gives them an "
            "end"
        )
    elif one.endless or other.endless:
        yield "attempts without an end in the log last to the end of the run; --lasting gives them an end"
    elif lasting_ms is not None:
        yield f"attempts without an end in the log last {duration(lasting_ms)}"
    alike = of.likeness_to_log
    total = alike.common + alike.only_log
    if total:
        yield (
            f"the run {_UNCHANGED}, compared with the log: {alike.equal} of {total} starts differ by at most a second, "
            f"the largest difference is {duration(alike.farthest_ms)}; {counted(alike.only_log, 'start')} only in "
            f"the log, {alike.only_here} only in the run"
        )


def _part(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _at(time_ms: int | None) -> object:
    return ToldTime(time_ms) if time_ms is not None else "-"


def _for(duration_ms: int | None) -> str:
    return duration(duration_ms) if duration_ms is not None else "-"


def _started(of: Figures) -> str:
    """The number of jobs that got their quorum, and of further starts of the same jobs, in words."""
    again = of.started - of.jobs_started
    return f"{of.jobs_started}, and {again} again" if again else str(of.started)


_FIGURES: tuple[tuple[str, Callable[[Figures], object]], ...] = (
    ("from", lambda of: ToldTime(of.begin_ms)),
    ("to", lambda of: ToldTime(of.end_ms)),
    ("jobs started", _started),
    ("jobs ended", lambda of: of.ended),
    ("jobs that wait at the end", lambda of: of.waiting_at_end),
    ("wait, mean", lambda of: duration(of.wait_mean_ms)),
    ("wait, p50", lambda of: duration(of.wait_p50_ms)),
    ("wait, p95", lambda of: duration(of.wait_p95_ms)),
    ("GPUs in use", lambda of: _part(of.gpu_utilisation)),
    ("GPUs idle in fragments", lambda of: _part(of.gpu_fragmentation)),
    ("makespan", lambda of: duration(of.makespan_ms) if of.makespan_ms is not None else "-"),
    ("attempts without an end", lambda of: of.endless),
)


class WhatIfAnswer(msgspec.Struct):
    """Both plans. If `inputs.cycle` is a recorded cycle, `reproduced` says whether the first plan equals its record."""

    inputs: Inputs
    otherwise: str
    one: CyclePlan
    other: CyclePlan
    reproduced: bool | None
    edits: list[str] = []
    supposed: tuple[str, ...] = ()
    changed_job: str = ""
    after_dry_runs: tuple[JobPlan, ...] = ()
    sequel: Sequel | None = None
    lasting_ms: int | None = None

    def json(self) -> dict[str, Any]:
        answer = WhatIf(
            base=self.inputs.base,
            cycle=self.inputs.cycle,
            time_ms=self.inputs.time_ms,
            otherwise=self.otherwise,
            edits=self.edits,
            reproduced=self.reproduced,
            as_it_was=self.one,
            what_if=self.other,
            differences=differences(self.one, self.other),
            until=self.sequel.for_programs if self.sequel is not None else None,
            supposed=self.supposed,
            changed_job=self.changed_job,
            after_dry_runs=self.after_dry_runs,
        )
        return {**msgspec.to_builtins(answer), "time": local_time(answer.time_ms)}

    def print(self, *, everything: bool) -> None:
        inputs = self.inputs
        which = f"the cycle at offset {inputs.cycle}" if inputs.cycle else "a cycle"
        print_text(f"{which} on the state at offset {inputs.base}, at {local_time(inputs.time_ms)}")
        print_text(f"changes: {self.otherwise}")
        for edit in self.edits:
            print_text(f"  {edit}", indent=4)
        if self.reproduced is False:
            print_text("without changes, the cycle gives another result than recorded: arranger verify shows where")
        say()
        print_summary(self.one, self.other)
        say()
        print_jobs(self.one, self.other, everything=everything, always=self.changed_job)
        if any(job.room_from for plan in (self.one, self.other) for job in plan.jobs):
            print_text(
                "work lost: GPU time of running pods since they started, start-up included, or since the last "
                "checkpoint of their job"
            )
        if self.supposed:
            of = few(list(self.supposed), _NAMES_SHOWN)
            print_text(f"supposed: in a dry run, the API server takes the pods of {of}; nobody had asked it yet")
        if first := untried(self.one, self.other):
            of = few(list(first), _NAMES_SHOWN)
            print_text(f"in both plans, others give room to {of} only after a dry run, which nobody had made yet")
        for job in self.after_dry_runs:
            print_text(f"once that is made, {job.job} gets something else with the changes: {plan_text(job)}")
        if self.sequel is not None:
            say()
            self.sequel.print(self.lasting_ms)
