"""Pods whose containers their kubelets can't make: a wrong image, a missing ConfigMap."""

from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State

#: The kubelet's reason for a container that was made and failed: its restarts are counted, and their limit ends that.
_CRASHED = "CrashLoopBackOff"


def unable_slots(state: State, job: JobRecord) -> list[SlotKey]:
    """The slots whose pods their kubelets can't start, in order."""
    pods = ((slot, state.pods[job.bound[slot]]) for slot in sorted(job.bound))
    return [slot for slot, pod in pods if pod.waiting not in ("", _CRASHED) and not pod.deleting]
