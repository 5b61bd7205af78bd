"""`arranger run`: run one process with any mix of roles until SIGTERM."""

import asyncio

import click

from arranger.cli.inputs.flags import completing, with_settings
from arranger.logs import configure_logging
from arranger.settings import Settings
from arranger.workers.members.membership import ROLES
from arranger.workers.process import Process, checked_roles


@click.command()
@click.argument("roles", nargs=-1, metavar="[ROLE]...", shell_complete=completing(lambda: ROLES))
@with_settings()
def command(roles: tuple[str, ...], settings: Settings) -> None:
    r"""Run workers until SIGTERM: watcher, controller, scheduler, applier, maintenance. Without ROLE, run them all.

    Any number of processes with any mix of roles may run against one Redis and one cluster:

    \b
      arranger run                                        everything in one process
      arranger run watcher maintenance                    two roles in one process
      arranger run controller scheduler applier           and three in another
    """
    chosen = checked_roles(roles)
    configure_logging(settings.log_level, settings.log_format)
    asyncio.run(Process(settings, chosen).run())
