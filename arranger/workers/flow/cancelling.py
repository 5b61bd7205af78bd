"""Reliable cancellation of tasks.

One `cancel()` isn't enough: redis-py sends through `asyncio.wait_for`, which in Python 3.11 swallows a cancellation
that arrives just when the awaited operation completes. The task then continues.

The caller must also finish its cleanup: a role that is cancelled again while it ends its own tasks would leave them
running without an owner.
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import Any

_Task = asyncio.Task[Any]


async def end(
    tasks: Iterable[_Task], *, once: Collection[_Task] = (), within_s: float | None = None, again_s: float = 0.1
) -> list[_Task]:
    """Cancel until all tasks have ended in any way, or the time is up; returns those still running.

    Tasks in `once` are cancelled only once, because they then finish their work. A caller that is cancelled meanwhile
    gets its `CancelledError` only when the tasks have ended or the time is up.
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
    """Retrieve a task's exception: asyncio logs an error for exceptions that are never retrieved."""
    if not task.cancelled():
        task.exception()
