"""The output of `arranger preemptions` and `arranger waits`, for people, programs and spreadsheets."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from arranger.cli.rendering.output import (
    ToldTime,
    duration,
    heading,
    local_time,
    print_csv,
    print_table,
    print_text,
    say,
)
from arranger.messages.decisions import stage_text
from arranger.model.text import counted, few
from arranger.replay.ledger.causes import Cause
from arranger.replay.ledger.guests import Stay, StayEnd
from arranger.replay.ledger.preemptions import (
    Aftermath,
    GuestLine,
    OfQueue,
    PreemptionLine,
    PreemptionList,
    by_queue,
)
from arranger.replay.ledger.waits import Row, WaitSums
from arranger.replay.reading.describe import as_object

#: How many rows of a table are shown without `--all`.
_SHOWN = 30
#: How many names a cell has.
_NAMED = 2

#: What jobs wait for, in words; the console has the same. A cause has one name everywhere, so ROOM and ORDER, which
#: only this account tells apart, have the same: who got the room first is told of the holder.
_CAUSES = {
    Cause.ROOM: "room that others held",
    Cause.ORDER: "room that others held",
    Cause.RESERVATION: "room that is reserved for a job before it",
    Cause.PREEMPTED_ROOM: "others to leave its nodes",
    Cause.CLOSED: "cordoned or not ready nodes",
    Cause.TAINT: "taints of nodes",
    Cause.RULES: "other rules of nodes and pods",
    Cause.QUOTA: "ResourceQuota",
    Cause.CAPABILITY: "capability of a queue",
    Cause.GUARANTEES: "guarantees of other queues",
    Cause.MAX_RUNNING: "maxRunning of a queue",
    Cause.MAX_WAITING: "maxWaiting of a queue",
    Cause.NON_PREEMPTIBLE: "nonPreemptible of a queue",
    Cause.PLUGIN: "a plugin's group check or permit",
    Cause.QUEUE: "a queue that it can't use",
    Cause.INFEASIBLE: "no cluster of these nodes has room",
    Cause.DEPENDENCY: "jobs that it starts after",
    Cause.PRIORITY_CLASS: "its PriorityClass",
    Cause.RUNTIME_CLASS: "its RuntimeClass",
    Cause.BACK_OFF: "back-off",
    Cause.EARLIER_PODS: "pods of its earlier attempt",
    Cause.SCHEDULER: "a scheduling cycle or a controller",
    Cause.SUSPENDED: "its user to resume it",
    Cause.PODS: "scheduling gates, claims or further pods of its group",
}


_ENDS = {
    StayEnd.LEFT: "left",
    StayEnd.TAKEN: "left: its room went to {}",
    StayEnd.ENDED: "ended",
    StayEnd.STAYS: "stayed: not reserved any more",
    StayEnd.OTHERWISE: "lost its nodes otherwise",
}


def gpu_hours(gpu_ms: int) -> str:
    """GPU-milliseconds as GPU hours."""
    return f"{gpu_ms / 3_600_000:.3f}"


# --- preemptions -------------------------------------------------------------------------------------------


class Preemptions(msgspec.Struct):
    """The answer of `arranger preemptions`. `within_ms` as in `Aftermath.needless`."""

    found: list[Aftermath]
    guests: list[Stay]
    within_ms: int

    def answer(self) -> PreemptionList:
        lines = [
            PreemptionLine(
                **msgspec.structs.asdict(one.taking),
                harm_gpu_ms=one.taking.harm_ms,
                gained_ms=one.gained_ms,
                again_ms=one.again_ms,
                free_ms=one.free_ms,
                needless=one.needless(self.within_ms),
                in_vain=one.vain.reason if one.vain is not None else "",
                in_vain_because=stage_text(one.vain) if one.vain is not None else "",
                gone=one.gone,
                open=one.open(self.within_ms),
            )
            for one in self.found
        ]
        #: The offset of a preemption → how long after it the beneficiary began, in milliseconds.
        began = {one.taking.offset: one.gained_ms for one in self.found}
        stays = [
            GuestLine(**msgspec.structs.asdict(stay), host_began_ms=began.get(stay.preemption)) for stay in self.guests
        ]
        return PreemptionList(lines, by_queue(self.found, self.guests), self.within_ms, stays)

    def json(self) -> dict[str, Any]:
        answer = as_object(self.answer())
        timed = {
            name: [{**row, "time": local_time(row["time_ms"])} for row in answer[name]]
            for name in ("preemptions", "guests")
        }
        return {**answer, **timed}

    def csv(self) -> None:
        columns = ("offset", "time", "beneficiary", "queue", "victim", "victim_queue", "kind", "pods", "lost_gpu_ms",
                   "beneficiary_began_ms", "victim_again_ms", "free_by_itself_ms", "in_vain")  # fmt: skip
        print_csv(columns, self._csv_rows())

    def _csv_rows(self) -> Iterator[tuple[object, ...]]:
        for one in self.found:
            of = one.taking
            for victim in of.victims:
                again = one.again_ms.get(victim.uid)
                yield (of.offset, local_time(of.time_ms), of.job, of.queue, victim.job, victim.queue, victim.kind,
                       victim.pods, victim.lost_ms, _or_empty(one.gained_ms), _or_empty(again),
                       _or_empty(one.free_ms), one.vain.reason if one.vain is not None else "")  # fmt: skip

    def print(self, *, everything: bool) -> None:
        print_preemptions(self.answer(), everything=everything)


def print_preemptions(answer: PreemptionList, *, everything: bool) -> None:
    found, guests = answer.preemptions, answer.guests
    if not found and not guests:
        say("no job gave room to another one in this part of the log")
        return
    if found:
        _print_rows(found, everything=everything)
    if guests:
        heading("Guests")
        columns = (
            "time",
            "guest",
            "in the room of",
            "GPU hours used",
            "end",
            "GPU hours lost",
            "host began after",
        )
        shown = guests if everything else guests[-_SHOWN:]
        print_table(columns, map(_guest_cells, shown), right=("GPU hours used", "GPU hours lost"))
        if len(shown) < len(guests):
            print_text(f"and {len(guests) - len(shown)} earlier ones: --all shows all of them")
    heading("By queue")
    names = ["queue", "took room", "gave room", "GPU hours lost", "waited again"]
    if guests:
        names.append("GPU hours as guests")
    print_table(names, [_queue_cells(of)[: len(names)] for of in answer.queues], right=names[1:])
    if found:
        _print_sums(found, answer.within_ms)


def _print_rows(found: list[PreemptionLine], *, everything: bool) -> None:
    shown = found if everything else found[-_SHOWN:]
    columns = ("offset", "time", "beneficiary", "from", "pods", "GPU hours lost", "began after", "again after",
               "free by itself")  # fmt: skip
    print_table(columns, map(_cells, shown), right=("offset", "pods", "GPU hours lost"), optional=("again after",))
    if len(shown) < len(found):
        print_text(f"and {len(found) - len(shown)} earlier ones: --all shows all of them")


def _print_sums(found: list[PreemptionLine], within_ms: int) -> None:
    needless, still_open = sum(one.needless for one in found), sum(one.open for one in found)
    so_far = f" as far as is known; of {still_open} it isn't known yet" if still_open else ""
    say()
    print_text(
        f"{counted(len(found), 'preemption')}, {needless or 'none'} of them needless{so_far}. Needless means: without "
        f"it, the job would have got nodes within {duration(within_ms)}, and the wait would have cost no more GPU time "
        "than the victims lost. That is an estimate: victims end when their deadline or expectedRuntimeSeconds says, "
        "and all other jobs, and those that somebody deleted, when they did."
    )
    for name, times, why in _in_vain(found):
        print_text(f"{name} took room in vain, {counted(times, 'time')}: {why}")


def _in_vain(found: list[PreemptionLine]) -> Iterator[tuple[str, int, str]]:
    """Who took room and didn't run with it, how often, and why the last time."""
    by_job: dict[str, list[str]] = {}
    for one in found:
        if one.in_vain:
            by_job.setdefault(one.job, []).append(one.in_vain_because)
    for name, reasons in by_job.items():
        yield name, len(reasons), reasons[-1]


