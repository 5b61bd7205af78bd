"""The complete path on real parts: kubectl, API server, Redis, and two processes of each role, some of them killed."""

import json
import os
import subprocess
import sys
from pathlib import Path

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import (
    PATIENCE_S,
    ROLES,
    Leaders,
    apply,
    arranger,
    end_offset,
    eventually,
    fleet,
    job,
    kubelets,
    stages,
)
from tests.e2e.history import History
from tests.servers import RealKube, RealRedis

#: Prints the offset and the digest of the projection at an offset, folded from the oldest snapshot or from the start.
FOLD = """
import asyncio, sys
from arranger.events.log import entries
from arranger.events.open_log import open_log
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State

async def main(url, begin, until):
    log = await open_log(url, "default")
    state, position = State(), await log.start()
    if begin == "snapshot":
        stored = await log.newest_snapshot(at_most=until - 1)
        state, position = snapshot.restore(stored.content), stored.position
    else:
        state.epoch = position.epoch
    skipped = position.offset
    async for entry in entries(log, position, until=until):
        apply_entry(state, entry, Changes())
    print(skipped, state.offset, snapshot.digest(state))
    await log.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def folded(redis: RealRedis, begin: str, until: int, *, hash_seed: int) -> tuple[int, int, str]:
    """The offset before the fold, the last offset and the digest, computed by a new process."""
    done = subprocess.run(
        [sys.executable, "-c", FOLD, redis.url, begin, str(until)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
    )
    assert done.returncode == 0, done.stderr
    skipped, last, digest = done.stdout.split()
    return int(skipped), int(last), digest


def await_created(history: History, pods: int, leaders: Leaders) -> None:
    """Wait until `pods` pods have been created, while jobs end and free room."""
    eventually(f"{pods} pods were created", lambda: leaders.all_ended() or len(history.created()) >= pods)


def test_twenty_jobs_run_through_while_one_process_of_each_role_is_killed(
    kube: RealKube, redis: RealRedis, tmp_path: Path
) -> None:
    names = [f"job-{number:02}" for number in range(20)]
    nodes = [NodeTemplate(f"node-{number}", cpu="10", pods=30) for number in range(8)]
    history = History(kube.kubeconfig)
    history.start()
    leaders = Leaders(kube)
    with kubelets(kube, *nodes), fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as workers:
        workers.start(*[(role,) for role in ROLES for _ in range(2)])
        apply(kube, *[job(name, workers=8) for name in names])
        for number, role in enumerate(ROLES):
            # Spread the kills by progress, not by time, so that each interrupts some work.
            await_created(history, 10 + 30 * number, leaders)
            victim = workers.of_role(role)[0]
            victim.kill()
            victim.start()
        eventually("every job has ended", leaders.all_ended)
        eventually("the ended jobs' pods are cleaned", lambda: not kube.request("GET", "/api/v1/pods")[1]["items"])
        for worker in workers.workers.values():
            worker.wait_ready()
        history.stop()

    assert stages(kube) == dict.fromkeys(names, "Succeeded")
    assert history.faults() == []
    assert len(history.created()) == 20 * 9
    for name in names:
        assert history.stages(name)[-2:] == ["Running", "Succeeded"], history.stages(name)
    verified = arranger("verify", "--log", redis.url, "--output", "json")
    report = json.loads(verified.stdout)
    assert verified.returncode == 0 and report["sound"], verified
    assert report["identical"] == report["cycles"] > 0 and report["decisions"] >= 20
    end = end_offset(redis)
    from_start = folded(redis, "start", end, hash_seed=1)
    from_snapshot = folded(redis, "snapshot", end, hash_seed=2)
    assert from_start[0] == 0 and from_snapshot[0] > 0
    assert from_start[1:] == from_snapshot[1:] and from_start[1] == end


def test_a_frozen_process_that_wakes_up_late_does_no_harm(kube: RealKube, redis: RealRedis, tmp_path: Path) -> None:
    names = [f"job-{number}" for number in range(8)]
    history = History(kube.kubeconfig)
    history.start()
    leaders = Leaders(kube)
    with (
        kubelets(kube, *[NodeTemplate(f"node-{number}", cpu="8") for number in range(4)]),
        fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as workers,
    ):
        sleepers = workers.start((), ("watcher", "applier", "controller", "scheduler"))[:1]
        apply(kube, *[job(name, workers=4) for name in names])
        await_created(history, 3, leaders)
        for worker in sleepers:
            worker.freeze()
        eventually(
            "the other takes over and two jobs end",
            lambda: leaders.all_ended() or list(stages(kube).values()).count("Succeeded") >= 2,
        )
        for worker in sleepers:
            worker.thaw()
        eventually("every job has ended", leaders.all_ended)
        history.stop()
    assert stages(kube) == dict.fromkeys(names, "Succeeded")
    faults = history.faults()
    stories = [history.story(name) for name in names if any(f" {name}-" in fault for fault in faults)]
    assert not faults, "\n".join([*faults, *stories])
