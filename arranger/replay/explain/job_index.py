"""The names of the jobs that a log mentions, and those that are similar to one that isn't there."""

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.near_names import near_names
from arranger.model.pod import TERMINAL
from arranger.model.pods_to_place import record_of
from arranger.projections.jobs.records import group_of, record_name, record_uid
from arranger.replay.explain.story import Deletion


class JobIndex:
    """The jobs that the log mentions, by namespace and name, so that a deleted job is found too."""

    def __init__(self) -> None:
        #: (namespace, name) → its deletion, and the offset before the entry that records it; None while it exists.
        self.jobs: dict[tuple[str, str], tuple[Deletion, int] | None] = {}
        #: The same → the offset at which the log has it first.
        self.came: dict[tuple[str, str], int] = {}
        #: UID of a pod that has a record, alone or with its group → the name of that; and the pods of each.
        self._records: dict[str, tuple[str, str]] = {}
        self._pods: dict[tuple[str, str], dict[str, None]] = {}
        #: The name of the record that a pod of a group would have alone → (namespace, name) of its group's record.
        self.groups: dict[str, tuple[str, str]] = {}

    def feed(self, entry: Entry) -> None:
        for offset, event in enumerate(entry.batch.events, start=entry.first):
            if isinstance(event, k.JobSeen):
                self.jobs[event.namespace, event.name] = None
                self.came.setdefault((event.namespace, event.name), offset)
            elif k.is_gone(event, k.Watched.JOB):
                self.jobs[event.namespace, event.name] = _deletion(offset, entry)
            elif k.seen_or_gone(event, k.PodSeen):
                self._feed_pod(offset, entry, event)

    def _feed_pod(self, offset: int, entry: Entry, event: k.PodSeen | k.ObjectGone) -> None:
        before, name = self._records.get(event.uid), None
        if isinstance(event, k.PodSeen) and record_uid(event):
            name = self._records[event.uid] = (event.namespace, record_name(event))
            self._pods.setdefault(name, {})[event.uid] = None
            self.jobs[name] = None
            if group_of(event):
                self.groups[record_of(event.name)] = name
        if before is not None and before != name:
            del self._pods[before][event.uid]
            if not self._pods[before]:
                self.jobs[before] = _deletion(offset, entry, ended_in(event))
            if name is None:
                del self._records[event.uid]

    def nearest(self, name: str) -> list[str]:
        """Labels of jobs whose name is similar to this one."""
        close = near_names(name, {known for _, known in self.jobs}, most=3)
        return [
            f"{namespace}/{known}" for desired in close for namespace, known in sorted(self.jobs) if known == desired
        ]


def ended_in(event: k.Event) -> str:
    """The phase in which a pod ended by an event; empty if it was deleted, or is another's now."""
    return event.phase if isinstance(event, k.PodSeen) and event.phase in TERMINAL and not event.deleting else ""


def _deletion(offset: int, entry: Entry, phase: str = "") -> tuple[Deletion, int]:
    return Deletion(offset, entry.batch.time_ms, phase), entry.first - 1
