"""A pager for long output on a terminal, as in git. Output that fits on the screen is printed directly.

The pager starts only when there are more lines than the terminal has, so short or slow output looks as without a pager.
The pager is $PAGER, or else `less` if it is installed; an empty $PAGER or `cat` means none.
"""

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from io import TextIOBase
from typing import TextIO

#: The default options of less: quit if one screen is enough, keep colours, don't clear the screen.
_LESS = "FRX"


def pager_command(environ: Mapping[str, str]) -> list[str]:
    """The pager and its arguments; empty for no pager."""
    words = shlex.split(environ.get("PAGER", "less"))
    if not words or words == ["cat"] or shutil.which(words[0]) is None:
        return []
    return words


class _ReadEnough(Exception):
    """The user has left the pager, so the rest of the output isn't needed."""


class _Bytes:
    """The binary buffer of a `Screen`."""

    def __init__(self, screen: "Screen") -> None:
        self._screen = screen

    def write(self, content: bytes) -> int:
        self._screen.write(bytes(content).decode(errors="replace"))
        return len(content)

    def flush(self) -> None:
        self._screen.flush()


class Screen(TextIOBase):
    """Standard output that buffers lines until there are more than the terminal has, and then starts a pager. A flush
    does nothing, because the destination of buffered lines isn't known yet."""

    def __init__(self, terminal: TextIO, pager: list[str], height: int) -> None:
        self._terminal = terminal
        self._pager = pager
        self._height = height
        self._kept: list[str] = []
        self._lines = 0
        self._process: subprocess.Popen[str] | None = None
        self.buffer = _Bytes(self)
        #: Called before the pager starts, for example to stop progress bars.
        self.before_pager: list[Callable[[], object]] = []

    def isatty(self) -> bool:
        """True, because output must fit the terminal."""
        return True

    def fileno(self) -> int:
        return self._terminal.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._terminal.encoding

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError("bytes go to the buffer")  # click tests the stream with bytes
        if self._process is None:
            self._kept.append(text)
            self._lines += text.count("\n")
            if self._lines >= self._height:
                self._start()
        else:
            self._hand_on(text)
        return len(text)

    def finish(self) -> None:
        """Print the buffered lines, or wait until the user leaves the pager."""
        if self._process is None:
            self._terminal.write("".join(self._kept))
            self._terminal.flush()
            return
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        while True:
            try:
                self._process.wait()
                return
            except KeyboardInterrupt:  # the pager handles it
                continue

    def _start(self) -> None:
        for stop in self.before_pager:
            stop()
        environ = {"LESS": _LESS, **os.environ}
        try:
            self._process = subprocess.Popen(self._pager, stdin=subprocess.PIPE, text=True, env=environ)
        except OSError:
            self._lines, self._height = 0, sys.maxsize  # without a pager: print everything at the end
            return
        self._hand_on("".join(self._kept))
        self._kept.clear()

    def _hand_on(self, text: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(text)
            self._process.stdin.flush()
        except BrokenPipeError as problem:
            raise _ReadEnough from problem  # a separate type, because click reports a broken pipe as a failure


@contextlib.contextmanager
def paged(*, asked: bool) -> Iterator[None]:
    """Inside a `with` block, make standard output a `Screen` if it is a terminal and there is a pager."""
    pager = pager_command(os.environ) if asked and sys.stdout.isatty() else []
    if not pager:
        yield
        return
    terminal = sys.stdout
    screen = Screen(terminal, pager, shutil.get_terminal_size().lines)
    sys.stdout = screen
    try:
        yield
    except _ReadEnough:
        pass
    finally:
        sys.stdout = terminal
        screen.finish()
