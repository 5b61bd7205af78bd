"""One pod on a simulated node: its annotations, its requests, and the statuses that its kubelet writes."""

import asyncio
import re
from collections import Counter
from typing import Any

import msgspec

from arranger.kube.cluster import Object
from arranger.model.near_names import did_you_mean, near_names
from arranger.model.quantity import amount
from arranger.model.text import cut, one_line

PREFIX = "sandbox.arranger.dev/"
_TEXTS = ("exit-reason", "fail")


class _Number(msgspec.Struct, frozen=True):
    """What a number may be: from 0 to `most`, also with decimals unless it is `whole`."""

    words: str
    whole: bool = False
    most: float = 1e15

    def fits(self, text: str) -> bool:
        pattern = r"[0-9]+" if self.whole else r"[0-9.]+(e[-+]?[0-9]+)?"
        if re.fullmatch(pattern, text) is None:
            return False
        try:
            return float(text) <= self.most
        except ValueError:  # 1.2.3
            return False


_SECONDS = _Number('a number of seconds from 0, such as "30"')
_NUMBERS = {
    "start-seconds": _SECONDS,
    "ready-seconds": _SECONDS,
    "run-seconds": _SECONDS,
    "failures": _Number("a whole number from 0", whole=True),
    "exit-code": _Number("a whole number from 0 to 255", whole=True, most=255),
}

#: All names, after the prefix.
ANNOTATIONS = (*_NUMBERS, *_TEXTS)


def _unknown(name: str) -> str:
    """What is wrong with an annotation of this name."""
    close = did_you_mean(near_names(name, ANNOTATIONS))
    shown = cut(one_line(name), 60)
    return f"{shown} is unknown, {close}" if close else f"{shown} is unknown: allowed are {', '.join(ANNOTATIONS)}"


class Behaviour(msgspec.Struct, frozen=True):
    """The behaviour in a pod's annotations."""

    start_s: float
    ready_s: float
    run_s: float | None
    exit_code: int
    exit_reason: str
    failures: int | None
    fail: str

    #: What is wrong with the annotations; those count as absent.
    problems: tuple[str, ...] = ()

    @staticmethod
    def of(pod: Object) -> "Behaviour":
        """Read the annotations."""
        notes = pod["metadata"].get("annotations") or {}
        given = {name.removeprefix(PREFIX): text for name, text in notes.items() if name.startswith(PREFIX)}
        problems = [_unknown(name) for name in given if name not in ANNOTATIONS]

        def number(name: str) -> float | None:
            text, rule = given.get(name), _NUMBERS[name]
            if text is None or rule.fits(text):
                return None if text is None else float(text)
            problems.append(f'{name} is "{cut(one_line(text), 60)}": ignored, must be {rule.words}')
            return None

        failures = number("failures")
        return Behaviour(
            start_s=number("start-seconds") or 0.0,
            ready_s=number("ready-seconds") or 0.0,
            run_s=number("run-seconds"),
            exit_code=int(number("exit-code") or (1 if failures else 0)),
            exit_reason=given.get("exit-reason", ""),
            failures=None if failures is None else int(failures),
            fail=given.get("fail", ""),
            problems=tuple(f"annotation {PREFIX}{of}" for of in problems),
        )


class PodRun:
    """One pod on one of the nodes, with its state."""

    def __init__(self, pod: Object) -> None:
        metadata = pod["metadata"]
        self.pod = pod
        self.key = (metadata["namespace"], metadata["name"])
        self.uid: str = metadata["uid"]
        self.node: str = pod["spec"]["nodeName"]
        self.behaviour = Behaviour.of(pod)
        self.requests = requests_of(pod["spec"])
        entries = pod["spec"].get("resourceClaims") or ()
        self.claims = [of["resourceClaimName"] for of in entries if of.get("resourceClaimName")]
        self.restarts = 0
        #: How its containers ended before their last restart.
        self.last: Object = {}
        self.address = ""
        self.started = ""
        self.stopping = False
        self.task: asyncio.Task[None] | None = None

    def pending(self, reason: str, moment: str) -> Object:
        return self._status("Pending", {"waiting": {"reason": reason}}, moment)

    def running(self, moment: str, *, ready: bool) -> Object:
        return self._status("Running", {"running": {"startedAt": moment}}, moment, ready=ready)

    def ended(self, code: int, moment: str) -> Object:
        return self._status("Failed" if code else "Succeeded", self._terminated(code, moment), moment)

    def backing_off(self, code: int, moment: str) -> Object:
        """The status while the containers, which have ended with a code, wait for their restart."""
        self.last = self._terminated(code, moment)
        return self._status("Running", {"waiting": {"reason": "CrashLoopBackOff"}}, moment)

    def _terminated(self, code: int, moment: str) -> Object:
        reason = (self.behaviour.exit_reason or "Error") if code else "Completed"
        return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": moment}}

    def _status(self, phase: str, states: Object, moment: str, *, ready: bool = False) -> Object:
        on = "True" if ready else "False"
        conditions = [("PodScheduled", "True"), ("Initialized", "True"), ("ContainersReady", on), ("Ready", on)]
        containers = [
            {
                "name": container["name"],
                "image": container.get("image", ""),
                "imageID": "",
                "ready": ready,
                "started": "running" in states,
                "restartCount": self.restarts,
                "state": states,
                "lastState": self.last,
            }
            for container in self.pod["spec"].get("containers") or []
        ]
        status: Object = {
            "phase": phase,
            "startTime": self.started,
            "conditions": [{"type": kind, "status": state, "lastTransitionTime": moment} for kind, state in conditions],
            "containerStatuses": containers,
        }
        if phase != "Pending":
            status |= {"podIP": self.address, "podIPs": [{"ip": self.address}]}
        return status


def _amounts(container: dict[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: amount(name, asked_for) for name, asked_for in asked.items()}


def requests_of(spec: dict[str, Any]) -> dict[str, int]:
    """A pod's use of its node (millicores, bytes, units): its containers together, or an init container."""
    total = Counter(pods=1)
    for container in spec.get("containers") or []:
        total.update(_amounts(container))
    for container in spec.get("initContainers") or []:
        always = container.get("restartPolicy") == "Always"
        for name, asked in _amounts(container).items():
            total[name] = total[name] + asked if always else max(total[name], asked)
    for name, quantity in (spec.get("overhead") or {}).items():
        total[name] += amount(name, quantity)
    return total
