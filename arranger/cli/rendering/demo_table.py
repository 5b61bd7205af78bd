"""The demo's story, a line for each thing that happens, and its tables of jobs and queues: live on a terminal,
otherwise one line per change."""

import sys
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from arranger.cli.rendering.output import coloured, say
from arranger.cli.rendering.queue_page import bar
from arranger.kube.cluster import Object
from arranger.model.pod import gpus_of
from arranger.model.text import one_line

_STYLES = {
    "Pending": "yellow",
    "Starting": "cyan",
    "Running": "green",
    "Rescheduling": "magenta",
    "Succeeded": "bold green",
    "Failed": "red",
    "Refused": "red",
}


#: Narrower terminals don't show the bar and the schedule.
_WIDE = 110


@dataclass(eq=False)
class JobRow:
    """The data of one job in the table."""

    name: str
    expected: str = ""
    uid: str = ""
    stage: str = ""
    schedule: str = ""
    ready: int = 0
    workers: int = 0
    message: str = ""
    waited_s: float = 0.0
    ran_s: float = 0.0
    #: The time in stage Running; the demo uses it to terminate a job as its user would.
    running_s: float = 0.0
    seen_s: float = field(default_factory=time.monotonic)

    def update(self, job: Object) -> None:
        """Take over a TYJob's status, and add the time since the last update."""
        now_s = time.monotonic()
        since_s, self.seen_s = now_s - self.seen_s, now_s
        status: dict[str, Any] = job.get("status") or {}
        self.uid = job["metadata"]["uid"]
        self.stage = status.get("stage", "")
        self.schedule = status.get("scheduleState", "")
        self.ready, self.workers = status.get("readyWorkers", 0), status.get("totalWorkers", 0)
        self.message = status.get("message", "")
        if self.stage in ("", "Pending", "Rescheduling"):
            self.waited_s += since_s
        elif self.stage in ("Starting", "Running"):
            self.ran_s += since_s

    def cells(self) -> tuple[str, ...]:
        """All cells except the bar, as text. The ready workers of an ended job aren't shown."""
        ready = "-" if self.ended else f"{self.ready}/{self.workers}"
        return (one_line(self.stage) or "-", one_line(self.schedule) or "-", ready, one_line(self.message))

    @property
    def whole(self) -> bool:
        """Whether all of its workers are shown as ready; of an ended job none are shown."""
        return self.ended or self.ready >= self.workers

    @property
    def ended(self) -> bool:
        return self.stage in ("Succeeded", "Failed", "Refused")


@dataclass(frozen=True)
class QueueRow:
    """The data of one queue in the table, in GPUs and jobs."""

    name: str
    used: int
    share: int
    demand: int
    waiting: int
    running: int

    @classmethod
    def of(cls, queue: Object) -> Self:
        """The row of a Queue, by its status."""
        status: dict[str, Any] = queue.get("status") or {}
        demand: dict[str, Any] = status.get("demand") or {}
        return cls(
            name=queue["metadata"]["name"],
            used=status.get("gpus", 0),
            share=status.get("gpuShare", 0),
            demand=gpus_of((name, int(amount)) for name, amount in demand.items() if str(amount).isdecimal()),
            waiting=status.get("waiting", 0),
            running=status.get("running", 0),
        )


class TableScreen:
    """Shows the rows: `with Screen(rows, queues, gpus=8) as screen: screen.show()`, any number of times."""

    def __init__(self, rows: dict[str, JobRow], queues: dict[str, QueueRow], *, gpus: int) -> None:
        self._rows = rows
        self._queues = queues
        self._told_queues: dict[str, QueueRow] = {}
        self._gpus = gpus
        self._began_s = time.monotonic()
        self._began_ms = time.time() * 1000
        self._told: dict[str, tuple[str, ...]] = {}
        self._live: Live | None = None
        self._console = Console(no_color=not coloured(), highlight=False)

    def __enter__(self) -> Self:
        if sys.stdout.isatty():
            self._live = Live(console=self._console, auto_refresh=False, transient=False)
            self._live.start()
        else:
            say(f"{'time':>7}  {'job':15} {'stage':12} {'schedule':16} {'ready':7} message")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, time_ms: int, text: str) -> None:
        """Print a line of the story; on a terminal it stays above the tables."""
        line = one_line(f"{max(time_ms - self._began_ms, 0) / 1000:6.1f}s  > {text}")
        if self._live is not None:
            self._live.console.print(Text(line, "bold"))
        else:
            say(line)

    def show(self) -> None:
        if self._live is not None:
            queues = Group(Text(), self._queue_table()) if self._queues else Group()
            self._live.update(Group(self._table(), queues, self._footer()), refresh=True)
            return
        for row in self._rows.values():
            cells = row.cells()
            if row.stage and self._told.get(row.name) != cells:
                self._told[row.name] = cells
                stage, schedule, ready, message = cells
                state = f"{row.name:15} {stage:12} {schedule:16} {ready:7}"
                say(f"{self._elapsed_s():6.1f}s  {state} {' '.join(message.split())}")
        for queue in self._queues.values():
            if self._told_queues.get(queue.name) != queue:
                self._told_queues[queue.name] = queue
                gpus = f"{queue.used} GPUs used, share {queue.share}, demand {queue.demand}"
                jobs = f"{queue.waiting} waiting, {queue.running} running"
                say(f"{self._elapsed_s():6.1f}s  queue {queue.name}: {gpus}; {jobs}")

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, expand=True, padding=(0, 2, 0, 0), header_style="bold")
        wide = self._console.width >= _WIDE
        columns = ["JOB", "STAGE", "SCHEDULE", "READY", "", "WAITED", "RAN", "MESSAGE"]
        for column in columns if wide else (c for c in columns if c not in ("SCHEDULE", "")):
            table.add_column(column, no_wrap=True, overflow="ellipsis", ratio=1 if column == "MESSAGE" else None)
        for row in self._rows.values():
            stage, schedule, ready, message = row.cells()
            bar = ProgressBar(total=max(row.workers, 1), completed=0 if row.ended else row.ready, width=12)
            table.add_row(
                Text(one_line(row.name)),
                Text(stage, style=_STYLES.get(stage, "")),
                *([Text(schedule), ready, bar] if wide else [ready]),
                f"{row.waited_s:.0f}s",
                f"{row.ran_s:.0f}s",
                Text(" ".join(message.split())),  # not as markup, because messages contain brackets
            )
        return table

    def _queue_table(self) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("QUEUE")
        for column in ("GPUS", "SHARE", "DEMAND", "WAITING", "RUNNING"):
            table.add_column(column, justify="right")
        table.add_column(f"█ used within the share  ▓ above it  ░ not used  (of {self._gpus})")
        for queue in self._queues.values():
            numbers = (queue.used, queue.share, queue.demand, queue.waiting, queue.running)
            shown = bar(queue.used, queue.share, self._gpus) if self._gpus else ""
            table.add_row(Text(one_line(queue.name)), *map(str, numbers), shown)
        return table

    def _footer(self) -> Text:
        ended = sum(row.ended for row in self._rows.values())
        return Text(f"\n{ended} of {len(self._rows)} jobs ended, {self._elapsed_s():.0f} s, {self._gpus} GPUs", "dim")

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_s
