"""`python -m benchmarks.compare BASE [NAME...]`: the benchmarks of an earlier revision and of this tree by turns.

Each round runs both trees, first the one and then the other, in the next round the other way round, so that a machine
that grows slower or busier harms both. Each tree runs its own benchmarks: a figure whose size or name changed between
them isn't compared. A figure is worse if both its median and its best value are, by more than the tolerance: one round
beside another task changes the median of few rounds, and seldom the best value as well. Each round is a process of its
own, and some processes are slower than others from begin to end, by 5 % and more (where their memory lies, for
example). So benchmarks with a figure that is worse get further rounds before that counts.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

import click
import msgspec

from benchmarks.__main__ import NAMES
from benchmarks.report import Figure, Report, number, table

_TREE = Path(__file__).parent.parent
#: Those that need no server and take their thread's or process's own time.
QUICK = ("fold", "follow", "controller", "cycle", "queues")
#: How often a benchmark gets its rounds at most, as long as a figure of it is worse.
_LOOKS = 3
#: The units of which more is better; of all others that are known, less is.
_MORE = ("/s", "×")
_LESS = ("s", "ms", "µs", "ns", "MiB", "MB", "KiB", "bytes")


class Compared(msgspec.Struct, frozen=True):
    """One figure in both trees. `ratio` is the median here by that of the base, turned so that more than 1 is better;
    `best` is the same of the best values. `places` says where it stands: benchmark, row and name."""

    places: tuple[str, str, str]
    base: float
    here: float
    unit: str
    ratio: float
    best: float

    def worse(self, tolerance: float) -> bool:
        """Whether it is worse by more than this part of the base."""
        return max(self.ratio, self.best) < 1 - tolerance


def compared(base: Sequence[Report], here: Sequence[Report]) -> list[Compared]:
    """The figures that both trees have and of which it is known whether more or less is better."""
    before, after = _values(base), _values(here)
    found = []
    for places, (figure, values) in after.items():
        of_base, better = before.get(places), _more_is_better(figure)
        if of_base is None or better is None or of_base[0].unit != figure.unit or of_base[0].note != figure.note:
            continue
        if min(of_base[1]) <= 0 or min(values) <= 0:
            continue
        middle, best = median(values) / median(of_base[1]), max(values) / max(of_base[1])
        if not better:
            middle, best = 1 / middle, min(of_base[1]) / min(values)
        found.append(Compared(places, median(of_base[1]), median(values), figure.unit, middle, best))
    return found


def by_turns(
    run: Callable[[int, Sequence[str]], Report], names: Sequence[str], rounds: int, tolerance: float
) -> tuple[list[Compared], list[Report]]:
    """The figures of benchmarks in both trees, and the reports of all rounds, base first and then this tree's. `run`
    runs those with the given names in the base (0) or in this tree (1). Benchmarks with a figure that is worse by more
    than the tolerance get as many rounds again, until none is or they have had them three times."""
    reports: tuple[list[Report], list[Report]] = ([], [])
    found: list[Compared] = []
    for _ in range(_LOOKS):
        for turn in range(2 * rounds):
            which = (turn + turn // 2) % 2
            reports[which].append(run(which, names))
        found = compared(*reports)
        names = list(dict.fromkeys(one.places[0] for one in found if one.worse(tolerance)))
        if not names:
            break
    return found, [*reports[0], *reports[1]]


def _values(reports: Sequence[Report]) -> Mapping[tuple[str, str, str], tuple[Figure, list[float]]]:
    found: dict[tuple[str, str, str], tuple[Figure, list[float]]] = {}
    for report in reports:
        for benchmark, figures in report.figures.items():
            for figure in figures:
                found.setdefault((benchmark, figure.row, figure.name), (figure, []))[1].append(figure.value)
    return found


def _more_is_better(figure: Figure) -> bool | None:
    """None for a figure that is no speed and no size."""
    if figure.at_least is not None or figure.at_most is not None:
        return figure.at_least is not None
    if figure.unit.endswith(_MORE):
        return True
    return False if figure.unit.split("/")[0] in _LESS else None


@click.command()
@click.argument("base")
@click.argument("names", nargs=-1, type=click.Choice(NAMES), metavar="[NAME]...")
@click.option("--rounds", type=click.IntRange(min=1), default=3, help="How often each tree runs; 3 if not given.")
@click.option("--tolerance", type=click.IntRange(0, 100), default=5, help="So many percent worse are no failure; 5.")
@click.option("--quick", is_flag=True, help="Tiny sizes: shows that the comparison runs.")
def main(base: str, names: tuple[str, ...], rounds: int, tolerance: int, quick: bool) -> None:
    """Run benchmarks of the revision BASE and of this tree by turns, and compare them as ratios: fold, follow,
    controller, cycle and queues if no NAME is given. Those with a figure that is worse than is tolerated run up to
    three times as often. The exit status is 1 if it still is then."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "base"
        try:
            _git("worktree", "add", "--quiet", "--detach", str(tree), base)
        except subprocess.CalledProcessError as problem:
            raise click.UsageError(f"BASE is no revision of this repository: {problem.stderr.strip()}") from problem
        try:

            def run(which: int, of: Sequence[str]) -> Report:
                click.echo(f"{base if which == 0 else 'this tree'}: {', '.join(of)}", err=True)
                return _run((tree, _TREE)[which], of, quick=quick)

            found, reports = by_turns(run, names or QUICK, rounds, tolerance / 100)
        finally:
            _git("worktree", "remove", "--force", str(tree))
    head = ("benchmark", "figure", base, "here", "ratio, more than 1 is better", "of the best", "")
    click.echo("\n".join(table([head, *_rows(found, tolerance)])))
    machine, loads = reports[-1].machine, [of.machine.load_before for of in reports]
    click.echo(f"\n{machine.cpu}, {machine.cores} cores, load {min(loads)} to {max(loads)}")
    sys.exit(1 if not found or any(one.worse(tolerance / 100) for one in found) else 0)


def _git(*arguments: str) -> None:
    subprocess.run(("git", "-C", str(_TREE), *arguments), check=True, capture_output=True, text=True)


def _run(tree: Path, names: Sequence[str], *, quick: bool) -> Report:
    """One run of a tree's benchmarks. What it misses of its targets doesn't matter here."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = (sys.executable, "-m", "benchmarks", *names, "--json", report.name, *(("--quick",) if quick else ()))
        done = subprocess.run(
            command, check=False, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, capture_output=True, text=True
        )
        content = Path(report.name).read_bytes()
    if not content:
        raise click.ClickException(f"the benchmarks of {tree} ended with status {done.returncode}:\n{done.stderr}")
    return msgspec.json.decode(content, type=Report)


def _rows(found: Sequence[Compared], tolerance: int) -> Iterator[Sequence[str]]:
    for one in found:
        benchmark, row, name = one.places
        verdict = "WORSE" if one.worse(tolerance / 100) else ""
        figures = (f"{number(value)} {one.unit}".rstrip() for value in (one.base, one.here))
        yield (benchmark, f"{row} {name}".strip(), *figures, f"{one.ratio:.2f}", f"{one.best:.2f}", verdict)


if __name__ == "__main__":
    main()
