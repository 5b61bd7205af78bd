"""The client for code without asyncio, notebooks among it: the asynchronous one in an event loop of its own thread."""

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, Self, TypeVar

from arranger.client.answers import Value
from arranger.client.asynchronous import AsyncClient, closed
from arranger.client.jobs import Given, Job
from arranger.client.views import (
    EventList,
    Explanation,
    Holdings,
    JobList,
    JobStarts,
    Overview,
    PodList,
    PreemptionList,
    QueueDetail,
    QueueList,
    WaitSums,
    WhatIf,
)
from arranger.errors import UsageError
from arranger.model.job import Stage

_T = TypeVar("_T")


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _end(
    of: AsyncClient, loop: asyncio.AbstractEventLoop, thread: threading.Thread, handing_over: threading.Lock
) -> None:
    async def end() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        try:
            await asyncio.gather(*others, return_exceptions=True)
            await of.close()
            await loop.shutdown_asyncgens()
        finally:
            # Not at once: an answer that came in this turn of the loop is handed to its thread in the next one.
            loop.call_soon(loop.stop)

    if not thread.is_alive():  # in a child process, which has no other threads: the connections are its parent's
        return
    with handing_over:
        loop.call_soon_threadsafe(asyncio.ensure_future, end())
    if thread is not threading.current_thread():  # the garbage collector may call from that one too
        thread.join()


class Client:
    """`AsyncClient` for code without asyncio: the same methods with the same arguments and errors, which block. Several
    threads may share one. An interrupt (Ctrl-C) ends the call.

    Close it: `with Client(...) as client`, or `close()`. One that nobody has any more closes itself, and so does one
    that is left at the end of the process. Each process needs its own: one that was forked says so."""

    def __init__(
        self, *, server: str = "", namespace: str = "", kubeconfig: str | Path | None = None, context: str = ""
    ) -> None:
        self._of = AsyncClient(server=server, namespace=namespace, kubeconfig=kubeconfig, context=context)
        self._loop = asyncio.new_event_loop()
        self._loop.set_debug(False)  # `python -X dev` would tell of a slow first import: nobody waits for this loop
        thread = threading.Thread(target=_turn, args=(self._loop,), name="arranger-client", daemon=True)
        thread.start()
        self._process = os.getpid()
        #: Held while the loop is given work, so none comes after the end, which would wait for ever.
        self._handing_over = threading.Lock()
        #: Also called when nobody has the client any more, and at exit: cells of a notebook have no end to close it at.
        self._close = weakref.finalize(self, _end, self._of, self._loop, thread, self._handing_over)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def namespace(self) -> str:
        return self._of.namespace

    def close(self) -> None:
        """Close all connections and end the thread. Closing it again does nothing, and so does an end without it."""
        self._close()

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        if os.getpid() != self._process:
            work.close()
            raise UsageError("this client is of another process", hint="make one in each process")
        with self._handing_over:
            if not self._close.alive:
                work.close()
                raise closed()
            running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except CancelledError as ended:
            raise closed("was closed meanwhile") from ended
        except BaseException:  # an interrupt too: nothing goes on behind the caller's back
            running.cancel()
            raise

    def submit(self, job: Given) -> Job:
        return self._run(self._of.submit(job))

    def apply(self, job: Given) -> Job:
        return self._run(self._of.apply(job))

    def job(self, name: str) -> Job:
        return self._run(self._of.job(name))

    def jobs(self) -> JobList:
        return self._run(self._of.jobs())

    def wait(self, name: str, *stages: Stage | str, timeout_s: float | None = None) -> Job:
        return self._run(self._of.wait(name, *stages, timeout_s=timeout_s))

    def wait_until(
        self, name: str, holds: Callable[[Job], bool], *, timeout_s: float | None = None, ended: bool = True
    ) -> Job:
        return self._run(self._of.wait_until(name, holds, timeout_s=timeout_s, ended=ended))

    def pods(self, name: str) -> PodList:
        return self._run(self._of.pods(name))

    def logs(self, name: str, *, pod: str = "", container: str = "", tail: int | None = None) -> str:
        return self._run(self._of.logs(name, pod=pod, container=container, tail=tail))

    def scale(self, name: str, count: int, *, worker_set: str = "") -> Job:
        return self._run(self._of.scale(name, count, worker_set=worker_set))

    def suspend(self, name: str) -> Job:
        return self._run(self._of.suspend(name))

    def resume(self, name: str) -> Job:
        return self._run(self._of.resume(name))

    def delete(self, name: str) -> None:
        self._run(self._of.delete(name))

    def explain(self, job: str, *, at: int | str | None = None, pod: str = "", node: str = "") -> Explanation:
        return self._run(self._of.explain(job, at=at, pod=pod, node=node))

    def overview(self, *, at: int | str | None = None) -> Overview:
        return self._run(self._of.overview(at=at))

    def queues(self, *, at: int | str | None = None) -> QueueList:
        return self._run(self._of.queues(at=at))

    def queue(self, name: str, *, at: int | str | None = None) -> QueueDetail:
        return self._run(self._of.queue(name, at=at))

    def top(self, *, by: str = "queue", at: int | str | None = None) -> Holdings:
        return self._run(self._of.top(by=by, at=at))

    def waits(
        self,
        *,
        by: str = "queue",
        held_by: str = "queue",
        first: int | str | None = None,
        last: int | str | None = None,
    ) -> WaitSums:
        return self._run(self._of.waits(by=by, held_by=held_by, first=first, last=last))

    def preemptions(
        self, *, first: int | str | None = None, last: int | str | None = None, within: str | None = None
    ) -> PreemptionList:
        return self._run(self._of.preemptions(first=first, last=last, within=within))

    def what_if(
        self,
        *,
        at: int | str | None = None,
        job: str = "",
        priority: int | None = None,
        queue: str | None = None,
        gpus: int | None = None,
        without: str | Sequence[str] = (),
        with_node: str | Sequence[str] = (),
        without_node: str | Sequence[str] = (),
        without_queue: str | Sequence[str] = (),
        until: str | None = None,
        **policies: Value,
    ) -> WhatIf:
        return self._run(
            self._of.what_if(
                at=at,
                job=job,
                priority=priority,
                queue=queue,
                gpus=gpus,
                without=without,
                with_node=with_node,
                without_node=without_node,
                without_queue=without_queue,
                until=until,
                **policies,
            )
        )

    def forecast(self, *jobs: str, at: int | str | None = None, until: str = "") -> JobStarts:
        return self._run(self._of.forecast(*jobs, at=at, until=until))

    def ask(self, question: str, **parameters: Value) -> Any:
        return self._run(self._of.ask(question, **parameters))

    def events(
        self, *, job: str = "", kinds: str | Sequence[str] = (), first: int | str | None = None, last: int | None = None
    ) -> EventList:
        return self._run(self._of.events(job=job, kinds=kinds, first=first, last=last))


Client.namespace.__doc__ = AsyncClient.namespace.__doc__
for _name, _method in vars(Client).items():
    if callable(_method) and not _name.startswith("_") and not _method.__doc__:
        _method.__doc__ = getattr(AsyncClient, _name).__doc__
