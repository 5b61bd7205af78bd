"""`python -m tests.fuzz --jobs 200000`: that many fuzzed TYJobs through the checks and the workers."""

import sys
import time
from collections import Counter

import click

from tests.fuzz.run import LOT, lots
from tests.simulation.run import cores

_TOLD_EVERY = 100


@click.command()
@click.option("--jobs", default=2_000, show_default=True, help="How many TYJobs.")
@click.option("--seed", default=0, show_default=True, help="The first lot's seed.")
@click.option("--processes", default=0, help="Processes at once; as many as there are cores for 0.")
def main(jobs: int, seed: int, processes: int) -> None:
    """Fuzzed TYJobs: no worker ends, no other job is delayed, each is accepted or refused by the name of a field."""
    began_s = time.monotonic()
    seeds = range(seed, seed + -(-jobs // LOT))
    stages: Counter[str] = Counter()
    accepted = wrong = 0
    for done, one in enumerate(lots(seeds, processes=processes or cores()), start=1):
        accepted += one.accepted
        stages.update(one.stages)
        wrong += len(one.wrong)
        for told in one.wrong:
            click.echo(told[:2_000])
        if done % _TOLD_EVERY == 0:
            click.echo(f"{done * LOT} jobs, {time.monotonic() - began_s:.0f} s", err=True)
    counted = ", ".join(f"{count} {stage or 'deleted'}" for stage, count in sorted(stages.items()))
    click.echo(f"{len(seeds) * LOT} TYJobs (seeds {seeds[0]} to {seeds[-1]}): {accepted} accepted, {wrong} wrong")
    click.echo(f"with a good one in each {LOT} they ended as {counted}; {time.monotonic() - began_s:.0f} s")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
