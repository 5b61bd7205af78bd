"""`arranger status`: what it shows of members, shares, watches and the log, and what it finds missing."""

import asyncio
import json
from pathlib import Path
from typing import Any

import click.testing
import msgspec
import pytest
import redis.asyncio

from arranger.cli.main import cli
from arranger.cli.rendering.problem_words import member_problems, store_problems
from arranger.clock import SystemClock
from arranger.errors import ArrangerError, DamagedEntry, UsageError
from arranger.events.kinds import SETTING_OF, ListingBegun, Watched
from arranger.events.log import StoredSnapshot, entries
from arranger.events.log_keys import LogKeys
from arranger.events.redis_log import RedisLog
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State
from arranger.web.asking import Asker
from arranger.workers.health.status import LogStatus, MemberStatus, Status, StoreStatus, WatchStatus, problems
from arranger.workers.members.membership import ROLES, Lease, owner, read_lease, read_members
from arranger.workers.members.problems import MemberProblem, MemberProblems, ProblemKind
from tests.clocks import HOUR_MS, SetClock, compared
from tests.members import connected, member
from tests.servers import RealRedis
from tests.unit.test_remote_log import passing_on
from tests.unit.test_web_api import PROGRAM
from tests.world import World

pytestmark = pytest.mark.timeout(60)

#: The kinds that are watched without a setting, and without anybody asking.
ALWAYS = [kind for kind in Watched if kind not in SETTING_OF and kind != Watched.PROVISIONING]


async def a_log(server: RealRedis, cluster: str, *, jobs: int = 20, others: bool = False) -> list[str]:
    """A log in Redis with some waiting jobs, with pods of others if so asked, a cycle, and everything listed; answers
    the jobs' UIDs."""
    world = World()
    world.watch_all()
    world.queue("team")
    world.queue("lost", parent="none")
    world.node("n1")
    for number in range(jobs):
        world.job(f"j{number}")
    for number in range(3 if others else 0):
        world.pod_to_place(f"p{number}", "n1" if number else "")
        world.pod_to_place(f"g{number}", group="train", least=4)
    world.cycle()
    world.say(ListingBegun(Watched.NODE, world.terms[Watched.NODE]))
    log = RedisLog(server.url, cluster)
    epoch = (await log.open()).epoch
    for entry in world.entries[1:]:  # the log has begun its epoch itself
        time_ms = SystemClock().now_ms()
        await log.append(msgspec.structs.replace(entry.batch, time_ms=time_ms), epoch=epoch)
    await log.close()
    return list(world.state.jobs)


async def everybody(client: redis.asyncio.Redis, cluster: str) -> None:
    """A member of each role, the watcher holding every watch."""
    for role in ROLES:
        await member(client, cluster, f"host-1-77-{role}", role).join()
    for kind in Watched:
        lease = Lease(client, cluster=cluster, name=f"watch-{kind}", holder="host-1-77-watcher", clock=SystemClock())
        assert await lease.acquire()


def run(*arguments: str) -> click.testing.Result:
    # What a command returns is its exit status (`main` hands it on).
    return click.testing.CliRunner().invoke(cli, ["status", *arguments], standalone_mode=False)


async def status(server: RealRedis, cluster: str, *arguments: str) -> click.testing.Result:
    """Run the command, which has an event loop of its own."""
    return await asyncio.to_thread(run, "--log", server.url, "--cluster", cluster, *arguments)


async def shown(server: RealRedis, cluster: str, *arguments: str) -> dict[str, Any]:
    """What it tells programs."""
    done = await status(server, cluster, *arguments, "-o", "json")
    assert done.exception is None, done.output
    answer: dict[str, Any] = json.loads(done.stdout)
    assert done.return_value == (0 if answer["well"] else 1)
    return answer


