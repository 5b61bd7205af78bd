"""The console on a long log: how long the first picture takes, the index, and any point of it when that is warm.

`python -m benchmarks.console --keep DIR` makes the log there unless it is there, as `benchmarks.replay --keep` does.
Figures are the processor's time of the process that answers, which other load doesn't change.
"""

import asyncio
import gc
import random
import resource
import statistics
import tempfile
import time
from pathlib import Path

import click
import msgspec

from arranger.cli.inputs.reading import GC_THRESHOLDS
from arranger.events.open_log import open_log
from arranger.web.moments import Moments
from benchmarks.replay import CLUSTER, EVENTS, Facts, make
from benchmarks.report import Figure

_POINTS = 100
_SEED = 3


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    with tempfile.TemporaryDirectory(prefix="arranger-console-") as folder:
        return figures(Path(folder), 6_000 if quick else EVENTS, small=quick)


def figures(folder: Path, events: int, *, small: bool = False) -> list[Figure]:
    """All figures of a log of so many events, made in the folder unless it is there."""
    kept = folder / "facts.json"
    if not kept.exists():
        kept.write_bytes(msgspec.json.encode(asyncio.run(make(folder, events, small=small))))
    facts = msgspec.json.decode(kept.read_bytes(), type=Facts)
    return asyncio.run(_measured(folder, facts, points=3 if small else _POINTS))


async def _measured(folder: Path, facts: Facts, *, points: int) -> list[Figure]:
    gc.set_threshold(*GC_THRESHOLDS)  # as the program that answers the console does
    log = await open_log(str(folder), CLUSTER)
    moments = Moments(log)
    began_s = time.process_time()
    following = asyncio.create_task(moments.follow())
    answer, _ = await moments.answer("moment", {"at": str(facts.events)})
    first_s = time.process_time() - began_s
    while not moments.complete:  # noqa: ASYNC110  # the index tells nobody
        await asyncio.sleep(0.05)
    index_s = time.process_time() - began_s
    chance = random.Random(_SEED)
    spent_ms = []
    for _ in range(points):
        began_s = time.process_time()
        await moments.answer("moment", {"at": str(chance.randint(1, facts.events))})
        spent_ms.append((time.process_time() - began_s) * 1000)
    following.cancel()
    await asyncio.wait([following])
    await log.close()
    late_ms = sorted(spent_ms)[min(points * 95 // 100, points - 1)]
    return [
        Figure(name="console: first moment", value=first_s, unit="s", at_most=1.5, note=f"{len(answer):,} bytes"),
        Figure(name="console: whole index", value=index_s, unit="s", note=f"{facts.events:,} events"),
        Figure(name="console: any point when warm, p50", value=statistics.median(spent_ms), unit="ms"),
        Figure(name="console: any point when warm, p95", value=late_ms, unit="ms", at_most=250.0),
        Figure(name="console: memory", value=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, unit="MiB"),
    ]


@click.command()
@click.option("--events", default=EVENTS, show_default=True, help="The number of events.")
@click.option("--keep", type=click.Path(path_type=Path), required=True, help="The folder of the log.")
def main(events: int, keep: Path) -> None:
    """Measure the console on a log that is kept."""
    keep.mkdir(parents=True, exist_ok=True)
    for figure in figures(keep, events):
        click.echo(f"{figure.name}: {figure.value:,.3f} {figure.unit} {figure.target} {figure.note}")


if __name__ == "__main__":
    main()
