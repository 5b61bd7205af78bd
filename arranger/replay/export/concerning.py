"""What of a log concerns one job: the stretch up to its last word, or to the end of the log while it hasn't ended, with
what stood in its way when it came.

It begins where the oldest job was first seen that was there when this one came, so that the decisions are in it which
gave others the nodes; but at most `BACK` events before. All of the stretch is kept, not the job's events alone:
everything in the cluster competes for the same nodes, and a cycle can be taken again only on the whole state. The state
before the stretch comes as a snapshot with it.
"""

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.job import Stage
from arranger.replay.reading.describe import ABOUT_A_JOB

#: Events before a job's first sight that are kept at most.
BACK = 100_000


class Concerning:
    """Finds the stretch of the log that concerns a job by name: feed it the whole log."""

    def __init__(self, name: str, namespace: str | None) -> None:
        self._name = name
        self._namespace = namespace
        #: UID → namespace, and the first and last offsets of entries that concern it; oldest first.
        self.found: dict[str, tuple[str, int, int]] = {}
        #: UIDs of those that ended or went: nothing competes with them any more.
        self._over: dict[str, None] = {}
        self._pods: dict[str, str] = {}
        #: Jobs that are there → the first offset of the entry in which each was first seen.
        self._there: dict[str, int] = {}

    def feed(self, entry: Entry) -> None:
        for event in entry.batch.events:
            if type(event) is k.JobSeen:
                self._there.setdefault(event.uid, entry.first)
                if event.name == self._name and self._namespace in (None, event.namespace):
                    first = max(min(self._there.values()), entry.first - BACK)
                    self.found.setdefault(event.uid, (event.namespace, first, entry.last))
            elif type(event) is k.JobGone:
                self._there.pop(event.uid, None)
            uid = self._job_uid(event)
            if uid in self.found:
                self._reaches(uid, entry)
                gone = isinstance(event, k.JobGone)
                if gone or (isinstance(event, k.StageDecided) and event.stage in (Stage.SUCCEEDED, Stage.FAILED)):
                    self._over[uid] = None
        for uid in self.found:
            if uid not in self._over:
                self._reaches(uid, entry)

    def _reaches(self, uid: str, entry: Entry) -> None:
        namespace, first, _ = self.found[uid]
        self.found[uid] = (namespace, first, entry.last)

    def _job_uid(self, event: k.Event) -> str:
        """The UID of the job that an event is about, empty if none."""
        if type(event) is k.PodSeen:
            uid = event.owner.job_uid if event.owner is not None else ""
            if uid in self.found:
                self._pods[event.uid] = uid
            return uid
        if type(event) is k.PodGone:
            return self._pods.get(event.uid, "")
        if isinstance(event, (k.JobSeen, k.JobGone)):
            return event.uid
        return event.job_uid if isinstance(event, ABOUT_A_JOB) else ""
