"""Ending tasks for sure.

One `cancel()` isn't enough: `asyncio.wait_for` of Python 3.11, through which redis-py sends, swallows a cancellation
that arrives just when what it waited for is done, and the task goes on as if nobody had said anything.

Nor may whoever ends tasks be kept from it: a role that is itself cancelled again while it ends what it has started
would leave that running, with nobody left who knows of it.
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import Any

_Task = asyncio.Task[Any]


async def end(
    tasks: Iterable[_Task], *, once: Collection[_Task] = (), within_s: float | None = None, again_s: float = 0.1
) -> list[_Task]:
    """Cancel until all have ended, however they do, or the time is up; answers those that haven't.

    Those in `once` are cancelled only once, because they go on with something that is to be finished. A caller that is
    cancelled meanwhile gets its `CancelledError` when the tasks have ended or the time is up, not before.
    """
    tasks = list(tasks)
    for task in tasks:
        task.add_done_callback(_ask)
    for task in once:
        task.cancel()
    now_s = asyncio.get_running_loop().time
    until_s = now_s() + within_s if within_s is not None else None
    cancelled: asyncio.CancelledError | None = None
    while pending := {task for task in tasks if not task.done()}:
        if until_s is not None and now_s() >= until_s:
            break
        for task in pending.difference(once):
            task.cancel()
        try:
            await asyncio.wait(pending, timeout=again_s if until_s is None else min(again_s, until_s - now_s()))
        except asyncio.CancelledError as told:
            cancelled = told
    if cancelled is not None:
        raise cancelled
    return [task for task in tasks if not task.done()]


def _ask(task: _Task) -> None:
    """Take note of how a task ended: otherwise asyncio complains that nobody asked."""
    if not task.cancelled():
        task.exception()
