"""The rule of the simulation about submitters notices who starts too early."""

from unittest import mock

import pytest

from arranger.events import kinds as k
from arranger.scheduling.cycle import take_cycle
from arranger.scheduling.queues.submitters import SubmittersInCycle
from tests.simulation.submitter_rules import passed_by_submitters
from tests.unit.test_submitters import LIMITED, full, submit


@pytest.mark.parametrize(("nodes", "limits"), [(2, {}), (4, LIMITED)], ids=["room", "limit"])
@pytest.mark.parametrize("off", [False, True])
def test_nobody_passes_a_job_whose_submitter_uses_less(nodes: int, limits: dict[str, object], off: bool) -> None:
    of = full(nodes, user_fairness=True, **limits)
    submit(of, "bob", "bob")
    of.settle()
    for pod in of.pods_of(of.state.jobs["uid-ann0"]).values():
        of.change_pod(pod.uid, phase="Succeeded")
    of.apply()
    guard = mock.patch.object(SubmittersInCycle, "comes_first", lambda *_: False)
    with guard if off else mock.patch.dict({}):
        events = take_cycle(of.state, of.config, of.now_ms)
    [cycle] = [event for event in events if isinstance(event, k.CycleTaken)]
    assert [event.job_uid for event in events if isinstance(event, k.Placed)] == ["uid-ann2" if off else "uid-bob"]
    problem = "starts before bob, whose submitter in the queue uses less"
    assert [*passed_by_submitters(of.state, cycle, events)] == [("uid-ann2", problem)] * off
