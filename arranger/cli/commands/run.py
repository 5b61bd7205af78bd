"""`arranger run`: run one process with any mix of roles until SIGTERM."""

import asyncio

import click

from arranger.cli.inputs.flags import completing, with_settings
from arranger.cli.inputs.other_readers import log_of
from arranger.install import python_module
from arranger.logs import configure_logging
from arranger.settings import Settings
from arranger.web.questions import question_of
from arranger.workers.members.membership import ANALYST, ROLES
from arranger.workers.parts import Answering
from arranger.workers.process import Process, checked_roles


@click.command()
@click.argument("roles", nargs=-1, metavar="[ROLE]...", shell_complete=completing(lambda: (*ROLES, ANALYST)))
@with_settings()
def command(roles: tuple[str, ...], settings: Settings) -> None:
    r"""Run workers until SIGTERM: watcher, controller, scheduler, applier, maintenance. Without ROLE, run them all.

    An analyst works on long questions about the log. It runs only if it is named; nothing asks analysts yet.

    Any number of processes with any mix of roles may run against one Redis and one cluster:

    \b
      arranger run                                        everything in one process
      arranger run watcher maintenance                    two roles in one process
      arranger run controller scheduler applier           and three in another
      arranger run analyst                                works on questions
    """
    chosen = checked_roles(roles)
    configure_logging(settings.log_level, settings.log_format)
    environment, _ = log_of(settings.redis_url, settings)
    answering = Answering(
        program=python_module("arranger.cli.answering"), environment=environment, question_of=question_of
    )
    asyncio.run(Process(settings, chosen, answering).run())
