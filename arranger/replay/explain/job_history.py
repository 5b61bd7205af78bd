"""The reading pass behind `explain`. It folds every entry once; meanwhile it finds the jobs of a name, records their
events, and repeats the cycles that placed them.

A cycle's base is a little before its record in the log. So entries wait in a window before they are folded, and the
pass knows of a record early enough to repeat the cycle at its base.
"""

from collections import deque
from collections.abc import Callable

import msgspec

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.model.pod import TERMINAL
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord, expand, pods_of_record, record_name, record_uid
from arranger.projections.state import Changes, State
from arranger.replay.explain.cluster_context import ClusterContext, Placement
from arranger.replay.explain.job_index import ended_in
from arranger.replay.explain.placement_explanations import MOST, PlacementExplanation, explanations_of
from arranger.replay.explain.story import Deletion, Story
from arranger.replay.explain.turns import Order, order_of
from arranger.replay.reading.describe import label, placed_in, victims_of
from arranger.replay.reading.history import advance
from arranger.replay.reading.verdicts import ACCEPTED, VOID, Judged, fold_noting
from arranger.replay.what_if.hypothesis import private_copy
from arranger.scheduling import BUILT_IN, Policies

#: The number of events that wait in the window. Cycles with an older base aren't explained.
WINDOW = 20_000


#: No job has this name: it stands for all of them.
EVERY_JOB = "*"


class AskedJob(msgspec.Struct, frozen=True):
    """The question about the job of this name, or about `EVERY_JOB`. `namespace` None means any. The placement of `pod`
    is explained, or if it is empty, those of all pods in the present attempt. `node` is compared with the chosen
    nodes."""

    name: str
    namespace: str | None = None
    pod: str = ""
    node: str = ""


class Retaken(msgspec.Struct):
    """The repeated placements of one job in one attempt. `out_of_reach` counts those whose base wasn't read, and
    `other_versions` those by policy versions that aren't installed."""

    placement_explanations: list[PlacementExplanation] = msgspec.field(default_factory=list)
    out_of_reach: int = 0
    other_versions: int = 0


#: The offset of a cycle's record, and the record.
_Cycle = tuple[int, k.CycleTaken]


