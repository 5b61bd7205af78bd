"""The HTTP API on a log: the answers of the commands, in camelCase, for reading only, within limits."""

import asyncio
import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import aiohttp.web
import msgspec
import pytest
import yaml

from arranger.cli import answering
from arranger.errors import LogUnavailable
from arranger.events.file_log import FileLog
from arranger.events.log import Entry, Log, Position, entries
from arranger.web import damage, moment_process
from arranger.web import news as news_module
from arranger.web import server as server_module
from arranger.web.asking import Asker, Limits
from arranger.web.console_questions import CONSOLE
from arranger.web.moment_process import MomentProcess
from arranger.web.naming import MANIFESTS_TYPE, camel, named
from arranger.web.news import News
from arranger.web.openapi import document
from arranger.web.questions import QUESTIONS
from arranger.web.refusals import Refusal
from arranger.web.server import ApiServer
from arranger.workers.flow import cancelling
from tests.commands import Run, to_file
from tests.memory_log import DamagedLog, MemoryLog
from tests.unit.replay_worlds import contended
from tests.unit.test_cli_simulate_files import job, node

HISTORY = Path(__file__).parents[1] / "histories" / "room-for-what-matters.log"
PROGRAM = (sys.executable, "-m", "arranger.cli.answering")
MOMENTS = (sys.executable, "-m", "arranger.cli.moments")
EXPLAINING = (sys.executable, "-m", "arranger.cli.explaining")

#: Path of the API → the words of the command that shows the same.
SAME = {
    "replay?at=490": ("replay", "--at", "490"),
    "replay": ("replay",),
    "queue": ("queue",),
    "queue?name=default&at=376": ("queue", "default", "--at", "376"),
    "top?by=job": ("top", "--by", "job"),
    "verify?to=200": ("verify", "--to", "200"),
    "diff?a=100&b=490": ("diff", "100", "490"),
    "waits?by=job&heldBy=job": ("waits", "--by", "job", "--held-by", "job"),
    "preemptions?within=5m": ("preemptions", "--within", "5m"),
    "forecast?at=376": ("forecast", "--at", "376"),
    "what-if?at=376&changedJob=default/answer-2&priority=7": (
        "what-if",
        "--at",
        "376",
        "--job",
        "default/answer-2",
        "--priority",
        "7",
    ),
    "what-if?at=376&queuePolicy=DRF&everyJob=true": ("what-if", "--at", "376", "--queue-policy", "DRF", "--every-job"),
}


