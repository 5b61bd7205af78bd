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
from arranger.replay.reading.history import advance, config_in

#: Events that may change any job, with namespaces, which terms of pods select: the rules of a watcher, and kinds that
#: can be read or not.
_WIDE = (k.EpochBegun, k.WatchClaimed, k.ListingEnded, k.WatchRefused)


class LogIndex:
    """Folds entries into `state` and indexes them. Nobody else may change the state."""

    def __init__(
        self, state: State, position: Position, config: CycleConfig | None, snapshots: Snapshots | None = None
    ) -> None:
        """`config` has the settings of the state's last cycle, None if there was none yet."""
        self.state = state
        self.position = position
        #: The offset before the first entry that it reads.
        self.began = position.offset
        self.snapshots = snapshots if snapshots is not None else Snapshots()
        self.timeline, self.series = TimelineIndex(state), SeriesIndex()
        self.gantt, self.jobs = GanttIndex(), JobEvents()
        #: The settings of accepted cycles, each with the offset of the first cycle that had them.
        self._configs = [(state.last_cycle, config)] if config is not None else []
        self.jobs.begin(state)
        self.series.note(state, state.jobs)
        self.gantt.note(state, dict.fromkeys(state.jobs))
        self.snapshots.note(state, position, {}, None)

    def config(self, last_cycle: int) -> CycleConfig | None:
        """The settings of the accepted cycle at this offset, and for 0 those of the first one; None if the index hasn't
        come that far."""
        if not self._configs or last_cycle > self.position.offset:
            return None
        number = bisect_right(self._configs, last_cycle, key=lambda of: of[0])
        return self._configs[max(number - 1, 0)][1]

    def feed(self, entry: Entry) -> None:
        """Fold and index one entry. Raises `DamagedEntry`."""
        state, changes, pods = self.state, Changes(), dict[str, None]()
        for event in entry.batch.events:
            if k.seen_or_gone(event, k.PodSeen):
                pods[event.uid] = None
            elif isinstance(event, k.JobSeen):  # it may disown pods that were seen before it
                pods.update(dict.fromkeys(state.pods_of.get(event.uid, ())))
        self.jobs.before(entry, state)
        self.series.lapse(state, entry.batch.time_ms)
        advance(state, entry, changes)
        config = config_in(entry, state)
        if config is not None and (not self._configs or config != self._configs[-1][1]):
            self._configs.append((state.last_cycle, config))
        self.position = Position(self.position.epoch, entry.last, entry.chain)
        self.jobs.after(state, changes)
        self.timeline.note(entry, state, changes)
        self.series.note(state, changes.jobs)
        wide = any(isinstance(event, _WIDE) or k.seen_or_gone(event, k.NamespaceSeen) for event in entry.batch.events)
        touched = changes.jobs | dict.fromkeys(state.jobs) if wide else changes.jobs
        self.gantt.note(state, touched)
        self.snapshots.note(state, self.position, touched, None if wide else pods)
