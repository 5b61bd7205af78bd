"""Tenants: create one job after the other, and measure how long each waits until all its pods exist."""

import contextlib
import http.client
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.e2e.history import Event, History
from tests.servers import MERGE, RealKube

Job = dict[str, Any]


def tyjobs(namespace: str) -> str:
    """The API path of a namespace's TYJobs."""
    return f"/apis/arranger.dev/v1/namespaces/{namespace}/tyjobs"


def create(kube: RealKube, namespace: str, job: Mapping[str, Any]) -> None:
    there = {**job, "metadata": {**job["metadata"], "namespace": namespace}}
    kube.request("POST", tyjobs(namespace), there)


@dataclass(frozen=True)
class Wait:
    """The wait of one job: the times of its creation and of its last pod's (None: not yet), by this machine's clock."""

    name: str
    asked_s: float
    whole_s: float | None

    def lasted_s(self, until_s: float) -> float:
        """The duration of the wait; if the job still waits, the time so far."""
        return (self.whole_s if self.whole_s is not None else until_s) - self.asked_s


class Stream:
    """A tenant that creates a job every `every_s` seconds, from `start` to `stop`."""

    def __init__(
        self, kube: RealKube, namespace: str, make: Callable[[str], Job], *, every_s: float, pods: int, prefix: str
    ) -> None:
        """`make` returns the job for a name; `pods` is the job's number of pods."""
        self.namespace = namespace
        self.pods = pods
        #: Name → the time of its creation.
        self.asked: dict[str, float] = {}
        #: The error that stopped the stream, if any.
        self.problem: Exception | None = None
        self._kube = kube
        self._make = make
        self._every_s = every_s
        self._prefix = prefix
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> "Stream":
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        if self.problem is not None:
            raise self.problem

    def _run(self) -> None:
        next_s = time.monotonic()
        try:
            while not self._stopping.is_set():
                name = f"{self._prefix}{len(self.asked):04}"
                self.asked[name] = time.monotonic()
                create(self._kube, self.namespace, self._make(name))
                next_s += self._every_s
                self._stopping.wait(max(0.0, next_s - time.monotonic()))
        except Exception as problem:
            self.problem = problem

    def waits(self, history: History) -> list[Wait]:
        """The waits of all its jobs, by the record."""
        created: dict[str, list[float]] = defaultdict(list)
        for event in history.since(0):
            metadata = event.object["metadata"]
            if event.kind == "pod" and event.type == "ADDED" and metadata["namespace"] == self.namespace:
                created[(metadata.get("labels") or {}).get("arranger.dev/job", "")].append(event.at)
        whole = {name: sorted(of)[self.pods - 1] for name, of in created.items() if len(of) >= self.pods}
        return [Wait(name, asked_s, whole.get(name)) for name, asked_s in list(self.asked.items())]


def percentile(of: list[float], percent: float) -> float:
    """The percentile by nearest rank; 0 for an empty list."""
    ranked = sorted(of)
    return ranked[min(len(ranked) - 1, int(len(ranked) * percent / 100))] if ranked else 0.0


class Programs:
    """Simulates the leaders' programs: each succeeds `work_s` after its job is Running, as a real one does after its
    workers have joined. It reads the cluster from the trial's own record."""

    def __init__(self, kube: RealKube, history: History, *, work_s: float = 1.0, spare: frozenset[str] = frozenset()):
        """Leaders in the namespaces `spare` don't end."""
        self._kube = kube
        self._history = history
        self._work_s = work_s
        self._spare = spare
        self._read = 0
        self._leaders: dict[tuple[str, int], tuple[str, str]] = {}
        self._due: dict[tuple[str, int], float] = {}
        self._told: set[tuple[str, int]] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Programs":
        self._thread.start()
        return self

    def __exit__(self, *of_error: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(0.05):
            news = self._history.since(self._read)
            self._read += len(news)
            for event in news:
                self._see(event)
            for one in [one for one, at in self._due.items() if at <= time.monotonic() and one in self._leaders]:
                del self._due[one]
                namespace, name = self._leaders[one]
                path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
                ended = {"status": {"phase": "Succeeded"}}
                with contextlib.suppress(OSError, http.client.HTTPException):
                    self._kube.request("PATCH", path, ended, content_type=MERGE, check=False)

    def _see(self, event: Event) -> None:
        metadata, status = event.object["metadata"], event.object.get("status") or {}
        labels = metadata.get("labels") or {}
        if metadata.get("namespace") in self._spare:
            return
        if event.kind == "pod" and event.type == "ADDED" and labels.get("arranger.dev/role") == "leader":
            uid = metadata["ownerReferences"][0]["uid"]
            self._leaders[uid, int(labels["arranger.dev/attempt"])] = (metadata["namespace"], metadata["name"])
        elif event.kind == "job" and status.get("stage") == "Running":
            one = (metadata["uid"], status.get("attempt", 0))
            if one not in self._told:
                self._told.add(one)
                self._due[one] = event.at + self._work_s
