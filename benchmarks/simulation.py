"""The deterministic simulation (`tests/simulation`): steps a second that one core runs, all faults and checks on."""

import statistics

from benchmarks.report import Figure
from tests.simulation.run import outcomes, run_seed


def run(*, quick: bool) -> list[Figure]:
    """The benchmark. The core's own time counts, so that a busy machine shows little; a failed seed is a figure too."""
    seeds, steps = (1, 50) if quick else (20, 3000)
    run_seed(0, 50)  # schemas are compiled once in a process
    done = list(outcomes(range(seeds), steps, jobs=1))
    rates = sorted(outcome.steps / outcome.cpu_s for outcome in done)
    total = sum(outcome.steps for outcome in done)
    note = f"{seeds} seeds, {total:,} steps; by seed {rates[0]:,.0f} to {rates[-1]:,.0f}"
    return [
        Figure(
            name="steps, one core",
            value=total / sum(outcome.cpu_s for outcome in done),
            unit="/s",
            at_least=2000,
            note=note,
        ),
        Figure(name="  median of the seeds", value=statistics.median(rates), unit="/s"),
        Figure(name="  seeds that failed", value=sum(bool(outcome.failure) for outcome in done), at_most=0),
    ]