class Standing:
    """A clock that stands."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms


class Serving:
    """A server on a log, and requests to it."""

    def __init__(self, server: ApiServer, news: News, session: aiohttp.ClientSession) -> None:
        self.server, self.news, self.session = server, news, session

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server.port}/api/v1/{path}"

    async def get(self, path: str, **headers: str) -> tuple[int, Any, str]:
        """The status, the JSON and the ETag of an answer."""
        async with self.session.get(self.url(path), headers=headers) as response:
            content = await response.read()
            return response.status, json.loads(content) if content else None, response.headers.get("ETag", "")

    async def post(self, path: str, content: bytes, media_type: str = MANIFESTS_TYPE) -> tuple[int, Any]:
        headers = {"Content-Type": media_type}
        async with self.session.post(self.url(path), data=content, headers=headers) as response:
            return response.status, await response.json()


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  # a process or a file tells nobody
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def serving(
    log: Log, asker: Asker | None = None, explaining: MomentProcess | None = None
) -> AsyncIterator[Serving]:
    news = News(log)
    moments = MomentProcess(MOMENTS, {}, log=str(HISTORY))
    explaining = explaining or MomentProcess(EXPLAINING, {}, log=str(HISTORY))
    asker = asker or Asker(PROGRAM, {}, log=str(HISTORY))
    server = ApiServer(news, asker, host="127.0.0.1", port=0, moments=moments, explaining=explaining)
    await server.start()
    try:
        async with aiohttp.ClientSession() as session, asyncio.timeout(120):
            await until(lambda: not news.problem)
            yield Serving(server, news, session)
    finally:
        await server.stop()
        await moments.stop()
        await explaining.stop()
        await log.close()


async def history() -> Sequence[Entry]:
    log = FileLog(HISTORY)
    await log.open()
    return [entry async for entry in entries(log, await log.start())]


async def grown(log: MemoryLog, of: Sequence[Entry]) -> None:
    epoch = (await log.open()).epoch
    for entry in of:
        await log.append(entry.batch, epoch=epoch)


@pytest.mark.slow
def test_every_answer_is_that_of_the_command_in_the_names_of_the_api(capsys: pytest.CaptureFixture[str]) -> None:
    async def answers() -> list[tuple[int, Any, str]]:
        async with serving(FileLog(HISTORY)) as api:
            return await asyncio.gather(*(api.get(path) for path in SAME))

    found = asyncio.run(answers())
    for (path, words), (status, answer, _) in zip(SAME.items(), found, strict=True):
        shown = Run(capsys, *words, "--log", str(HISTORY), "-o", "json").json
        assert (status, answer) == (200, named(shown)), path


def test_events_and_a_job_are_explained_as_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Run(capsys, "events", "--log", str(HISTORY), "--to", "50", "-o", "json").lines
    job = next(line["job"] for line in lines if line["kind"] == "JobSeen")

    async def answers() -> list[tuple[int, Any, str]]:
        async with serving(FileLog(HISTORY)) as api:
            return [await api.get("events?to=50"), await api.get(f"explain?job={job}&at=376")]

    (_, listed, _), (_, told, _) = asyncio.run(answers())
    assert listed == named(lines)
    shown = Run(capsys, "explain", job, "--log", str(HISTORY), "--at", "376", "-o", "json").json
    assert told == named(shown)
    assert "time" not in told, "the server's local time isn't the reader's"


def test_of_a_quiet_live_log_the_server_and_the_commands_count_up_to_the_same_moment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "HISTORY", HISTORY.parent / "a-job-that-waits.log")
    silence_ms = 3_600_000
    last_ms = asyncio.run(history())[-1].batch.time_ms
    now_ms = (last_ms + silence_ms) // 1000 * 1000
    monkeypatch.setattr(FileLog, "live", True)
    monkeypatch.setattr("arranger.web.news.wall_clock_ms", lambda: now_ms)
    monkeypatch.setattr("arranger.cli.inputs.reading.SystemClock", lambda: Standing(now_ms))
    same = {
        "explain?job=default/train": ("explain", "default/train"),
        "forecast": ("forecast",),
        "what-if?queuePolicy=DRF": ("what-if", "--queue-policy", "DRF"),
        "waits?by=job": ("waits", "--by", "job"),
        "preemptions": ("preemptions",),
    }
    console = ("moment", "job?job=default/train", "standings", f"standings?at=211@{now_ms}", "standings?at=211")

    async def answers() -> list[tuple[int, Any, str]]:
        async with serving(FileLog(HISTORY)) as api:
            while not (await api.get("timeline"))[1]["complete"]:  # noqa: ASYNC110  # nobody tells
                await asyncio.sleep(0.1)
            return [await api.get(path) for path in (*same, *console)]

    found = asyncio.run(answers())
    for (path, words), (status, answer, _) in zip(same.items(), found, strict=False):
        shown = Run(capsys, *words, "--log", str(HISTORY), "-o", "json").json
        assert (status, answer) == (200, named(shown)), path
    (_, told, _), (_, foreseen, _), _, (_, waited, _) = found[:4]
    assert told["timeMs"] == foreseen["timeMs"] == waited["endMs"] == now_ms
    assert [status for status, _, _ in found] == [200] * len(found), found
    moment, page, *standings = [answer for _, answer, _ in found[len(same) :]]
    assert moment["time"] == page["time"] == now_ms / 1000
    now, given, then = [{one["job"]: one["gpuMs"] for one in answer["jobs"]} for answer in standings]
    assert now == given
    assert now["default/sweep"] - then["default/sweep"] == 8 * (now_ms - last_ms)
    assert now["default/eval"] == then["default/eval"], "it has ended"


def test_names_of_fields_change_and_keys_that_are_data_do_not() -> None:
    value = {
        "time_ms": 1,
        "used": {"nvidia.com/gpu": 1, "example.com/my_gpu": 2, "n-1": 3},
        "own_waiting": [{"a_b": 1}],
    }
    assert named(value) == {
        "timeMs": 1,
        "used": {"nvidia.com/gpu": 1, "example.com/my_gpu": 2, "n-1": 3},
        "ownWaiting": [{"aB": 1}],
    }


async def test_the_server_stops_though_a_library_swallows_a_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    """As redis-py does, if it arrives just when an operation completes."""
    swallowed = 0

    async def follow(_: News) -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed > 1:
                    raise

    monkeypatch.setattr(News, "follow", follow)
    async with asyncio.timeout(20):
        news = News(FileLog(HISTORY))
        server = ApiServer(news, Asker(PROGRAM, {}), host="127.0.0.1", port=0, moments=MomentProcess(MOMENTS, {}))
        await server.start()
        await asyncio.sleep(0)
        await server.stop()
    assert swallowed == 2


async def test_the_past_keeps_its_etag_and_the_present_gets_another() -> None:
    of, log, asked = await history(), MemoryLog(), []

    class Counting(Asker):
        async def ask(self, arguments: Sequence[str], *, lines: bool, given: bytes = b"") -> Any:
            asked.append(arguments)
            return {"answer": len(asked)}

    await grown(log, of[1:40])
    async with serving(log, Counting((), {})) as api:
        _, first, past = await api.get("replay?at=20")
        _, now, present = await api.get("replay")
        assert (await api.get("replay?at=20", **{"If-None-Match": past}))[:2] == (304, None)
        assert (await api.get("replay", **{"If-None-Match": present}))[0] == 304
        assert (await api.get("replay?at=20"))[1] == first, "an answer about the past is kept"
        assert len(asked) == 1
        assert (await api.get("replay?at=5m ago"))[2] == "", "who knows which offset that is"
        await grown(log, of[40:60])
        await until(lambda: api.news.offset > now["offset"])
        assert (await api.get("replay", **{"If-None-Match": present}))[0] == 200
        assert (await api.get("replay?at=20", **{"If-None-Match": past}))[0] == 304
        before, offset = (await api.get("preemptions?to=20"))[2], api.news.offset
        await grown(log, of[60:80])
        await until(lambda: api.news.offset > offset)
        assert (await api.get("preemptions?to=20"))[2] != before, "what a preemption gained shows later"


@pytest.mark.parametrize("asks", ["nobody", "a question", "a probe"])
async def test_the_log_is_folded_after_what_goes_first_and_a_pause_in_which_nobody_asks(asks: str) -> None:
    first = asyncio.Event()

    async def goes_first() -> None:
        first.set()

    news = News(FileLog(HISTORY), after=goes_first, pause_s=0.01 if asks == "nobody" else 3600)
    following = asyncio.create_task(news.follow())
    async with asyncio.timeout(60):
        await first.wait()
        assert news.problem == "the log is being read"
        if asks == "a question":
            assert (await news.present()).state.offset == news.offset
        elif asks == "a probe":
            news.hurry()
        await until(lambda: not news.problem)
    await cancelling.end([following])


async def test_those_who_ask_while_the_log_is_opened_wait_for_it() -> None:
    class Slow(MemoryLog):
        ready = asyncio.Event()

        async def open(self) -> Position:
            await self.ready.wait()
            return await super().open()

    log, of = Slow(), await history()
    Slow.ready.set()
    await grown(log, of[1:20])
    Slow.ready.clear()
    news = News(log)
    server = ApiServer(news, Asker(PROGRAM, {}), host="127.0.0.1", port=0, moments=MomentProcess(MOMENTS, {}))
    await server.start()
    try:
        async with aiohttp.ClientSession() as session, asyncio.timeout(60):
            api = Serving(server, news, session)
            asked = asyncio.create_task(api.get("replay"))
            refused = await api.get("../../healthz")
            assert (refused[0], refused[1]["problem"]) == (503, "the log is being read")
            assert not asked.done()
            Slow.ready.set()
            status, told, _ = await asked
            assert (status, told["offset"]) == (200, of[19].last)
    finally:
        await server.stop()
        await log.close()


async def events_of(response: aiohttp.ClientResponse, count: int) -> list[tuple[str, Any]]:
    """The next events of a stream: their IDs and their data."""
    found, name = [], ""
    while len(found) < count:
        field, _, value = (await response.content.readline()).decode().rstrip("\n").partition(": ")
        if field == "id":
            name = value
        elif field == "data":
            found.append((name, json.loads(value)))
    return found


async def test_those_who_watch_get_every_event_once_and_go_on_where_they_were() -> None:
    of, log = await history(), MemoryLog()
    await grown(log, of[1:20])
    async with serving(log) as api:
        async with api.session.get(api.url("live")) as one, api.session.get(api.url("live")) as other:
            assert one.headers["Content-Type"] == "text/event-stream"
            await grown(log, of[20:30])
            expected = [*range(of[20].first, of[29].last + 1)]
            got = await events_of(one, len(expected))
            assert [line["offset"] for _, line in got] == expected
            assert got == await events_of(other, len(expected))
        async with api.session.get(api.url("live"), headers={"Last-Event-ID": got[4][0]}) as again:
            assert await events_of(again, 3) == got[5:8]


class AwayLog(MemoryLog):
    """Can't be read while it is away."""

    away = False

    async def read(self, after: Position, *, limit: int = 1000, wait_s: float = 0.0) -> Sequence[Entry]:
        if self.away:
            raise LogUnavailable("Redis is away")
        return await super().read(after, limit=limit, wait_s=min(wait_s, 0.01))


