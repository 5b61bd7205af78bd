"""`arranger queue`: show the tree of queues or one queue, and create, close and open queues."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import takewhile
from typing import Any

import click
import msgspec

from arranger.cli.inputs.flags import with_settings
from arranger.cli.inputs.log_options import log_options
from arranger.cli.inputs.reading import (
    NotFound,
    point_option,
    resource_option,
)
from arranger.cli.inputs.with_config import seen_at
from arranger.cli.rendering.output import local_time, output_option, print_json, say
from arranger.cli.rendering.queue_page import print_queue, print_queues
from arranger.errors import ArrangerError
from arranger.kube.client import HttpCluster
from arranger.kube.cluster import QUEUES, ApiError, ClusterUnavailable, Object
from arranger.kube.config import find_access
from arranger.model.near_names import did_you_mean, near_names
from arranger.model.queue import DEFAULT_QUEUE, QUEUE_KIND, QueueState
from arranger.plugins import installed
from arranger.projections.state import State
from arranger.replay.reading.history import Point
from arranger.replay.reading.queues import QueueList, queue_detail, queue_list
from arranger.settings import Settings


class _Refused(ArrangerError):
    """The API server refuses to create or change a queue."""


class _QueueGroup(click.Group):
    """A group in which anything but a subcommand is an argument of `show`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As in click, with `show` before arguments that name no subcommand."""
        names = {*self.commands, "-h", "--help"}
        if not (args and args[0] in names) and (args or not ctx.resilient_parsing):
            self._refuse_further_words(ctx, args)
            args = ["show", *args]
        return super().parse_args(ctx, args)

    def _refuse_further_words(self, ctx: click.Context, args: list[str]) -> None:
        """Refuse two words at the beginning: click would complain about the second one, and the first is wrong."""
        words = [*takewhile(lambda word: not word.startswith("-"), args)]
        if len(words) > 1:
            known = f"{words[0]!r} is no subcommand of arranger queue: those are {', '.join(sorted(self.commands))}"
            instead = f"kubectl delete queue {words[1]}" if words[0] in ("delete", "remove", "rm") else ""
            raise click.UsageError(f"{known}; {instead} deletes a queue" if instead else known, ctx)


@click.group(cls=_QueueGroup)
def command() -> None:
    r"""Show the tree of queues, or one queue in detail; create, close and open queues.

    Without a subcommand, `arranger queue` works like `arranger queue show`: it reads the log, and has the options in
    `arranger queue show --help`. The other subcommands write to the API server. They need the right
    to change Queues there.

    \b
      arranger queue                                      the tree: used, share, demand, jobs
      arranger queue robots --at "1h ago"                 one queue, an hour ago
      arranger queue --log run.log -o json                a log file, for programs
      arranger queue create robots --parent research --deserved nvidia.com/gpu=8
      arranger queue close robots                         its waiting jobs get no nodes

    \b
    On 16 GPUs, research and vision deserve 8 each. Vision doesn't need all of them, and robots borrows the rest:
      $ arranger queue
      QUEUE     STATE  WEIGHT  USED GPUS  SHARE  DEMAND  WAITING  RUNNING  MESSAGE
      default   Open        1          0      0       0        0        0
      research  Open        1         12     14      16        1        2
        plans   Open        1          3      3       3        0        1
        robots  Open        2          9     11      13        1        1
      vision    Open        1          2      2       2        0        1
    """


@command.command("show")
@click.argument("name", required=False)
@log_options
@point_option("--at", "The point to show. [default: the end of the log]")
@resource_option("of the tables")
@click.option(
    "--all", "everything", is_flag=True, help="With NAME, show all holders and waiting jobs, not only 10 of each."
)
@output_option
def show(target: str | None, settings: Settings, name: str | None, at: Point | None, **options: Any) -> None:
    r"""Show all queues as a tree, or NAME in detail: its fields, its largest holders, and its waiting jobs in order.

    Used is what the queue's jobs request for their pods that have nodes, share is what the queue is entitled to now,
    and demand is what its jobs use and still request. All three include the queues below it. On a terminal, a bar shows
    them as parts of the cluster.

    \b
      arranger queue                                      the end of the log in Redis
      arranger queue show create                          a queue that has the name of a subcommand
      arranger queue robots --log run.log --at 1234       one queue, after the event at offset 1234
    """
    _, state, config = asyncio.run(seen_at(target, settings, at))
    found = queue_list(state) if name is None else queue_detail(state, name, config, installed())
    if found is None:
        raise _unknown(name or "", state)
    if options["output"] == "json":
        print_json({**msgspec.to_builtins(found), "time": local_time(found.time_ms)})
    elif isinstance(found, QueueList):
        print_queues(found, options["resource"])
    else:
        print_queue(found, options["resource"], everything=options["everything"])


def _unknown(name: str, state: State) -> NotFound:
    names = {DEFAULT_QUEUE, *state.queues}
    hint = did_you_mean(near_names(name, names, most=3, digits=True), "arranger queue lists all queues")
    return NotFound(f"there is no queue {name!r} at offset {state.offset}", hint=hint)


# --- writing ---------------------------------------------------------------------------------------------------------


class _Amount(click.ParamType):  # type: ignore[type-arg]  # generic for type checkers only
    """RESOURCE=AMOUNT; the API server checks both."""

    name = "resource=amount"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        resource, equals, amount = value if isinstance(value, tuple) else str(value).partition("=")
        if not (resource and equals and amount):
            self.fail(f"{value!r} is not RESOURCE=AMOUNT, as in nvidia.com/gpu=8", param, ctx)
        return resource, amount


def _amounts_option(name: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    metavar = "RESOURCE=AMOUNT"
    return click.option(f"--{name}", type=_Amount(), multiple=True, metavar=metavar, help=f"{text} Can be repeated.")


_NAMESPACE = "A namespace whose jobs may name it. Can be repeated. [default: all namespaces]"


@command.command("create")
@click.argument("name")
@with_settings("kubeconfig", "context")
@click.option("--parent", metavar="QUEUE", help="The queue above it. [default: none, it is below the root]")
@click.option(
    "--weight", type=click.IntRange(1, 65535), help="Its weight in dividing what nobody is entitled to. [default: 1]"
)
@_amounts_option("guarantee", "An amount that is for it alone, and never lent.")
@_amounts_option("deserved", "An amount that it is entitled to, and that is lent while it doesn't use it.")
@_amounts_option("capability", "An amount that it never exceeds.")
@click.option("--namespace", "namespaces", multiple=True, metavar="NAME", help=_NAMESPACE)
@click.option("--closed", is_flag=True, help="Create it closed: arranger queue open NAME opens it.")
@output_option
def create(settings: Settings, name: str, output: str, **fields: Any) -> None:
    r"""Create the queue NAME.

    Some fields of a Queue have no option. To set them, apply a manifest with kubectl, or edit the queue. `kubectl
    explain queue.spec` lists all fields.

    \b
      arranger queue create robots --parent research --weight 2
      arranger queue create vision --deserved nvidia.com/gpu=8 --capability nvidia.com/gpu=16 --namespace vision
    """
    spec = {field: fields[field] for field in ("parent", "weight") if fields[field] is not None}
    spec |= {of: dict(fields[of]) for of in ("guarantee", "deserved", "capability") if fields[of]}
    spec |= {"namespaces": {"names": [*fields["namespaces"]]}} if fields["namespaces"] else {}
    spec |= {"state": QueueState.CLOSED} if fields["closed"] else {}
    body = {"apiVersion": QUEUES.api_version, "kind": QUEUE_KIND, "metadata": {"name": name}, "spec": spec}
    stored = _ask(settings, name, "create", lambda cluster: cluster.create(QUEUES, None, body))
    _tell(stored, output, "is created, and closed" if fields["closed"] else "is created")
    parent = fields["parent"]
    if parent not in (None, DEFAULT_QUEUE) and not _exists(settings, parent):
        hint = f"arranger queue create {parent}"
        say(f"arranger: queue {name} can't be used until queue {parent} exists ({hint})", err=True)


@command.command("close")
@click.argument("name")
@with_settings("kubeconfig", "context")
@output_option
def close(settings: Settings, name: str, output: str) -> None:
    r"""Close the queue NAME: its waiting jobs, and those of the queues below it, get no nodes. Its other jobs run on.

    \b
      arranger queue close robots
    """
    _set_state(settings, name, QueueState.CLOSED, output, "is closed: its jobs that have nodes run on")


@command.command("open")
@click.argument("name")
@with_settings("kubeconfig", "context")
@output_option
def open_(settings: Settings, name: str, output: str) -> None:
    r"""Open the queue NAME: its waiting jobs may get nodes, unless a queue above it is closed.

    \b
      arranger queue open robots
    """
    _set_state(settings, name, QueueState.OPEN, output, "is open")


def _set_state(settings: Settings, name: str, state: QueueState, output: str, told: str) -> None:
    patch = {"spec": {"state": state}}
    stored = _ask(settings, name, "patch", lambda cluster: cluster.patch(QUEUES, None, name, patch))
    _tell(stored, output, told)


def _tell(stored: Object, output: str, told: str) -> None:
    if output == "json":
        print_json({"name": stored["metadata"]["name"], "uid": stored["metadata"]["uid"], "spec": stored["spec"]})
    else:
        say(f"queue {stored['metadata']['name']} {told}")


def _exists(settings: Settings, name: str) -> bool:
    """Whether the API server has the queue, also if it doesn't say so."""
    try:
        _ask(settings, name, "get", lambda cluster: cluster.get(QUEUES, None, name))
    except _Refused as refused:
        return not (isinstance(refused.__cause__, ApiError) and refused.__cause__.code == 404)
    except ClusterUnavailable:
        return True
    return True