def _cells(of: PreemptionLine) -> tuple[object, ...]:
    again = [duration(span) for span in of.again_ms.values() if span is not None]
    never = Counter(how.lower() for uid, how in of.gone.items() if uid in of.again_ms)
    still = len(of.again_ms) - len(again) - never.total()
    again += [f"{count} never: {how}" for how, count in sorted(never.items())]
    waits = ", ".join([*again, *([f"{still} not yet"] if still else [])]) or "-"
    waiting = of.gone.get(of.uid, "gave it back" if of.lost_ms else "waits").lower()
    began = duration(of.gained_ms) if of.gained_ms is not None else waiting
    began += " (in vain)" if of.in_vain else ""
    givers = few([f"{victim.job} ({victim.kind})" for victim in of.victims], _NAMED)
    pods = sum(victim.pods for victim in of.victims)
    return (of.offset, ToldTime(of.time_ms), of.job, givers, pods, gpu_hours(of.harm_gpu_ms), began, waits, _free(of))


def _free(of: PreemptionLine) -> str:
    """After how long its room became free by itself."""
    if of.free_ms is None:
        return "not yet" if of.open else "-"
    return duration(of.free_ms) + (" (needless)" if of.needless else "")


def _or_empty(value: int | None) -> object:
    return "" if value is None else value