async def test_those_who_watch_are_told_that_the_log_cannot_be_read_and_when_it_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(news_module, "_RETRY_S", 0.01)
    monkeypatch.setattr(news_module, "_WAIT_S", 0.01)
    of, log = await history(), AwayLog()
    await grown(log, of[1:20])
    async with serving(log) as api, api.session.get(api.url("live")) as one, asyncio.timeout(20):
        log.away = True
        assert await events_of(one, 1) == [("", {"message": "Redis is away"})]
        log.away = False
        assert await events_of(one, 1) == [("", {"message": ""})]
        await grown(log, of[20:21])
        assert [line["offset"] for _, line in await events_of(one, 1)] == [of[20].first]


async def test_a_client_that_goes_while_it_is_written_to_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    of, log, write, gone = await history(), MemoryLog(), aiohttp.web.StreamResponse.write, asyncio.Event()

    async def broken(self: aiohttp.web.StreamResponse, data: bytes) -> None:
        if data.startswith(b"id:"):
            gone.set()
            raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
        await write(self, data)

    monkeypatch.setattr(aiohttp.web.StreamResponse, "write", broken)
    await grown(log, of[1:20])
    async with serving(log) as api, api.session.get(api.url("live")) as one:
        await grown(log, of[20:22])
        await gone.wait()
        with contextlib.suppress(aiohttp.ClientError):
            await one.content.read()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_malformed_request_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with serving(FileLog(HISTORY)) as api:
        for request in (b"GET /\x00 HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port)
            writer.write(request)
            assert (await reader.read()).startswith(b"HTTP/1.0 400")
            writer.close()
    told = [of for of in caplog.records if of.name == "aiohttp.server"]
    assert [(of.levelname, of.getMessage().partition(":")[0], of.exc_info) for of in told] == [
        ("INFO", "a malformed request", None)
    ] * 2


async def test_events_that_are_not_kept_are_too_old_to_go_on_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news_module, "KEPT", 5)
    of, log = await history(), MemoryLog()
    await grown(log, of[1:20])
    async with serving(log) as api:
        epoch = (await api.get("replay"))[1]["epoch"]
        status, told, _ = await api.get("live", **{"Last-Event-ID": f"{epoch}-1"})
        assert (status, told["reason"]) == (410, "Expired")
        assert (await api.get("live", **{"Last-Event-ID": f"{epoch + 1}-{of[19].last}"}))[0] == 410
        assert (await api.get("live", **{"Last-Event-ID": "yesterday"}))[0] == 400


