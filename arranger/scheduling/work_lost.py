"""How much work is lost if pods end now."""

from collections.abc import Iterable

from arranger.projections.job_parts import SlotKey
from arranger.projections.jobs import JobRecord, requests_of
from arranger.projections.state import State


def lost_ms(state: State, job: JobRecord, slots: Iterable[SlotKey], time_ms: int) -> int:
    """GPU-milliseconds: the time since the job is in its stage, for each GPU of the slots."""
    held_ms = max(time_ms - job.times.stage_ms, 0)
    gpus = sum(amount for slot in slots for name, amount in requests_of(job, slot) if name.endswith("/gpu"))
    return held_ms * gpus
