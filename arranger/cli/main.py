"""The `arranger` command: a table of subcommands whose modules are imported only when they are called.

Every subcommand is a module with an attribute `command`. An expected error gives one line on standard error,
`arranger: …`, and an exit status: 2 for bad usage, 1 otherwise, 130 after Ctrl-C.
"""

import contextlib
import gc
import importlib
import os
import re
import sys
from collections.abc import Sequence

import click

from arranger import __version__
from arranger.cli import PLUGIN
from arranger.cli.rendering.pager import paged
from arranger.errors import ArrangerError
from arranger.model.text import one_line

#: Subcommand → its line in `arranger --help`.
COMMANDS: dict[str, str] = {
    "demo": "Run the example jobs on an embedded cluster and watch them.",
    "run": "Run workers: watcher, controller, scheduler, applier, maintenance.",
    "status": "Show the running processes, their shares of the jobs, how far each has read, and what is missing.",
    "events": "List and follow the event log.",
    "replay": "Show the cluster as Arranger saw it at a point of the log.",
    "queue": "Show the tree of queues, or one queue; create, close and open queues.",
    "top": "Show who holds GPUs, by queue, namespace, user or job.",
    "forecast": "Say when each waiting job would start, and how good earlier forecasts were.",
    "waits": "Say what jobs waited for: room and who held it, limits, reservations, and other causes.",
    "preemptions": "List who gave room to whom, what it cost, what it gained, and whether it was worth it.",
    "explain": "Say why a job waits, or why its pods are where they are.",
    "verify": "Re-run every recorded cycle and compare the results byte for byte.",
    "hand-over": "Show which log holds the Kubernetes cluster, and hand the cluster over to another.",
    "upgrade-check": "Say whether this version can go on with a log and a cluster, and what happens if not.",
    "what-if": "Re-run a past cycle with changes, and show both plans side by side.",
    "diff": "Show what changed between two points of the log, or between two plans.",
    "bisect": "Find the event at which a condition starts to hold, or the first cycle with a different result.",
    "ui": "Open the console, a page that shows the cluster at any point of the log.",
    "serve": "Answer the questions of these commands over HTTP, as JSON.",
    "webhook": "Tell a webhook of the stage changes of TYJobs, as CloudEvents.",
    "traces": "Export how TYJobs started as OpenTelemetry traces.",
    "export": "Write a log, or the part that concerns one job, to one file.",
    "import": "Turn an export into a log file, or load it into an empty Redis.",
    "simulate": "Show what the scheduler would do with a cluster in files, or with a trace.",
    "convert": "Make TYJobs and Queues of manifests of Volcano, Kueue, Kubeflow, KubeRay, JobSet and others.",
    "policies": "List the installed policies and filters, including those of other packages.",
    "settings": "Show every setting, its value and the source of the value.",
    "crd": "Print the definitions of TYJobs, Queues and ClusterLogs for kubectl apply.",
    "completion": "Print a shell completion script for arranger.",
}

#: Subcommand → its module, if the names differ.
_MODULES = {"import": "import_log"}

#: Commands with long output: on a terminal, it goes through a pager, except with `--follow`.
PAGED = frozenset(
    {
        "events",
        "replay",
        "queue",
        "top",
        "forecast",
        "waits",
        "preemptions",
        "explain",
        "verify",
        "what-if",
        "diff",
        "bisect",
        "simulate",
    }
)

_FOLLOWS = re.compile(r"-f\w*|--foll?o?w?")

#: Click's error for the second word of an unquoted point such as `10m ago` or `2026-05-04 10:30`.
_POINT_IN_PIECES = re.compile(r"unexpected extra arguments? \((ago|\d\d:\d\d\S*)\)")


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports a command only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = _MODULES.get(cmd_name, cmd_name.replace("-", "_"))
        command = importlib.import_module(f"arranger.cli.commands.{module}").command
        assert isinstance(command, click.Command)
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        for each in (command, *getattr(command, "commands", {}).values()):
            # Click's mark for preformatted lines is a backspace character, which a raw docstring can't contain.
            each.help = (each.help or "").replace("\\b\n", "\b\n")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As in click, but the error for an unknown command suggests a similar name."""
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-"):
            from arranger.model.near_names import near_names

            close = near_names(args[0], names)
            hint = f"did you mean {close[0]}?" if close else "one of " + ", ".join(names)
            raise click.UsageError(f"no command {args[0]!r}: {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list for `--help` from the table, without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, "--version", prog_name="arranger", message="%(prog)s %(version)s")
def cli() -> None:
    """Schedule distributed reinforcement learning on Kubernetes; every decision can be replayed."""


def run() -> None:
    # Modules stay, so a collection while they are imported would only look at them in vain, as would all later ones.
    gc.disable()
    sys.exit(main(sys.argv[1:], prog_name="arranger"))


def run_as_plugin() -> None:
    """Entry point of `kubectl-arranger`, which kubectl runs as `kubectl arranger`."""
    gc.disable()
    sys.exit(main(sys.argv[1:], prog_name=PLUGIN))


def main(arguments: Sequence[str], *, prog_name: str) -> int:
    status = None
    try:
        # A command returns its exit status; None means success.
        with paged(asked=_paged(arguments)):
            status = cli.main(list(arguments), prog_name=prog_name, standalone_mode=False)
            sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as problem:
        click.echo(problem.format_message())
        return 2
    except click.ClickException as problem:
        return _complain(usage_line(problem, arguments, prog_name), problem.exit_code)
    except ArrangerError as problem:
        return _complain(str(problem), problem.exit_status)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # The reader of our output has closed the pipe. Without this, Python reports the error again at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status if isinstance(status, int) else 0


def _paged(arguments: Sequence[str]) -> bool:
    named = next((word for word in arguments if not word.startswith("-")), "")
    return named in PAGED and not any(_FOLLOWS.fullmatch(word) for word in arguments)


def usage_line(problem: click.ClickException, arguments: Sequence[str], prog_name: str) -> str:
    """The error in one line: the problem, the allowed values, and the command with further help."""
    line = problem.format_message().rstrip(".")
    if not isinstance(problem, click.UsageError):
        return line
    kind = getattr(problem.param, "type", None) if isinstance(problem, click.BadParameter) else None
    if isinstance(kind, click.IntRange | click.FloatRange) and " is not " in line:
        noun = "whole number" if isinstance(kind, click.IntRange) else "number"
        first = f"above {kind.min}" if kind.min_open else f"from {kind.min}"
        most = "" if kind.max is None else f" and at most {kind.max}" if kind.min_open else f" to {kind.max}"
        line = f"{line.partition(' is not ')[0]} is not a {noun} {first}{most or ' on'}"
    if _POINT_IN_PIECES.search(line):
        line += ": quote a point that has a space in it, as in --at '10m ago'"
    # Click's parser doesn't report the command if an option lacks its value.
    command = next((word for word in arguments if word in COMMANDS), "")
    path = problem.ctx.command_path if problem.ctx else f"{prog_name} {command}".rstrip()
    return f"{line} (see {path} --help)"


def _complain(line: str, status: int) -> int:
    click.echo(one_line("arranger: " + " ".join(line.split())), err=True)
    return status


if __name__ == "__main__":
    run()
