"""Ending tasks for sure.

One `cancel()` isn't enough: `asyncio.wait_for` of Python 3.11, through which redis-py sends, swallows a cancellation
that arrives just when what it waited for is done, and the task goes on as if nobody had said anything.
"""

import asyncio
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

_Task = asyncio.Task[Any]


async def end(
    tasks: Iterable[_Task], *, once: Collection[_Task] = (), within_s: float | None = None, again_s: float = 0.1
) -> list[_Task]:
    """Cancel until all have ended, however they do, or the time is up; answers those that haven't.

    Those in `once` are cancelled only once, because they go on with something that is to be finished.
    """
    tasks = list(tasks)
    for task in tasks:  # also where this wait itself is cancelled before they have ended
        task.add_done_callback(_ask)
    pending = {task for task in tasks if not task.done()}
    for task in once:
        task.cancel()
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while pending:
                for task in pending.difference(once):
                    task.cancel()
                _, pending = await asyncio.wait(pending, timeout=again_s)
    return [task for task in tasks if not task.done()]


def _ask(task: _Task) -> None:
    """Take note of how a task ended: otherwise asyncio complains that nobody asked."""
    if not task.cancelled():
        task.exception()
