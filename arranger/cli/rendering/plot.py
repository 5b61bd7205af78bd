"""A plot of two variants over time. matplotlib is in the extra `plot` and is imported only when needed."""

from collections.abc import Sequence
from pathlib import Path

from arranger.cli.rendering.output import local_time
from arranger.errors import UsageError
from arranger.install import install_hint
from arranger.replay.what_if.utilisation import Utilisation

_ENDINGS = (".png", ".svg")

#: Title of a chart → the field of `Sample` that it shows.
_CHARTS = {"GPUs in use": "gpus_used", "jobs that wait": "waiting", "GPUs idle in fragments": "fragmented"}


def check_plot(path: Path) -> None:
    """Raise `UsageError` if no plot can be written to this path, before long work begins."""
    if path.suffix.lower() not in _ENDINGS:
        raise UsageError(f"--plot: {path} has no known ending", hint="allowed: FILE.png or FILE.svg")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--plot: there is no folder {path.absolute().parent}")
    try:
        import matplotlib  # noqa: F401
    except ImportError as problem:
        raise UsageError("--plot needs matplotlib, which isn't installed", hint=install_hint("plot")) from problem


def plot(path: Path, utilisations: Sequence[tuple[str, Utilisation]]) -> None:
    """Plot GPUs in use, waiting jobs and fragmented GPUs over time, one line per variant."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 8), layout="constrained")
    axes = figure.subplots(len(_CHARTS), 1, sharex=True)
    unit, unit_ms = _unit(max(utilisation.end_ms - utilisation.begin_ms for _, utilisation in utilisations))
    for axis, (title, field) in zip(axes, _CHARTS.items(), strict=True):
        for name, utilisation in utilisations:
            moments_ms = [*(sample.time_ms for sample in utilisation.curve), utilisation.end_ms]
            times = [(moment_ms - utilisation.begin_ms) / unit_ms for moment_ms in moments_ms]
            values = [getattr(sample, field) for sample in utilisation.curve]
            axis.step(times, [*values, *values[-1:]], where="post", label=name)
        axis.set_ylabel(title)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0].legend()
    axes[-1].set_xlabel(f"{unit} since {local_time(utilisations[0][1].begin_ms)}")
    try:
        figure.savefig(path)
    except OSError as problem:
        raise UsageError(f"--plot: {path} can't be written: {problem.strerror}") from problem


def _unit(span_ms: int) -> tuple[str, int]:
    """The largest unit in which the span is at least ten, and the unit's milliseconds."""
    units = (("hours", 3_600_000), ("minutes", 60_000))
    return next((unit for unit in units if span_ms >= 10 * unit[1]), ("seconds", 1000))
