"""Placement experiments on published traces: pods without jobs, on nodes that nothing else uses."""

from arranger.scheduling.experiment.policies import POLICIES
from arranger.scheduling.experiment.trace import Experiment, TraceNode, TraceOutcome, TracePod

__all__ = ["POLICIES", "Experiment", "TraceNode", "TraceOutcome", "TracePod"]
