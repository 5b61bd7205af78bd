"""The events of a log by the Python client: from the call until they are decoded, with `arranger serve` beside it.

The log has 14,000 events of the kinds that `replay` makes. The server has no answer in memory: each call starts the
process that answers.
"""

import asyncio
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from arranger.client import Client
from benchmarks.replay import make
from benchmarks.report import Figure

EVENTS = 14_000
_ROUNDS = 7


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    with tempfile.TemporaryDirectory(prefix="arranger-client-") as folder:
        facts = asyncio.run(make(Path(folder), 6_000 if quick else EVENTS, small=True))
        argv = [sys.executable, "-m", "arranger.cli.main", "serve", "--port=0", f"--log={folder}"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            try:
                if found is None:
                    raise RuntimeError("arranger serve printed no address")
                taken_s = _rounds(found[0].rstrip("/"), facts.events, 2 if quick else _ROUNDS)
            finally:
                process.send_signal(signal.SIGTERM)
    note = f"{facts.events:,} events"
    return [
        Figure(name="client: events(), first call", value=taken_s[0], unit="s", note=note),
        Figure(name="client: events(), p50", value=statistics.median(taken_s[1:]), unit="s", at_most=1.0),
    ]


def _rounds(address: str, events: int, rounds: int) -> list[float]:
    """Seconds of each call."""
    taken_s = []
    with Client(server=address) as client:
        client.queues()  # the server has read the log
        for _ in range(rounds):
            began_s = time.perf_counter()
            if len(client.events(first=1, last=events)) != events:
                raise RuntimeError("some events are missing")
            taken_s.append(time.perf_counter() - began_s)
    return taken_s
