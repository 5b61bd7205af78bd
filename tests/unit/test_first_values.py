"""Counters that alerts look at are there at 0 before anything happens: Prometheus doesn't see an increase from nothing
to 1."""

from arranger.clock import SystemClock
from arranger.metrics import Metrics
from arranger.workers.log.decision_counts import DecisionCounts
from arranger.workers.maintaining.maintenance import Maintenance
from tests.parts import parts


def test_the_first_failure_of_a_tick_and_the_first_foreign_one_are_increases() -> None:
    metrics = Metrics(SystemClock())
    metrics.expect_ticks(["cycle"])
    value = metrics.registry.get_sample_value
    for result in ("ok", "failed", "timeout"):
        assert value("arranger_ticks_total", {"tick": "cycle", "result": result}) == 0
    assert value("arranger_ticks_dropped_total", {"tick": "cycle"}) == 0


def test_the_first_change_that_a_watch_misses_is_an_increase() -> None:
    metrics = Metrics(SystemClock())
    metrics.heard("pod")
    assert metrics.registry.get_sample_value("arranger_missed_observations_total", {"kind": "pod"}) == 0


def test_a_process_that_never_stores_a_snapshot_says_so() -> None:
    own = parts()
    Maintenance(own, None)  # type: ignore[arg-type]
    assert own.metrics.registry.get_sample_value("arranger_snapshots_total", {"result": "stored"}) == 0


def test_the_first_preemption_is_an_increase() -> None:
    metrics = Metrics(SystemClock())
    DecisionCounts(metrics, "us")
    for kind in ("Surplus", "Priority", "Reclaim"):
        assert metrics.registry.get_sample_value("arranger_preemptions_total", {"kind": kind}) == 0
    assert metrics.registry.get_sample_value("arranger_reservations_total", {"result": "moved"}) == 0
