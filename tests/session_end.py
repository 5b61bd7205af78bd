"""What the end of a test session tells beside its verdict, also of what workers of pytest-xdist ran."""

from typing import Any

import pytest

#: What the simulation ran, in lines.
SIMULATED: list[str] = []


def hand_over(session: pytest.Session) -> None:
    """In a worker: give the lines to the session that prints."""
    handed = getattr(session.config, "workeroutput", None)
    if handed is not None:
        handed["simulated"] = SIMULATED


def take_over(node: Any) -> None:
    """In the session that prints: take what a worker that has ended gave."""
    SIMULATED.extend(getattr(node, "workeroutput", {}).get("simulated", ()))


def tell(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the fresh seeds, also when all passed: nobody knows them otherwise. Say loudly which real servers and traces
    were missing."""
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