async def test_large_events_are_kept_for_no_more_than_a_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news_module, "KEPT_BYTES", 3_000)
    of, log = await history(), MemoryLog()
    await grown(log, of[1:20])
    async with serving(log) as api:
        epoch, offset = api.news.epoch, api.news.offset
        await grown(log, of[20:60])
        await until(lambda: api.news.offset == of[59].last)
        assert (await api.get("live", **{"Last-Event-ID": f"{epoch}-{offset}"}))[0] == 410
        async with api.session.get(api.url("live"), headers={"Last-Event-ID": f"{epoch}-{of[59].last - 1}"}) as live:
            assert len(await events_of(live, 1)) == 1


async def test_a_follower_that_fails_says_so() -> None:
    class Broken(MemoryLog):
        broken = False

        async def read(self, *args: Any, **options: Any) -> Sequence[Entry]:
            if self.broken:
                raise RuntimeError("an error of ours")
            return await super().read(*args, **options)

    log = Broken()
    await grown(log, (await history())[1:20])
    async with serving(log) as api:
        log.broken = True
        await until(lambda: api.news.problem != "")
        assert (await api.get("../../healthz"))[:2] == (
            503,
            {"ok": False, "problem": "an error of ours", "epoch": api.news.epoch, "offset": api.news.offset},
        )


