"""Which `arranger serve` a command reads the log from: that of `--server` or of the variable. If no log is named,
`kubectl arranger` looks for one in the cluster."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from arranger.cli import PLUGIN
from arranger.errors import UsageError
from arranger.settings import SERVER_VARIABLE, SETTINGS, Settings

if TYPE_CHECKING:
    from arranger.kube.config import Access

_SERVER = f"{__name__}.server"
_BY_FLAG = f"{__name__}.by_flag"


def server_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--server`; `found_server` returns it."""
    return click.option(
        "--server",
        metavar="URL|cluster",
        envvar=SERVER_VARIABLE,
        expose_value=False,
        callback=_keep,
        help="Read the log of this arranger serve, in place of Redis; cluster: that in the cluster of the kubeconfig. "
        f"[{SERVER_VARIABLE}]",
    )(command)


def _keep(context: click.Context, _: click.Parameter, value: str | None) -> None:
    """Keep the server in click's context, so that commands needn't pass it on, and whether a flag named it."""
    context.meta[_SERVER] = value or ""
    context.meta[_BY_FLAG] = context.get_parameter_source("server") is ParameterSource.COMMANDLINE


def server_of(target: str | None) -> str:
    """The server that was named, or found before; empty if the command reads another log. Raises `UsageError` if flags
    name both."""
    context = click.get_current_context(silent=True)
    server: str = context.meta.get(_SERVER, "") if context is not None else ""
    if target is None or not server:
        return server
    assert context is not None
    if context.meta[_BY_FLAG]:
        raise UsageError("--log and --server both name a log", hint="leave one of them out")
    return ""


async def found_server(target: str | None, settings: Settings) -> str:
    """As `server_of`. `kubectl arranger` looks for a server in the cluster if no log is named."""
    server = server_of(target)
    context = click.get_current_context(silent=True)
    if server or target is not None or context is None or context.find_root().info_name != PLUGIN:
        return server
    if settings.archive_url or settings.redis_url != SETTINGS["redis_url"].default:
        return ""
    from arranger.web.remote import IN_CLUSTER, is_there  # slow to import, and other logs don't need it

    if await is_there(IN_CLUSTER, access_of(settings)):
        context.meta[_SERVER] = IN_CLUSTER
    return server_of(target)


def access_of(settings: Settings) -> "Callable[[], Access]":
    """What finds the credentials of the kubeconfig in the settings."""
    from arranger.kube.config import find_access

    return lambda: find_access(settings.kubeconfig or None, settings.context or None)
