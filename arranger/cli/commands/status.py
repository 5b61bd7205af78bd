"""`arranger status`: show the live processes, their shares of the jobs, how far each has read, and what is missing."""

import asyncio

import click
import msgspec
import redis.asyncio

from arranger.cli.inputs.log_options import log_options
from arranger.cli.inputs.reading import (
    begin,
    feed,
)
from arranger.cli.inputs.server import access_of, found_server
from arranger.cli.rendering.authenticity_words import AUTHENTICITY
from arranger.cli.rendering.output import (
    FiniteRange,
    duration,
    local_time,
    output_option,
    print_json,
    print_table,
    print_text,
    say,
)
from arranger.cli.rendering.problem_words import member_problems, store_problems
from arranger.clock import SystemClock
from arranger.errors import DamagedEntry, LogError, LogUnavailable, NoLog, UsageError
from arranger.events.key_source import log_keys
from arranger.events.kinds import GROUP_WATCHES, Watched
from arranger.events.redis_connection import connect
from arranger.events.redis_log import RedisLog
from arranger.events.redis_urls import SCHEMES, scheme_of
from arranger.model.text import counted
from arranger.projections.state import State
from arranger.replay.reading.history import Journey, Point
from arranger.settings import Settings
from arranger.workers.health.status import (
    SHARING,
    EventMoment,
    MemberStatus,
    Status,
    WatchStatus,
    problems,
    read_status,
)
from arranger.workers.members.membership import ROLES, read_members


@click.command()
@log_options
@click.option(
    "--max-lag",
    type=FiniteRange(0, 86_400),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a process may know of events without folding them, before it counts as lagging.",
)
@output_option
def command(target: str | None, settings: Settings, max_lag: float, output: str) -> int:
    r"""Show the running processes, their shares of the jobs, the watches, and how far each process has read.

    Exit status 0: no problem of the processes. 1: a role has no live process, a kind of object isn't watched or wasn't
    listed, or a process lags behind or reports a problem of its own. The output says what is wrong and what to do next.
    What jobs and queues lack is in `arranger waits` and `arranger queue`. The command only reads. It asks the Redis
    server of running processes, so --log takes no file here. OFFSET and LAG of a process are as of its last heartbeat,
    which was BEAT ago.

    \b
      arranger status                                     the Redis server in the settings
      arranger status --log redis://127.0.0.1:6379/0      another server
      arranger status -o json | jq '.members[].shares'    JSON for programs
      watch arranger status                               again every two seconds

    \b
    With no applier left (a killed process is shown until it has missed three heartbeats):
      $ arranger status
      cluster default, epoch 1763622000000: 1 problem
        no live applier: no pod is created or deleted, and no status is written
        -> start one: arranger run applier; on a cluster: kubectl -n arranger-system get pods ...
    """
    status = asyncio.run(_status(target, settings, max_lag))
    found = store_problems(status) + problems(status, max_lag_s=max_lag) + member_problems(status)
    if output == "json":
        print_json({**msgspec.to_builtins(status), "well": not found, "problems": msgspec.to_builtins(found)})
    else:
        _print(status, [f"{one.what}\n-> {one.next}" for one in found])
    return 1 if found else 0


async def _status(target: str | None, settings: Settings, max_lag: float) -> Status:
    if server := await found_server(target, settings):
        return await _asked(server, settings, max_lag)
    return await _read(target or settings.redis_url, settings, named=target is not None)


async def _asked(server: str, settings: Settings, max_lag: float) -> Status:
    from arranger.web.remote import Remote  # slow to import, and Redis doesn't need it

    remote = Remote(server, access_of(settings))
    try:
        answer = await remote.get("status", {"maxLag": str(max_lag)})
    finally:
        await remote.close()
    try:
        return msgspec.json.decode(answer, type=Status)
    except msgspec.MsgspecError as error:
        hint = "is the server of another release?"
        raise LogError(f"the answer of {remote.name} isn't a status: {error}", hint=hint) from error


async def _read(url: str, settings: Settings, *, named: bool) -> Status:
    if scheme_of(url) not in SCHEMES:
        raise UsageError("--log: status needs the Redis server of running processes", hint="a log file has no members")
    log = RedisLog(url, settings.cluster, read_only=True, keys=log_keys(settings.log_key))
    client = connect(url)
    try:
        await _open(log, client, settings)
        state, snapshot, damage = await _folded(log)
        now_ms = SystemClock().now_ms()
        return await read_status(
            log, client, cluster=settings.cluster, state=state, snapshot=snapshot, now_ms=now_ms, damage=damage
        )
    except LogUnavailable as problem:
        if named:
            raise
        hint = f"{problem.hint} --log URL or ARRANGER_REDIS_URL names another".lstrip()
        raise LogUnavailable(problem.message, hint=hint) from problem
    finally:
        await log.close()
        await client.aclose()


async def _open(log: RedisLog, client: redis.asyncio.Redis, settings: Settings) -> None:
    """Open the log. If it doesn't exist, the error's hint depends on whether processes run there."""
    try:
        await log.open()
    except NoLog as problem:
        there = len(await read_members(client, settings.cluster))
        if not there:
            raise LogError(problem.message, hint=f"{problem.hint}; arranger run begins a log") from problem
        who = "1 process is running" if there == 1 else f"{there} processes are running"
        raise LogError(f"{problem.message}, but {who}", hint="a new one begins soon: try again") from problem


