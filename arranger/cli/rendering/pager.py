"""Long output on a terminal goes through a pager, as git does it: what fits on the screen is simply printed.

Nothing is started before more lines came than the terminal has, so a command that says little, or takes long to say
anything, looks as without. The pager is $PAGER, else `less` where there is one; empty or `cat` means none.
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

#: What less is told where the user hasn't said anything else: quit if one screen is enough, keep colours, don't clear.
_LESS = "FRX"


def pager_command(environ: Mapping[str, str]) -> list[str]:
    """The pager and its arguments; empty for none."""
    words = shlex.split(environ.get("PAGER", "less"))
    if not words or words == ["cat"] or shutil.which(words[0]) is None:
        return []
    return words


class _ReadEnough(Exception):
    """The user has left the pager: nobody reads the rest."""


class _Bytes:
    """The same output for whoever writes bytes."""

    def __init__(self, screen: "Screen") -> None:
        self._screen = screen

    def write(self, content: bytes) -> int:
        self._screen.write(bytes(content).decode(errors="replace"))
        return len(content)

    def flush(self) -> None:
        self._screen.flush()


class Screen(TextIOBase):
    """Standard output that keeps lines until there are more than the terminal has, then hands all to a pager."""

    def __init__(self, terminal: TextIO, pager: list[str], height: int) -> None:
        self._terminal = terminal
        self._pager = pager
        self._height = height
        self._kept: list[str] = []
        self._lines = 0
        self._process: subprocess.Popen[str] | None = None
        self.buffer = _Bytes(self)
        #: What has to be ended before a pager has the terminal to itself: progress bars.
        self.before_pager: list[Callable[[], object]] = []

    def isatty(self) -> bool:
        """It is one, for whoever makes output fit."""
        return True

    def fileno(self) -> int:
        return self._terminal.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._terminal.encoding

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError("bytes go to the buffer")  # click asks by trying
        if self._process is None:
            self._kept.append(text)
            self._lines += text.count("\n")
            if self._lines >= self._height:
                self._start()
        else:
            self._hand_on(text)
        return len(text)

    def flush(self) -> None:
        """What is kept stays so until it is clear where it goes."""

    def finish(self) -> None:
        """Print what little there is, or wait until the user has read enough."""
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
            except KeyboardInterrupt:  # the pager's to handle
                continue

    def _start(self) -> None:
        for stop in self.before_pager:
            stop()
        environ = {"LESS": _LESS, **os.environ}
        try:
            self._process = subprocess.Popen(self._pager, stdin=subprocess.PIPE, text=True, env=environ)
        except OSError:
            self._lines, self._height = 0, sys.maxsize  # then without; it is printed at the end
            return
        self._hand_on("".join(self._kept))
        self._kept.clear()

    def _hand_on(self, text: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(text)
            self._process.stdin.flush()
        except BrokenPipeError as problem:
            raise _ReadEnough from problem  # of its own kind: click takes a broken pipe for a failure


@contextlib.contextmanager
def paged(*, asked: bool) -> Iterator[None]:
    """For as long as this lasts, standard output is a `Screen`, if it is a terminal and there is a pager."""
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
