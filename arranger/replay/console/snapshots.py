"""States of earlier points, kept in memory, so that any point of the log is a short fold away.

A snapshot shares with its predecessor what didn't change between the two: jobs, their pods, and what is known of nodes.
Its table of all pods is the difference to a whole one, which several snapshots share. The number of snapshots and an
estimate of their memory are bounded: when there would be too many, every second one is forgotten, and the next ones are
twice as far apart.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from arranger.events.kinds import PodSeen
from arranger.events.log import Position
from arranger.projections.state import State
from arranger.replay.what_if.hypothesis import copy_of

MOST = 500
#: How much memory they may use, in bytes, as estimated.
MOST_BYTES = 1 << 30
_FIRST_GAP = 250
#: Estimates in bytes: a pod costs its place in a table, a node its use, and a job a record.
_OF_A_POD, _OF_A_NODE, _OF_A_JOB = 110, 80, 3_000
#: A new whole table of pods is made for a snapshot that differs from the last one in more than this part.
_DIFFERENT = 8


@dataclass(slots=True)
class KeptState:
    """A state that nobody may change, its position, and its memory beside shared parts, in bytes.

    The state's own table of pods is empty. `pods` is a whole table, and `changed` has the pods that are others here, or
    None for those that aren't there. `touched` are the jobs that may change until the next snapshot.
    """

    position: Position
    state: State
    cost_bytes: int
    pods: dict[str, PodSeen]
    changed: dict[str, PodSeen | None]
    touched: dict[str, None] = field(default_factory=dict)


class Snapshots:
    """Call `note` after each folded entry, with the jobs and pods that it touched."""

    def __init__(self, *, most: int = MOST, most_bytes: int = MOST_BYTES, gap: int = _FIRST_GAP) -> None:
        self._most, self._most_bytes = most, most_bytes
        #: The least number of events between two snapshots.
        self.gap = gap
        self._kept: list[KeptState] = []
        #: The pods that were touched since the last snapshot; None if any may have been.
        self._pods: dict[str, None] | None = {}

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def cost_bytes(self) -> int:
        """An estimate of what they use."""
        last, total = None, 0
        for one in self._kept:
            total += one.cost_bytes
            if one.pods is not last:
                total += _OF_A_POD * len(one.pods)
            last = one.pods
        return total

    def note(
        self, state: State, position: Position, touched: Mapping[str, None], pods: Mapping[str, None] | None
    ) -> None:
        """Keep a copy of the state if the last one is far enough behind. `pods` is None if any may have changed."""
        if not self._kept:
            self._keep(state, position, None)
            return
        last = self._kept[-1]
        last.touched.update(touched)
        if pods is None:
            self._pods = None
        elif self._pods is not None:
            self._pods.update(pods)
        if position.offset - last.position.offset < self.gap:
            return
        self._keep(state, position, last)
        if len(self._kept) > self._most or self.cost_bytes > self._most_bytes:
            self._thin()

    def _keep(self, state: State, position: Position, last: KeptState | None) -> None:
        same = last.state.jobs if last is not None else {}
        pods_same = last.state.pods_of if last is not None else {}
        touched = last.touched if last is not None else {}
        jobs = {uid: same[uid] if uid in same and uid not in touched else job.copy() for uid, job in state.jobs.items()}
        pods_of = {
            uid: pods_same[uid] if uid in pods_same and uid not in touched else dict(pods)
            for uid, pods in state.pods_of.items()
        }
        pods, changed = self._pods_of(state, last)
        copied = copy_of(state, {}, jobs, pods_of)
        if last is not None:
            copied.nodes.share(last.state.nodes)
        cost = _OF_A_POD * len(changed) + _OF_A_NODE * len(state.nodes.rows)
        cost += sum(_OF_A_JOB + _OF_A_POD * len(pods_of.get(uid, ())) for uid in touched)
        self._kept.append(KeptState(position, copied, cost, pods, changed))

    def _pods_of(self, state: State, last: KeptState | None) -> tuple[dict[str, PodSeen], dict[str, PodSeen | None]]:
        """A whole table, and how the state's differs from it."""
        since, self._pods = self._pods, {}
        if last is None or since is None:
            return dict(state.pods), {}
        changed = last.changed | {uid: state.pods.get(uid) for uid in since}
        return (last.pods, changed) if _DIFFERENT * len(changed) <= len(state.pods) else (dict(state.pods), {})

    def nearest(self, offset: int) -> KeptState | None:
        """The latest snapshot up to an offset."""
        number = bisect_right(self._kept, offset, key=lambda one: one.position.offset)
        return self._kept[number - 1] if number else None

    def until(self, kept: KeptState) -> int | None:
        """The offset of the next snapshot, up to which the copy that `continuing` makes may be folded on; None if this
        is the last one, whose copy may be folded up to the last entry that was noted."""
        number = bisect_right(self._kept, kept.position.offset, key=lambda one: one.position.offset)
        return self._kept[number].position.offset if number < len(self._kept) else None

    def _thin(self) -> None:
        # The first one stays: nothing before it could be reached otherwise.
        for one, forgotten in zip(self._kept[::2], self._kept[1::2], strict=False):
            one.touched |= forgotten.touched
        self._kept = self._kept[::2]
        self.gap *= 2


def continuing(kept: KeptState, *, whole: bool = False) -> State:
    """A copy of a snapshot that can be folded on. Unless it is a `whole` one, it shares the jobs that nothing touches
    until the next snapshot, and can be folded on up to there."""
    pods, state = dict(kept.pods), kept.state
    touched = state.jobs if whole else kept.touched
    for uid, pod in kept.changed.items():
        if pod is None:
            pods.pop(uid, None)
        else:
            pods[uid] = pod
    jobs = {uid: job.copy() if uid in touched else job for uid, job in state.jobs.items()}
    pods_of = {uid: dict(of) if whole or uid in touched else of for uid, of in state.pods_of.items()}
    return copy_of(state, pods, jobs, pods_of)
