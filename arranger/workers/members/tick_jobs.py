"""A tick as a job: its form, and how one is made."""

import uuid

import redis
import rq.job

from arranger.events.log_keys import UNKEYED, LogKeys
from arranger.workers.jobs.table_jobs import Form, table_job

#: Seconds: the limit of a handler; how long a tick may wait.
HANDLER_LIMIT_S, FORGOTTEN_AFTER_S = 120, 300


def queue_name(cluster: str, tick: str) -> str:
    return f"arranger:{cluster}:{tick}"


#: The function that a tick names in Redis. Its name and its arguments never change.
FUNCTION = Form(
    name="arranger.workers.members.ticks.handle_tick",
    arguments=tuple[str, str],
    queue=lambda arguments: queue_name(*arguments),
    signed=lambda arguments: arguments,
    limit_s=HANDLER_LIMIT_S, waits_s=FORGOTTEN_AFTER_S, finished_s=60, failed_s=300,
    most_bytes=8_192, most_data_bytes=1_024,
)  # fmt: skip


def tick_job(cluster: str, tick: str, unused: redis.Redis, *, keys: LogKeys = UNKEYED, now_ms: int = 0) -> rq.job.Job:
    """A new tick as rq's record of a job. `unused` is a client that rq requires and never calls."""
    return table_job(
        FUNCTION, (cluster, tick), unused,
        job_id=uuid.uuid4().hex, description=f"tick {tick} of {cluster}", keys=keys, now_ms=now_ms,
    )  # fmt: skip
