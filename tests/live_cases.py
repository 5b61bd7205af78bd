"""Puts a cluster that is described by objects, as `arranger simulate` reads it, on an API server, and sees what real
processes decide there.

`python -m tests.live_cases FOLDER` does that for each input that a file `expected.yaml` in the folder names, and says
which plans are not as expected. It starts servers of its own.
"""

import argparse
import contextlib
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from arranger.kube.translate import parse_time_ms
from arranger.model.text import rfc3339
from tests.e2e.harness import Fleet
from tests.servers import MERGE, KubeServer, RealRedis, real_kube, real_redis

Object = dict[str, Any]

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_FINALIZER = "example.com/stuck"
#: Paths of the kinds, in the order in which they are created.
_PATHS = {
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "LimitRange": "/api/v1/namespaces/{}/limitranges",
    "Queue": "/apis/arranger.dev/v1/queues",
    "Node": "/api/v1/nodes",
    "TYJob": "/apis/arranger.dev/v1/namespaces/{}/tyjobs",
    "Pod": "/api/v1/namespaces/{}/pods",
}
#: An outcome stands after so many looks without a change, and is waited for so long.
_QUIET, _MOST_S = 12, 60.0
SETTINGS = {"preemption_bound_s": 1, "min_runtime_s": 120, "backfill": "Guests"}


@dataclass
class Outcome:
    """The nodes that the pods of each job got, and the jobs that gave room."""

    nodes: dict[str, list[str]] = field(default_factory=dict)
    gave: set[str] = field(default_factory=set)
    #: What the statuses of waiting jobs say.
    said: dict[str, str] = field(default_factory=dict, compare=False)


