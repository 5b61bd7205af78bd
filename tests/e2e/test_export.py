"""Export and import: one portable file that gives the same results, written and read as by a user."""

import asyncio
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from arranger.cli.main import main
from arranger.events.file_log import FileLog
from arranger.events.log import Entry
from arranger.events.redis_log import RedisLog
from arranger.projections.jobs.parts import LEADER
from tests.commands import Run, to_file
from tests.servers import RealRedis
from tests.unit.replay_worlds import crowded
from tests.unit.test_pseudonyms import secretive
from tests.world import World, shape

CLUSTER = "imported"


@pytest.fixture
def log(tmp_path: Path) -> list[str]:
    return to_file(crowded().entries, tmp_path / "run.log")


def export(capsys: pytest.CaptureFixture[str], log: list[str], target: Path, *more: str) -> Any:
    run = Run(capsys, "export", *log, "--to", str(target), "-o", "json", *more)
    assert run.status == 0, run.err
    return run.json


def answer(capsys: pytest.CaptureFixture[str], job: str, log: list[str], *more: str) -> Any:
    run = Run(capsys, "explain", job, *log, "-o", "json", *more)
    assert run.status == 0, run.err
    return run.json


def entries_of(made: Any) -> tuple[int, int]:
    return made["first"], made["last"]


