"""What a viewer with few rights gets to see: only the parts of an answer that these rights are for.

What isn't named here is left out, so a new field of an answer is hidden until somebody decides otherwise.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from typing import Any

from arranger.web.console_masking import MASKED, Sight, namespaces
from arranger.web.questions import Asked
from arranger.web.refusals import refuse
from arranger.web.rights import EVERYTHING, JOBS, NODES, QUEUES, Right, Viewer

#: Parts of `replay` that name nothing.
_OPEN_PARTS = ("offset", "epoch", "timeMs", "synced", "lastCycle", "pods", "otherPods")
#: What of a job in another namespace is shown: where it is in the queue, and how far it is.
_OPEN_OF_A_JOB = (
    *("queue", "stage", "scheduleState", "priority", "ownPriority", "attempt", "restarts"),
    *("podsDesired", "podsPlaced", "podsSeen", "podsRunning", "podsFailed", "createdMs"),
)


class MaskedNames:
    """Names in place of names. Without the key, which is this process's alone, nobody can try names out.

    The pseudonyms of exports are ranks among all names, so they change with each new name.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def of(self, sort: str, name: str) -> str:
        return f"{sort}-{hmac.new(self._key, f'{sort} {name}'.encode(), hashlib.sha256).hexdigest()[:10]}"


async def lacking(viewer: Viewer) -> list[Right]:
    """The rights that a viewer lacks to see everything."""
    return [right for right in EVERYTHING if not await viewer.may(right)]


async def check(inquiry: Asked, viewer: Viewer, missing: list[Right]) -> None:
    """Raises `Refusal` if no part of the answer is for a viewer who lacks these rights."""
    name = inquiry.question.name
    if name == "node-gantt" and not await viewer.may(NODES):
        refuse("Forbidden", f"the nodes are for those who may {NODES}")
    if name == "replay" or name in MASKED:
        return
    if name == "queue" and not inquiry.words:
        if not await viewer.may(QUEUES):
            refuse("Forbidden", f"the queues are for those who may {QUEUES}")
        return
    refuse("Forbidden", f"{name} may name whatever is in the log, and you may not {', '.join(map(str, missing))}")


async def masked(inquiry: Asked, answer: Any, viewer: Viewer, pseudonyms: MaskedNames) -> Any:
    """The part of an answer that the viewer may see, where `check` lets the viewer ask."""
    name = inquiry.question.name
    if name in MASKED:
        return MASKED[name](answer, await _sight(viewer, namespaces(name, answer), pseudonyms))
    if name != "replay":
        return answer
    seen = await _visible(viewer, {job["namespace"] for job in answer["jobs"]})
    return {
        **{name: answer[name] for name in _OPEN_PARTS},
        "jobs": [job if job["namespace"] in seen else _other(job, pseudonyms) for job in answer["jobs"]],
        "nodes": answer["nodes"] if await viewer.may(NODES) else [],
    }


async def _sight(viewer: Viewer, of: Iterable[str], pseudonyms: MaskedNames) -> Sight:
    """What the viewer may see of an answer with jobs of these namespaces."""

    def named(job: str) -> str:
        return f"{pseudonyms.of('ns', job.partition('/')[0])}/{pseudonyms.of('job', job)}"

    seen = await _visible(viewer, of)
    return Sight(seen.__contains__, await viewer.may(NODES), await viewer.may(QUEUES), named)


async def _visible(viewer: Viewer, namespaces: Iterable[str]) -> set[str]:
    """The namespaces whose jobs the viewer may get."""
    if await viewer.may(JOBS):
        return set(namespaces)
    return {name for name in sorted(namespaces) if await viewer.may(Right(JOBS.verb, JOBS.group, JOBS.resource, name))}


def _other(job: dict[str, Any], pseudonyms: MaskedNames) -> dict[str, Any]:
    return {
        "namespace": pseudonyms.of("ns", job["namespace"]),
        "name": pseudonyms.of("job", job["uid"]),
        **{name: job[name] for name in _OPEN_OF_A_JOB},
    }
