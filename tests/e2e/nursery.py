"""Starts processes of Arranger from one that has imported everything, so that tests don't pay for it hundreds of times.

Half of the processor time of a short-lived worker process is its imports. The nursery is a process that imports them
once and forks for each start. The child has its own session, environment, folder and output, and does from there on
what `python -m arranger.cli.main` does. Processes with other code, or with variables that the interpreter itself reads,
are started in the usual way.
"""

import array
import atexit
import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

_REQUEST_BYTES = 1 << 20
_STATUS = struct.Struct("i")


class Forked:
    """A child of the nursery, used as a `subprocess.Popen`."""

    def __init__(self, pid: int, statuses: int) -> None:
        self.pid = pid
        #: The read end of a pipe to which the nursery writes the exit status.
        self._statuses = statuses
        self._status: int | None = None

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._read(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status. Raises `subprocess.TimeoutExpired`."""
        status = self._read(timeout)
        if status is None:
            raise subprocess.TimeoutExpired("arranger", timeout or 0.0)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(self.pid, number)

    def _read(self, timeout_s: float | None) -> int | None:
        if self._status is None and select.select([self._statuses], [], [], timeout_s)[0]:
            told = os.read(self._statuses, _STATUS.size)
            assert told, "the nursery has ended"
            (self._status,) = _STATUS.unpack(told)
            os.close(self._statuses)
        return self._status


class Nursery:
    """The process that forks, as its starter sees it."""

    def __init__(self) -> None:
        #: The variables that it has for its interpreter. Processes with others can't be its children.
        self.interpreter = for_interpreter(os.environ)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.nursery", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        atexit.register(self.close)

    def start(self, arguments: Sequence[str], *, environment: Mapping[str, str], folder: str, output: int) -> Forked:
        """Start `arranger` with arguments, and with its output in an open file."""
        statuses, theirs = os.pipe()
        request = json.dumps({"arguments": [*arguments], "environment": {**environment}, "folder": folder})
        passed = array.array("i", [output, theirs])
        self._socket.sendmsg([request.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)])
        os.close(theirs)
        (pid,) = _STATUS.unpack(self._socket.recv(_STATUS.size))
        return Forked(pid, statuses)

    def close(self) -> None:
        """End the nursery, but not its children."""
        self._socket.close()
        self._process.wait()


def for_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that an interpreter or its loader reads when it starts."""
    return {name: value for name, value in environment.items() if name.startswith(("PYTHON", "LD_"))}


@cache
def nursery() -> Nursery:
    """The nursery of this process, started on first use."""
    return Nursery()


# --- in the nursery ----------------------------------------------------------------------------------------


def _serve(requests: socket.socket) -> None:
    """Fork at each request until the other end is closed, and report how each child ended."""
    children: dict[int, tuple[int, int]] = {}
    while True:
        ready, _, _ = select.select([requests, *children], [], [])
        for descriptor in ready:
            if descriptor in children:
                pid, statuses = children.pop(descriptor)
                os.close(descriptor)
                _, status = os.waitpid(pid, 0)
                with contextlib.suppress(BrokenPipeError):  # nobody waits for it
                    os.write(statuses, _STATUS.pack(os.waitstatus_to_exitcode(status)))
                os.close(statuses)
        if requests in ready:
            request, passed, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 2)
            if not request:
                return
            output, statuses = passed
            pid = os.fork()
            if pid == 0:
                requests.close()
                os.close(statuses)
                _become(json.loads(request), output)
            os.close(output)
            children[os.pidfd_open(pid)] = (pid, statuses)
            requests.send(_STATUS.pack(pid))


def _become(request: dict[str, Any], output: int) -> None:
    """Be the process that was asked for, and never return."""
    from arranger.cli.main import run

    os.setsid()
    for standard in (1, 2):
        os.dup2(output, standard)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["arranger", *request["arguments"]]
    try:
        run()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> None:
    import arranger.cli.commands.run  # noqa: F401  what takes the time

    _serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