async def test_after_an_entry_that_cannot_be_read_it_goes_on_with_the_next_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(damage, "LOOK_S", 0.01)
    of, log = await history(), DamagedLog()
    await grown(log, of[1:20])
    async with serving(log) as api:
        epoch, log.damaged = api.news.epoch, api.news.offset + 1
        await grown(log, of[20:21])
        await until(lambda: "can't be read" in api.news.problem)
        assert (await api.get("../../healthz"))[0] == 503
        assert (await api.get("replay"))[1]["offset"] == api.news.offset
        log.damaged = 0
        await log.begin_epoch(lost=epoch, reason="removed", time_ms=epoch + 1)
        await until(lambda: not api.news.problem)
        assert (api.news.epoch, api.news.offset) == (epoch + 1, 1)


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("replay?at=10&colour=red", 400, "replay has no parameter 'colour' (allowed: at)"),
        ("replay?at=1&at=2", 400, "at: at most 1 of them"),
        ("replay?at=soon", 400, "'soon' is not a point in the log"),
        ("explain", 400, "the parameter job is missing"),
        ("diff?a=/etc/passwd&b=1", 400, "'/etc/passwd' is not a point in the log"),
        ("what-if?plot=/tmp/x", 400, "what-if has no parameter 'plot'"),
        ("events?job=a%0Ab", 400, "a value has 1 to 256 printable characters"),
        ("secrets", 404, "there is nothing at /api/v1/secrets"),
    ],
)
async def test_a_wrong_request_is_refused_before_anything_runs(path: str, status: int, words: str) -> None:
    async with serving(FileLog(HISTORY), Asker(("/does/not/exist",), {})) as api:
        found, told, _ = await api.get(path)
        assert (found, told["code"]) == (status, status)
        assert words in told["message"]


async def test_refusals_have_the_words_of_the_command_line() -> None:
    async with serving(FileLog(HISTORY)) as api:
        unknown, future, option = await asyncio.gather(
            api.get("explain?job=nobody"), api.get("replay?at=99999999"), api.get("explain?job=--config=/etc/passwd")
        )
        assert unknown[0] == 404
        assert "the log has no job 'nobody'" in unknown[1]["message"]
        assert future[0] == 404
        assert "the log has no offset 99999999 yet" in future[1]["message"]
        assert option[0] == 404, "a value never becomes an option"


async def test_refusals_name_parameters_and_no_flags() -> None:
    async with serving(FileLog(HISTORY)) as api:
        (_, alone, *_), (_, wrong, *_), (_, least, *_), (_, unknown, *_), (_, body, *_) = await asyncio.gather(
            api.get("what-if?at=376&priority=3"),
            api.get("what-if?at=376&priority=33&changedJob=default/answer"),
            api.get("what-if?at=376&gpus=many&changedJob=default/answer"),
            api.get("what-if?at=242&priority=3&changedJob=nobody"),
            api.post("what-if?at=376", b"a: [\nb"),
        )
    assert alone["message"] == "priority needs changedJob"
    assert wrong["message"] == "Invalid value for priority: 33 is not a whole number from 1 to 10"
    assert least["message"] == "Invalid value for gpus: 'many' is not a whole number from 1 to 9007199254740992"
    at = re.search(r"no job 'nobody' at offset (\d+), on whose state the cycle at offset (\d+) was", unknown["message"])
    assert at and int(at[1]) < int(at[2]) <= 242
    assert body["message"].startswith("the body:3: not valid YAML")


