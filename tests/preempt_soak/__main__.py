"""`python -m tests.preempt_soak --minutes 60 --seed N`: preemptions while processes are killed; 1 if a rule breaks.

Real Redis and API server, nine processes with the accounts of `deploy/`, simulated kubelets. A line each minute tells
how far it is, and a fault is told when it is found. Takes about two thirds of a processor.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.preempt_soak.run import run
from tests.servers import ServersUnavailable, real_kube
from tests.trial.scene import Lab


def main() -> int:
    # SIGTERM raises SystemExit, so that the processes that were started are stopped too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(prog="python -m tests.preempt_soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="of the jobs and of the kills; times differ in each run")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    given = parser.parse_args()
    began_s = time.monotonic()
    with real_kube() as kube, tempfile.TemporaryDirectory(prefix="arranger-preempt-") as folder:
        kube.install_crd()
        verdict = run(Lab(kube, Path(folder)), minutes=given.minutes, seed=given.seed, say=_say)
    verdict.took_s = time.monotonic() - began_s
    print(json.dumps(verdict.document(), indent=2) if given.output == "json" else verdict.line())
    return 0 if verdict.holds else 1


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ServersUnavailable as missing:
        print(f"NO REAL SERVER: {missing}", file=sys.stderr)
        sys.exit(2)
