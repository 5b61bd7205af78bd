"""For commands that follow a log until they are stopped."""

import asyncio
import gc
import signal
from collections.abc import Coroutine
from typing import Any

from arranger.cli.inputs.reading import GC_THRESHOLDS
from arranger.workers.flow.cancelling import end


async def until_stopped(*works: Coroutine[Any, Any, None]) -> None:
    """Work until SIGTERM or Ctrl-C. Raises the error that ends one of the works before that."""
    gc.set_threshold(*GC_THRESHOLDS)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    tasks = [asyncio.create_task(work) for work in (*works, _stop(stopped))]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await end(tasks)


async def _stop(stopped: asyncio.Event) -> None:
    await stopped.wait()
