"""`arranger import`: turn an export into a log file, or load it into an empty Redis."""

import asyncio
from pathlib import Path

import click

from arranger.cli.inputs.flags import with_settings
from arranger.cli.rendering.output import output_option, print_json, print_text
from arranger.errors import UsageError
from arranger.events.file_log import Copyable, copy_log
from arranger.events.key_source import log_keys
from arranger.events.log import Position
from arranger.events.open_log import open_log
from arranger.events.redis_log import RedisLog
from arranger.events.redis_urls import SCHEMES, redacted, scheme_of
from arranger.settings import Settings


@click.command()
@click.argument("source", metavar="FILE|FOLDER|URL")
@click.option("--to", "target", required=True, metavar="FILE|URL", help="A new log file, or a Redis URL.")
@with_settings("cluster")
@output_option
def command(source: str, target: str, settings: Settings, output: str) -> None:
    r"""Turn an export, or an archive, into a log file, or load it into a Redis that has no log of that cluster.

    The epoch, offsets, chain and snapshots stay as they are, and every entry is checked. Nothing is ever overwritten.
    The reading commands open an export directly; this command is for tools that need Redis, and for tests/histories.
    Don't run workers on an imported log, because they would mistake the past for the present.

    \b
      arranger import train.arranger --to train.log
      arranger import train.arranger --to redis://127.0.0.1:6379/5 --cluster looked-into
    """
    end = asyncio.run(_import(source, target, settings))
    shown = redacted(target) if scheme_of(target) else target
    beside = (
        []
        if scheme_of(target)
        else sorted(path.name for path in Path(target).parent.glob(f"{Path(target).name}.snapshot-*"))
    )
    if output == "json":
        print_json({"log": shown, "epoch": end.epoch, "offset": end.offset, "snapshots": beside})
    else:
        print_text(f"{shown} has epoch {end.epoch} up to offset {end.offset}; read it with --log {shown}")
        if beside:
            print_text(f"its snapshots are separate files, keep them with it: {', '.join(beside)}")


async def _import(source: str, target: str, settings: Settings) -> Position:
    log = await open_log(source, settings.cluster, keys=log_keys(settings.log_key))
    try:
        if scheme_of(target) in SCHEMES:
            return await _load(log, RedisLog(target, settings.cluster))
        return await copy_log(log, _new_file(target))
    finally:
        await log.close()


def _new_file(target: str) -> Path:
    path = Path(target)
    if scheme_of(target):
        raise UsageError(f"{redacted(target)!r} can't be a log", hint="use a file path or a Redis URL")
    if path.exists():
        raise UsageError(f"{target} already exists", hint="use another name: nothing is overwritten")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}", hint="create it, or use another path")
    return path


async def _load(log: Copyable, into: RedisLog) -> Position:
    try:
        return await into.load(log)
    finally:
        await into.close()
