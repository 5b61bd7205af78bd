"""The answers of the server as the client returns them, with the fields of the commands' JSON.

Python prints a line in place of all the fields, notebooks show the words of the commands, and rows become tables.
"""

from typing import Any, ClassVar, get_args, get_type_hints

from arranger.client import html
from arranger.client.jobs import Job, JobPod
from arranger.client.tables import Columns, Tabular, columns_of, event_columns, plain, rows_by_column
from arranger.client.words import words
from arranger.clock import local_time, wall_clock_ms
from arranger.model.text import counted, cut, duration, one_line
from arranger.replay.explain import answer
from arranger.replay.explain.headline import headline
from arranger.replay.forecast import starts
from arranger.replay.ledger import preemptions, waits
from arranger.replay.reading import overview, queues
from arranger.replay.what_if import comparison

#: So many characters of an event's text are shown in a table.
_TEXT = 100


def _as_of(time_ms: int) -> str:
    """When an answer was true: it depends on the log alone, which may not have had an event since."""
    return f"as of {local_time(time_ms)}, {duration(max(wall_clock_ms() - time_ms, 0))} ago"


class View(Tabular):
    """An answer with a sentence and rows."""

    __slots__ = ()
    #: The field with the rows.
    ROWS: ClassVar[str]

    def columns(self) -> Columns:
        [kind, *_] = get_args(get_type_hints(type(self))[self.ROWS])
        return columns_of(getattr(self, self.ROWS), kind)

    def sentence(self) -> str:
        """What the answer is about, in a line."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {one_line(self.sentence())}>"

    def __str__(self) -> str:
        return words(self)  # type: ignore[arg-type]  # of its base class

    def _repr_html_(self) -> str:
        return html.block(html.lines(str(self)))


class Explanation(View, answer.Explanation, frozen=True):
    """Why a job waits, or why its pods are where they are. Its rows are the events of its timeline."""

    ROWS: ClassVar = "timeline"

    def sentence(self) -> str:
        why = f": {self.waiting.why}" if self.waiting is not None else ""
        return f"{headline(self, local_time)}{why}; {_as_of(self.time_ms)}"

    def _repr_html_(self) -> str:
        return html.block(html.lines(str(self)), html.sentence(_as_of(self.time_ms)))


class Overview(View, overview.Overview, frozen=True):
    """The jobs in queue order, and the nodes with their use. Its rows are the jobs."""

    ROWS: ClassVar = "jobs"

    def sentence(self) -> str:
        return (
            f"offset {self.offset} of epoch {self.epoch}, {local_time(self.time_ms)}: "
            f"{counted(len(self.jobs), 'job')}, {counted(len(self.nodes), 'node')}"
        )


class QueueList(View, queues.QueueList, frozen=True):
    """All queues with their use. Its rows are the queues."""

    ROWS: ClassVar = "queues"

    def sentence(self) -> str:
        return f"offset {self.offset}, {local_time(self.time_ms)}: {counted(len(self.queues), 'queue')}"


class QueueDetail(View, queues.QueueDetail, frozen=True):
    """One queue, who holds its room and which jobs wait in it. Its rows are the waiting jobs."""

    ROWS: ClassVar = "waiting"

    def sentence(self) -> str:
        of = self.queue
        said = f"queue {of.name}: {of.state}, {of.waiting} waiting, {of.running} running"
        return f"{said}; {of.message}" if of.message else said


class Holdings(View, queues.QueueHoldings, frozen=True):
    """Who holds what. Its rows are the holders."""

    ROWS: ClassVar = "holders"

    def sentence(self) -> str:
        return f"offset {self.offset}, {local_time(self.time_ms)}: {self.resource} by {self.by}"


class WaitSums(View, waits.WaitSums):
    """What jobs waited for, and who held the room. Its rows are the sums."""

    ROWS: ClassVar = "rows"

    def sentence(self) -> str:
        return (
            f"in all {duration(self.wait_ms)} of waiting, {self.gpu_ms / 3_600_000:.3f} GPU hours of quorums, from "
            f"{local_time(self.begin_ms)} to {local_time(self.end_ms)}"
        )


class PreemptionList(View, preemptions.PreemptionList):
    """Who gave room to whom, and what it cost. Its rows are the preemptions."""

    ROWS: ClassVar = "preemptions"

    def sentence(self) -> str:
        return f"{counted(len(self.preemptions), 'preemption')}, {counted(len(self.guests), 'guest')}"


class JobStarts(View, starts.JobStarts, frozen=True):
    """When waiting jobs start. Its rows are the jobs."""

    ROWS: ClassVar = "jobs"

    def sentence(self) -> str:
        return f"{counted(self.waiting, 'waiting job')}; {_as_of(self.time_ms)}"


class WhatIf(View, comparison.WhatIf, frozen=True):
    """A past cycle as it was and with changes. Its rows are the jobs for which the plans differ."""

    ROWS: ClassVar = "differences"

    def sentence(self) -> str:
        said = f"what if {self.otherwise}: {counted(len(self.differences), 'job')} otherwise in this cycle"
        if self.until is not None:
            said += f", {counted(len(self.until.starts), 'start')} otherwise later"
        return f"{said}; {_as_of(self.time_ms)}"

    def _repr_html_(self) -> str:
        return html.block(html.lines(str(self)), html.sentence(_as_of(self.time_ms)))


class Shown(Tabular):
    """A list that a notebook shows as a table."""

    __slots__ = ()

    def shown(self) -> Columns:
        """What a notebook shows of the rows."""
        return self.columns()

    def _repr_html_(self) -> str:
        columns = self.shown()
        return html.block(html.table([*columns], [*rows_by_column(columns)], empty="none"))


class JobList(Shown, list[Job]):
    """TYJobs by name."""

    def columns(self) -> Columns:
        names = ("namespace", "name", "stage", "schedule_state", "ready_workers", "gpus", "message")
        return {name: [plain(getattr(job, name)) for job in self] for name in names}


class PodList(Shown, list[JobPod]):
    """The pods of a job, the leader's first."""

    def columns(self) -> Columns:
        return columns_of(self, JobPod)


class EventList(Shown, list[dict[str, Any]]):
    """Events, each as `arranger events -o json` prints it."""

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'event')}>"

    def columns(self) -> Columns:
        return event_columns(self)

    def shown(self) -> Columns:
        """The columns that `arranger events` prints: all of them aren't read beside each other."""
        names = ("offset", "time", "kind", "subject", "verdict", "text")
        return {name: [cut(str(of[name]), _TEXT) for of in self] for name in names}
