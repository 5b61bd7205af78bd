"""Rows B, G and I: all processes, Redis or one watcher pause for longer than any lease while jobs stream.

Nothing may be lost: every TYJob ends and is deleted after its TTL, the projection equals the cluster, the epoch stays,
and a process that lost its term appends nothing more.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial

import redis

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import epoch_of, job
from tests.trial.faults import paused
from tests.trial.readings import differences, terms
from tests.trial.scene import Lab, Scene, scene, within
from tests.trial.streams import Job, Programs, Stream, percentile
from tests.trial.verdicts import Verdict

NODES = [NodeTemplate(f"node-{number}", cpu="32") for number in range(8)]
#: The maximum time after a new claim in which appends of the old term may arrive, because they were under way.
ZOMBIE_S = 15.0
#: The comparison that finds lost watch events runs once a minute.
PATIENCE_S = 150.0


def everything_paused(
    lab: Lab,
    *,
    times: int = 5,
    pause_s: float = 60.0,
    between_s: float = 25.0,
    every_s: float = 0.5,
    ttl_s: int = 10,
    replicas: int = 2,
    settings: Mapping[str, object] | None = None,
) -> Verdict:
    """Pause all processes together."""

    def trouble(there: Scene) -> None:
        with paused(*there.pids):
            time.sleep(pause_s)

    return _streaming(
        lab, "B", "all processes paused", trouble,
        times=times, between_s=between_s, every_s=every_s, ttl_s=ttl_s,
        processes=replicas * ("watcher", "decider", "applier"), settings=settings or {},
    )  # fmt: skip


def redis_stalled(
    lab: Lab,
    *,
    times: int = 5,
    stall_s: float = 24.0,
    between_s: float = 25.0,
    every_s: float = 0.5,
    ttl_s: int = 10,
    replicas: int = 2,
    settings: Mapping[str, object] | None = None,
) -> Verdict:
    """Pause Redis: connections stay open, but there are no responses."""

    def trouble(there: Scene) -> None:
        with paused(there.redis.pid):
            time.sleep(stall_s)

    return _streaming(
        lab, "B", "Redis stalled", trouble,
        times=times, between_s=between_s, every_s=every_s, ttl_s=ttl_s,
        processes=replicas * ("watcher", "decider", "applier"), settings=settings or {},
    )  # fmt: skip


def job_watcher_paused(
    lab: Lab,
    *,
    times: int = 5,
    pause_s: float = 30.0,
    between_s: float = 20.0,
    every_s: float = 0.5,
    ttl_s: int = 10,
    settings: Mapping[str, object] | None = None,
) -> Verdict:
    """Pause only the process that watches the TYJobs, while another process takes over the watch."""

    def trouble(there: Scene) -> None:
        holder = within(lambda: _holder(there, "watch-tyjob"), within_s=60)
        # The member that has the watch is our process, and its name contains the process ID.
        with paused(int(str(holder).rsplit("-", 2)[1])) if holder else nullcontext():
            time.sleep(pause_s)

    return _streaming(
        lab, "G", "the TYJob watcher paused", trouble,
        times=times, between_s=between_s, every_s=every_s, ttl_s=ttl_s,
        processes=("watcher", "watcher", "decider", "applier"), settings=settings or {},
    )  # fmt: skip


def _holder(there: Scene, lease: str) -> str:
    """The member that has the lease now."""
    with redis.Redis.from_url(there.redis.url) as client:
        held = client.get(f"arranger:default:lease:{lease}")
    return held.decode() if isinstance(held, bytes) else ""


def streamed(name: str, *, ttl_s: int) -> Job:
    """A leader and one worker; every second job has `ttl_s` as its TTL after the end."""
    limits = {"ttlSecondsAfterFinished": ttl_s} if int(name[-1]) % 2 else {}
    return job(name, workers=1, **limits)


def _streaming(
    lab: Lab,
    row: str,
    scenario: str,
    trouble: Callable[[Scene], None],
    *,
    times: int,
    between_s: float,
    every_s: float,
    ttl_s: int,
    processes: Sequence[str],
    settings: Mapping[str, object],
) -> Verdict:
    found = Verdict(row, scenario)
    with scene(lab, nodes=NODES, settings=settings) as there, Programs(lab.kube, there.history):
        there.start(*processes)
        epoch = epoch_of(there.redis)
        stream = Stream(
            lab.kube, "default", partial(streamed, ttl_s=ttl_s), every_s=every_s, pods=2, prefix="s"
        ).start()
        time.sleep(between_s)
        for _ in range(times):
            trouble(there)
            time.sleep(between_s)
        stream.stop()
        judge(there, found, stream)
        epochs = epoch_of(there.redis)
        found.told(new_epoch=epochs != epoch)
        found.expect(epochs == epoch, f"a new epoch began: {epoch} became {epochs}")
        told = terms(there)
        found.told(claims=told.claims, void=told.void, zombie_s=told.zombie_s)
        found.expect(
            told.zombie_s <= ZOMBIE_S, f"observations were appended {told.zombie_s:.0f} s after another's claim"
        )
        found.faults += there.tracebacks()
    return found


def judge(there: Scene, found: Verdict, stream: Stream) -> None:
    """Check that every job has ended, and that the projection equals the cluster."""
    within(lambda: not unfinished(there), within_s=PATIENCE_S, every_s=0.5)
    left = unfinished(there)
    found.told(jobs=len(stream.asked), unfinished=len(left))
    found.expect(not left, f"{len(left)} jobs never ended: {dict(list(left.items())[:5])}")
    kept = within(lambda: not overdue(there), within_s=60, every_s=0.5)
    found.expect(bool(kept), f"jobs were never deleted though their time was over: {overdue(there)[:5]}")
    unlike = differences(there, within_s=60)
    found.told(unlike=len(unlike))
    found.faults += unlike[:5]
    there.history.stop()
    faults = there.history.faults(unfinished=set(left))
    found.told(safety_faults=len(faults))
    found.faults += faults[:5]
    waits = [one.lasted_s(one.asked_s) for one in stream.waits(there.history) if one.whole_s is not None]
    found.told(p50_s=percentile(waits, 50), p99_s=percentile(waits, 99))


def unfinished(there: Scene) -> dict[str, str]:
    """Name → stage of the jobs that haven't ended, by the trial's own record."""
    found = {}
    for item in recorded(there):
        stage = (item.get("status") or {}).get("stage") or "Pending"
        if stage not in ("Succeeded", "Failed"):
            found[item["metadata"]["name"]] = stage
    return found


def overdue(there: Scene) -> list[str]:
    """The jobs that still exist after their TTL."""
    return [item["metadata"]["name"] for item in recorded(there) if "ttlSecondsAfterFinished" in item["spec"]]


def recorded(there: Scene) -> list[Job]:
    """The TYJobs that exist by the trial's record."""
    items: dict[str, Job] = {}
    for event in there.history.since(0):
        uid = event.object["metadata"]["uid"]
        if event.kind == "job" and event.type == "DELETED":
            items.pop(uid, None)
        elif event.kind == "job":
            items[uid] = event.object
    return list(items.values())
