"""The operator's trial (`python -m tests.trial`) with short scenarios: leases of two seconds, pauses of a few seconds.

Durations are judged only if the scenario's limit is much longer than the delays of a busy machine.
"""

from pathlib import Path

import pytest

from tests.conftest import _required
from tests.servers import RealKube
from tests.trial.rows import ROWS, Scenario
from tests.trial.scene import Lab


@pytest.mark.parametrize(
    "scenario", [scenario for scenario in ROWS if scenario.in_suite], ids=lambda of: f"{of.row}-{of.run.__name__}"
)
def test_what_broke_once_in_an_operators_trial_holds_on_real_servers(
    scenario: Scenario, kube: RealKube, tmp_path: Path
) -> None:
    with _required():
        verdict = scenario.run(Lab(kube, tmp_path), **scenario.short)
    assert verdict.holds, verdict.line()
