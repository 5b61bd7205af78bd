"""`python -m tests.histories EXPORT NAME`: turn an export, or any log, into a history here, and say how it ends."""

import asyncio
import sys
from collections import Counter
from pathlib import Path

from arranger.cli.main import main as arranger
from arranger.events.file_log import copy_log
from arranger.events.log import entries
from arranger.events.open_log import open_log
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State
from arranger.replay.reading.verify import cycle_in

HERE = Path(__file__).parent


async def keep(source: str, target: Path) -> tuple[int, int, dict[str, int]]:
    """Copy the log, and answer its end: the last offset, the number of cycles, and its jobs by stage."""
    log = await open_log(source, "default")
    try:
        await copy_log(log, target)
        position, state = await log.start(), State()
        if position.offset:
            stored = await log.newest_snapshot(at_most=position.offset)
            if stored is None:
                raise SystemExit(f"{source} begins at offset {position.offset} without the state there")
            state = snapshot.restore(stored.content)
        for needless in HERE.glob(f"{target.name}.snapshot-*"):
            if needless.name != f"{target.name}.snapshot-{position.offset}":
                needless.unlink()
        cycles = 0
        async for entry in entries(log, position):
            cycles += cycle_in(entry) is not None
            apply_entry(state, entry, Changes())
    finally:
        await log.close()
    return state.offset, cycles, dict(Counter(str(job.stage) for job in state.jobs.values()))


def main() -> int:
    """The command."""
    if len(sys.argv) != 3 or not all(sys.argv[1:]):
        print("usage: make history EXPORT=FILE NAME=what-it-shows", file=sys.stderr)
        return 2
    source, name = sys.argv[1:]
    target = HERE / f"{name}.log"
    if target.exists():
        print(f"{target} is there already", file=sys.stderr)
        return 2
    if status := arranger(["verify", "--log", source], prog_name="arranger"):
        print("not every cycle comes out identical: the history is made all the same", file=sys.stderr)
    events, cycles, stages = asyncio.run(keep(source, target))
    print(f'tests/unit/test_histories.py, ENDS: "{target.name}": ({events}, {cycles}, {stages}),')
    print("tests/histories/README.md: a row that says what it shows")
    return status


if __name__ == "__main__":
    sys.exit(main())
