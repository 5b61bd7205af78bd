"""Runs the demo again and again, and says how long it took, and whether its preemptions were needless:
`python -m tests.demo_runs 20`. The exit status is 1 if a run failed, had no preemption or a needless one."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.servers import REPOSITORY

ARRANGER = [sys.executable, "-m", "arranger.cli.main"]


def run(folder: Path) -> tuple[float, list[bool], int]:
    """One demo: its seconds, whether each of its preemptions was needless, and its exit status."""
    began_s = time.monotonic()
    demo = [*ARRANGER, "demo", "--folder", str(folder)]
    status = subprocess.run(demo, cwd=REPOSITORY, stdout=subprocess.DEVNULL, check=False).returncode
    lasted_s = time.monotonic() - began_s
    asked = [*ARRANGER, "preemptions", "--log", str(folder / "log"), "-o", "json"]
    told = subprocess.run(asked, cwd=REPOSITORY, capture_output=True, check=True).stdout
    return lasted_s, [one["needless"] for one in json.loads(told)["preemptions"]], status


def main(runs: int) -> int:
    seconds, bad = [], 0
    for number in range(1, runs + 1):
        with tempfile.TemporaryDirectory() as folder:
            lasted_s, needless, status = run(Path(folder))
        seconds.append(lasted_s)
        bad += status != 0 or not needless or any(needless)
        print(
            f"{number}: {lasted_s:.1f} s, status {status}, {len(needless)} preemptions, {sum(needless)} needless",
            flush=True,
        )
    print(f"{runs} runs of {min(seconds):.1f} to {max(seconds):.1f} s, median {statistics.median(seconds):.1f} s; "
          f"{bad} of them failed, or took room needlessly or not at all")  # fmt: skip
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
