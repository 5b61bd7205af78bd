"""For what the jobs of a log waited: every millisecond of every job, alone and times the GPUs of its quorum.

The parts sum exactly to the whole. GPUs count while the nodes that are there could hold the quorum if nothing else ran:
what no cluster of them could give, nobody could have used. A job waits from its creation, or from when it is scheduled
again, until it starts; not while it is suspended. Its causes are those that the log recorded (`causes`). Where room is
held by others, the time is shared out among those who hold some on nodes that are open to the job's next pod, by all
that they held meanwhile of what it lacks, moment by moment, pods that leave included. A guest in room that is reserved
for the job isn't among them: it leaves as soon as the job can start, and the time until its pods have left is a cause
of its own. So is that of pods of the job itself that fill no slot any more. At moments at which nobody of them holds
any, it waits for a cycle to see that. Where free room is kept for others, equally among those.
"""

from collections.abc import Sequence

import msgspec

from arranger.events.facts import nodes_lack
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.model.job import JobSpec
from arranger.model.pod import gpus_of
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.derived.queue_membership import submitter_of
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes, State
from arranger.replay.explain.awaited import began_ms
from arranger.replay.ledger.accounts import WHOLE, Account, Reading, shared_out
from arranger.replay.ledger.causes import Cause, Weights, causes_of, pod_for_closed
from arranger.replay.ledger.holdings import Counting, Holder, Holdings
from arranger.replay.ledger.lacked import lacked, next_shape
from arranger.replay.ledger.watched_room import WatchedRoom
from arranger.replay.reading.describe import label
from arranger.replay.reading.gpus import gpus_there
from arranger.replay.reading.history import Span, advance, config_in
from arranger.scheduling import BUILT_IN, Policies

_DAY_MS = 86_400_000


class Waiter(msgspec.Struct, frozen=True):
    """Whose time it is: a job with its queue, user and namespace, and the day (days since 1970, UTC)."""

    job: str
    queue: str
    user: str
    namespace: str
    day: int


class WaitPart(msgspec.Struct, frozen=True):
    """A part of the whole: the time of a waiter for a cause, who held the room, or for whom it is kept (empty
    for other causes)."""

    waiter: Waiter
    cause: Cause
    holder: Holder | None
    wait_ms: int
    gpu_ms: int


class _Open(msgspec.Struct):
    """A job that waits since `began_ms`, and since `since_ms` for these causes. `kept_for` are the jobs (UIDs) for
    which room is kept from it. For one that waits for room that others hold, `counting` is what counts of that, and
    `account` was as `reading` says at `since_ms`."""

    waiter: Waiter
    causes: Weights
    since_ms: int
    began_ms: int
    gpus: int
    not_before_ms: int
    kept_for: tuple[str, ...] = ()
    counting: Counting | None = None
    account: Account | None = None
    reading: Reading | None = None

    def same(self, other: "_Open") -> bool:
        """Whether time that begins with `other` would be counted as this one's is."""
        mine, others = ((of.causes, of.waiter, of.gpus, of.kept_for, of.counting) for of in (self, other))
        return mine == others