@pytest.mark.parametrize("entry", [{"p": "no batch", "c": "0" * 40, "n": "1"}, {"p": "no entry of ours"}])
@pytest.mark.parametrize("counted", [True, False], ids=["the log ends after it", "the log ends before it"])
async def test_at_an_entry_that_cannot_be_read_it_still_shows_who_runs(
    redis_server: RealRedis, cluster: str, entry: dict[str, str], *, counted: bool
) -> None:
    await a_log(redis_server, cluster)
    log = RedisLog(redis_server.url, cluster)
    end = await log.open()
    await log.close()
    async with connected(redis_server) as client:
        await everybody(client, cluster)
        name = f"arranger:{{{cluster}}}"
        await client.xadd(f"{name}:log", entry, id=f"{end.offset + 1}-0")  # type: ignore[arg-type]
        if counted:
            await client.hset(f"{name}:meta", mapping={"end": end.offset + 1, "chain": "0" * 40})
    answer = await shown(redis_server, cluster)
    assert answer["log"]["unreadable"] == end.offset + 1 and len(answer["members"]) == len(ROLES)
    (problem,) = answer["problems"]
    assert f"the entry of the log at offset {end.offset + 1} can't be read" in problem["what"]
    for command in ("upgrade-check", "verify"):
        arguments = [command, "--log", redis_server.url, "--cluster", cluster]
        done = await asyncio.to_thread(click.testing.CliRunner().invoke, cli, arguments, standalone_mode=False)
        assert isinstance(done.exception, DamagedEntry) if command == "verify" else done.return_value == 1


