"""Which waiting jobs wait for something else because closed nodes have got room, or have none any more.

The causes of a job are those of its recorded reason, but closed nodes count among others only while they have room for
its next pod (`causes`). That changes with what others hold, which is no change of the job. So the rows of these nodes
are watched, once for all jobs with equal pods. Of an event, only the rows that it changed are looked at; where no node
is closed, nothing is.
"""

from itertools import chain

import msgspec
import numpy as np

from arranger.model.pod import PodShape
from arranger.projections.state import State
from arranger.replay.explain.full_nodes import closed_rows, holds_some, lacking

#: The UID of a job that holds room itself, else empty; and its next pod.
_Key = tuple[str, PodShape]


class _Watched(msgspec.Struct):
    """Row → whether others leave too little there for such a pod, and for whom that matters (UIDs)."""

    lacks: dict[int, bool]
    uids: dict[str, None]


class WatchedRoom:
    """The room on closed nodes on which causes of waiting jobs depend. `changed` is called after every fold."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._watched: dict[_Key, _Watched] = {}
        #: UID → what is watched for that job.
        self._keys: dict[str, _Key] = {}
        self._changes = state.nodes.changes
        self._facts = state.nodes.facts_version

    def watch(self, uid: str, shape: PodShape | None) -> None:
        """From now on, the causes of a job depend on the room for such pods; None: on none."""
        known = self._keys.pop(uid, None)
        if known is not None:
            del self._watched[known].uids[uid]
            if not self._watched[known].uids:
                del self._watched[known]
        if shape is None:
            return
        key = self._keys[uid] = (uid if holds_some(self._state, self._state.jobs[uid]) else "", shape)
        if key not in self._watched:
            rows = closed_rows(self._state.nodes, shape).tolist()
            self._watched[key] = _Watched(self._lacks(key, rows), {})
        self._watched[key].uids[uid] = None

    def changed(self) -> list[str]:
        """The jobs (UIDs) whose causes may have changed since the last call. They are to be looked at again."""
        nodes, rows = self._state.nodes, None
        if self._watched and nodes.facts_version is self._facts:
            rows = nodes.changed_since(self._changes)
        self._changes, self._facts = nodes.changes, nodes.facts_version
        if rows is None:
            found = [*self._keys]
            self._keys.clear()
            self._watched.clear()  # other nodes may be closed
            return found
        changed = [watched.uids for key, watched in self._watched.items() if self._update(key, watched, rows)]
        return [*chain.from_iterable(changed)]

    def _update(self, key: _Key, watched: _Watched, rows: list[int]) -> bool:
        """Whether these rows, which have changed, have changed what is watched."""
        ours = [row for row in dict.fromkeys(rows) if row in watched.lacks]
        now = self._lacks(key, ours) if ours else {}
        changed = any(watched.lacks[row] != lacks for row, lacks in now.items())
        watched.lacks.update(now)
        return changed

    def _lacks(self, key: _Key, rows: list[int]) -> dict[int, bool]:
        uid, shape = key
        job = self._state.jobs.get(uid) if uid else None
        found = lacking(self._state, job, shape, np.array(rows, np.int64))
        return dict(zip(rows, found.tolist(), strict=True))
