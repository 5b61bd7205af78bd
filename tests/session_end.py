"""The report at the end of a test session, including that of workers of pytest-xdist."""

from typing import Any

import pytest

#: The simulation's report, by lines.
SIMULATED: list[str] = []


def hand_over(session: pytest.Session) -> None:
    """In a worker: pass the lines to the session that prints."""
    handed = getattr(session.config, "workeroutput", None)
    if handed is not None:
        handed["simulated"] = SIMULATED


def take_over(node: Any) -> None:
    """In the session that prints: take the lines of a worker that has ended."""
    SIMULATED.extend(getattr(node, "workeroutput", {}).get("simulated", ()))


def tell(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the fresh seeds even if all passed, so that they are known. Report missing real servers and traces
    prominently."""
    if SIMULATED:
        terminalreporter.section("simulation")
        for line in SIMULATED:
            terminalreporter.write_line(line)
    skipped = [r for r in terminalreporter.stats.get("skipped", []) if isinstance(r.longrepr, tuple | list)]
    told = [r.longrepr[2].removeprefix("Skipped: ") for r in skipped]
    reasons = [reason for reason in told if reason.startswith(("NO REAL SERVER", "NO OPENB TRACE"))]
    if reasons:
        terminalreporter.section("TESTS ON REAL SERVERS AND TRACES WERE SKIPPED", red=True, bold=True)
        for reason in sorted(set(reasons)):
            terminalreporter.write_line(f"{reasons.count(reason)} tests: {reason}", red=True)
