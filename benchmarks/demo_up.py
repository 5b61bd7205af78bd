"""From the command to a demo that is up: the API answers, every worker process is ready."""

import os
import re
import signal
import statistics
import subprocess
import sys
import time

from benchmarks.parts import scratch_folder
from benchmarks.report import Figure

_UP = re.compile(r"up after ([0-9.]+) s")


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    rounds = 1 if quick else 3
    found = [_up() for _ in range(rounds)]
    return [
        Figure(
            name="from command to up", value=statistics.median(found), unit="s", at_most=5,
            note="each: " + ", ".join(f"{one:.1f}" for one in found),
        )
    ]  # fmt: skip


def _up() -> float:
    """Seconds from starting the command to the line that says that it is up, Python's own start included."""
    with scratch_folder() as folder:
        began_s = time.monotonic()
        demo = subprocess.Popen(
            [sys.executable, "-m", "arranger.cli.main", "demo", "--folder", folder],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert demo.stdout is not None
        with demo:
            said = ""
            for line in demo.stdout:
                said += line
                if _UP.search(line):
                    up_s = time.monotonic() - began_s
                    demo.send_signal(signal.SIGINT)
                    demo.stdout.read()
                    return up_s
    raise RuntimeError(f"the demo never was up: {said[-2000:]}")