class Live:
    """The cluster of a case on an API server. `now_ms` is the time at which the case plays."""

    def __init__(self, kube: KubeServer, objects: Iterable[Object], *, now_ms: int) -> None:
        self._kube = kube
        self._now_ms = now_ms
        self._uids: dict[str, str] = {}
        #: The names of pods that leave by themselves, or never.
        self._leaving: set[str] = set()
        items = sorted(objects, key=lambda item: ([*_PATHS].index(item["kind"]), _created(item)))
        jobs = [item for item in items if item["kind"] == "TYJob"]
        #: The jobs that had nodes before, and those that wait.
        self._before = {
            item["metadata"]["name"]: [one["node"] for one in item["status"].get("allocations", ())]
            for item in jobs
            if "status" in item
        }
        self.ran = [*self._before]
        self.waits = [item["metadata"]["name"] for item in jobs if "status" not in item]
        for before, item in zip([None, *items], items, strict=False):
            if before is not None and before["kind"] == item["kind"] == "TYJob" and _created(before) < _created(item):
                time.sleep(1.1)  # times of objects are whole seconds, and decide who is first
            self._create(item)
        for item in items:
            if item["kind"] == "Pod" and item["metadata"].get("deletionTimestamp"):
                self._delete(item)

    def _create(self, item: Object) -> None:
        metadata = {**item["metadata"]}
        namespace = metadata.get("namespace", "default")
        if namespace != "default":
            self._kube.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}, check=False)
        leaving = metadata.pop("deletionTimestamp", None)
        for name in ("uid", "creationTimestamp", "deletionGracePeriodSeconds", "finalizers"):
            metadata.pop(name, None)
        owners = [{**one, "uid": self._uids.get(one["uid"], one["uid"])} for one in metadata.get("ownerReferences", ())]
        metadata |= {"ownerReferences": owners} if owners else {}
        metadata |= {"annotations": self._now(metadata["annotations"])} if "annotations" in metadata else {}
        if leaving and (parse_time_ms(leaving) or 0) < self._now_ms:
            metadata["finalizers"] = [_FINALIZER]
        path = _PATHS[item["kind"]].format(namespace)
        body = {**item, "metadata": metadata}
        status = self._now(body.pop("status", None))
        stored = self._kube.request("POST", path, body)[1]
        self._uids[item["metadata"].get("uid", "")] = stored["metadata"]["uid"]
        if status is not None:
            self._kube.request("PATCH", f"{path}/{metadata['name']}/status", {"status": status}, content_type=MERGE)

        if item["kind"] == "Node":  # an API server taints new nodes, until a controller sees that they are ready
            taints = {"spec": {"taints": item.get("spec", {}).get("taints")}}
            self._kube.request("PATCH", f"{path}/{metadata['name']}", taints, content_type=MERGE)

    def _now(self, value: Any) -> Any:
        """A part of an object with its times as far from now as they are from the time of the case."""
        if isinstance(value, dict):
            return {name: self._now(each) for name, each in value.items()} | (
                {"reason": "Reported", "message": ""} if "lastTransitionTime" in value else {}
            )
        if isinstance(value, list):
            return [self._now(each) for each in value]
        ms = parse_time_ms(value) if isinstance(value, str) and _TIME.fullmatch(value) else None
        return value if ms is None else rfc3339(time.time_ns() // 10**6 - self._now_ms + ms)

    def _delete(self, item: Object) -> None:
        """A pod whose grace is over hangs; one within its grace has the rest of it, and no kubelet ends it."""
        metadata = item["metadata"]
        self._leaving.add(metadata["name"])
        left_ms = (parse_time_ms(metadata["deletionTimestamp"]) or 0) - self._now_ms
        path = f"{_PATHS['Pod'].format(metadata.get('namespace', 'default'))}/{metadata['name']}"
        self._kube.request("DELETE", f"{path}?gracePeriodSeconds={max(1, left_ms // 1000)}")

    def _jobs(self) -> dict[str, Object]:
        return {
            item["metadata"]["name"]: item
            for item in self._kube.request("GET", _PATHS["TYJob"].format("default"))[1]["items"]
        }

    def outcome(self) -> Outcome:
        """What has been decided by now."""
        found, jobs = Outcome(), self._jobs()
        for name in [*self.waits, *self.ran]:
            of = jobs[name].get("status", {}).get("allocations", ())
            found.nodes[name] = [one["node"] for one in of for _ in range(_pods_in(one))]
        for name in self.waits:
            found.said[name] = jobs[name].get("status", {}).get("message", "")
        for name in self.ran:
            for node in self._before[name]:
                if node in found.nodes[name]:
                    found.nodes[name].remove(node)
            waits = jobs[name].get("status", {}).get("stage") in ("Rescheduling", "Pending")
            if waits and not jobs[name]["spec"].get("suspend"):
                found.gave.add(name)
        return found

    def _kubelets_turn(self) -> None:
        """Let pods that were told to leave go, and new ones run."""
        for pod in self._kube.request("GET", "/api/v1/pods")[1]["items"]:
            metadata = pod["metadata"]
            path = f"{_PATHS['Pod'].format(metadata['namespace'])}/{metadata['name']}"
            if metadata.get("deletionTimestamp") and metadata["name"] not in self._leaving:
                self._kube.request("DELETE", f"{path}?gracePeriodSeconds=0", check=False)
            elif pod["spec"].get("nodeName") and pod["status"].get("phase") == "Pending":
                ready = [{"type": "Ready", "status": "True"}]
                status = {"phase": "Running", "podIP": "10.0.0.9", "conditions": ready}
                self._kube.request("PATCH", f"{path}/status", {"status": status}, content_type=MERGE, check=False)

    def settled(self) -> Outcome:
        """What is decided once nothing changes any more."""
        until_s, last, quiet = time.monotonic() + _MOST_S, self.outcome(), 0
        while time.monotonic() < until_s and quiet < _QUIET:
            time.sleep(0.25)
            self._kubelets_turn()
            now = self.outcome()
            quiet = quiet + 1 if now == last and all(now.said.values()) else 0  # each has a status
            last = now
        return last

    def clear(self) -> None:
        """Take everything away, pods that hang too."""
        for item in self._kube.request("GET", "/api/v1/pods")[1]["items"]:
            metadata = item["metadata"]
            path = f"{_PATHS['Pod'].format(metadata['namespace'])}/{metadata['name']}"
            self._kube.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE, check=False)
            self._kube.request("DELETE", f"{path}?gracePeriodSeconds=0", check=False)
        self._kube.clear()
        for item in self._kube.request("GET", "/api/v1/limitranges")[1]["items"]:
            path = _PATHS["LimitRange"].format(item["metadata"]["namespace"])
            self._kube.request("DELETE", f"{path}/{item['metadata']['name']}")
        for kind in ("RuntimeClass", "PriorityClass"):
            for item in self._kube.request("GET", _PATHS[kind])[1]["items"]:
                if not item["metadata"]["name"].startswith("system-"):
                    self._kube.request("DELETE", f"{_PATHS[kind]}/{item['metadata']['name']}")