def test_a_whole_log_is_exported_verified_and_replayed_alike(
    log: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "all.arranger"
    made = export(capsys, log, target)
    assert (made["first"], made["bytes"]) == (1, target.stat().st_size)
    for command in (["verify"], ["replay"], ["events"]):
        assert Run(capsys, *command, "--log", str(target)).out == Run(capsys, *command, *log).out


@pytest.fixture
def a_long_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the part that concerns a job out of short logs too."""
    monkeypatch.setattr("arranger.cli.commands.export.FROM_THE_START", 0)


@pytest.mark.usefixtures("a_long_log")
def test_what_concerns_a_job_gives_the_same_answers_on_it(
    log: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [line["job"] for line in Run(capsys, "events", "--kind", "JobSeen", *log, "-o", "json").lines]
    for number, job in enumerate(dict.fromkeys(jobs)):
        target = tmp_path / f"{number}.arranger"
        made = export(capsys, log, target, "--job", job)
        assert Run(capsys, "verify", "--log", str(target)).status == 0
        whole, part = (
            answer(capsys, job, options, "--at", str(made["last"])) for options in (log, ["--log", str(target)])
        )
        assert part.pop("began") == made["first"] - 1
        assert whole.pop("began") == 0
        for remedy in (whole["waiting"] or {}).get("remedies", ()):  # earlier events aren't in the part
            remedy["undoes"] = remedy["undoes"] if remedy["undoes"] >= made["first"] else 0
        assert part == whole


@pytest.mark.usefixtures("a_long_log")
def test_a_job_that_has_not_ended_takes_the_end_of_the_log_along_and_another_says_where_it_stops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    world.node("n1", gpus=1)
    world.job("waits", leader=shape(gpus=2))
    over = world.job("over", leader=shape(gpus=1))
    world.settle()
    world.change_pod(over.bound[LEADER], phase="Succeeded", ready=False)
    world.settle()
    last = world.state.offset
    world.node("n2")
    log = to_file(world.entries, tmp_path / "run.log")
    end = world.state.offset
    made = export(capsys, log, tmp_path / "waits.arranger", "--job", "waits")
    assert (made["last"], made["log_ends"]) == (end, end)
    run = Run(capsys, "export", *log, "--job", "over", "--to", str(tmp_path / "over.arranger"))
    assert f"the log continues to offset {end}, but no event after {last} concerns default/over\n" in run.out


def test_what_the_job_is_called_in_the_file_is_told_to_who_exports_and_not_in_the_file(
    log: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "hashed.arranger"
    run = Run(capsys, "export", *log, "--job", "wide", "--hash-names", "--to", str(target))
    (line,) = [line for line in run.out.splitlines() if line.startswith("default/wide is called ")]
    there = line.split()[3]
    told = Run(capsys, "explain", there, "--log", str(target), "-o", "json")
    assert told.status == 0
    content = zipfile.ZipFile(target)
    assert all(b"default/wide" not in content.read(name) for name in content.namelist())
    assert "wide" not in Run(capsys, "events", "--log", str(target), "-o", "json").out.replace("uid-wide", "")
    run = Run(capsys, "export", *log, "--job", "wide", "--to", str(tmp_path / "plain.arranger"))
    assert "default/wide is" not in run.out


def test_a_stretch_is_exported_with_the_state_before_it(
    log: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "part.arranger"
    made = export(capsys, log, target, "--from", "20", "--until", "40")
    assert made["first"] <= 20 and made["last"] >= 40
    for at in range(made["first"] - 1, made["last"] + 1):
        words = ["replay", "--digest-only", "--at", str(at)]
        assert Run(capsys, *words, "--log", str(target)).out == Run(capsys, *words, *log).out
    run = Run(capsys, "replay", "--log", str(target), "--at", str(made["first"] - 2))
    assert run.status == 1 and "no snapshot before the requested point" in run.err


def test_nothing_is_ever_overwritten(log: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, copy = tmp_path / "all.arranger", tmp_path / "copy.log"
    export(capsys, log, target)
    before = target.read_bytes()
    run = Run(capsys, "export", *log, "--to", str(target))
    assert run.status == 2 and "nothing is overwritten" in run.err
    assert Run(capsys, "import", str(target), "--to", str(copy)).status == 0
    run = Run(capsys, "import", str(target), "--to", str(copy))
    assert run.status == 2 and "nothing is overwritten" in run.err
    assert target.read_bytes() == before


def test_a_failed_export_leaves_nothing_behind(
    log: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    damaged = tmp_path / "run.log"
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-200] + bytes([content[-200] ^ 1]) + content[-199:])
    run = Run(capsys, "export", *log, "--to", str(folder / "x.arranger"))
    assert run.status == 1 and "can't be read" in run.err
    assert list(folder.iterdir()) == []


def test_an_unknown_job_is_told_with_its_nearest(
    log: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(capsys, "export", *log, "--job", "wied", "--to", str(tmp_path / "x"))
    assert run.status == 1
    assert "did you mean default/wide" in run.err


def test_of_a_short_log_a_job_takes_the_beginning_too_and_needs_no_snapshot(
    log: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = export(capsys, log, tmp_path / "job.arranger", "--job", "wide")
    assert made["first"] == 1


@pytest.mark.usefixtures("a_long_log")
def test_an_import_is_the_same_log_in_a_file(
    log: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, copy = tmp_path / "job.arranger", tmp_path / "job.log"
    made = export(capsys, log, target, "--job", "wide")
    run = Run(capsys, "import", str(target), "--to", str(copy), "-o", "json")
    assert run.json["offset"] == made["last"]
    beside = sorted(path.name for path in tmp_path.glob("job.log.snapshot-*"))
    assert run.json["snapshots"] == beside and beside
    assert _entries(FileLog(copy)) == _part(_entries(FileLog(tmp_path / "run.log")), made)
    assert answer(capsys, "wide", ["--log", str(copy)]) == answer(capsys, "wide", ["--log", str(target)])


@pytest.mark.usefixtures("a_long_log")
def test_an_import_is_the_same_log_in_an_empty_redis_and_refused_elsewhere(
    log: list[str], redis_server: RealRedis, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    redis_server.command("FLUSHDB")
    target = tmp_path / "job.arranger"
    made = export(capsys, log, target, "--job", "wide")
    there = ["--log", redis_server.url, "--cluster", CLUSTER]
    words = ["import", str(target), "--to", redis_server.url, "--cluster", CLUSTER]
    assert Run(capsys, *words).status == 0
    loaded = _entries(RedisLog(redis_server.url, CLUSTER))
    assert loaded == _part(_entries(FileLog(tmp_path / "run.log")), made)
    at = ["--at", str(made["last"])]  # the end of a log in Redis is as of now
    assert answer(capsys, "wide", [*there, *at]) == answer(capsys, "wide", ["--log", str(target), *at])
    run = Run(capsys, *words)
    assert run.status == 2 and "there is a log" in run.err and "nothing is overwritten" in run.err
    assert b"loading" not in redis_server.command("KEYS", "*")
    redis_server.command("FLUSHDB")


def _part(entries: list[Entry], made: Any) -> list[Entry]:
    return [entry for entry in entries if made["first"] <= entry.first <= made["last"]]


def _entries(log: Any) -> list[Entry]:
    async def whole() -> list[Entry]:
        await log.open()
        found, after = [], await log.start()
        from arranger.events.log import entries

        async for entry in entries(log, after):
            found.append(entry)
        await log.close()
        return found

    return asyncio.run(whole())


@pytest.mark.usefixtures("a_long_log")
def test_hashed_names_are_nowhere_in_the_file_and_verify_and_explain_still_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = secretive()
    log = to_file(world.entries, tmp_path / "run.log", snapshot_after=40)
    target, part = tmp_path / "all.arranger", tmp_path / "job.arranger"
    made = export(capsys, log, target, "--hash-names")
    assert made["hashed"]
    export(capsys, log, part, "--hash-names", "--job", "secret-late-3")
    for file in (target, part):
        copy = file.with_suffix(".log")
        assert Run(capsys, "import", str(file), "--to", str(copy)).status == 0
        # UIDs stay. Those of this world contain names, but those of a cluster don't.
        assert b"secret" not in re.sub(rb"uid-secret[\w-]*", b"", copy.read_bytes())
        told = Run(capsys, "events", "--log", str(file), "-o", "json").out
        assert "secret" not in re.sub(r"uid-secret[\w-]*", "", told)
        assert all("secret" not in name for name in zipfile.ZipFile(file).namelist())
        verified = Run(capsys, "verify", "--log", str(file), "-o", "json")
        assert verified.status == 0 and verified.json["identical"] == verified.json["cycles"] > 1
    jobs = json.loads(Run(capsys, "replay", "--log", str(target), "-o", "json").out)["jobs"]
    assert len(jobs) == len(world.state.jobs)
    for job in jobs:
        assert main(["explain", f"{job['namespace']}/{job['name']}", "--log", str(target)], prog_name="arranger") == 0