def _queue_cells(of: OfQueue) -> tuple[object, ...]:
    again, as_guests = duration(of.again_ms) if of.again_ms else "-", gpu_hours(of.guest_ms) if of.guest_ms else "-"
    return (of.queue, of.taken, of.gave, gpu_hours(of.lost_ms), again, as_guests)


def _guest_cells(stay: GuestLine) -> tuple[object, ...]:
    began = duration(stay.host_began_ms) if stay.host_began_ms is not None else "-"
    end = _ENDS[stay.end].format(stay.taken_by) if stay.end is not None else "is there"
    lost = gpu_hours(stay.lost_ms) if stay.end == StayEnd.LEFT else "-"
    hosts = few(list(stay.hosts), _NAMED)
    return (local_time(stay.time_ms), stay.job, hosts, gpu_hours(stay.gpu_ms), end, lost, began)


# --- waits -------------------------------------------------------------------------------------------------


class WaitsAnswer(WaitSums):
    """The answer of `arranger waits`; its rows have the numbers of days."""

    def json(self) -> dict[str, Any]:
        rows = [{**as_object(row), "group": self._group(row.group)} for row in self.rows]
        return {**as_object(self), "rows": rows, "begin": local_time(self.begin_ms), "end": local_time(self.end_ms)}

    def csv(self) -> None:
        columns = (self.by, "cause", f"held_by_{self.held_by}", "wait_ms", "gpu_ms")
        print_csv(
            columns, [(self._group(row.group), row.cause, row.holder, row.wait_ms, row.gpu_ms) for row in self.rows]
        )

    def print(self, *, everything: bool) -> None:
        if not self.rows:
            say("no job waited in this part of the log")
            return
        shown = self.rows if everything else self.rows[:_SHOWN]
        rows = [
            (
                self._group(row.group),
                _CAUSES[row.cause],
                _holder(row),
                *(("-", "-") if row.cause == Cause.INFEASIBLE else self._part(row)),
                duration(row.wait_ms),
            )
            for row in shown
        ]
        right = ("GPU hours", "of all", "waited")
        print_table((self.by, "waited for", "held by", *right), rows, right=right, optional=("of all",))
        if len(shown) < len(self.rows):
            print_text(f"and {len(self.rows) - len(shown)} shorter ones: --all shows all of them")
        say()
        print_text(
            f"in all {duration(self.wait_ms)} of waiting, {gpu_hours(self.gpu_ms)} GPU hours of quorums, from "
            f"{local_time(self.begin_ms)} to {local_time(self.end_ms)}"
        )
        if vain_ms := sum(row.wait_ms for row in self.rows if row.cause == Cause.INFEASIBLE):
            print_text(
                f"{duration(vain_ms)} of it jobs waited that these nodes can't hold even without any pods: no GPU "
                "hours are counted for that, as the jobs could have used none"
            )

    def _part(self, row: Row) -> tuple[str, str]:
        return gpu_hours(row.gpu_ms), f"{row.gpu_ms / self.gpu_ms:.1%}" if self.gpu_ms else "-"

    def _group(self, group: str) -> str:
        if self.by != "day" or not group.isdecimal():  # an answer has days in words
            return group
        return _day(int(group))


def _holder(row: Row) -> str:
    """Who held the room, and whether it was placed only while the other job waited; or for whom room is kept."""
    if row.cause == Cause.RESERVATION and row.holder:
        return f"kept for {row.holder}"
    return f"{row.holder}, placed first" if row.cause == Cause.ORDER else row.holder or "-"


def _day(number: int) -> str:
    """A day since 1970 as a date, in UTC."""
    import datetime

    return (datetime.date(1970, 1, 1) + datetime.timedelta(days=number)).isoformat()