def _created(item: Object) -> str:
    return str(item["metadata"].get("creationTimestamp", ""))


def _pods_in(allocation: Mapping[str, Any]) -> int:
    """The number of pods of a job on one node."""
    count = int(bool(allocation.get("leader")))
    for of_set in allocation.get("workers", ()):
        for run in str(of_set["indices"]).split(","):
            first, _, last = run.partition("-")
            count += int(last or first) - int(first) + 1
    return count


@contextlib.contextmanager
def live(
    kube: KubeServer, redis: RealRedis, objects: Iterable[Object], folder: Path, *, now_ms: int, **settings: object
) -> Iterator[Live]:
    """The cluster of a case, with all roles at work."""
    there = Live(kube, objects, now_ms=now_ms)
    fleet = Fleet(redis_url=redis.url, kubeconfig=kube.kubeconfig, folder=folder, **{**SETTINGS, **settings})
    try:
        fleet.start()
        yield there
        assert not fleet.tracebacks(), fleet.tracebacks()
    finally:
        fleet.close()
        there.clear()


# --- inputs in files ----------------------------------------------------------------------------------------


def differs(expected: Mapping[str, Any], outcome: Outcome) -> list[str]:
    """What isn't as a file of expectations says, in words. `placed` has for each job None, the number of its pods with
    nodes, the pods of each node, or the possible nodes; `preempted` the jobs, their number, or the possible sets."""
    found = []
    for name, wanted in expected["placed"].items():
        got = outcome.nodes.get(name, [])
        if isinstance(wanted, dict):
            right = {node: got.count(node) for node in got} == wanted
        elif isinstance(wanted, list):
            right = bool(got) and ("+".join(sorted(got)) in wanted or set(got) <= set(wanted))
        else:
            right = len(got) == (wanted or 0)
        if not right:
            found.append(f"{name} has {got} instead of {wanted}: {outcome.said.get(name)}")
    gave, wanted = outcome.gave, expected["preempted"]
    if isinstance(wanted, int):
        right = len(gave) == wanted
    else:
        right = (
            any(gave == set(each) for each in wanted) if wanted and isinstance(wanted[0], list) else gave == {*wanted}
        )
    return found if right else [*found, f"{sorted(gave)} gave room instead of {wanted}"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.live_cases", description=__doc__)
    parser.add_argument("folder", type=Path, help="has expected.yaml and the inputs that it names")
    parser.add_argument("prefix", nargs="?", default="", help="only inputs whose names begin so")
    given = parser.parse_args()
    wrong = 0
    with real_kube() as kube, tempfile.TemporaryDirectory(prefix="arranger-live-") as scratch:
        kube.install_crd()
        for number, (name, expected) in enumerate(yaml.safe_load((given.folder / "expected.yaml").read_text()).items()):
            if not name.startswith(given.prefix):
                continue
            objects = [each for each in yaml.safe_load_all((given.folder / name).read_text()) if each]
            folder = Path(scratch) / str(number)
            folder.mkdir()
            with real_redis() as redis, live(kube, redis, objects, folder, now_ms=time.time_ns() // 10**6) as there:
                problems = differs(expected, there.settled())
            wrong += bool(problems)
            print(f"{'WRONG' if problems else 'right'}  {name}", *problems, sep="\n       ", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
