"""Commands that read a log from `arranger serve` answer as they do for the log itself."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from arranger.cli.inputs import reading
from arranger.cli.main import main
from arranger.clock import SystemClock
from arranger.errors import DamagedEntry, EntriesTrimmed, EpochLost, ForgedEntry, LogError, UnknownEvent
from arranger.events.file_log import Copyable, FileLog
from arranger.kube.config import Access, Credentials
from arranger.web.asking import Asker
from arranger.web.log_copies import LogCopies, LogProblem
from arranger.web.news import News
from arranger.web.openapi import PARTS, document
from arranger.web.remote import Remote, Reply
from arranger.web.remote_log import RemoteLog
from arranger.web.rights import ClusterGate, Gate
from arranger.web.server import ApiServer
from tests.commands import Run, to_file
from tests.memory_log import MemoryLog
from tests.unit.replay_worlds import contended
from tests.unit.test_web_api import HISTORY, PROGRAM, grown, history, until
from tests.unit.test_web_rights import ALL, Reviews

#: Each command, wrong ones too, on the log in HISTORY.
COMMANDS = (
    ("replay", "--at", "400"),
    ("replay", "-o", "json"),
    ("replay", "--at", "99999999"),
    ("events", "--to", "60"),
    ("events", "--job", "nobody"),
    ("explain", "nobody"),
    ("queue",),
    ("top", "--by", "job"),
    ("verify", "--to", "200"),
    ("diff", "100", "400"),
    ("waits", "--by", "job"),
    ("preemptions",),
    ("forecast", "--at", "300"),
    ("what-if", "--at", "300", "--queue-policy", "DRF", "--every-job"),
    ("bisect", "--job", "nobody", "--blocked"),
    ("upgrade-check",),
)


@contextlib.asynccontextmanager
async def passing_on(
    log: Copyable, copied: Copyable, gate: Gate | None = None, asker: Asker | None = None
) -> AsyncIterator[str]:
    """The address of a server that passes a log on."""
    news = News(log)
    asker = asker or Asker(PROGRAM, {}, log=str(HISTORY))
    server = ApiServer(news, asker, host="127.0.0.1", port=0, gate=gate, copies=LogCopies(copied, news))
    await copied.open()
    await server.start()
    await until(lambda: news.problem != "the log is being read")
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.stop()
        await log.close()
        await copied.close()


@contextlib.contextmanager
def served(path: Path, gate: Any = None) -> Iterator[str]:
    """As `passing_on`, in a thread, for commands that have a loop of their own."""
    address, ready, loop = [""], threading.Event(), asyncio.new_event_loop()
    ended = asyncio.Event()

    async def serve() -> None:
        async with passing_on(FileLog(path), FileLog(path), gate and gate()) as address[0]:
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(20)
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(20)
        loop.close()


def no_kubeconfig() -> Access:
    raise AssertionError("nobody asked for a token")


def test_every_command_gives_the_same_output_and_status_either_way(capsys: pytest.CaptureFixture[str]) -> None:
    with served(HISTORY) as address:
        for words in COMMANDS:
            told = Run(capsys, *words, "--server", address)
            read = Run(capsys, *words, "--log", str(HISTORY))
            assert (told.status, told.out, told.err) == (read.status, read.out, read.err), words


def test_a_trimmed_and_a_damaged_log_are_told_of_in_the_same_words(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trimmed, damaged = tmp_path / "trimmed.log", tmp_path / "damaged.log"
    to_file(contended().entries, trimmed, snapshot_after=4, trim=6)
    content = bytearray(HISTORY.read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged.write_bytes(content)
    for path in (trimmed, damaged):
        with served(path) as address:
            for words in (("replay", "--at", "1"), ("replay",), ("events",), ("verify",)):
                told = Run(capsys, *words, "--server", address)
                read = Run(capsys, *words, "--log", str(path))
                assert (told.status, told.out, told.err) == (read.status, read.out, read.err), words


def test_a_user_with_few_rights_is_told_which_are_missing_and_sees_no_part_of_the_log(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reviews = Reviews(few=["tyjobs/team-a"], overseer=ALL)
    for token in ("few", "overseer", "unknown", ""):
        access = Access(
            lambda of=token: Credentials(server="", authorization=of and f"Bearer {of}"), source="kubeconfig"
        )  # type: ignore[misc]
        monkeypatch.setattr("arranger.kube.config.find_access", lambda *_, found=access: found)
        with served(HISTORY, lambda: ClusterGate(reviews, SystemClock())) as address:
            run = Run(capsys, "replay", "--server", address)
        if token == "overseer":
            assert run.status == 0
            assert run.out == Run(capsys, "replay", "--log", str(HISTORY)).out
        else:
            assert (run.status, run.out) == (1, "")
            words = {
                "few": "you may not see: get tyjobs, list nodes, list queues, list pods, list resourcequotas",
                "unknown": "doesn't know this token",
                "": "has a client certificate and no token",
            }
            assert words[token] in run.err


async def test_a_follower_gets_what_is_new_as_it_comes() -> None:
    of, log = await history(), MemoryLog()
    await grown(log, of[1:20])
    async with passing_on(log, log) as address, asyncio.timeout(20):
        remote = RemoteLog(Remote(address, no_kubeconfig))
        try:
            end = await remote.end()
            waiting = asyncio.create_task(remote.read(end, wait_s=10))
            await asyncio.sleep(0.05)
            await grown(log, of[20:30])
            got = list(await waiting)
            assert got[0].batch == of[20].batch
            assert await remote.read(end) == await log.read(end)
            assert await remote.snapshot_marks() == await log.snapshot_marks()
            with pytest.raises(LogError, match="is open for reading only"):
                await remote.trim(1, epoch=end.epoch)
        finally:
            await remote.close()


@pytest.mark.parametrize(
    "error",
    [
        DamagedEntry(7, "it is torn"),
        ForgedEntry(7, "it is signed by nobody"),
        UnknownEvent(7, "unknown event kind 'X'"),
        EpochLost("the log is another", hint="begin again"),
        EntriesTrimmed("they are gone"),
    ],
)
def test_problems_keep_their_class_and_words(error: LogError) -> None:
    again = LogProblem.of(error).error
    assert (type(again), str(again), getattr(again, "offset", 0)) == (
        type(error),
        str(error),
        getattr(error, "offset", 0),
    )


async def test_a_token_is_not_sent_where_others_can_read_it() -> None:
    remote = Remote("http://server.example", no_kubeconfig)

    async def refused(path: str, query: Sequence[tuple[str, str]], accept: str) -> Reply:
        return Reply(401, b'{"code": 401, "reason": "Unauthorized", "message": "give a token"}', "")

    remote._answer = refused  # type: ignore[method-assign]
    with pytest.raises(LogError, match="anybody on the way could read it"):
        await remote.get("log/end", {})


@pytest.mark.parametrize(
    ("words", "environment", "status", "told"),
    [
        (("replay",), {}, 404, "Redis was asked"),
        (("replay",), {}, 403, "refuses this (Forbidden): no right"),
        (("replay",), {"ARRANGER_REDIS_URL": "redis://elsewhere"}, 403, "Redis was asked"),
        (("replay", "--server", "cluster"), {}, 404, "refuses this (Forbidden): no right"),
        (("status",), {}, 403, "refuses this (Forbidden): no right"),
    ],
)
def test_the_plugin_reads_from_the_cluster_if_a_server_is_there_and_nothing_else_is_named(
    words: tuple[str, ...],
    environment: dict[str, str],
    status: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def answer(*_: object) -> Reply:
        return Reply(status, b'{"code": 0, "reason": "Forbidden", "message": "no right"}', "")

    async def redis(*_: object, **__: object) -> Copyable:
        raise LogError("Redis was asked")

    access = Access(lambda: Credentials(server="https://127.0.0.1:1", authorization="Bearer x"), source="kubeconfig")
    monkeypatch.setattr("arranger.kube.config.find_access", lambda *_: access)
    monkeypatch.setattr(Remote, "_answer", answer)
    monkeypatch.setattr(reading, "open_log", redis)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(words, prog_name="kubectl arranger") == 1
    assert told in capsys.readouterr().err


def test_two_flags_that_name_a_log_and_servers_that_are_none_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = Run(capsys, "replay", "--log", str(HISTORY), "--server", "http://127.0.0.1:1")
    assert (both.status, both.err) == (2, "arranger: --log and --server both name a log (leave one of them out)\n")
    assert Run(capsys, "replay", "--server", "ftp://x").status == 2
    assert Run(capsys, "replay", "--server", "http://127.0.0.1:1", "--epoch", "5").status == 2
    away = Run(capsys, "replay", "--server", "http://127.0.0.1:1")
    assert away.status == 1
    assert "no answer from http://127.0.0.1:1" in away.err
    monkeypatch.setenv("ARRANGER_SERVER", "http://127.0.0.1:1")
    assert Run(capsys, "replay", "--log", str(HISTORY)).status == 0, "--log goes before a variable"


def test_the_document_has_every_part_of_the_log() -> None:
    log = FileLog(HISTORY)
    assert {*PARTS} == {*LogCopies(log, News(log)).parts}
    assert {f"/api/v1/log/{name}" for name in PARTS} <= set(document()["paths"])
