"""Find the segment of a log that concerns one job: up to the job's last event, or to the end of the log if the job
hasn't ended.

The segment begins where the oldest job that existed at this job's creation was first seen, but at most `BACK` events
before the creation. So it has the decisions that gave other jobs the nodes. The export keeps all events of the segment:
everything in the cluster competes for the same nodes, and a cycle can be repeated only on the whole state. A snapshot
of the state before the segment is exported with it.
"""

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.job import Stage
from arranger.projections.jobs.records import record_name, record_uid
from arranger.replay.reading.describe import ABOUT_A_JOB

#: The maximum number of events that are kept before the job was first seen.
BACK = 100_000


class Concerning:
    """Finds the segment of the log that concerns a job by name. It needs the whole log."""

    def __init__(self, name: str, namespace: str | None) -> None:
        self._name = name
        self._namespace = namespace
        #: UID → (namespace, first offset, last offset) of the job's segment, oldest first.
        self.found: dict[str, tuple[str, int, int]] = {}
        #: UIDs of jobs that ended or were deleted: nothing competes with them any more.
        self._over: dict[str, None] = {}
        self._pods: dict[str, str] = {}
        #: UID of a pod that has a record, alone or with its group → that record's; and the pods of each.
        self._records: dict[str, str] = {}
        self._members: dict[str, dict[str, None]] = {}
        #: UID of an existing job → the first offset of the entry in which the job was first seen.
        self._there: dict[str, int] = {}

    def feed(self, entry: Entry) -> None:
        for event in entry.batch.events:
            if type(event) is k.JobSeen:
                self._see(entry, event.uid, event.namespace, event.name)
            elif k.seen_or_gone(event, k.PodSeen):
                self._see_pod(entry, event)
            elif k.is_gone(event, k.Watched.JOB):
                self._there.pop(event.uid, None)
            uid = self._job_uid(event)
            if uid in self.found:
                self._reaches(uid, entry)
                ended = isinstance(event, k.StageDecided) and event.stage in (Stage.SUCCEEDED, Stage.FAILED)
                if ended or k.is_gone(event, k.Watched.JOB):
                    self._over[uid] = None
        for uid in self.found:
            if uid not in self._over:
                self._reaches(uid, entry)

    def _see(self, entry: Entry, uid: str, namespace: str, name: str) -> None:
        """A job exists, or the record of a pod that no TYJob owns."""
        self._there.setdefault(uid, entry.first)
        if name == self._name and self._namespace in (None, namespace):
            first = max(min(self._there.values()), entry.first - BACK)
            self.found.setdefault(uid, (namespace, first, entry.last))

    def _see_pod(self, entry: Entry, event: k.PodSeen | k.ObjectGone) -> None:
        """Note the record of a pod, or its end with the last of its pods."""
        before, uid = self._records.get(event.uid, ""), ""
        if isinstance(event, k.PodSeen) and (uid := record_uid(event)):
            self._see(entry, uid, event.namespace, record_name(event))
            self._records[event.uid] = uid
            self._members.setdefault(uid, {})[event.uid] = None
            self._over.pop(uid, None)
        if not before or before == uid:
            return
        if not uid:
            del self._records[event.uid]
        del self._members[before][event.uid]
        if not self._members[before]:
            self._there.pop(before, None)
            if before in self.found:
                self._reaches(before, entry)
                self._over[before] = None

    def _reaches(self, uid: str, entry: Entry) -> None:
        namespace, first, _ = self.found[uid]
        self.found[uid] = (namespace, first, entry.last)

    def _job_uid(self, event: k.Event) -> str:
        """The UID of the job that an event is about; empty if there is none."""
        if type(event) is k.PodSeen:
            uid = event.owner.job_uid if event.owner is not None else ""
            uid = record_uid(event) or uid
            if uid in self.found:
                self._pods[event.uid] = uid
            return uid
        if k.is_gone(event, k.Watched.POD):
            return self._pods.get(event.uid, "")
        if k.seen_or_gone(event, k.JobSeen):
            return event.uid
        return event.job_uid if isinstance(event, ABOUT_A_JOB) else ""