def _ask(settings: Settings, name: str, verb: str, request: Callable[[HttpCluster], Awaitable[Object]]) -> Object:
    """Send one request about a queue. Raises `_Refused` with the next step, and `ClusterUnavailable`."""

    async def asked() -> Object:
        cluster = HttpCluster(find_access(settings.kubeconfig or None, settings.context or None), strict=True)
        try:
            return await request(cluster)
        finally:
            await cluster.close()

    try:
        return asyncio.run(asked())
    except ApiError as refused:
        raise _refusal(name, verb, refused) from refused


def _refusal(name: str, verb: str, refused: ApiError) -> _Refused:
    if refused.code == 403:
        hint = f"this needs the right to {verb} queues: bind the ClusterRole arranger-queues-edit"
        return _Refused(f"you may not {verb} queue {name}: {refused.detail}", hint=hint)
    if refused.code == 409 and verb == "create":
        return _Refused(f"there is a queue {name} already", hint=f"kubectl edit queue {name} changes it")
    if refused.code == 404 and verb == "patch" and "not found" in refused.detail:
        default = "; the queue default exists without being an object" if name == DEFAULT_QUEUE else ""
        return _Refused(f"there is no queue {name} on the API server", hint=f"arranger queue create {name}{default}")
    if refused.code == 404:
        return _Refused("the API server has no queues", hint="arranger crd | kubectl apply -f - defines them")
    return _Refused(f"the API server refuses to {verb} queue {name}: {refused.detail}")
