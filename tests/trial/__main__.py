"""`python -m tests.trial [ROW ...]`: the scenarios of these rows, or all; 1 if one doesn't hold. Minutes for each row.

`--code FOLDER` runs the processes of another checkout, such as a release before: the trial itself stays as it is here.
`--short` is what `make test` runs of it.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.servers import REPOSITORY, ServersUnavailable, real_kube
from tests.trial.rows import ROWS, Scenario
from tests.trial.scene import Lab
from tests.trial.verdicts import Verdict


def main() -> int:
    # SIGTERM raises SystemExit, so that the processes that were started are stopped too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(prog="python -m tests.trial", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(dict.fromkeys(s.row for s in ROWS))}")
    parser.add_argument("--code", type=Path, default=REPOSITORY, help="the checkout whose code the processes run")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    parser.add_argument("--short", action="store_true", help="leases of seconds, and no verdict on times")
    given = parser.parse_args()
    desired = {row.upper() for row in given.rows}
    unknown = desired - {scenario.row for scenario in ROWS}
    if unknown:
        parser.error(f"no row {', '.join(sorted(unknown))}")
    verdicts = []
    for scenario in ROWS:
        if not desired or scenario.row in desired:
            verdicts.append(_tried(scenario, given.code.resolve(), short=given.short))
            if given.output == "text":
                print(verdicts[-1].line(), flush=True)
    if given.output == "json":
        print(json.dumps([verdict.document() for verdict in verdicts], indent=2))
    return 0 if all(verdict.holds for verdict in verdicts) else 1


def _tried(scenario: Scenario, code: Path, *, short: bool) -> Verdict:
    """Run one scenario on its own servers."""
    began_s = time.monotonic()
    with real_kube() as kube, tempfile.TemporaryDirectory(prefix="arranger-trial-") as folder:
        kube.install_crd()
        try:
            verdict = scenario.run(Lab(kube, Path(folder), code), **(scenario.short if short else {}))
        except Exception as problem:
            traceback.print_exc(file=sys.stderr)
            verdict = Verdict(scenario.row, scenario.run.__name__.replace("_", " "), faults=[f"{problem!r}"[:2000]])
    verdict.took_s = time.monotonic() - began_s
    return verdict


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ServersUnavailable as missing:
        print(f"NO REAL SERVER: {missing}", file=sys.stderr)
        sys.exit(2)
