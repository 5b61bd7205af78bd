"""Read the log in Redis without Arranger's code, and the projection with the code of the tested processes."""

import json
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import redis

from tests.trial.scene import Scene

#: The tags of claims and of observations; an observation counts only in the term of its claim.
_CLAIM = "WatchClaimed."
_OBSERVED = {"NodeSeen": "node", "PodSeen": "pod", "JobSeen": "tyjob"}

#: Prints the projection at the log's end: jobs (UID → name, stage) and pods (UID → phase).
_PROJECTION = """
import asyncio, json, sys
from arranger.errors import EntriesTrimmed
from arranger.events.log import entries
from arranger.events.open_log import open_log
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State

async def folded(log):
    stored = await log.newest_snapshot()
    state, position = (snapshot.restore(stored.content), stored.position) if stored else (State(), await log.start())
    state.epoch = position.epoch
    end = await log.end()
    async for entry in entries(log, position, until=end.offset):
        apply_entry(state, entry, Changes())
    return state

async def main(url):
    log = await open_log(url, "default")
    while True:
        try:
            state = await folded(log)
            break
        except EntriesTrimmed:  # a newer snapshot came while it read
            continue
    jobs = {uid: [job.seen.name, str(job.stage)] for uid, job in state.jobs.items()}
    pods = {uid: pod.phase for uid, pod in state.pods.items()}
    print(json.dumps({"jobs": jobs, "pods": pods}))
    await log.close()

asyncio.run(main(sys.argv[1]))
"""


@dataclass(frozen=True)
class LogEvent:
    """One event in the log; `fields` doesn't include the tag."""

    offset: int
    writer: str
    time_ms: int
    kind: str
    fields: list[Any]


class LogTail:
    """Reads the present epoch in Redis from its first event on, and goes on where it was."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._last = ""

    def read(self) -> Iterator[LogEvent]:
        """The events since the last one that was read."""
        with redis.Redis.from_url(self._url) as client:
            while entries := client.xrange(
                "arranger:{default}:log", f"({self._last}" if self._last else "-", count=500
            ):
                for number, fields in entries:
                    writer, _, time_ms, events = msgspec.msgpack.decode(fields[b"p"])[:4]
                    last = int(number.partition(b"-")[0])
                    for index, (tag, *rest) in enumerate(events):
                        yield LogEvent(last - len(events) + 1 + index, writer, time_ms, tag.partition(".")[0], rest)
                    self._last = number.decode()


def log_events(scene: Scene) -> Iterator[LogEvent]:
    """All events of the present epoch in Redis."""
    yield from LogTail(scene.redis.url).read()


@dataclass
class Terms:
    """The watchers' claims, and the events that were appended under an ended term."""

    claims: int = 0
    #: The number of observations under an ended term, which are void.
    void: int = 0
    #: The longest time from a new claim to such an observation, by the writers' clocks.
    zombie_s: float = 0.0


def terms(scene: Scene) -> Terms:
    """The takeovers of watches in the log."""
    found = Terms()
    current: dict[str, LogEvent] = {}
    for event in log_events(scene):
        if event.kind == "WatchClaimed":
            current[event.fields[0]] = event
            found.claims += 1
        gone = event.kind == "ObjectGone"  # which has its watch before its term
        claim = current.get(event.fields[0] if gone else _OBSERVED.get(event.kind, ""))
        if claim is not None and event.fields[1 if gone else 0] < claim.offset:
            found.void += 1
            found.zombie_s = max(found.zombie_s, (event.time_ms - claim.time_ms) / 1000)
    return found


def projection(scene: Scene) -> dict[str, dict[str, Any]]:
    """Jobs (UID → name and stage) and pods (UID → phase) in Arranger's projection at the end of the log."""
    done = subprocess.run(
        [sys.executable, "-c", _PROJECTION, scene.redis.url],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=scene.lab.code,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(scene.lab.code)},
    )
    if done.returncode:
        raise AssertionError(f"the log can't be folded: {done.stderr[-1500:]}")
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


def cluster(scene: Scene) -> dict[str, dict[str, Any]]:
    """The same from the API server; a job without a status counts as Pending."""
    jobs = listed(scene, "/apis/arranger.dev/v1/tyjobs")
    pods = listed(scene, "/api/v1/pods")
    return {
        "jobs": {
            job["metadata"]["uid"]: [job["metadata"]["name"], (job.get("status") or {}).get("stage") or "Pending"]
            for job in jobs
        },
        "pods": {pod["metadata"]["uid"]: (pod.get("status") or {}).get("phase", "") for pod in pods},
    }


def listed(scene: Scene, path: str) -> list[dict[str, Any]]:
    """All objects of a kind, in pages that even a busy server returns in time."""
    items: list[dict[str, Any]] = []
    more = ""
    while True:
        page = scene.kube.request("GET", f"{path}?limit=200{more}")[1]
        items += page["items"]
        rest = page["metadata"].get("continue")
        if not rest:
            return items
        more = f"&continue={urllib.parse.quote(rest)}"


def differences(scene: Scene, *, within_s: float) -> list[str]:
    """The differences between projection and cluster that remain after `within_s`."""
    deadline = time.monotonic() + within_s
    while True:
        ours, theirs = projection(scene), cluster(scene)
        if ours == theirs or time.monotonic() > deadline:
            return [
                f"{kind} {uid}: the projection has {ours[kind].get(uid)}, the cluster {theirs[kind].get(uid)}"
                for kind in ("jobs", "pods")
                for uid in sorted(ours[kind].keys() | theirs[kind].keys())
                if ours[kind].get(uid) != theirs[kind].get(uid)
            ]
        time.sleep(1.0)
