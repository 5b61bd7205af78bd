"""The API server's history of a test: a raw watch by the test, and the rules that the history must obey.

It is deliberately independent of Arranger's code: it has its own watch client, and parses quantities, labels and
statuses itself. Events of all kinds are ordered by resourceVersion, because one store counts them.
"""

import base64
import contextlib
import http.client
import json
import ssl
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_KINDS = {"pod": "/api/v1/pods", "job": "/apis/arranger.dev/v1/tyjobs", "node": "/api/v1/nodes"}
_UNITS = {"m": 1, "Ki": 1000 * 2**10, "Mi": 1000 * 2**20, "Gi": 1000 * 2**30, "Ti": 1000 * 2**40, "k": 10**6}
_ENDED = ("Succeeded", "Failed")
_RANK = {"Pending": 0, "Rescheduling": 0, "Starting": 1, "Running": 2, "Succeeded": 3, "Failed": 3}

#: UID of the job, attempt, role, worker set, index.
Slot = tuple[str, int, str, str, int]


@dataclass(frozen=True)
class Event:
    """One watch event. `at` is its arrival time, in seconds of this process's monotonic clock."""

    version: int
    kind: str
    type: str
    object: dict[str, Any]
    at: float

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])


class History:
    """Records all events of pods, TYJobs and nodes since `start`, across outages of the API server."""

    def __init__(self, kubeconfig: Path, *, outages: bool = False) -> None:
        """With `outages`, the API server may restart without its event history; a listing then fills the gap."""
        self._outages = outages
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._address = urllib.parse.urlsplit(cluster["server"])
        self._headers = {"Authorization": f"Bearer {user['token']}"}
        authority = cluster.get("certificate-authority-data")
        self._tls = ssl.create_default_context(cadata=base64.b64decode(authority).decode()) if authority else None
        self._events: list[Event] = []
        #: Gaps in the record. With gaps, the record proves nothing.
        self.gaps: list[str] = []
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Record the present objects as the beginning, and start the watch."""
        for kind, path in _KINDS.items():
            listing = self._get(path)
            for item in listing["items"]:
                self._record(kind, "ADDED", item)
            version = listing["metadata"]["resourceVersion"]
            thread = threading.Thread(target=self._follow, args=(kind, path, version), daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Wait until the record equals the server's present state, then stop."""
        deadline = time.monotonic() + 60
        while not all(self._caught_up(kind, path) for kind, path in _KINDS.items()):
            assert time.monotonic() < deadline, "the history doesn't catch up with the API server"
            time.sleep(0.1)
        self._stopping.set()

    def abandon(self) -> None:
        """Stop even if the record is incomplete."""
        self._stopping.set()

    def events(self) -> list[Event]:
        """The events so far, in the server's order."""
        return sorted(self._events, key=lambda event: event.version)

    def since(self, count: int) -> list[Event]:
        """The events after the first `count`, in the order of arrival."""
        return self._events[count:]

    def created(self) -> list[Event]:
        """The creations of pods so far."""
        return [event for event in self.events() if event.kind == "pod" and event.type == "ADDED"]

    # --- the reader ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _request(self, path: str) -> Iterator[http.client.HTTPResponse]:
        host, port = str(self._address.hostname), self._address.port
        connection: http.client.HTTPConnection = (
            http.client.HTTPSConnection(host, port, timeout=30, context=self._tls)
            if self._tls
            else http.client.HTTPConnection(host, port, timeout=30)
        )
        with contextlib.closing(connection):
            connection.request("GET", self._address.path + path, headers=self._headers)
            yield connection.getresponse()

    def _get(self, path: str) -> dict[str, Any]:
        with self._request(path) as response:
            answer: dict[str, Any] = json.loads(response.read())
        return answer

    def _follow(self, kind: str, path: str, version: str) -> None:
        while not self._stopping.is_set():
            try:
                version = self._watch(kind, path, version)
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(0.1)

    def _watch(self, kind: str, path: str, version: str) -> str:
        query = f"?watch=1&allowWatchBookmarks=true&timeoutSeconds=20&resourceVersion={version}"
        with self._request(path + query) as response:
            if response.status != 200:
                time.sleep(0.1)
                return version
            while not self._stopping.is_set():
                try:
                    line = response.readline()
                except (OSError, http.client.HTTPException):
                    return version
                if not line.endswith(b"\n"):
                    return version
                change = json.loads(line)
                if change["type"] == "ERROR" and self._outages:
                    return self._listed(kind, path)
                if change["type"] == "ERROR":
                    self.gaps.append(f"{kind}: {change['object'].get('message')}")
                    self._stopping.set()
                    return version
                version = change["object"]["metadata"]["resourceVersion"]
                if change["type"] != "BOOKMARK":
                    self._record(kind, change["type"], change["object"])
        return version

    def _record(self, kind: str, change: str, item: dict[str, Any]) -> None:
        version = int(item["metadata"]["resourceVersion"])
        self._events.append(Event(version, kind, change, item, time.monotonic()))

    def _listed(self, kind: str, path: str) -> str:
        """Record the changes in a listing that the watch missed. Returns the version to watch from."""
        listing = self._get(path)
        version = listing["metadata"]["resourceVersion"]
        known = self._known(kind)
        for item in listing["items"]:
            old = known.pop(item["metadata"]["uid"], None)
            if old is None or old["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
                self._record(kind, "MODIFIED" if old else "ADDED", item)
        for old in known.values():
            gone = {**old, "metadata": {**old["metadata"], "resourceVersion": version}}
            self._record(kind, "DELETED", gone)
        return str(version)

    def _known(self, kind: str) -> dict[str, dict[str, Any]]:
        """The existing objects by the record: UID → object."""
        there: dict[str, dict[str, Any]] = {}
        for event in self.events():
            uid = event.object["metadata"]["uid"]
            if event.kind == kind and event.type == "DELETED":
                there.pop(uid, None)
            elif event.kind == kind:
                there[uid] = event.object
        return there

    def _caught_up(self, kind: str, path: str) -> bool:
        there = {i["metadata"]["uid"]: i["metadata"]["resourceVersion"] for i in self._get(path)["items"]}
        recorded = {uid: item["metadata"]["resourceVersion"] for uid, item in self._known(kind).items()}
        return there == recorded or bool(self.gaps)

    # --- the judge -----------------------------------------------------------------------------------------

    def faults(self, *, once: bool = True, unfinished: Collection[str] = ()) -> list[str]:
        """The violations of rules in the record; a test expects none.

        `once`: only Arranger deleted pods and no pod failed, so each slot had exactly one pod. `unfinished`: names of
        jobs that the test ended before their quorum was complete.
        """
        judge = _Judge(once=once)
        for event in self.events():
            judge.take(event)
        return self.gaps + judge.faults + judge.quorums(unfinished)

    def story(self, name: str) -> str:
        """The record of the jobs of this name and their pods, line by line, for failed assertions."""
        lines = []
        for event in self.events():
            metadata, status = event.object["metadata"], event.object.get("status") or {}
            if name in (event.name, (metadata.get("labels") or {}).get("arranger.dev/job")):
                told = [status.get(key) for key in ("stage", "phase", "scheduleState", "ready", "podIP", "message")]
                said = " ".join(str(one) for one in told if one)
                lines.append(f"{event.at:.3f} {event.version} {event.type} {event.kind} {event.name}: {said}")
        return "\n".join(lines)

    def stages(self, name: str) -> list[str]:
        """The successive stages of the jobs of this name, without repetitions."""
        found: list[str] = []
        for event in self.events():
            stage = (event.object.get("status") or {}).get("stage")
            if event.kind == "job" and event.name == name and stage and found[-1:] != [stage]:
                found.append(stage)
        return found


@dataclass
class _Judge:
    """Replays the record and collects the violations."""

    once: bool
    faults: list[str] = field(default_factory=list)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodes: dict[str, dict[str, int]] = field(default_factory=dict)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    created: Counter[Slot] = field(default_factory=Counter)
    #: (job UID, attempt) → the leader's address, as soon as known.
    addresses: dict[tuple[str, int], str] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        if event.kind == "node":
            self._node(event)
        elif event.kind == "job":
            self._job(event)
        else:
            self._pod(event)

    def _node(self, event: Event) -> None:
        if event.type == "DELETED":
            self.nodes.pop(event.name, None)
            return
        allocatable = (event.object.get("status") or {}).get("allocatable") or {}
        self.nodes[event.name] = {name: _milli(text) for name, text in allocatable.items()}

    def _job(self, event: Event) -> None:
        uid = event.object["metadata"]["uid"]
        old = (self.jobs.get(uid) or {}).get("status") or {}
        new = event.object.get("status") or {}
        self.jobs[uid] = event.object
        if not old.get("stage"):
            return
        before = (old.get("attempt", 0), _RANK[old["stage"]])
        after = (new.get("attempt", 0), _RANK[new["stage"]])
        if after < before or (old["stage"] in _ENDED and new["stage"] != old["stage"]):
            self.faults.append(
                f"{event.name} at {event.version}: {old['stage']} {before} became {new['stage']} {after}"
            )

    def _pod(self, event: Event) -> None:
        uid, slot = event.object["metadata"]["uid"], _place(event.object)
        if event.type == "DELETED":
            self.pods.pop(uid, None)
            return
        if slot is not None and event.type == "ADDED":
            self._created(event, slot)
        self.pods[uid] = event.object
        address = (event.object.get("status") or {}).get("podIP")
        if slot is not None and slot[2] == "leader" and address:
            self.addresses[slot[:2]] = address
        self._fits(event)

    def _created(self, event: Event, slot: Slot) -> None:
        self.created[slot] += 1
        others = [pod for pod in self.pods.values() if _place(pod) == slot and _live(pod)]
        if others or (self.once and self.created[slot] > 1):
            self.faults.append(f"a second pod {event.name} at {event.version} for the slot {slot}")
        job = self.jobs.get(slot[0])
        if job is None:
            self.faults.append(f"pod {event.name} at {event.version} belongs to no job that was ever seen")
            return
        self._explained(event, slot, job)
        if slot[2] == "worker":
            self._told_the_leader(event, slot)

    def _explained(self, event: Event, slot: Slot, job: dict[str, Any]) -> None:
        """Check that before a pod exists, the status names its node and the nodes of the whole quorum."""
        status = job.get("status") or {}
        allocated = _allocated(status)
        role, of_set, index = slot[2:]
        key = ("leader", 0) if role == "leader" else (of_set, index)
        if allocated.get(key) != event.object["spec"].get("nodeName") or status.get("attempt") != slot[1]:
            self.faults.append(f"pod {event.name} at {event.version} exists before the status names its node")
        if ("leader", 0) not in allocated or len(allocated) - 1 < job["spec"].get("minWorkersNum", 1):
            self.faults.append(f"pod {event.name} at {event.version} was created without a whole quorum on nodes")

    def _told_the_leader(self, event: Event, slot: Slot) -> None:
        address = self.addresses.get(slot[:2])
        containers = event.object["spec"]["containers"]
        told = {e.get("value") for c in containers for e in c.get("env") or [] if e["name"] == "TYJOB_LEADER_ADDRESS"}
        if address is None or told != {address}:
            self.faults.append(f"worker {event.name} at {event.version} was told {told}, the leader is at {address}")

    def _fits(self, event: Event) -> None:
        node = event.object["spec"].get("nodeName")
        if node not in self.nodes:
            return
        used: Counter[str] = Counter()
        for pod in self.pods.values():
            if pod["spec"].get("nodeName") == node and _live(pod):
                used.update(_requests(pod))
        for name, amount in used.items():
            if amount > self.nodes[node].get(name, 0):
                self.faults.append(f"node {node} at {event.version}: {name} {amount} of {self.nodes[node].get(name)}")

    def quorums(self, unfinished: Collection[str]) -> list[str]:
        """The attempts with some pods, but never a complete quorum."""
        found = []
        for uid, attempt in sorted({slot[:2] for slot in self.created}):
            job = self.jobs[uid]
            roles = Counter(slot[2] for slot in self.created if slot[:2] == (uid, attempt))
            whole = roles["leader"] == 1 and roles["worker"] >= job["spec"].get("minWorkersNum", 1)
            if not whole and job["metadata"]["name"] not in unfinished:
                found.append(f"{job['metadata']['name']} attempt {attempt} got {dict(roles)} pods: not a quorum")
        return found


def _place(pod: dict[str, Any]) -> Slot | None:
    labels = pod["metadata"].get("labels") or {}
    owners = [o["uid"] for o in pod["metadata"].get("ownerReferences") or [] if o["kind"] == "TYJob"]
    if not owners or "arranger.dev/role" not in labels:
        return None
    return (
        owners[0],
        int(labels["arranger.dev/attempt"]),
        labels["arranger.dev/role"],
        labels.get("arranger.dev/worker-set", ""),
        int(labels["arranger.dev/index"]),
    )


def _live(pod: dict[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") not in _ENDED


def _requests(pod: dict[str, Any]) -> dict[str, int]:
    total: Counter[str] = Counter({"pods": 1000})
    for container in pod["spec"]["containers"]:
        for name, text in ((container.get("resources") or {}).get("requests") or {}).items():
            total[name] += _milli(text)
    return total


def _milli(quantity: str) -> int:
    """A Kubernetes quantity in thousandths, in the forms that these tests use."""
    for unit, thousandths in _UNITS.items():
        if quantity.endswith(unit):
            return int(quantity.removesuffix(unit)) * thousandths
    return int(quantity) * 1000


def _allocated(status: dict[str, Any]) -> dict[tuple[str, int], str]:
    """(worker set or "leader", index) → node, by the status."""
    found: dict[tuple[str, int], str] = {}
    for entry in status.get("allocations") or []:
        if entry.get("leader"):
            found["leader", 0] = entry["node"]
        for part in entry.get("workers") or []:
            for run in part["indices"].split(","):
                first, _, last = run.partition("-")
                for index in range(int(first), int(last or first) + 1):
                    found[part["set"], index] = entry["node"]
    return found