class JobHistories:
    """Folds entries, delayed by the window, and keeps the stories of all jobs of one name. Call `finish` at the end.

    `config` has the settings of the last cycle up to the state, or None before the first one. `leaving` is called just
    before the fold of an entry that deletes such a job, with the job's story up to then, as of the time of the entry,
    and the deletion, and `folded` after the fold of each entry.
    """

    def __init__(
        self,
        state: State,
        asked: AskedJob,
        config: CycleConfig | None,
        *,
        policies: Policies = BUILT_IN,
        leaving: Callable[[Story, Deletion], object] | None = None,
        folded: Callable[[], object] | None = None,
    ) -> None:
        self.state = state
        self.around = ClusterContext(config)
        self.stories: dict[str, Story] = {}
        self._asked = asked
        self._policies = policies
        self._leaving = leaving
        self._folded = folded
        #: The offset before the first entry that is read.
        self.began = state.offset
        #: The time at which reading began; 0 before the first entry.
        self._began_ms = state.time_ms
        self._pods: dict[str, str] = {}
        #: UID of a pod that has a record, alone or with its group → that record's.
        self._records = {uid: of for uid, pod in state.pods.items() if (of := record_uid(pod))}
        self._waiting: deque[Entry] = deque()
        self._held = 0
        #: The time of the last event, while the state has another one.
        self._last_ms: int | None = None
        #: First offsets of entries that delete a job of the name.
        self._partings: dict[int, None] = {}
        #: Base of a cycle → later placements of these jobs by that cycle, as arguments of `_placement`.
        self._expected: dict[int, list[tuple[int, k.Placed, _Cycle, int]]] = {}
        self._taken: dict[int, list[PlacementExplanation] | None] = {}
        #: Base of a cycle → later cycles that placed these jobs; offset of such a cycle → its order.
        self._placing: dict[int, list[tuple[_Cycle, list[str]]]] = {}
        self._orders: dict[int, Order] = {}
        self._retaken: dict[tuple[str, int], Retaken] = {}
        #: The offsets of `keep`, and copies of the states there that were reached.
        self._keep: dict[int, None] = {}
        self._kept: dict[int, State] = {}
        for job in list(state.jobs.values()):
            if self._named(job.seen.namespace, job.seen.name):
                self._begin(job.uid)

    # --- results -------------------------------------------------------------------------------------------

    def retaken(self, uid: str, attempt: int | None = None) -> Retaken:
        """The repeated placements of a job in one attempt, or in all."""
        found = [of for (job, n), of in self._retaken.items() if job == uid and attempt in (None, n)]
        return Retaken(
            [explanation for of in found for explanation in of.placement_explanations],
            sum(of.out_of_reach for of in found),
            sum(of.other_versions for of in found),
        )

    @property
    def out_of_reach(self) -> int:
        """How many placements of these jobs were decided on states that this pass didn't come by."""
        return sum(of.out_of_reach for of in self._retaken.values())

    # --- reading -------------------------------------------------------------------------------------------

    def feed(self, entry: Entry) -> None:
        """Add one entry to the window and fold the oldest ones. Raises `DamagedEntry`."""
        self._resume()
        self._began_ms = self._began_ms or entry.batch.time_ms
        self._look_ahead(entry)
        self._waiting.append(entry)
        self._held += len(entry.batch.events)
        while self._held > WINDOW:
            self._fold_next()

    def keep(self, offset: int) -> None:
        """Keep a copy of the state at this offset, if that isn't behind it yet."""
        self._keep[offset] = None

    def kept(self, offset: int, time_ms: int) -> State | None:
        """The copy of the state at this offset, with another time; None if it wasn't kept. Those before it go."""
        for other in [of for of in self._keep if of < offset]:
            del self._keep[other]
            self._kept.pop(other, None)
        state = self._kept.get(offset)
        if state is not None:
            state.time_ms = time_ms
        return state

    def finish(self, as_of_ms: Callable[[int], int] = lambda last_ms: last_ms) -> None:
        """The end of what is read so far. `as_of_ms` gives for the time of its last event that up to which is counted:
        it is the state's time until entries are fed again, or `finish` is called again."""
        self._resume()
        while self._waiting:
            self._fold_next()
        self._last_ms = self.state.time_ms
        self.state.time_ms = as_of_ms(self._last_ms)
        for story in self.stories.values():
            story.finish()

    def _resume(self) -> None:
        """Give the state the time of its last event again."""
        if self._last_ms is not None:
            self.state.time_ms, self._last_ms = self._last_ms, None

    def _look_ahead(self, entry: Entry) -> None:
        cycle: _Cycle | None = None
        uids: list[str] = []
        for offset, event in enumerate(entry.batch.events, start=entry.first):
            if isinstance(event, k.CycleTaken):
                cycle, uids = (offset, event), []
            elif (placed := placed_in(event)) is not None:
                if cycle is not None and not uids:
                    self._placing.setdefault(cycle[1].base, []).append((cycle, uids))
                uids.append(placed.job_uid)
                if cycle is not None and placed.job_uid in self.stories:
                    expected = (offset, placed, cycle, entry.batch.time_ms)
                    self._expected.setdefault(cycle[1].base, []).append(expected)
            elif isinstance(event, k.JobSeen):
                if self._named(event.namespace, event.name) and event.uid not in self.stories:
                    self._begin(event.uid)
            elif k.is_gone(event, k.Watched.JOB) and event.uid in self.stories:
                self._partings[entry.first] = None
            elif k.seen_or_gone(event, k.PodSeen):
                self._look_at_pod(entry, event)

    def _look_at_pod(self, entry: Entry, event: k.PodSeen | k.ObjectGone) -> None:
        """The same for a pod that has a record of its own."""
        before, uid = self._records.pop(event.uid, ""), record_uid(event) if isinstance(event, k.PodSeen) else ""
        if isinstance(event, k.PodSeen) and uid:
            self._records[event.uid] = uid
            if uid not in self.stories and self._named(event.namespace, record_name(event)):
                self._begin(uid)
        if before and before != uid:
            self._partings[entry.first] = None

    def _fold_next(self) -> None:
        self._take_cycles()
        if self.state.offset in self._keep and self.state.offset not in self._kept:
            self._kept[self.state.offset] = private_copy(self.state)
        entry = self._waiting.popleft()
        self._take_leave(entry)
        self._held -= len(entry.batch.events)
        changes, reserved = Changes(), tuple(self.state.reservations)
        numbers = self._concerning(entry)
        if numbers:
            self._note(fold_noting(self.state, entry, changes, numbers), entry)
        else:
            advance(self.state, entry, changes)
        others = tuple(self.state.reservations) != reserved
        for uid, story in self.stories.items():
            if uid in changes.jobs or (others and story.meets_reserved):
                story.keep_interval(entry)
        if self._folded is not None:
            self._folded()

    def _take_leave(self, entry: Entry) -> None:
        if self._leaving is None or entry.first not in self._partings:
            return
        before_ms = self.state.time_ms
        self.state.time_ms = entry.batch.time_ms  # up to which the job's last state lasted
        for offset, event in enumerate(entry.batch.events, start=entry.first):
            uid = self._leaves(event)
            if uid in self.stories and uid in self.state.jobs:
                self.stories[uid].finish()
                self._leaving(self.stories[uid], Deletion(offset, entry.batch.time_ms, ended_in(event)))
        self.state.time_ms = before_ms

    def _leaves(self, event: k.Event) -> str:
        """The UID of the job, or of the record of a pod or a group, that is gone after an event; empty if none is."""
        if k.is_gone(event, k.Watched.JOB):
            return event.uid
        pod = self.state.pods.get(event.uid) if k.seen_or_gone(event, k.PodSeen) else None
        before = record_uid(pod) if pod is not None else ""
        if isinstance(event, k.PodSeen) and record_uid(event) == before:
            return ""
        job = self.state.jobs.get(before)
        return before if job is not None and _has_no_other(job) else ""

    def _concerning(self, entry: Entry) -> list[int]:
        """The numbers of the events that concern a story or the cluster context. Foreign pods are recorded here."""
        numbers = []
        stories, pods, came = self.stories, self._pods, self.around.came
        for number, event in enumerate(entry.batch.events):
            if isinstance(event, k.PodSeen):
                owner = event.owner
                if owner is None:
                    uid = record_uid(event) or pods.get(event.uid, "")
                    if uid in stories:
                        pods[event.uid] = uid
                        numbers.append(number)
                    if event.node and event.uid not in came and event.uid not in self.state.pods:
                        self.around.pod_came(entry.first + number, entry.batch.time_ms, event)
                    continue
                if event.phase in TERMINAL:
                    self.around.pod_ended(entry.first + number, self.state, event)
                if owner.job_uid in stories:
                    pods[event.uid] = owner.job_uid
                    numbers.append(number)
                    if event.deleting:
                        stories[owner.job_uid].pod_histories.leaves(event.uid, self.state)
            elif k.is_gone(event, k.Watched.POD):
                if event.uid in pods:
                    numbers.append(number)
                    stories[pods[event.uid]].pod_histories.leaves(event.uid, self.state)
                self.around.pod_gone(entry.first + number, self.state, event)
            elif self._other_concerns(entry, number, event):
                numbers.append(number)
        return numbers

    def _other_concerns(self, entry: Entry, number: int, event: k.Event) -> bool:
        """The same for events that aren't about pods. Nodes, queues, namespaces and jobs are recorded here."""
        offset, time_ms = entry.first + number, entry.batch.time_ms
        if k.seen_or_gone(event, k.NodeSeen):
            self.around.node(offset, time_ms, self.state, event)
            return False
        if k.seen_or_gone(event, k.QueueSeen):
            self.around.queue(offset, time_ms, self.state, event)
            return False
        if k.seen_or_gone(event, k.NamespaceSeen):
            self.around.namespace(offset, time_ms, self.state, event)
            return False
        if isinstance(event, k.JobSeen):
            self.around.job(offset, time_ms, self.state, event)
            return event.uid in self.stories
        if isinstance(event, (k.CycleTaken, k.Placed, k.Preempted)) or k.is_gone(event, k.Watched.JOB):
            return True
        return getattr(event, "job_uid", "") in self.stories

    def _note(self, found: list[Judged], entry: Entry) -> None:
        cycle: _Cycle | None = None
        time_ms = entry.batch.time_ms
        for judged in found:
            event = judged.event
            if isinstance(event, k.CycleTaken):
                cycle = judged.offset, event
                if judged.verdict == ACCEPTED:
                    self.around.cycle(judged.offset, time_ms, event.config)
                continue
            if (placed := placed_in(event)) is not None and cycle is not None:
                self._note_placed(judged, placed, cycle, time_ms)
            elif k.is_gone(event, k.Watched.JOB) and judged.verdict != VOID:
                self._note_gone(judged.offset, event)
            for uid in (judged.job_uid, *victims_of(event)):
                story = self.stories.get(uid)
                if story is not None:
                    story.note(judged, time_ms)
        if cycle is not None:
            self._orders.pop(cycle[0], None)

    def _note_gone(self, offset: int, event: k.ObjectGone) -> None:
        self.around.gone[event.uid] = offset
        if not self.stories:
            self.around.forget(event.uid)

    def _note_placed(self, judged: Judged, event: k.Placed, cycle: _Cycle, time_ms: int) -> None:
        placement = self._placement(judged.offset, event, cycle, time_ms)
        taken = self._taken.pop(judged.offset, None)
        if judged.verdict != ACCEPTED or placement is None:
            return
        placement = msgspec.structs.replace(placement, took_room=isinstance(judged.event, k.Preempted))
        self.around.placements.setdefault(placement.job_uid, []).append(placement)
        story = self.stories.get(placement.job_uid)
        if story is None:
            return
        story.placements.append(placement)
        of_attempt = self._retaken.setdefault((story.uid, placement.attempt), Retaken())
        if taken is not None:
            of_attempt.placement_explanations += taken[: MOST - len(of_attempt.placement_explanations)]
        elif self._policies.missing(placement.taken.config):
            of_attempt.other_versions += 1
        else:
            of_attempt.out_of_reach += 1

    def _placement(self, offset: int, event: k.Placed, cycle: _Cycle, time_ms: int) -> Placement | None:
        job = self.state.jobs.get(event.job_uid)
        if job is None or job.spec is None:
            return None
        return Placement(
            offset,
            *cycle,
            time_ms=time_ms,
            job=label(job),
            job_uid=job.uid,
            attempt=event.attempt,
            spec=job.spec,
            pods=event.pods,
            failed_before=dict(job.slots.failed_before),
            names=dict(job.slots.names),
            order=self._orders.get(cycle[0]),
        )

    # --- repeated cycles -----------------------------------------------------------------------------------

    def _take_cycles(self) -> None:
        """Repeat the cycles that have the present state as their base and placed one of these jobs. Of those that
        placed any, note the order."""
        for (offset, taken), uids in self._placing.pop(self.state.offset, ()):
            self._orders[offset] = self._order(taken, uids)
        for expected in self._expected.pop(self.state.offset, ()):
            placement = self._placement(*expected)
            if placement is None or self._policies.missing(placement.taken.config):
                continue
            slot = self._slot_asked(placement)
            done = self._retaken.get((placement.job_uid, placement.attempt))
            if (self._asked.pod and slot is None) or (done is not None and len(done.placement_explanations) >= MOST):
                self._taken[placement.offset] = []
                continue
            self._taken[placement.offset] = explanations_of(
                self.state, placement, slot=slot, compare=self._asked.node, policies=self._policies
            )

    def _order(self, taken: k.CycleTaken, placed: list[str]) -> Order:
        """Where the jobs that a cycle placed and those that the stories are about stood in it; empty if none of those
        waited behind another one. Those of other queues don't count: between queues, shares decide, and to know them,
        all waiting jobs would be looked at for each cycle of a long log."""
        jobs = self.state.jobs
        waiting = {uid: queue_of(self.state, jobs[uid]) for uid in self.stories if self._waits(uid)}
        queues = dict.fromkeys(waiting.values())
        asked = [uid for uid in placed if uid in jobs and queue_of(self.state, jobs[uid]) in queues]
        if not any(uid != other for uid in asked for other in waiting):
            return {}
        return order_of(self.state, taken, dict.fromkeys((*waiting, *asked)), self._policies)

    def _waits(self, uid: str) -> bool:
        job = self.state.jobs.get(uid)
        return job is not None and job.active and len(job.placements) < job.pods_desired()

    def _slot_asked(self, placement: Placement) -> SlotKey | None:
        """The slot of the requested pod, if this decision placed it."""
        groups = placement.spec.groups
        for group, index in expand(placement.pods) if self._asked.pod else ():
            if group < len(groups) and placement.pod_name((group, index)) == self._asked.pod:
                return group, index
        return None

    # --- parts ---------------------------------------------------------------------------------------------

    def _named(self, namespace: str, name: str) -> bool:
        return self._asked.name in (name, EVERY_JOB) and self._asked.namespace in (None, namespace)

    def _begin(self, uid: str) -> None:
        """Begin a story with what the first state knows of its job."""
        story = self.stories[uid] = Story(self.state, uid, self.around, began=self.began, log_ms=self._began_ms)
        for pod in self.state.pods_of.get(uid, {}).values():
            self._pods[pod.uid] = uid
        job = self.state.jobs.get(uid)
        if job is not None:
            self._pods.update(dict.fromkeys(pods_of_record(job), uid))
            story.pod_histories.begin(job, self.state)


def _has_no_other(job: JobRecord) -> bool:
    """Whether the record of a pod, or of a group of pods, is of one pod alone that hasn't ended."""
    return len(job.slots.members) - len(job.slots.finished) <= 1