async def _folded(log: RedisLog) -> tuple[State, EventMoment | None, DamagedEntry | None]:
    """The projection at the end of the log, the snapshot from which it was restored, and the entry before which it
    ends because that one can't be read."""
    state, position = await begin(log, Point())
    snapshot = EventMoment(position.offset, state.time_ms) if state.offset else None
    journey = Journey(state, Point())
    try:
        await feed(log, position, journey.feed, until=Point(), doing="reading the log", beyond=True)
    except DamagedEntry as problem:
        return journey.state, snapshot, problem
    return journey.state, snapshot, None


# --- for people --------------------------------------------------------------------------------------------


def _print(status: Status, found: list[str]) -> None:
    verdict = counted(len(found), "problem") if found else "no problem of its processes"
    print_text(f"cluster {status.cluster}, epoch {status.log.epoch}: {verdict}")
    for problem in found:
        for line in problem.splitlines():
            print_text(f"  {line}", indent=5)
    say()
    _print_facts(status)
    say()
    _print_members(status)
    say()
    now_ms = status.now_ms
    unheld = [watch.kind for watch in status.watches if not watch.holder]
    print_table(
        ("watch", "since", "for", "lease left", "listed", "holder"),
        [
            (
                watch.kind,
                local_time(watch.held_ms or 0),
                _age(now_ms, watch.held_ms),
                duration(round(watch.left_s * 1000)) if watch.holder else "-",
                _listed(watch),
                watch.holder or "none",
            )
            for watch in status.watches
        ],
        right=("for", "lease left"),
        styles=lambda row: "red" if row[0] in unheld else "",
    )


def _listed(watch: WatchStatus) -> str:
    """Whether the kind is listed. An API server needn't have PodGroups and ProvisioningRequests."""
    if watch.refused:
        absent = watch.refused == 404 and watch.kind in (*GROUP_WATCHES.values(), Watched.PROVISIONING)
        return "not installed" if absent else f"refused: {watch.refused}"
    return "yes" if watch.listed else "no"


def _print_facts(status: Status) -> None:
    log = status.log
    kept = f"events {log.first} to {log.last} ({log.events}), the last {_ago(status.now_ms, log.time_ms)}"
    if not log.events:
        kept = "no event can be read"
    authenticity = f"not authentic at offset {log.forged}" if log.forged else AUTHENTICITY[log.authenticity]
    of_others, groups, stages, queues, of_queues = (
        ", ".join(f"{count} {name}" for name, count in counts.items())
        for counts in (
            status.pods_of_others,
            status.pod_groups,
            status.stages,
            status.queues,
            status.queue_problems,
        )
    )
    queues += f"; problems: {of_queues}" if of_queues else ""
    print_table(
        ("what", "now"),
        [
            ("log", kept),
            *([("began after", f"epoch {log.after_epoch}: {log.because}")] if log.after_epoch else []),
            ("authenticity", authenticity),
            ("of Kubernetes cluster", log.of_cluster or "not known yet"),
            ("newest snapshot", _moment(status.now_ms, status.snapshot)),
            ("last recorded cycle", _moment(status.now_ms, status.cycle)),
            ("jobs", f"{status.jobs}{f': {stages}' if stages else ''}"),
            *([("pods of others", f"{sum(status.pods_of_others.values())}: {of_others}")] if of_others else []),
            *([("pod groups", f"{sum(status.pod_groups.values())}: {groups}")] if groups else []),
            *([("queues", f"{sum(status.queues.values())}: {queues}")] if queues else []),
        ],
    )


def _print_members(status: Status) -> None:
    print_table(
        ("roles", "host", "pid", "up", "beat", "offset", "lag", "controls", "applies", "member"),
        [
            (
                ",".join(member.roles),
                member.host,
                member.pid or "-",
                _age(status.now_ms, member.started_ms),
                duration(round(member.heartbeat_age_s * 1000)),
                member.offset,
                f"{member.lag_events} ({duration(round(member.lag_s * 1000))})",
                *(_share(member, role) for role in SHARING),
                member.id,
            )
            for member in sorted(status.members, key=lambda member: (_first_role(member), member.started_ms))
        ],
        right=("pid", "up", "beat", "offset", "lag", "controls", "applies"),
        empty="no live members",
    )


def _first_role(member: MemberStatus) -> list[int]:
    return [ROLES.index(role) for role in member.roles if role in ROLES]


def _share(member: MemberStatus, role: str) -> str:
    share = member.shares.get(role)
    return f"{share.jobs} ({share.percent:.0f}%)" if share is not None else ""


def _moment(now_ms: int, moment: EventMoment | None) -> str:
    if moment is None:
        return "none yet"
    when = _ago(now_ms, moment.time_ms) if moment.time_ms else "before the log's beginning"
    return f"at offset {moment.offset}, {when}"


def _ago(now_ms: int, then_ms: int) -> str:
    return f"{duration(max(0, now_ms - then_ms))} ago"


def _age(now_ms: int, then_ms: int | None) -> str:
    return duration(max(0, now_ms - then_ms)) if then_ms else "-"
