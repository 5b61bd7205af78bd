"""What a single pass over the log finds, kept up to date by each further entry, all of bounded size."""

from bisect import bisect_right

from arranger.events import kinds as k
from arranger.events.log import Entry, Position
from arranger.model.config import CycleConfig
from arranger.projections.state import Changes, State
from arranger.replay.console.gantt import GanttIndex
from arranger.replay.console.job_page import JobEvents
from arranger.replay.console.series import SeriesIndex
from arranger.replay.console.snapshots import Snapshots
from arranger.replay.console.timeline import TimelineIndex
from arranger.replay.reading.history import advance

#: Events that may change any job: the rules of a watcher, kinds that can be read or not, and namespaces, which terms of
#: pods select.
_WIDE = (k.EpochBegun, k.WatchClaimed, k.ListingEnded, k.WatchRefused, k.NamespaceSeen, k.NamespaceGone)


class LogIndex:
    """Folds entries into `state` and indexes them. Nobody else may change the state."""

    def __init__(self, state: State, position: Position, snapshots: Snapshots | None = None) -> None:
        self.state = state
        self.position = position
        #: The offset before the first entry that it reads.
        self.began = position.offset
        self.snapshots = snapshots if snapshots is not None else Snapshots()
        self.timeline, self.series = TimelineIndex(state), SeriesIndex()
        self.gantt, self.jobs = GanttIndex(), JobEvents()
        #: The configurations of cycles, each with the offset of the first cycle that had it.
        self.configs: list[tuple[int, CycleConfig]] = []
        self.jobs.begin(state)
        self.series.note(state, state.jobs)
        self.gantt.note(state, dict.fromkeys(state.jobs))
        self.snapshots.note(state, position, {}, None)

    def config(self, offset: int) -> CycleConfig:
        """The configuration of the last cycle up to an offset, else of the first one behind it."""
        number = bisect_right(self.configs, offset, key=lambda of: of[0])
        return self.configs[max(number - 1, 0)][1] if self.configs else CycleConfig()

    def feed(self, entry: Entry) -> None:
        """Fold and index one entry. Raises `DamagedEntry`."""
        state, changes, pods = self.state, Changes(), dict[str, None]()
        for offset, event in enumerate(entry.batch.events, start=entry.first):
            if isinstance(event, k.CycleTaken):
                if not self.configs or event.config != self.configs[-1][1]:
                    self.configs.append((offset, event.config))
            elif isinstance(event, k.PodSeen | k.PodGone):
                pods[event.uid] = None
            elif isinstance(event, k.JobSeen):  # it may disown pods that were seen before it
                pods.update(dict.fromkeys(state.pods_of.get(event.uid, ())))
        self.jobs.before(entry, state)
        self.series.lapse(state, entry.batch.time_ms)
        advance(state, entry, changes)
        self.position = Position(self.position.epoch, entry.last, entry.chain)
        self.jobs.after(state, changes)
        self.timeline.note(entry, state, changes)
        self.series.note(state, changes.jobs)
        self.gantt.note(state, changes.jobs)
        if any(isinstance(event, _WIDE) for event in entry.batch.events):
            self.snapshots.note(state, self.position, dict.fromkeys(state.jobs), None)
            return
        self.snapshots.note(state, self.position, changes.jobs, pods)