async def test_it_only_reads_and_answers_only_pages_of_this_machine() -> None:
    async with serving(FileLog(HISTORY)) as api:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            async with api.session.request(method, api.url("replay")) as response:
                assert response.status == 405
        assert (await api.get("replay", Host="rebound.example"))[0] == 403
        assert (await api.get("replay", Host=f"localhost:{api.server.port}"))[0] == 200


async def test_an_answer_ends_with_its_time_its_size_and_its_client(tmp_path: Path) -> None:
    number = tmp_path / "pid"
    endless = "import os,sys,time; open(sys.argv[1],'w').write(str(os.getpid())); time.sleep(600)"
    slow = (sys.executable, "-c", endless, str(number))
    with pytest.raises(Refusal, match=r"the answer takes too long: an answer may take 0.5 s"):
        await Asker(slow, {}, limits=Limits(time_s=0.5)).ask(["--"], lines=False)
    large = (sys.executable, "-c", "import sys; sys.stdout.write('x' * (3 << 20)); sys.stdout.flush()")
    with pytest.raises(Refusal, match="more than 1 MiB"):
        await Asker(large, {}, limits=Limits(answer_bytes=1 << 20)).ask(["--"], lines=False)
    number.unlink(missing_ok=True)
    async with serving(FileLog(HISTORY), Asker(slow, {})) as api:
        waiting = asyncio.create_task(api.get("verify"))
        await until(lambda: number.exists() and number.read_text() != "")
        waiting.cancel()
        await until(lambda: not Path("/proc", number.read_text()).exists())


async def test_jobs_are_explained_by_one_process_that_stays() -> None:
    """Neither a start nor what was read is paid again with each answer about a log that grows."""
    nothing = Asker(("/does/not/exist",), {})
    explaining = MomentProcess(EXPLAINING, {}, log=str(HISTORY))
    async with serving(FileLog(HISTORY), nothing, explaining) as api:
        assert (await api.get("explain?job=answer&at=376"))[0] == 200
        process = explaining.pid
        for at in (377, 396, 376):
            status, told, tag = await api.get(f"explain?job=answer&at={at}")
            assert (status, told["offset"] >= at, bool(tag)) == (200, True, True)
        status, refused, _ = await api.get("explain?job=nobody&at=376")
        assert (status, refused["reason"]) == (404, "NotFound")
        assert explaining.pid == process


