"""The names of the jobs that a log mentions, and those that are similar to one that isn't there."""

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.near_names import near_names
from arranger.model.pods_to_place import record_of
from arranger.projections.jobs.records import group_of, record_name, record_uid


class JobIndex:
    """The jobs that the log mentions, by namespace and name, so that a deleted job is found too."""

    def __init__(self) -> None:
        #: (namespace, name) → the offset of the entry that records its deletion, 0 while it exists.
        self.jobs: dict[tuple[str, str], int] = {}
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
                self.jobs[event.namespace, event.name] = 0
                self.came.setdefault((event.namespace, event.name), offset)
            elif k.is_gone(event, k.Watched.JOB):
                self.jobs[event.namespace, event.name] = entry.first
            elif k.seen_or_gone(event, k.PodSeen):
                self._feed_pod(entry, event)

    def _feed_pod(self, entry: Entry, event: k.PodSeen | k.ObjectGone) -> None:
        before, name = self._records.get(event.uid), None
        if isinstance(event, k.PodSeen) and record_uid(event):
            name = self._records[event.uid] = (event.namespace, record_name(event))
            self._pods.setdefault(name, {})[event.uid] = None
            self.jobs[name] = 0
            if group_of(event):
                self.groups[record_of(event.name)] = name
        if before is not None and before != name:
            del self._pods[before][event.uid]
            if not self._pods[before]:
                self.jobs[before] = entry.first
            if name is None:
                del self._records[event.uid]

    def nearest(self, name: str) -> list[str]:
        """Labels of jobs whose name is similar to this one."""
        close = near_names(name, {known for _, known in self.jobs}, most=3)
        return [
            f"{namespace}/{known}" for desired in close for namespace, known in sorted(self.jobs) if known == desired
        ]
