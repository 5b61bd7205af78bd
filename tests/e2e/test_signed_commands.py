"""`arranger verify` and `arranger status` on a signed log: with the key, without it, and with a forged entry."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from arranger.events.file_log import copy_log
from arranger.events.log_keys import UNKEYED
from tests.contract.test_signed_log import FIRST, KEYED, SECOND, forge, written
from tests.servers import RealRedis

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]


def arranger(*words: str, key: str = "") -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, **({"ARRANGER_LOG_KEY": key} if key else {})}
    command = [sys.executable, "-m", "arranger.cli.main", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_verify_checks_signatures_with_the_key_and_says_so_without(
    redis_server: RealRedis, cluster: str, tmp_path: Path
) -> None:
    file, plain = f"{tmp_path}/signed.log", f"{tmp_path}/plain.log"

    async def write() -> None:
        log = await written(redis_server, cluster)
        await copy_log(log, Path(file))
        await log.close()
        log = await written(redis_server, f"{cluster}-plain", UNKEYED)
        await copy_log(log, Path(plain))
        await log.close()

    asyncio.run(write())
    checked = arranger("verify", "--log", file, key=FIRST)
    assert checked.returncode == 0 and "authenticated: every entry has a signature" in checked.stdout
    unchecked = arranger("verify", "--log", file)
    assert unchecked.returncode == 0 and "not checked: the log is signed" in unchecked.stdout
    unsigned = arranger("verify", "--log", plain, key=FIRST)
    assert unsigned.returncode == 1 and "not authenticated" in unsigned.stdout
    wrong = arranger("verify", "--log", file, key=SECOND)
    assert wrong.returncode == 1 and "offset 1" in wrong.stderr and "isn't authentic" in wrong.stderr
    other = arranger("upgrade-check", "--log", file, "-o", "json", key=SECOND)
    assert other.returncode == 1 and json.loads(other.stdout)["verdict"] == "forged"
    for done in (checked, unchecked, unsigned, wrong, other):
        assert FIRST not in done.stdout + done.stderr and SECOND not in done.stdout + done.stderr


def test_status_says_whether_the_log_is_authenticated_and_where_it_is_not(
    redis_server: RealRedis, cluster: str
) -> None:
    async def write() -> int:
        log = await written(redis_server, cluster, KEYED)
        await log.close()
        return await forge(redis_server, cluster)

    offset = asyncio.run(write())
    words = ("status", "--log", redis_server.url, "--cluster", cluster)
    shown = arranger(*words, key=FIRST)
    assert shown.returncode == 1
    assert f"offset {offset} isn't authentic" in " ".join(shown.stdout.split())
    told = json.loads(arranger(*words, "-o", "json", key=FIRST).stdout)
    assert told["log"]["forged"] == offset and told["log"]["last"] == offset - 1
    assert "not checked: the log is signed" in " ".join(arranger(*words).stdout.split())
    transition = arranger(*words, key=f"{FIRST},none")
    assert "entries without one are accepted too" in " ".join(transition.stdout.split())


def test_a_key_is_never_shown() -> None:
    for key in ("short", "x" * 40 + "!"):
        refused = arranger("settings", key=key)
        assert refused.returncode == 2 and "log_key" in refused.stderr and key not in refused.stderr
    shown = arranger("settings", key=FIRST)
    assert shown.returncode == 0 and FIRST not in shown.stdout
