"""The status of an Arranger: its processes, their shares of the jobs, the watches, and what each process has read.

The heartbeats of the processes are in Redis, and the jobs and watches are in the log. This module only reads.
`problems` reports what is missing and the next step. It uses no clock, so it is easy to test.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import redis.asyncio
from redis.exceptions import RedisError

from arranger.errors import DamagedEntry, EntriesTrimmed, ForgedEntry, LogUnavailable
from arranger.events.codec import decode_batch
from arranger.events.kinds import SETTING_OF, Batch, EpochBegun, Watched
from arranger.events.log import Position
from arranger.events.log_keys import Authenticity
from arranger.events.redis_log import RedisLog
from arranger.model.job import Stage
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.scheduling import queues_view
from arranger.workers.applying import applier
from arranger.workers.deciding import controller
from arranger.workers.members.membership import ROLES, Member, owner, read_lease, read_members
from arranger.workers.members.problems import MemberProblem, ProblemKind
from arranger.workers.members.writes import full

#: The roles whose members share the jobs among themselves.
SHARING = (controller.ROLE, applier.ROLE)

#: The consequence when a role has no live member.
_WITHOUT = {
    "watcher": "changes of the cluster are not recorded",
    "controller": "no job reaches its next stage",
    "scheduler": "no waiting job gets nodes",
    "applier": "no pod is created or deleted, and no status is written",
    "maintenance": "no snapshot is stored, and the log isn't trimmed",
}


class Share(msgspec.Struct, frozen=True, rename="camel"):
    """One member's share of the jobs in one role."""

    jobs: int
    percent: float


class MemberStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One live process. `lag_*` and `problems` are from its last heartbeat; `shares` are by role, `layout` is the
    latest snapshot layout that it reads."""

    id: str
    roles: tuple[str, ...]
    host: str
    pid: int
    started_ms: int
    heartbeat_age_s: float
    epoch: int
    offset: int
    lag_events: int
    lag_s: float
    shares: dict[str, Share]
    layout: int = 0
    problems: tuple[MemberProblem, ...] = ()


class WatchStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The watch of one kind of object. `held_ms` is the time of the holder's claim; it is None if the claim was trimmed
    or isn't in the log yet. `left_s` is the remaining time of its lease. `listed` is whether the kind was listed.

    `refused` is the HTTP status with which the API server refuses an optional kind, else 0.
    """

    kind: str
    holder: str | None
    held_ms: int | None
    left_s: float
    listed: bool
    refused: int = 0


class LogStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The log: Redis has its events `first` to `last`, and `time_ms` is the time of the last.

    `of_cluster` is the UID of the namespace kube-system of the log's Kubernetes cluster; empty if none is recorded yet.
    `after_epoch` is the epoch that this one replaced, and `because` the recorded reason; 0 and empty if this is the
    log's first epoch, or its first event was trimmed. `authenticity` is what this command knows of who wrote the log,
    and `forged` the offset of the first entry that isn't authentic, 0 if it found none: the status ends before it.
    So it does before the offset `unreadable`, whose entry is damaged or of another version; `why` tells how.
    """

    epoch: int
    first: int
    last: int
    events: int
    time_ms: int
    of_cluster: str = ""
    after_epoch: int = 0
    because: str = ""
    authenticity: Authenticity = Authenticity.NONE
    forged: int = 0
    unreadable: int = 0
    why: str = ""

    @property
    def ends_early(self) -> bool:
        """Whether there is an entry before which the status ends, so that what is missing may follow it."""
        return bool(self.forged or self.unreadable)


class EventMoment(msgspec.Struct, frozen=True, rename="camel"):
    """An offset and the time of its event; None if that event is no longer in the log."""

    offset: int
    time_ms: int | None


class StoreStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The state of the Redis server with the log: its memory in bytes (`max_bytes` 0: no bound), whether it is a
    replica, and whether it fails to save to its disk."""

    used_bytes: int = 0
    max_bytes: int = 0
    replica: bool = False
    disk_failing: bool = False

    @property
    def full(self) -> bool:
        """Whether writes are refused for lack of memory."""
        return full(self.used_bytes, self.max_bytes)


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The whole status at `now_ms`. `snapshot` is the end of the newest snapshot, `cycle` the last recorded cycle.
    `queues` counts the Queues by state, and `queue_problems` those with a problem by its kind. `jobs` are TYJobs, and
    `stages` counts them by stage; `pods_of_others` and `pod_groups` count those that Arranger only places."""

    cluster: str
    now_ms: int
    log: LogStatus
    snapshot: EventMoment | None
    cycle: EventMoment | None
    members: tuple[MemberStatus, ...]
    watches: tuple[WatchStatus, ...]
    jobs: int
    stages: dict[str, int]
    store: StoreStatus = StoreStatus()
    queues: dict[str, int] = {}
    pods_of_others: dict[str, int] = {}
    pod_groups: dict[str, int] = {}
    queue_problems: dict[str, int] = {}


class Problem(msgspec.Struct, frozen=True):
    """A problem, and the next step."""

    what: str
    next: str


async def read_status(
    log: RedisLog,
    client: redis.asyncio.Redis,
    *,
    cluster: str,
    state: State,
    snapshot: EventMoment | None,
    now_ms: int,
    damage: DamagedEntry | None = None,
) -> Status:
    """Read the status from Redis. `state` is the log's projection now, `snapshot` the one it was restored from, if any,
    and `damage` the entry before which the projection ends.

    Raises `LogUnavailable`, and `EpochLost` if a new epoch began meanwhile.
    """
    start = await log.start()
    members = await read_members(client, cluster)
    shares = shares_of(state.jobs, [member for member, _ in members.values()])
    watches = [
        await _watch(kind, log=log, client=client, cluster=cluster, state=state, start=start)
        for kind in Watched
        if (kind != Watched.PROVISIONING or kind in state.terms)  # watched once somebody asks for nodes
        and (kind not in SETTING_OF or state.watches(kind))
    ]
    last_cycle = state.last_cycle
    queues, queue_problems = _queues(state)
    return Status(
        cluster=cluster,
        now_ms=now_ms,
        log=await _log_status(log, start, state, damage),
        snapshot=snapshot,
        cycle=EventMoment(last_cycle, await _time_ms(log, start, last_cycle)) if last_cycle else None,
        members=tuple(_member(member, age_ms, shares) for member, age_ms in members.values()),
        watches=tuple(watches),
        jobs=sum(not job.of_pods for job in state.jobs.values()),
        stages=_by_stage(job for job in state.jobs.values() if not job.of_pods),
        store=await read_store(client),
        queues=queues,
        pods_of_others=_by_stage(job for job in state.jobs.values() if job.of_pods and not job.of_group),
        pod_groups=_by_stage(job for job in state.jobs.values() if job.of_group),
        queue_problems=queue_problems,
    )


def _queues(state: State) -> tuple[dict[str, int], dict[str, int]]:
    """How many Queues have each state, and each kind of problem."""
    queues = [of for of in queues_view(state).queues.values() if of.created]
    problems = Counter(str(of.problem.kind) for of in queues if of.problem is not None)
    return dict(sorted(Counter(of.state for of in queues).items())), dict(sorted(problems.items()))


def _by_stage(jobs: Iterable[JobRecord]) -> dict[str, int]:
    counts = Counter(job.stage for job in jobs)
    return {stage: counts[stage] for stage in Stage if counts[stage]}


async def _log_status(log: RedisLog, start: Position, state: State, damage: DamagedEntry | None) -> LogStatus:
    begun, at = await _begun(log, start), damage.offset if damage is not None else 0
    forged = isinstance(damage, ForgedEntry)
    return LogStatus(
        *(state.epoch or start.epoch, start.offset + 1, state.offset, state.offset - start.offset, state.time_ms),
        of_cluster=state.cluster,
        after_epoch=begun.previous if begun is not None else 0,
        because=begun.reason if begun is not None and begun.previous else "",
        authenticity=log.authenticity,
        forged=at if forged else 0,
        unreadable=0 if forged else at,
        why=damage.reason if damage is not None and not forged else "",
    )


async def read_store(client: redis.asyncio.Redis) -> StoreStatus:
    """Query the server. Raises `LogUnavailable`."""
    try:
        info: dict[str, Any] = {}
        for section in ("memory", "replication", "persistence"):
            info |= await client.info(section)
    except (RedisError, OSError) as problem:
        raise LogUnavailable(f"the state of Redis can't be read: {problem}") from problem
    return StoreStatus(
        used_bytes=int(info.get("used_memory", 0)),
        max_bytes=int(info.get("maxmemory", 0)),
        replica=info.get("role") == "slave",
        disk_failing="err" in (info.get("rdb_last_bgsave_status"), info.get("aof_last_write_status")),
    )


def shares_of(job_uids: Iterable[str], members: Sequence[Member]) -> dict[str, dict[str, int]]:
    """Role → member → the number of jobs in its share, computed as the members do."""
    found: dict[str, dict[str, int]] = {}
    uids = list(job_uids)
    for role in SHARING:
        of_role = [member.id for member in members if role in member.roles and not member.aside]
        counts = found[role] = dict.fromkeys(of_role, 0)
        for uid in uids:
            chosen = owner(uid, of_role)
            if chosen is not None:
                counts[chosen] += 1
    return found


def _member(member: Member, age_ms: int, shares: dict[str, dict[str, int]]) -> MemberStatus:
    # The id is host-pid-random, and a host's name may contain dashes.
    host, _, rest = member.id.rpartition("-")[0].rpartition("-")
    of_member: dict[str, Share] = {}
    for role, counts in shares.items():
        if member.id in counts:
            total = sum(counts.values())
            percent = round(100 * counts[member.id] / total, 1) if total else 0.0
            of_member[role] = Share(counts[member.id], percent)
    return MemberStatus(
        id=member.id,
        roles=member.roles,
        host=host or member.id,
        pid=int(rest) if rest.isdecimal() else 0,
        started_ms=member.started_ms,
        heartbeat_age_s=age_ms / 1000,
        epoch=member.epoch,
        offset=member.offset,
        lag_events=member.lag_events,
        lag_s=member.lag_ms / 1000,
        shares=of_member,
        layout=member.layout,
        problems=member.problems,
    )


async def _watch(
    kind: Watched, *, log: RedisLog, client: redis.asyncio.Redis, cluster: str, state: State, start: Position
) -> WatchStatus:
    held = await read_lease(client, cluster, f"watch-{kind}")
    term = state.terms.get(kind, 0)
    listed = state.listed.get(kind, False)
    claimed_ms = await _time_ms(log, start, term) if held is not None and term else None
    holder, left_ms = held if held is not None else (None, 0)
    return WatchStatus(kind, holder, claimed_ms, left_ms / 1000, listed, state.unwatched.get(kind, 0))


async def _begun(log: RedisLog, start: Position) -> EpochBegun | None:
    """The event that began the epoch; None if it was trimmed."""
    batch = await _batch_after(log, start) if not start.offset else None
    first = batch.events[0] if batch is not None else None
    return first if isinstance(first, EpochBegun) else None


async def _time_ms(log: RedisLog, start: Position, offset: int) -> int | None:
    """The time of the event at this offset; None if it is no longer in the log."""
    if offset <= start.offset:
        return None
    batch = await _batch_after(log, start if offset == start.offset + 1 else Position(start.epoch, offset - 1, ""))
    return batch.time_ms if batch is not None else None


async def _batch_after(log: RedisLog, position: Position) -> Batch | None:
    """The batch that follows a position; None if it is no longer in the log."""
    try:
        stored = await log.read_stored(position, limit=1)
    except EntriesTrimmed:
        return None
    return decode_batch(stored[0].payload, stored[0].first) if stored else None


# --- problems ----------------------------------------------------------------------------------------------


def problems(status: Status, *, max_lag_s: float) -> list[Problem]:
    """Report missing roles, watches and listings, and members that lag behind, the most severe problem first.

    Empty while Redis refuses writes, because it then refuses the heartbeats of live processes, too.
    """
    store = status.store
    if store.full or store.replica or (store.disk_failing and not status.members):
        return []
    found: list[Problem] = []
    if status.log.forged:
        what = f"the entry of the log at offset {status.log.forged} isn't authentic: nothing is done for it or after it"
        following = (
            "see whether this command and every process have the same log_key; "
            "docs/operations.md, When an entry is not authentic, says how to go on"
        )
        found.append(Problem(what, following))
    if status.log.unreadable:
        what = f"the entry of the log at offset {status.log.unreadable} can't be read: {status.log.why}"
        found.append(Problem(what, "docs/operations.md, When something is missing or broken, says how to go on"))
    present = {role for member in status.members for role in member.roles}
    for role in ROLES:
        if role not in present:
            found.append(Problem(f"no live {role}: {_WITHOUT[role]}", _start(role)))
    for watch in status.watches:
        if "watcher" in present and watch.holder is None:
            what = f"no watcher holds the watch of {watch.kind} objects"
            found.append(
                Problem(what, "check again after lease_s seconds; then read the logs and /readyz of the watchers")
            )
        elif watch.holder is not None and not watch.listed and not watch.refused and not status.log.ends_early:
            what = f"{watch.kind} objects haven't been listed in this epoch: until then, no process makes decisions"
            found.append(Problem(what, "read the log and /readyz of the watcher that holds the watch"))
    return found + [problem for member in status.members for problem in _lagging(member, status, max_lag_s)]


def _start(role: str) -> str:
    deployment = {"watcher": "watcher", "applier": "applier"}.get(role, "decider")
    return (
        f"start one: arranger run {role}; on a cluster: kubectl -n arranger-system get pods "
        f"-l app.kubernetes.io/component={deployment}"
    )


def _lagging(member: MemberStatus, status: Status, max_lag_s: float) -> Iterable[Problem]:
    where = f"{'+'.join(member.roles)} {member.id}"
    if member.epoch and member.epoch != status.log.epoch:
        yield Problem(
            f"{where} reads epoch {member.epoch}, but the epoch of the log is {status.log.epoch}",
            "check again after the next heartbeat; if it still reads that epoch, restart it",
        )
    elif member.lag_s > max_lag_s and not any(problem.kind is ProblemKind.FORGED for problem in member.problems):
        yield Problem(
            f"{where} lags for {member.lag_s:.1f} s (limit {max_lag_s:g} s), now by {member.lag_events} events",
            "check the load of its processor and of Redis (arranger_append_seconds), and read its log",
        )