async def test_with_another_key_it_names_the_key_and_nothing_else(
    redis_server: RealRedis, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RedisLog(redis_server.url, cluster, keys=LogKeys(["ours" * 8]))
    epoch = (await log.open()).epoch
    await log.close()
    async with connected(redis_server) as client:
        await everybody(client, cluster)
    monkeypatch.setenv("ARRANGER_LOG_KEY", "other" * 8)
    answer = await shown(redis_server, cluster)
    assert [one["what"].partition(" isn't")[0] for one in answer["problems"]] == ["the entry of the log at offset 1"]
    assert answer["log"]["epoch"] == epoch
    shown_to_people = (await status(redis_server, cluster)).stdout
    assert "not authentic at offset 1" in shown_to_people and "authenticated:" not in shown_to_people


async def test_a_whole_arranger_is_well(redis_server: RealRedis, cluster: str) -> None:
    uids = await a_log(redis_server, cluster)
    async with connected(redis_server) as client:
        await everybody(client, cluster)
        await member(client, cluster, "host-2-78-other", "controller").join()
        answer = await shown(redis_server, cluster)
    assert answer["well"] and answer["problems"] == []
    assert answer["jobs"] == 20 and answer["stages"] == {"Starting": 20}
    assert answer["queues"] == {"Open": 1, "Unusable": 1}
    assert answer["queueProblems"] == {"UnknownParent": 1}
    members = {one["id"]: one for one in answer["members"]}
    watcher = members["host-1-77-watcher"]
    assert (watcher["host"], watcher["pid"], watcher["roles"]) == ("host-1", 77, ["watcher"])
    assert 0 <= watcher["heartbeatAgeS"] < 60 and watcher["shares"] == {}
    mine, other = (members[name]["shares"]["controller"] for name in ("host-1-77-controller", "host-2-78-other"))
    owned = [owner(uid, ["host-1-77-controller", "host-2-78-other"]) for uid in uids]
    assert (mine["jobs"], other["jobs"]) == (owned.count("host-1-77-controller"), owned.count("host-2-78-other"))
    assert mine["percent"] + other["percent"] == 100 and mine["jobs"] + other["jobs"] == 20
    assert members["host-1-77-applier"]["shares"] == {"applier": {"jobs": 20, "percent": 100.0}}
    watches = {one["kind"]: one for one in answer["watches"]}
    assert [*watches] == ALWAYS, "nobody asks for more"
    for one in watches.values():
        assert one["holder"] == "host-1-77-watcher" and one["listed"] and 0 < one["leftS"] <= 15
        assert 0 < one["heldMs"] <= answer["nowMs"]
    log = answer["log"]
    assert log["first"] == 1 and log["last"] == log["events"] > 40 and answer["snapshot"] is None
    assert 0 < answer["cycle"]["offset"] < log["last"]
    assert answer["cycle"]["timeMs"] <= log["timeMs"] <= answer["nowMs"]


async def test_a_server_tells_the_same_as_redis(redis_server: RealRedis, cluster: str) -> None:
    await a_log(redis_server, cluster)
    environment = {"ARRANGER_REDIS_URL": redis_server.url, "ARRANGER_CLUSTER": cluster}
    logs = [RedisLog(redis_server.url, cluster, read_only=True) for _ in range(2)]
    async with connected(redis_server) as client, passing_on(*logs, asker=Asker(PROGRAM, environment)) as address:
        await member(client, cluster, "host-1-77-applier", "applier").join()
        asked = await asyncio.to_thread(run, "--server", address, "-o", "json")
        read = await shown(redis_server, cluster)
    assert asked.exception is None, asked.exception
    told = json.loads(asked.stdout)
    assert asked.return_value == 1 and told["problems"] == read["problems"] != []
    for moving in ("nowMs", "members", "watches", "store"):
        assert bool(told.pop(moving)) == bool(read.pop(moving))
    assert told == read


async def test_what_is_missing_is_said_with_what_to_do_next(redis_server: RealRedis, cluster: str) -> None:
    await a_log(redis_server, cluster)
    async with connected(redis_server) as client:
        for role in ("watcher", "controller", "scheduler"):
            await member(client, cluster, f"h-1-{role}", role).join()
    answer = await shown(redis_server, cluster)
    said = [one["what"] for one in answer["problems"]]
    assert [what.partition(":")[0] for what in said] == [
        "no live applier", "no live maintenance",
        *(f"no watcher holds the watch of {kind} objects" for kind in ALWAYS),
    ]  # fmt: skip
    assert "arranger run applier" in answer["problems"][0]["next"]


async def test_a_member_whose_clock_is_off_is_told_with_what_to_do_and_has_no_share(
    redis_server: RealRedis, cluster: str
) -> None:
    await a_log(redis_server, cluster)
    clock = SetClock()
    async with connected(redis_server) as client:
        await everybody(client, cluster)
        ahead = member(client, cluster, "host-2-78-ahead", "controller", timekeeper=compared(clock))
        clock.ahead_ms = HOUR_MS
        problems = MemberProblems(clock)
        problems.tell(ProblemKind.CLOCK, True, off_ms=HOUR_MS)
        ahead.progress(0, 0, problems=problems.present())
        await ahead.join()
        answer = await shown(redis_server, cluster)
    (told,) = answer["problems"]
    assert told["what"] == "controller host-2-78-ahead writes nothing: its clock differs by 1h00m from that of Redis"
    members = {one["id"]: one for one in answer["members"]}
    assert members["host-1-77-controller"]["shares"]["controller"]["percent"] == 100


async def test_pods_of_others_are_counted_apart_from_jobs(redis_server: RealRedis, cluster: str) -> None:
    await a_log(redis_server, cluster, jobs=2, others=True)
    answer = await shown(redis_server, cluster)
    assert (answer["jobs"], answer["stages"]) == (2, {"Starting": 2})
    assert answer["podsOfOthers"] == {"Starting": 1, "Running": 2} and answer["podGroups"] == {"Pending": 1}
    lines = [" ".join(line.split()) for line in (await status(redis_server, cluster)).stdout.splitlines()]
    assert "pods of others 3: 1 Starting, 2 Running" in lines and "pod groups 1: 1 Pending" in lines


async def test_people_see_the_same_in_tables(redis_server: RealRedis, cluster: str) -> None:
    await a_log(redis_server, cluster)
    async with connected(redis_server) as client:
        await everybody(client, cluster)
        well = await status(redis_server, cluster)
        await client.delete(f"arranger:{cluster}:lease:watch-pod")
        ill = await status(redis_server, cluster)
    assert well.return_value == 0 and ill.return_value == 1
    assert well.stdout.startswith(f"cluster {cluster}, epoch ")
    assert ": no problem of its processes" in well.stdout and ": 1 problem" in ill.stdout
    assert "no watcher holds the watch of pod objects" in ill.stdout and "-> check again" in ill.stdout
    assert "20: 20 Starting" in well.stdout and "20 (100%)" in well.stdout
    rows = [line.split() for line in well.stdout.splitlines()]
    assert [row[0] for row in rows if row and row[0] in ROLES] == list(ROLES)


async def test_it_changes_nothing_in_redis(redis_server: RealRedis, cluster: str) -> None:
    await a_log(redis_server, cluster)
    async with connected(redis_server) as client:
        await everybody(client, cluster)
        # A member that has expired stays in Redis until another member beats: reading isn't beating.
        await client.hset(f"arranger:{cluster}:members", "gone", "1 {}")  # type: ignore[misc]
        before = await contents(client, cluster)
        await shown(redis_server, cluster)
        assert await contents(client, cluster) == before
        assert list(await read_members(client, cluster)) == sorted(f"host-1-77-{role}" for role in ROLES)
        assert await read_lease(client, cluster, "watch-nothing") is None


async def contents(client: redis.asyncio.Redis, cluster: str) -> dict[bytes, bytes | None]:
    """Everything of a cluster in Redis, except how long leases still last."""
    keys = [key async for key in client.scan_iter(match=f"arranger:*{cluster}*")]
    assert len(keys) > 5
    return {key: await client.dump(key) for key in keys}


async def test_what_was_trimmed_is_said_to_lie_before_the_log(redis_server: RealRedis, cluster: str) -> None:
    await a_log(redis_server, cluster)
    log = RedisLog(redis_server.url, cluster)
    end = await log.open()
    state = State()
    async for entry in entries(log, await log.start()):
        apply_entry(state, entry, Changes())
    await log.put_snapshot(StoredSnapshot(end, snapshot.encode(state)))
    await log.trim(end.offset, epoch=end.epoch)
    await log.close()
    async with connected(redis_server) as client:
        await everybody(client, cluster)
    answer = await shown(redis_server, cluster)
    assert answer["well"] and answer["jobs"] == 20
    assert answer["log"]["first"] > 1 and answer["snapshot"]["offset"] == answer["log"]["last"] == end.offset
    assert {one["heldMs"] for one in answer["watches"]} == {None}
    assert answer["cycle"]["offset"] > 0 and answer["cycle"]["timeMs"] is None
    assert "before the log's beginning" in (await status(redis_server, cluster)).stdout


def a_status(*members: MemberStatus, holder: str | None = "w", listed: bool = True) -> Status:
    return Status(
        cluster="c", now_ms=1, log=LogStatus(7, 1, 100, 100, 1), snapshot=None, cycle=None, members=members,
        watches=tuple(WatchStatus(kind, holder, None, 1.0, listed) for kind in Watched), jobs=0, stages={},
    )  # fmt: skip


def a_member(*, epoch: int = 7, lag_events: int = 0, lag_s: float = 0.0) -> MemberStatus:
    return MemberStatus("m", ROLES, "h", 1, 0, 0.0, epoch, 90, lag_events, lag_s, {})


def test_a_member_that_lags_longer_than_the_bound_is_a_problem_and_one_with_fresh_news_is_not() -> None:
    assert problems(a_status(a_member(lag_events=9, lag_s=10.0)), max_lag_s=10.0) == []
    (found,) = problems(a_status(a_member(lag_events=9, lag_s=10.1)), max_lag_s=10.0)
    assert "m lags for 10.1 s (limit 10 s), now by 9 events" in found.what
    held = MemberProblem(ProblemKind.FORGED, "91")
    waits = msgspec.structs.replace(a_member(lag_events=9, lag_s=10.1), problems=(held,))
    assert problems(a_status(waits), max_lag_s=10.0) == [], "it waits, and says where"


def test_a_member_in_another_epoch_is_a_problem_and_one_that_begins_is_not() -> None:
    assert problems(a_status(a_member(epoch=0)), max_lag_s=10.0) == []
    (found,) = problems(a_status(a_member(epoch=6)), max_lag_s=10.0)
    assert "reads epoch 6, but the epoch of the log is 7" in found.what


def test_a_kind_that_was_not_listed_is_a_problem() -> None:
    found = problems(a_status(a_member(), listed=False), max_lag_s=10.0)
    assert [one.what.partition(" objects")[0] for one in found] == list(Watched)


def test_without_anybody_every_role_is_named_once() -> None:
    found = problems(a_status(holder=None), max_lag_s=10.0)
    assert [one.what.partition(":")[0] for one in found] == [f"no live {role}" for role in ROLES]


async def test_what_members_tell_of_themselves_is_said_and_given_to_programs_as_facts(
    redis_server: RealRedis, cluster: str
) -> None:
    await a_log(redis_server, cluster)
    async with connected(redis_server) as client:
        await everybody(client, cluster)
        unwell = member(client, cluster, "host-2-78-other", "watcher")
        told = (
            MemberProblem(ProblemKind.WATCH, "pod", lasts_ms=400_000),
            MemberProblem(ProblemKind.CLOCK, off_ms=-3_600_000),
        )
        unwell.progress(0, 0, problems=told)
        await unwell.join()
    answer = await shown(redis_server, cluster)
    members = {one["id"]: one for one in answer["members"]}
    assert members["host-2-78-other"]["problems"] == list(msgspec.to_builtins(told))
    assert members["host-2-78-other"]["layout"] == snapshot.LAYOUT
    assert [one["what"].partition(" (")[0] for one in answer["problems"]] == [
        "watcher host-2-78-other has had no working watch of pod objects for 6m40s",
        "watcher host-2-78-other writes nothing: its clock differs by 1h00m from that of Redis",
    ]


def test_every_kind_of_problem_has_words() -> None:
    every = tuple(MemberProblem(kind, "s", 1000, 1000, "cause") for kind in ProblemKind)
    found = member_problems(a_status(msgspec.structs.replace(a_member(), problems=every)))
    assert len(found) == len(ProblemKind) and all(one.next and "(cause)" in one.what for one in found)


@pytest.mark.parametrize(
    ("store", "said"),
    [
        (
            StoreStatus(used_bytes=991_000_000, max_bytes=1_000_000_000),
            "Redis is full (991.0 MB of maxmemory 1000.0 MB)",
        ),
        (StoreStatus(replica=True), "this Redis is a read-only replica"),
        (StoreStatus(disk_failing=True), "Redis can't save to its disk"),
    ],
)
def test_who_runs_isnt_asked_of_a_redis_that_takes_no_heartbeats(store: StoreStatus, said: str) -> None:
    nobody = msgspec.structs.replace(a_status(holder=None), store=store)
    assert problems(nobody, max_lag_s=10.0) == []
    (found,) = store_problems(nobody)
    assert found.what.startswith(said) and found.next


def test_a_redis_with_room_is_no_problem_and_one_that_cant_save_hides_nothing_of_who_beats() -> None:
    for store in (StoreStatus(used_bytes=5), StoreStatus(used_bytes=98, max_bytes=100)):
        assert store_problems(msgspec.structs.replace(a_status(), store=store)) == []
    failing = msgspec.structs.replace(a_status(a_member(epoch=6)), store=StoreStatus(disk_failing=True))
    assert len(problems(failing, max_lag_s=10.0)) == 1


async def test_an_epoch_that_replaced_another_is_shown_with_the_reason(redis_server: RealRedis, cluster: str) -> None:
    await a_log(redis_server, cluster)
    log = RedisLog(redis_server.url, cluster)
    lost = (await log.open()).epoch
    await log.begin_epoch(lost=lost, reason="the disk was full", time_ms=SystemClock().now_ms())
    await log.close()
    answer = await shown(redis_server, cluster)
    assert (answer["log"]["afterEpoch"], answer["log"]["because"]) == (lost, "the disk was full")
    assert f"epoch {lost}: the disk was full" in (await status(redis_server, cluster)).stdout


async def refused(server: RealRedis, cluster: str) -> str:
    """What it says instead of an answer, in one line; its exit status is then 1."""
    problem = (await status(server, cluster, "-o", "json")).exception
    assert isinstance(problem, ArrangerError) and problem.exit_status == 1
    return str(problem)


async def test_where_there_is_no_log_it_says_how_one_begins(redis_server: RealRedis, cluster: str) -> None:
    said = await refused(redis_server, cluster)
    assert "there is no log at redis://" in said and "arranger run" in said and "cluster's name" in said


async def test_members_of_a_redis_that_lost_its_log_are_named(redis_server: RealRedis, cluster: str) -> None:
    async with connected(redis_server) as client:
        await member(client, cluster, "host-1-77-one", "controller").join()
    said = await refused(redis_server, cluster)
    assert "1 process is running" in said and "try again" in said


async def test_a_log_that_only_another_version_can_read_is_said_to_be_one(
    redis_server: RealRedis, cluster: str
) -> None:
    await a_log(redis_server, cluster)
    log = RedisLog(redis_server.url, cluster)
    end = await log.open()
    image = snapshot.image_of(snapshot.encode(State(epoch=end.epoch, offset=end.offset)))
    of_another = snapshot.encode_image(msgspec.structs.replace(image, layout=snapshot.LAYOUT + 1))
    await log.put_snapshot(StoredSnapshot(end, of_another))
    await log.trim(end.offset, epoch=end.epoch)
    await log.close()
    said = await refused(redis_server, cluster)
    assert "no snapshot that this version can use" in said and "the version of Arranger that runs there" in said


async def test_a_damaged_record_of_the_log_is_told_in_one_line(redis_server: RealRedis, cluster: str) -> None:
    async with connected(redis_server) as client:
        await client.execute_command("HSET", f"arranger:{{{cluster}}}:meta", "epoch", "7")
    assert "record of its end is incomplete" in await refused(redis_server, cluster)


def test_a_log_file_has_no_members(tmp_path: Path) -> None:
    problem = run("--log", str(tmp_path / "log")).exception
    assert isinstance(problem, UsageError) and "a log file has no members" in str(problem)


@pytest.mark.parametrize("value", ["nan", "-nan", "inf", "-1"])
def test_a_lag_that_is_no_number_within_bounds_is_refused(value: str) -> None:
    refused = run(f"--max-lag={value}").exception
    assert isinstance(refused, click.UsageError) and "is not in the range" in str(refused)
