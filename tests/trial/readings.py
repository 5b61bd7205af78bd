"""What the log in Redis holds, read without Arranger's code, and what its projection holds, read with that of the
processes."""

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

#: Tag of a claim, and of the observations that count in the term of a claim only.
_CLAIM = "WatchClaimed."
_OBSERVED = {"NodeSeen": "node", "NodeGone": "node", "PodSeen": "pod", "PodGone": "pod", "JobSeen": "tyjob", "JobGone": "tyjob"}  # fmt: skip  # noqa: E501

#: Prints the projection at the log's end: jobs (UID → name, stage) and pods (UID → phase).
_PROJECTION = """
import asyncio, json, sys
from arranger.events.log import entries
from arranger.events.open_log import open_log
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State

async def main(url):
    log = await open_log(url, "default")
    stored = await log.newest_snapshot()
    state, position = (snapshot.restore(stored.content), stored.position) if stored else (State(), await log.start())
    state.epoch = position.epoch
    end = await log.end()
    async for entry in entries(log, position, until=end.offset):
        apply_entry(state, entry, Changes())
    jobs = {uid: [job.seen.name, str(job.stage)] for uid, job in state.jobs.items()}
    pods = {uid: pod.phase for uid, pod in state.pods.items()}
    print(json.dumps({"jobs": jobs, "pods": pods}))
    await log.close()

asyncio.run(main(sys.argv[1]))
"""


@dataclass(frozen=True)
class LogEvent:
    """One event in the log; `fields` without its tag."""

    offset: int
    writer: str
    time_ms: int
    kind: str
    fields: list[Any]


def log_events(scene: Scene) -> Iterator[LogEvent]:
    """Every event that Redis holds of the present epoch."""
    with redis.Redis.from_url(scene.redis.url) as client:
        first = "-"
        while True:
            entries = client.xrange("arranger:{default}:log", first, "+", count=500)
            for number, fields in entries:
                writer, _, time_ms, events = msgspec.msgpack.decode(fields[b"p"])[:4]
                last = int(number.partition(b"-")[0])
                for index, (tag, *rest) in enumerate(events):
                    yield LogEvent(last - len(events) + 1 + index, writer, time_ms, tag.partition(".")[0], rest)
            if len(entries) < 500:
                return
            first = f"({entries[-1][0].decode()}"


@dataclass
class Terms:
    """The watchers' claims, and what was appended under a term that had ended."""

    claims: int = 0
    #: Observations under a term that had ended by then: they are void.
    void: int = 0
    #: How long after another's claim the last of them was appended, by the writers' clocks.
    zombie_s: float = 0.0


def terms(scene: Scene) -> Terms:
    """How the watchers took over from one another, by the log."""
    found = Terms()
    current: dict[str, LogEvent] = {}
    for event in log_events(scene):
        if event.kind == "WatchClaimed":
            current[event.fields[0]] = event
            found.claims += 1
        kind = _OBSERVED.get(event.kind)
        claim = current.get(kind) if kind else None
        if claim is not None and event.fields[0] < claim.offset:
            found.void += 1
            found.zombie_s = max(found.zombie_s, (event.time_ms - claim.time_ms) / 1000)
    return found


def projection(scene: Scene) -> dict[str, dict[str, Any]]:
    """Jobs (UID → name and stage) and pods (UID → phase) as Arranger has them at the end of the log."""
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
    """The same as the API server has it; a job without a status is Pending."""
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
    """Everything of a kind, in pages that a busy server can answer in time."""
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
    """Where the projection differs from the cluster, if it still does after so long."""
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