async def test_a_question_whose_client_went_before_its_turn_does_not_reach_the_process(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    slow = """
import json, sys, time
for line in sys.stdin:
    request = json.loads(line)
    if not request["name"]:
        continue
    with open(sys.argv[1], "a") as asked:
        asked.write(request["values"]["at"] + " ")
    time.sleep(0.3)
    print(json.dumps({"number": request["number"], "answer": request["values"]["at"]}), flush=True)
"""
    moments = MomentProcess((sys.executable, "-c", slow, str(asked)), {})
    try:
        first = asyncio.create_task(moments.answer("moment", {"at": "1"}, end=0))
        await until(asked.exists)
        dropped = [asyncio.create_task(moments.answer("moment", {"at": str(at)}, end=0)) for at in range(2, 7)]
        await asyncio.sleep(0)
        last = asyncio.create_task(moments.answer("moment", {"at": "7"}, end=0))
        await asyncio.sleep(0.05)
        for task in (first, *dropped):
            task.cancel()
        assert (await last)[0] == b'"7"'
    finally:
        await moments.stop()
    assert asked.read_text().split() == ["1", "7"]


async def test_the_process_is_told_that_nobody_waits_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "told"
    endless = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    with open(sys.argv[1], "a") as told:
        told.write(f"{request['number']}{request['name']} ")
    if request["name"] != "endless":
        print(json.dumps({"number": request["number"], "answer": request["name"]}), flush=True)
"""
    moments = MomentProcess((sys.executable, "-c", endless, str(told)), {})
    try:
        first = asyncio.create_task(moments.answer("endless", {}, end=0))
        await until(told.exists)
        first.cancel()
        assert (await moments.answer("moment", {}, end=0))[0] == b'"moment"'
        monkeypatch.setattr(moment_process, "_TIME_S", 0.3)
        with pytest.raises(Refusal, match="the answer takes too long"):
            await moments.answer("endless", {}, end=0)
        assert (await moments.answer("moment", {}, end=0))[0] == b'"moment"'
    finally:
        await moments.stop()
    assert told.read_text().split() == ["1endless", "1", "2moment", "3endless", "3", "4moment"]


async def test_questions_that_wait_when_the_server_ends_are_refused_and_start_no_other_process() -> None:
    moments = MomentProcess((sys.executable, "-c", "import time; time.sleep(600)"), {})
    await moments.start()
    process = moments.pid
    waiting = [asyncio.create_task(moments.answer("moment", {}, end=0)) for _ in range(3)]
    await asyncio.sleep(0.05)
    await moments.stop()
    for told in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(told, Refusal) and "the process that answers has ended" in str(told)
    assert moments.pid == process


async def test_a_process_that_ends_by_itself_is_not_taken_from_asyncio(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(5):
        moments = MomentProcess((sys.executable, "-S", "-c", "input()"), {})
        with pytest.raises(Refusal, match="has ended"):
            await moments.answer("moment", {}, end=0)
        await moments.stop()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


async def test_too_many_questions_at_once_are_refused() -> None:
    asker = Asker((sys.executable, "-c", "import time; time.sleep(600)"), {}, limits=Limits(at_once=1, waiting=1))
    tasks = [asyncio.create_task(asker.ask(["--"], lines=False)) for _ in range(2)]
    await asyncio.sleep(0.1)
    with pytest.raises(Refusal, match="too many questions are waiting"):
        await asker.ask(["--"], lines=False)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("words", [("export", "--to", "x"), ("run",), ("queue", "create", "x"), ("demo",)])
def test_the_program_for_questions_runs_no_other_command(
    words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    assert answering.answer(words) == 1
    assert "this is not a question" in capfd.readouterr().err


def test_what_was_trimmed_is_too_old(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = to_file(contended().entries, tmp_path / "trimmed.log", snapshot_after=4, trim=6)
    assert answering.answer(["replay", "--output=json", "--at=1", *options, "--"]) == 1
    told = json.loads(capfd.readouterr().err.splitlines()[-1])
    assert (told["code"], told["reason"]) == (410, "Expired")


async def test_the_document_describes_the_answers() -> None:
    schemas = document()["components"]["schemas"]
    async with serving(FileLog(HISTORY)) as api:
        _, seen, _ = await api.get("replay")
    assert set(seen) == set(schemas["Overview"]["properties"])
    assert set(seen["jobs"][0]) == set(schemas["JobLine"]["properties"])
    assert all(camel(name) == name for schema in schemas.values() for name in schema.get("properties", ()))
    references = {part.partition('"')[0] for part in json.dumps(document()).split("#/components/schemas/")[1:]}
    assert references <= set(schemas), "every reference leads to a schema"


def typed(schema: Any, schemas: dict[str, Any]) -> bool:
    """Whether a schema says which fields an answer has."""
    name = schema.get("$ref", "").rpartition("/")[2]
    if name:
        return bool(schemas[name].get("properties"))
    parts = [schema["items"]] if schema.get("type") == "array" else schema.get("anyOf", [])
    return bool(parts) and all(typed(part, schemas) for part in parts)


async def test_objects_and_copies_of_nodes_give_the_numbers_of_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = yaml.safe_dump_all([job("extra", priority=10), node("larger", gpus="16")]).encode()
    async with serving(FileLog(HISTORY)) as api:
        name = (await api.get("replay?at=376"))[1]["nodes"][0]["name"]
        status, told = await api.post(f"what-if?at=376&until=1m&withNode={name}", objects)
        refused = [
            await api.post("what-if", b"x: 1"),
            await api.post("what-if", objects, "text/plain"),
            await api.post("what-if", b" " * (257 << 10)),
            await api.post("what-if", b" "),
            await api.post("verify", objects),
        ]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(objects)))
    options = ("--at", "376", "--until", "1m", "--with-node", name, "--with", "-")
    shown = await asyncio.to_thread(Run, capsys, "what-if", *options, "--log", str(HISTORY), "-o", "json")
    assert (status, told) == (200, named(shown.json))
    assert "default/extra" in {one["job"] for one in told["whatIf"]["jobs"]}
    assert told["otherwise"] == f"with standard input, with a copy of node {name}"
    assert [(status, body["message"]) for status, body in refused] == [
        (400, "the body:1: kind is missing (every Kubernetes object has a kind, such as Node)"),
        (400, "the body is text/plain, not application/yaml"),
        (413, "the objects have more than 256 KiB"),
        (400, "the body has no objects"),
        (405, "POST is refused: this API only reads"),
    ]


@pytest.mark.slow
async def test_every_answer_is_typed_and_valid_by_the_document() -> None:
    import jsonschema  # half a second, which each worker that only collects this file would take too

    told = json.loads(json.dumps(document()))
    of = {
        path.removeprefix("/api/v1/"): one["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        for path, one in told["paths"].items()
        if "application/json" in one["get"]["responses"]["200"]["content"]
    }
    assert set(of) == {*QUESTIONS, *CONSOLE}
    assert [name for name, schema in of.items() if not typed(schema, told["components"]["schemas"])] == []
    paths = (
        *SAME,
        "events?to=376",
        "explain?job=default/many&at=376",
        "forecast?at=97",
        "what-if?at=376&until=1m&lasting=1m",
    )
    async with serving(FileLog(HISTORY)) as api:
        job = (await api.get("replay?at=376"))[1]["jobs"][0]
        found = {}
        for path in paths:
            found[path] = await api.get(path.replace("default/many", f"{job['namespace']}/{job['name']}"))
    for path, (status, answer, _) in found.items():
        assert status == 200, (path, answer)
        schema = {**of[path.partition("?")[0]], "components": told["components"]}
        jsonschema.Draft202012Validator(schema).validate(answer)
    assert found["waits?by=job&heldBy=job"][1]["rows"] and found["preemptions?within=5m"][1]["preemptions"]
    assert found["forecast?at=97"][1]["jobs"] and found[paths[-1]][1]["until"]


async def test_the_answer_about_holders_has_the_type_that_the_document_names() -> None:
    described = document()["paths"]["/api/v1/top"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    name = described["$ref"].rpartition("/")[2]
    async with serving(FileLog(HISTORY)) as api:
        _, seen, _ = await api.get("top?by=job")
    assert set(seen) == set(document()["components"]["schemas"][name]["properties"])
    assert seen["holders"]


def test_it_listens_on_this_machine_alone() -> None:
    words = [sys.executable, "-m", "arranger.cli.main", "serve", "--log", str(HISTORY), "--host", "0.0.0.0"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 2
    assert "can be reached from other machines" in done.stderr


def test_the_refusals_of_the_program_are_those_of_the_api() -> None:
    body = Refusal("NotFound", "there is no job 'x'", hint="did you mean y?").body
    assert msgspec.to_builtins(body) == {
        "code": 404,
        "reason": "NotFound",
        "message": "there is no job 'x' (did you mean y?)",
    }


async def test_half_a_request_is_closed_and_a_slow_body_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_REQUEST_S", 0.5)
    log = FileLog(HISTORY)
    async with serving(log) as at:
        begun = "POST /api/v1/what-if HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        slow = f"{begun}Content-Type: {MANIFESTS_TYPE}\r\nContent-Length: 100\r\n\r\nkind: "
        halves = [await asyncio.open_connection("127.0.0.1", at.server.port) for _ in range(100)]
        for _, writer in halves:
            writer.write(begun.encode())
        reader, writer = await asyncio.open_connection("127.0.0.1", at.server.port)
        writer.write(slow.encode())
        assert (await at.get("replay"))[0] == 200
        assert (await reader.readline()).split()[1] == b"504"
        async with asyncio.timeout(30):
            assert [await reader.read() for reader, _ in halves] == [b""] * len(halves)
        for _, of in [*halves, (reader, writer)]:
            of.close()
