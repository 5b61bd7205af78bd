"""Tasks end when they are told to, even those that miss the first word."""

import asyncio
import gc
from contextlib import suppress

import pytest

from arranger.workers.flow.cancelling import end


class Deaf:
    """A task that goes on, however often it is cancelled, until it hears."""

    hears = False

    async def run(self) -> None:
        while not self.hears:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)


async def test_a_task_that_swallowed_one_cancellation_still_ends() -> None:
    told = 0

    async def deaf() -> None:
        nonlocal told
        while told < 3:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                told += 1

    task = asyncio.create_task(deaf())
    await asyncio.sleep(0)
    assert await end([task], again_s=0.01) == []
    assert told == 3


async def test_what_is_to_be_finished_is_told_only_once_and_is_let_finish() -> None:
    finished: list[str] = []

    async def careful() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)  # a second cancellation would break this off
            finished.append("careful")

    task = asyncio.create_task(careful())
    await asyncio.sleep(0)
    assert await end([task], once=[task], again_s=0.01) == []
    assert finished == ["careful"]


async def test_tasks_that_never_end_are_named_when_the_time_is_up() -> None:
    deaf = Deaf()
    task = asyncio.create_task(deaf.run())
    await asyncio.sleep(0)
    assert await end([task], within_s=0.05, again_s=0.01) == [task]
    deaf.hears = True
    assert await end([task], again_s=0.01) == []


async def test_a_task_that_failed_is_no_trouble() -> None:
    async def fails() -> None:
        raise ValueError("why")

    task = asyncio.create_task(fails())
    assert await end([task], again_s=0.01) == []


async def test_a_task_that_fails_after_its_end_was_no_longer_awaited_is_no_complaint() -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            raise ValueError("too late for anyone to hear")

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    ending = asyncio.create_task(end([task]))
    await asyncio.sleep(0.01)
    ending.cancel()
    await asyncio.gather(ending, return_exceptions=True)
    await asyncio.sleep(0.1)
    assert task.done()
    del task
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


async def test_no_task_survives_one_that_is_cancelled_again_while_it_ends_it() -> None:
    """A watcher that is ended every 0.1 s ends what it has started, however long that takes, before it ends itself."""
    told = 0

    async def deaf() -> None:
        nonlocal told
        while told < 8:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                told += 1

    async def role() -> None:
        task = asyncio.create_task(deaf(), name="inner")
        try:
            await asyncio.sleep(60)
        finally:
            await end([task], again_s=0.02)

    outer = asyncio.create_task(role())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await end([outer], again_s=0.01) == []
    left = [task for task in asyncio.all_tasks() if task.get_name() == "inner"]
    told = 8  # so that a failure doesn't hang
    assert outer.cancelled()
    assert left == []


async def test_who_ends_others_and_is_cancelled_meanwhile_learns_of_it_once_they_have_ended() -> None:
    finished: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            finished.append("slow")

    task = asyncio.create_task(slow())
    await asyncio.sleep(0)
    ending = asyncio.create_task(end([task], once=[task]))
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert finished == ["slow"]


async def test_a_time_limit_holds_for_who_is_cancelled_meanwhile_too() -> None:
    deaf = Deaf()
    task = asyncio.create_task(deaf.run())
    await asyncio.sleep(0)
    ending = asyncio.create_task(end([task], within_s=0.05, again_s=0.01))
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert not task.done()
    deaf.hears = True
    assert await end([task], again_s=0.01) == []
