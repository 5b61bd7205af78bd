"""`python -m benchmarks [NAME...]`: run benchmarks, print the table, write the JSON."""

import importlib
import os
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from benchmarks.report import Figure, Report, machine, markdown
from benchmarks.trace_jobs import NEEDED
from tests.servers import ServersUnavailable
from tests.traces import openb_folder

#: In the order in which they run; each is a module here with `run(*, quick)`.
NAMES = (
    "fold",
    "follow",
    "controller",
    "life",
    "cycle",
    "queues",
    "measures",
    "room",
    "explaining",
    "churn",
    "search",
    "scale",
    "openb",
    "replay",
    "console",
    "browsing",
    "job_page",
    "client",
    "memory",
    "demo_up",
    "observe",
    "create",
    "watching",
    "latency",
    "storm",
    "peers",
    "plain_pods",
    "growth",
    "slow_redis",
    "signing",
    "simulation",
    "fairness",
    "guests",
    "forecasts",
)
#: Those that take `traces`, the paths of --trace.
_TRACED = ("fairness", "guests", "forecasts")

_README = Path(__file__).parent / "README.md"
_BEGIN, _END = "<!-- last run -->", "<!-- end of last run -->"


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES), metavar="[NAME]...")
@click.option("--quick", is_flag=True, help="Tiny sizes on the embedded cluster: shows that everything runs.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the report to this file as JSON.")
@click.option(
    "--trace",
    "traces",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    metavar="PATH",
    help="fairness, guests, forecasts: the folder of the openb trace, or twice, its CSV files of pods and of nodes.",
)
@click.option("--record", is_flag=True, help="Put the table into benchmarks/README.md.")
def main(names: tuple[str, ...], quick: bool, json_path: Path | None, traces: tuple[Path, ...], record: bool) -> None:
    """Run these benchmarks, or all: fold, follow, controller, life, cycle, queues, room, explaining, churn, search,
    scale, openb, replay, console, browsing, job_page, client, memory, demo_up, observe, create, watching, latency,
    storm, peers, plain_pods, growth, slow_redis, signing, simulation, fairness, guests, forecasts.

    The exit status is 1 if a figure misses its target, or if a benchmark fails.
    """
    if "fairness" in names and not (quick or traces or openb_folder()):
        raise click.UsageError(f"fairness needs a trace: {NEEDED}")
    load_before = os.getloadavg()[0]
    figures: dict[str, list[Figure]] = {}
    skipped: dict[str, str] = {}
    failed: dict[str, str] = {}
    for name in names or NAMES:
        began_s = time.monotonic()
        try:
            given = {"traces": traces} if name in _TRACED else {}
            figures[name] = importlib.import_module(f"benchmarks.{name}").run(quick=quick, **given)
        except ServersUnavailable as missing:
            skipped[name] = str(missing)
        except Exception as problem:  # the figures of the others would be lost with it
            failed[name] = traceback.format_exc()
            click.echo(f"{name}: {problem!r}", err=True)
        click.echo(f"{name}: {time.monotonic() - began_s:.0f} s", err=True)
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    report = Report(machine=machine(date=date, load_before=load_before), figures=figures, skipped=skipped, quick=quick)
    table = markdown(report)
    click.echo(table)
    if json_path is not None:
        json_path.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    if record:
        _record(table)
    for trace in failed.values():
        click.echo(trace, err=True)
    missed = [figure for found in figures.values() for figure in found if figure.holds is False]
    sys.exit(1 if failed or (missed and not quick) else 0)


def _record(table: str) -> None:
    head, rest = _README.read_text().split(_BEGIN)
    _, tail = rest.split(_END)
    _README.write_text(f"{head}{_BEGIN}\n{table}\n{_END}{tail}")


if __name__ == "__main__":
    main()
