"""The client for code without asyncio, notebooks among it: the asynchronous one in an event loop of its own thread."""

import asyncio
import functools
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from arranger.client.asynchronous import AsyncClient, closed
from arranger.errors import UsageError

_P = ParamSpec("_P")
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


def _blocking(
    of: Callable[Concatenate[AsyncClient, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate["Client", _P], _T]:
    """The method that blocks, with the name, the parameters and the description of the asynchronous one."""

    @functools.wraps(of)
    def method(self: "Client", /, *given: _P.args, **named: _P.kwargs) -> _T:
        return self._run(of(self._of, *given, **named))

    return method


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

    submit = _blocking(AsyncClient.submit)
    apply = _blocking(AsyncClient.apply)
    job = _blocking(AsyncClient.job)
    jobs = _blocking(AsyncClient.jobs)
    wait = _blocking(AsyncClient.wait)
    wait_until = _blocking(AsyncClient.wait_until)
    pods = _blocking(AsyncClient.pods)
    logs = _blocking(AsyncClient.logs)
    scale = _blocking(AsyncClient.scale)
    suspend = _blocking(AsyncClient.suspend)
    resume = _blocking(AsyncClient.resume)
    delete = _blocking(AsyncClient.delete)
    explain = _blocking(AsyncClient.explain)
    overview = _blocking(AsyncClient.overview)
    queues = _blocking(AsyncClient.queues)
    queue = _blocking(AsyncClient.queue)
    top = _blocking(AsyncClient.top)
    waits = _blocking(AsyncClient.waits)
    preemptions = _blocking(AsyncClient.preemptions)
    what_if = _blocking(AsyncClient.what_if)
    forecast = _blocking(AsyncClient.forecast)
    ask = _blocking(AsyncClient.ask)
    events = _blocking(AsyncClient.events)


Client.namespace.__doc__ = AsyncClient.namespace.__doc__
