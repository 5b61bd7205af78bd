"""The jobs of a name, found in the log: people ask by a name, and mean the newest."""

import msgspec

from arranger.errors import UsageError
from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.projections.state import State


class FirstSeen(msgspec.Struct, frozen=True):
    """A job as it was first seen, the offset of that, 0 where it was there already, and the first offset of the entry
    in which it was gone, 0 while it is there."""

    seen: k.JobSeen
    came: int
    went: int = 0


class JobsByName:
    """Reads on, folding nothing, and keeps the jobs of a name, `name` or `namespace/name`. Each is a job of its own:
    who asks by the name means the newest."""

    def __init__(self, asked: str, state: State) -> None:
        self._namespace, _, self._name = asked.rpartition("/")
        #: All jobs of that name by UID, the newest last.
        self.jobs: dict[str, FirstSeen] = {}
        for job in sorted(state.jobs.values(), key=lambda job: (not job.seen.deleting, job.seen.created_ms, job.uid)):
            self._note(job.seen, 0)

    def feed(self, entry: Entry) -> None:
        """Take in one entry. Raises `UsageError` when two namespaces have a job of that name."""
        for offset, event in enumerate(entry.batch.events, start=entry.first):
            if type(event) is k.JobSeen:
                self._note(event, offset)
            elif type(event) is k.JobGone and event.uid in self.jobs:
                self.jobs[event.uid] = msgspec.structs.replace(self.jobs[event.uid], went=entry.first)

    def _note(self, seen: k.JobSeen, offset: int) -> None:
        if seen.name != self._name or self._namespace not in ("", seen.namespace) or seen.uid in self.jobs:
            return
        self.jobs[seen.uid] = FirstSeen(seen, offset)
        namespaces = sorted({job.seen.namespace for job in self.jobs.values()})
        if len(namespaces) > 1:
            labels = ", ".join(f"{namespace}/{self._name}" for namespace in namespaces)
            raise UsageError(f"there are several jobs {self._name!r}: {labels}", hint="say which as NAMESPACE/NAME")
