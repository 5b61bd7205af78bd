"""The status of a Queue, as JSON, from the view of it. A pure function: `queue_writer` stores the result."""

from collections.abc import Mapping
from typing import Any

from arranger.kube.cluster import Object
from arranger.messages.queues import condition_text
from arranger.model.pod import gpus_of
from arranger.model.quantity import quantity
from arranger.scheduling import QueueView

#: The condition of a queue: whether new jobs of it may get nodes.
READY = "Ready"

_MAPS = ("used", "share", "demand", "usage")

#: Every field of the status; a merge patch clears one only if it is named.
_FIELDS = (*_MAPS, "state", "gpus", "gpuShare", "waiting", "running", "observedGeneration", "conditions")


def queue_status(view: QueueView, generation: int) -> Object:
    """The whole status of a queue whose spec has this generation, without the times of its conditions."""
    spec = view.spec
    claims = (*spec.guarantee, *spec.deserved, *spec.capability) if spec is not None else ()
    resources = sorted({*view.used, *view.demand, *(name for name, _ in claims)})
    ready = {
        "type": READY,
        "status": "True" if view.state == "Open" else "False",
        "observedGeneration": generation,
        "reason": str(view.problem.kind) if view.problem is not None else view.state,
        "message": condition_text(view.name, view.problem, closed=view.closed),
    }
    return {
        "state": view.state,
        "used": _amounts(view.used, resources),
        "share": _amounts(view.share, resources),
        "demand": _amounts(view.demand, resources),
        **(
            {"usage": {name: _about(name, amount) for name, amount in sorted(view.usage.items())}} if view.usage else {}
        ),
        "gpus": gpus_of(view.used.items()),
        "gpuShare": gpus_of(view.share.items()),
        "waiting": view.waiting,
        "running": view.running,
        "observedGeneration": generation,
        "conditions": [ready],
    }


def status_patch(status: Object, stored: Mapping[str, Any], now: str) -> Object:
    """The merge patch that makes `status` of the `stored` one. A condition keeps its time of transition while its
    status stays; `now` is that of another one, in RFC 3339."""
    patch: Object = {name: status.get(name) for name in _FIELDS}
    for name in _MAPS:
        if patch[name] is not None:
            patch[name] = {**dict.fromkeys(stored.get(name) or ()), **patch[name]}
    before = {each.get("type"): each for each in stored.get("conditions") or ()}
    patch["conditions"] = [_timed(each, before.get(each["type"], {}), now) for each in status["conditions"]]
    return patch


def _timed(condition: Object, before: Mapping[str, Any], now: str) -> Object:
    same = before.get("status") == condition["status"]
    return condition | {"lastTransitionTime": before["lastTransitionTime"] if same else now}


def _amounts(amounts: Mapping[str, int], resources: list[str]) -> dict[str, str]:
    return {name: quantity(name, amounts.get(name, 0)) for name in resources}


def _about(resource: str, amount: int) -> str:
    """An amount to about 1 %: an average changes all the time, and not every change is worth a write."""
    unit = 1 << max(amount.bit_length() - 7, 0)
    return quantity(resource, amount // unit * unit)
