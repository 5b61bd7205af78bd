"""The options of the commands that read a log: which one it is.

Apart from reading itself, which is slow to import: `arranger serve` starts another process first."""

from collections.abc import Callable
from typing import Any

import click

from arranger.cli.inputs.flags import with_settings
from arranger.cli.inputs.server import server_option


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--log`, `--server`, `--archive`, `--epoch`, `--cluster` and `--config`: it gets `target` and
    `settings`."""
    return target_options(with_settings("cluster", "archive_url")(command))


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--log`, `--server` and `--epoch`: it gets `target`."""
    epoch = click.option(
        "--epoch",
        type=click.IntRange(min=1),
        metavar="N",
        expose_value=False,
        callback=_keep_epoch,
        help="Read this earlier epoch from the archive. [default: the current epoch]",
    )
    return click.option(
        "--log",
        "target",
        metavar="URL|FILE|FOLDER",
        help="The log to read: a Redis URL, a log file, an export, or an archive. [default: the Redis in the settings]",
    )(server_option(epoch(command)))


_EPOCH = f"{__name__}.epoch"


def _keep_epoch(context: click.Context, _: click.Parameter, value: int | None) -> None:
    """Keep the epoch in click's context, so that commands needn't pass it on."""
    context.meta[_EPOCH] = value


def given_epoch() -> int | None:
    """The epoch that `--epoch` names."""
    context = click.get_current_context(silent=True)
    return context.meta.get(_EPOCH) if context is not None else None
