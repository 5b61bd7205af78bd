"""A Python client: submits TYJobs and follows them in the cluster, and asks `arranger serve` what the log says.

`AsyncClient` is for asyncio code, and `Client` has the same methods for all other code, notebooks among it.
docs/client.md describes both.
"""

from arranger.client.answers import Refused
from arranger.client.asynchronous import AsyncClient
from arranger.client.jobs import Condition, Job, JobEnded, JobGone, JobPod
from arranger.client.synchronous import Client
from arranger.errors import ArrangerError, LogError, LogUnavailable, UsageError
from arranger.kube.cluster import ApiError, ClusterUnavailable
from arranger.model.job import Stage

__all__ = [
    "ApiError",
    "ArrangerError",
    "AsyncClient",
    "Client",
    "ClusterUnavailable",
    "Condition",
    "Job",
    "JobEnded",
    "JobGone",
    "JobPod",
    "LogError",
    "LogUnavailable",
    "Refused",
    "Stage",
    "UsageError",
]