class WaitLedger:
    """Folds entries and accounts for the time within the span. `config` has the settings of the last cycle up to the
    state. Call `finish` at the end."""

    def __init__(self, state: State, span: Span, config: CycleConfig, policies: Policies = BUILT_IN) -> None:
        self.state = state
        #: The whole, counted without causes.
        self.wait_ms = self.gpu_ms = 0
        self.begin_ms = self.end_ms = 0
        self._span = span
        #: The time at which reading began; 0 before the first entry.
        self._log_ms = state.time_ms
        self._policies = policies
        self._config = config
        self._holdings = Holdings()
        self._rooms = WatchedRoom(state)
        self._open: dict[str, _Open] = {}
        self._parts: dict[tuple[Waiter, Cause, str], list[int]] = {}
        self._holdings.begin(state)
        for uid, job in state.jobs.items():
            self._look(uid, state.time_ms, job.times.stage_ms)

    def feed(self, entry: Entry) -> None:
        """Fold one entry. Raises `DamagedEntry`."""
        state, changes = self.state, Changes()
        self._log_ms = self._log_ms or entry.batch.time_ms
        reserved, there, facts = set(state.reservations), gpus_there(state.nodes), state.nodes.facts_version
        begins = not self.begin_ms and self._span.meets(entry)
        if begins and self._from_ms():  # jobs wait since then, though nothing happened
            self._begin_span()
        self._to_midnight(max(state.time_ms, entry.batch.time_ms))
        advance(state, entry, changes)
        self._config = config_in(entry, state) or self._config
        hosts = self._holdings.look(state, changes.jobs)
        changed = list(dict.fromkeys((*changes.jobs, *hosts)))
        if set(state.reservations) != reserved:  # a job's reason may stay, and another one gets the room
            changed += [uid for uid, waits in self._open.items() if waits.kept_for]
        changed += self._rooms.changed()
        if gpus_there(state.nodes) != there:
            changed += self._open
        elif state.nodes.facts_version is not facts:
            changed += self._lack_several()
        for uid in changed:  # also before the span: who waits, and since when
            self._look(uid, state.time_ms)
        if begins and not self.begin_ms:
            self._begin_span()

    def _lack_several(self) -> list[str]:
        """The jobs (UIDs) that lack several resources: which of them counts depends on which nodes are too small."""
        waiting = self._open.items()
        return [uid for uid, of in waiting if of.counting is not None and len(of.counting.resources) > 1]

    def _from_ms(self) -> int:
        """The time, not before the last event, from which the span counts in the present state; 0 if it doesn't begin
        with a time, or nothing was known then."""
        first = self._span.first
        if first is None or first.offset is not None or first.time_ms is None or not self.state.offset:
            return 0
        return max(first.time_ms, self.state.time_ms)

    def _begin_span(self) -> None:
        """Count from here. No job is looked at anew: for what it waits is told as it is without a window."""
        self.begin_ms = now_ms = self._from_ms() or self.state.time_ms
        for waits in list(self._open.values()):
            waits.since_ms = now_ms
            if waits.account is not None:
                waits.reading = waits.account.read(now_ms)
        self._parts.clear()
        self.wait_ms = self.gpu_ms = 0

    def _look(self, uid: str, now_ms: int, since_ms: int = 0) -> None:
        """Update a job that may have begun or stopped waiting, or waits for something else. `since_ms` is when it began
        to wait, if that was before."""
        job, known = self.state.jobs.get(uid), self._open.get(uid)
        waits = self._waits(job, now_ms) if job is not None else None
        shape = pod_for_closed(self.state, job) if job is not None and waits is not None else None
        self._rooms.watch(uid, shape)
        if known is not None and waits is not None and known.same(waits):
            return
        if known is not None:
            self._close(uid, now_ms)
        if job is not None and waits is not None:
            if known is not None:
                waits.began_ms = known.began_ms
            else:
                waits.began_ms = since_ms or self._count_unseen(job, waits.waiter, waits.gpus, now_ms)
            self._begin(uid, waits)

    def _waits(self, job: JobRecord, now_ms: int) -> _Open | None:
        """For what a job waits from now on; None if it doesn't."""
        causes = causes_of(self.state, job)
        if not causes:
            return None
        named, gpus = dict(causes), self._gpus(job, causes)
        waits = _Open(self._waiter(job, now_ms), causes, now_ms, now_ms, gpus, job.not_before_ms)
        if Cause.RESERVATION in named:
            waits.kept_for = self._kept_for(job)
        if Cause.ROOM in named:
            resources = lacked(self.state, job, of_gpus=bool(gpus))
            waits.counting = self._holdings.counting(job.uid, next_shape(job), resources)
        return waits

    def _count_unseen(self, job: JobRecord, waiter: Waiter, gpus: int, now_ms: int) -> int:
        """If a job that waits now was first seen now, count the time since its creation. Answers when it began."""
        if job.steps or job.times.stage_ms != now_ms:
            return now_ms
        since_ms = began_ms(job, now_ms, self._log_ms)
        span_ms = max(now_ms - max(since_ms, self.begin_ms), 0) if self.begin_ms else 0
        self.wait_ms += span_ms
        self.gpu_ms += span_ms * gpus
        self._put(waiter, Cause.SCHEDULER, "", (span_ms, span_ms * gpus))
        return since_ms

    def _kept_for(self, job: JobRecord) -> tuple[str, ...]:
        """The jobs (UIDs) for which the room is kept that this one would use."""
        state = self.state
        others = tuple(uid for uid in state.reservations if uid != job.uid and uid in state.jobs)
        short = nodes_lack(job.waits.shortage) if job.waits is not None else None
        named = short.kept_by if short is not None else ()
        found = tuple(uid for uid in others if uid in named) or others
        for uid in found:
            self._holdings.know(state, state.jobs[uid])
        return found

    def _waiter(self, job: JobRecord, now_ms: int) -> Waiter:
        day = now_ms // _DAY_MS
        return Waiter(label(job), queue_of(self.state, job), submitter_of(job), job.seen.namespace, day)

    def _gpus(self, job: JobRecord, causes: Weights) -> int:
        """The GPUs that the job's quorum could use: none if the nodes can't hold it, also before a cycle says so."""
        whole = self._policies.closest(self._config).pod_policy(job, self._config).whole
        gpus = quorum_gpus(job.valid_spec, whole=whole)
        return 0 if Cause.INFEASIBLE in dict(causes) or gpus > gpus_there(self.state.nodes) else gpus

    def _begin(self, uid: str, waits: _Open) -> None:
        if waits.counting is not None:
            waits.account = self._holdings.use(waits.counting, self.state, waits.since_ms)
            waits.reading = waits.account.read(waits.since_ms)
        self._open[uid] = waits

    def _to_midnight(self, time_ms: int) -> None:
        """Divide the time of all waiting jobs at each end of a day up to a time."""
        while self.begin_ms and (self.state.time_ms // _DAY_MS) < time_ms // _DAY_MS:
            days = {waits.waiter.day for waits in self._open.values()}
            if not days or min(days) >= time_ms // _DAY_MS:
                return
            day = min(days) + 1
            for uid, waits in list(self._open.items()):
                if waits.waiter.day < day:
                    self._close(uid, day * _DAY_MS)
                    again = msgspec.structs.replace(waits, since_ms=day * _DAY_MS)
                    again.waiter = msgspec.structs.replace(waits.waiter, day=day)
                    self._begin(uid, again)

    def finish(self, as_of_ms: int = 0) -> None:
        """Account for the jobs that still wait, up to a time, or to the last event if that is later."""
        self.end_ms = max(as_of_ms, self.state.time_ms)
        if not self.begin_ms and 0 < self._from_ms() <= self.end_ms:  # nothing has happened since
            self._begin_span()
        self._to_midnight(self.end_ms)
        for uid in list(self._open):
            self._close(uid, self.end_ms)

    # --- accounts ------------------------------------------------------------------------------------------

    def _close(self, uid: str, time_ms: int) -> None:
        waits = self._open.pop(uid)
        span_ms = time_ms - waits.since_ms
        self.wait_ms += span_ms
        self.gpu_ms += span_ms * waits.gpus
        over_ms = min(max(time_ms - max(waits.not_before_ms, waits.since_ms), 0), span_ms)
        if waits.causes == ((Cause.BACK_OFF, 1),) and over_ms:
            self._add(uid, waits, ((Cause.SCHEDULER, 1),), time_ms, over_ms)
            span_ms -= over_ms
        self._add(uid, waits, waits.causes, time_ms, span_ms)
        if waits.counting is not None:
            self._holdings.leave(waits.counting)

    def _add(self, uid: str, waits: _Open, causes: Weights, time_ms: int, span_ms: int) -> None:
        weights: dict[str, int] = dict(causes)
        times, gpu_times = shared_out(span_ms, weights), shared_out(span_ms * waits.gpus, weights)
        for cause, _ in causes:
            amounts = times.get(cause, 0), gpu_times.get(cause, 0)
            if cause == Cause.ROOM:
                self._add_room(uid, waits, time_ms, amounts)
            elif cause == Cause.RESERVATION and waits.kept_for:
                parts = [shared_out(amount, dict.fromkeys(waits.kept_for, 1)) for amount in amounts]
                for of in waits.kept_for:
                    self._put(waits.waiter, cause, of, (parts[0].get(of, 0), parts[1].get(of, 0)))
            else:
                self._put(waits.waiter, cause, "", amounts)

    def _add_room(self, uid: str, waits: _Open, time_ms: int, amounts: tuple[int, int]) -> None:
        """Share time out among those who held room meanwhile that counts for the job. What it held itself had pods of
        earlier attempts or slots. Where nobody held any, it waited for a cycle to see it."""
        held, idle_ms = dict[tuple[str, int], int](), 0
        if waits.account is not None and waits.reading is not None:
            held, idle_ms = waits.account.since(waits.reading, time_ms)
        weights: dict[tuple[Cause, str], int] = {}
        for (of, got_ms), amount in sorted(held.items()):
            key = (Cause.ORDER if got_ms > waits.began_ms else Cause.ROOM, of)
            if of == uid:
                key = (Cause.EARLIER_PODS, "")
            weights[key] = weights.get(key, 0) + amount
        if idle_ms or not weights:
            weights[Cause.SCHEDULER, ""] = idle_ms * WHOLE or 1
        times, gpu_times = (shared_out(amount, weights) for amount in amounts)
        for cause, of in weights:
            self._put(waits.waiter, cause, of, (times.get((cause, of), 0), gpu_times.get((cause, of), 0)))

    def _put(self, waiter: Waiter, cause: Cause, holder: str, amounts: tuple[int, int]) -> None:
        if any(amounts):
            part = self._parts.setdefault((waiter, cause, holder), [0, 0])
            part[0] += amounts[0]
            part[1] += amounts[1]

    @property
    def lines(self) -> list[WaitPart]:
        """All parts, in the order in which they began."""
        holders, found = self._holdings.holders, []
        for (waiter, cause, uid), (wait_ms, gpu_ms) in self._parts.items():
            holder = holders[uid] if uid or cause in (Cause.ROOM, Cause.ORDER) else None
            found.append(WaitPart(waiter, cause, holder, wait_ms, gpu_ms))
        return found


def quorum_gpus(spec: JobSpec, *, whole: bool) -> int:
    """The GPUs that a job's quorum requests; with `whole`, all of its pods are its quorum. Where several sets may
    provide a worker, the first ones do."""
    leader, *sets = spec.groups
    total, left = leader.count * gpus_of(leader.shape.requests), spec.min_workers
    least = [group.count if whole else group.least for group in sets]
    left -= sum(least)
    for group, needed in zip(sets, least, strict=True):
        more = max(min(group.count - needed, left), 0)
        left -= more
        total += (needed + more) * gpus_of(group.shape.requests)
    return total


# --- sums --------------------------------------------------------------------------------------------------


class Row(msgspec.Struct):
    """The time of a group of waiters for a cause, and who held the room, or for whom it is kept. `group` and
    `holder` are names. `gpu_ms` is 0 for the time in which the nodes couldn't hold the quorum."""

    group: str
    cause: Cause
    holder: str
    wait_ms: int = 0
    gpu_ms: int = 0


class WaitSums(msgspec.Struct):
    """Rows by a field of `Waiter` and of `Holder`, and the whole that they sum to, from `begin_ms` to `end_ms`. Rows by
    day have dates."""

    by: str
    held_by: str
    begin_ms: int
    end_ms: int
    wait_ms: int
    gpu_ms: int
    rows: Sequence[Row]


def rows_of(lines: list[WaitPart], by: str, held_by: str) -> list[Row]:
    """The lines added up by a field of `Waiter` and a field of `Holder`, the longest first within each group; groups
    with the most time first, days in order."""
    found: dict[tuple[str, Cause, str], Row] = {}
    totals: dict[str, tuple[int, int]] = {}
    for line in lines:
        group = str(getattr(line.waiter, by))
        holder = (
            (getattr(line.holder, held_by) or "(pods of no job, or of a deleted one)")
            if line.holder is not None
            else ""
        )
        row = found.setdefault((group, line.cause, holder), Row(group, line.cause, holder))
        row.wait_ms += line.wait_ms
        row.gpu_ms += line.gpu_ms
        gpu_ms, wait_ms = totals.get(group, (0, 0))
        totals[group] = (gpu_ms + line.gpu_ms, wait_ms + line.wait_ms)
    of_group = {group: (group,) if by == "day" else (-gpu, -wait, group) for group, (gpu, wait) in totals.items()}
    return sorted(found.values(), key=lambda row: (of_group[row.group], -row.gpu_ms, -row.wait_ms, row.holder))
