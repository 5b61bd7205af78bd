"""Find the jobs of one name in the log. A user who gives a name means the newest job of that name."""

import msgspec

from arranger.errors import UsageError
from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.projections.state import State


class FirstSeen(msgspec.Struct, frozen=True):
    """A job as it was first seen. `came` is the offset of that event, 0 if the job existed before the first entry.
    `went` is the first offset of the entry that records its deletion, 0 while it exists."""

    seen: k.JobSeen
    came: int
    went: int = 0


class JobsByName:
    """Collects the jobs of a name, `name` or `namespace/name`, without folding the entries. Jobs that were created
    under the name one after another are different jobs."""

    def __init__(self, asked: str, state: State) -> None:
        self._namespace, _, self._name = asked.rpartition("/")
        #: All jobs of that name by UID, the newest last.
        self.jobs: dict[str, FirstSeen] = {}
        for job in sorted(state.jobs.values(), key=lambda job: (not job.seen.deleting, job.seen.created_ms, job.uid)):
            self._note(job.seen, 0)

    def feed(self, entry: Entry) -> None:
        """Read one entry. Raises `UsageError` if two namespaces have a job of that name."""
        for offset, event in enumerate(entry.batch.events, start=entry.first):
            if type(event) is k.JobSeen:
                self._note(event, offset)
            elif k.is_gone(event, k.Watched.JOB) and event.uid in self.jobs:
                self.jobs[event.uid] = msgspec.structs.replace(self.jobs[event.uid], went=entry.first)

    def _note(self, seen: k.JobSeen, offset: int) -> None:
        if seen.name != self._name or self._namespace not in ("", seen.namespace) or seen.uid in self.jobs:
            return
        self.jobs[seen.uid] = FirstSeen(seen, offset)
        namespaces = sorted({job.seen.namespace for job in self.jobs.values()})
        if len(namespaces) > 1:
            labels = ", ".join(f"{namespace}/{self._name}" for namespace in namespaces)
            raise UsageError(f"there are several jobs {self._name!r}: {labels}", hint="use NAMESPACE/NAME")
