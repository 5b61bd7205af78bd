"""Logs of simulated workers: each cycle gives the identical plan again, in this process and in another one with another
hash seed."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from arranger.events.codec import encode_batch
from arranger.events.file_log import copy_log
from arranger.events.kinds import Event, Waits
from arranger.scheduling.cycle import Cycles
from tests.memory_log import MemoryHome, MemoryLog
from tests.servers import REPOSITORY
from tests.simulation.invariants import Oracle, Violation
from tests.simulation.retaking import retaken, told
from tests.simulation.world import World

#: A seed that takes a cycle again before another check fails.
SEED = 0


def in_another_process(module: str, *arguments: str, hash_seed: int) -> str:
    """The last line that a module prints with its own hash seed."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-W", "ignore", "-m", module, *arguments]
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return done.stdout.strip()


async def written(oracle: Oracle, path: Path) -> None:
    """The whole last epoch as a log file."""
    home = MemoryHome()
    first, *others = oracle.entries
    home.begin(oracle.state.epoch, encode_batch(first.batch))
    for entry in others:
        home.add(encode_batch(entry.batch), len(entry.batch.events))
    assert home.index is not None and home.index.end.chain == oracle.chain
    await copy_log(MemoryLog(home), path)


@pytest.mark.parametrize("seed", [3, 11])
def test_a_simulated_log_gives_identical_plans_in_another_process_under_another_hash_seed(
    seed: int, tmp_path: Path
) -> None:
    world = World(seed)
    world.run(1500)

    asyncio.run(written(world.oracle, tmp_path / "log"))
    here = told(retaken(world.oracle.state.epoch, world.oracle.entries))
    assert " 0 cycles" not in f" {here}" and ", 0 different" in here
    for hash_seed in (1, 2):
        assert in_another_process("tests.simulation.retaking", str(tmp_path / "log"), hash_seed=hash_seed) == here


def test_a_cycle_that_can_not_be_taken_again_is_noticed() -> None:
    take = Cycles.take

    def by_mood(self: Cycles, *args: Any) -> tuple[Event, ...]:
        return tuple(
            msgspec.structs.replace(
                event, shortage=msgspec.structs.replace(event.shortage, found=event.shortage.found + 1)
            )
            if isinstance(event, Waits)
            else event
            for event in take(self, *args)
        )

    with mock.patch.object(Cycles, "take", by_mood), pytest.raises(Violation, match="come out differently"):
        World(SEED).run(300)
