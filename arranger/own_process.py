"""A command in a process of its own, with limits: what `arranger serve` and analysts answer questions with.

Folding a log takes the processor for as long as it takes. In a process of its own it delays nobody else, it can be
ended when nobody waits for it any more, and its memory is returned.
"""

import asyncio
import os
import resource
import signal
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

_CHUNK_BYTES = 1 << 16
#: The last line on standard error is the refusal; what stands before it are remarks.
_KEPT_ERROR_BYTES = 1 << 16


class HowFar(msgspec.Struct, frozen=True, tag="progress", tag_field="arranger"):
    """A line about how far long work is. `offset` is the last event that was read, 0 for work on something else."""

    percent: int
    offset: int = 0


_progress = msgspec.json.Decoder(HowFar)


class AnswerTooLarge(Exception):
    """The command printed more than it may."""


class Ended(msgspec.Struct, frozen=True):
    """What a command printed, what it said on standard error, and its exit status."""

    out: bytes
    err: bytes
    status: int


async def run_command(
    words: Sequence[str], environment: Mapping[str, str], *,
    given: bytes, most_bytes: int, told: Callable[[HowFar], None] | None = None,
    cpu_s: int = 0, memory_bytes: int = 0,
) -> Ended:  # fmt: skip
    """Run a command to its end; if this is cancelled, kill it. `given` is its standard input, and `told` hears how far
    it is. With `cpu_s` and `memory_bytes` the system ends it, even if this process doesn't live. Raises
    `AnswerTooLarge`."""
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.PIPE if given else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    _limit(process, cpu_s=cpu_s, memory_bytes=memory_bytes)
    remarks = asyncio.create_task(_remarks(process.stderr, told))
    if process.stdin is not None:  # written in full while the answer is read, unless the process ends first
        process.stdin.write(given)
        process.stdin.close()
    try:
        out = await _read(process.stdout, most_bytes)
        err = await remarks
        return Ended(out, err, await process.wait())
    finally:
        await killed(process)
        await remarks


async def killed(process: Process) -> None:
    """Kill the process unless it has ended, and wait until it has. Its own method `kill` would first look whether it
    has ended, and asyncio would no longer learn how."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    await process.wait()


def _limit(process: Process, *, cpu_s: int, memory_bytes: int) -> None:
    """Set limits where the system can set those of another process."""
    setting = getattr(resource, "prlimit", None)
    if setting is None:
        return
    for kind, most in ((resource.RLIMIT_CPU, cpu_s), (resource.RLIMIT_AS, memory_bytes)):
        if most:
            with suppress(ProcessLookupError, PermissionError, ValueError):  # it has ended, or is limited already
                setting(process.pid, kind, (most, most))


async def _read(stream: asyncio.StreamReader, most_bytes: int) -> bytes:
    pieces, size = [], 0
    while piece := await stream.read(_CHUNK_BYTES):
        size += len(piece)
        if size > most_bytes:
            raise AnswerTooLarge
        pieces.append(piece)
    return b"".join(pieces)


async def _remarks(stream: asyncio.StreamReader, told: Callable[[HowFar], None] | None) -> bytes:
    """The end of what it says, without the lines about how far it is."""
    kept = unended = b""
    while piece := await stream.read(_CHUNK_BYTES):
        if told is None:
            kept = (kept + piece)[-_KEPT_ERROR_BYTES:]
            continue
        *lines, unended = (unended + piece).split(b"\n")
        for line in lines:
            try:
                told(_progress.decode(line))
            except msgspec.MsgspecError:
                kept = (kept + line + b"\n")[-_KEPT_ERROR_BYTES:]
        unended = unended[-_KEPT_ERROR_BYTES:]
    return (kept + unended)[-_KEPT_ERROR_BYTES:]
