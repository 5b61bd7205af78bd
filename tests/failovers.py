"""`python -m tests.failovers --kills 10`: kills the primary of a real Redis under load, and judges what follows.

Real Sentinels promote the replica, which got nothing for up to 2 s before. So decisions and observations are lost that
Arranger has acted on. Afterwards every job has to end well, with one pod for each of its slots and no more, and the log
has to say what the cluster has.
"""

import argparse
import asyncio
import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from arranger.events.log import entries
from arranger.events.open_log import open_log
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State
from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import Leaders, Worker, apply, end_offset, epoch_of, eventually, fleet, job, kubelets, stages
from tests.e2e.history import History
from tests.sentinels import WatchedRedis, watched_redis
from tests.servers import RealKube, real_kube

#: Jobs that are created every second while the primary is killed, each of a leader and this many workers.
JOBS_A_SECOND, WORKERS = 3, 3
#: How long before the kills the replica gets nothing more, in seconds; 0: it follows to the end.
LAGS_S = (1.0, 0.0, 2.0, 0.3, 0.7, 0.0, 1.5, 0.1, 1.2, 2.0)
_NODES = [NodeTemplate(f"node-{number:02}", cpu="16", pods=40) for number in range(8)]


@dataclass
class Kill:
    """One failover: what the promoted replica lacked, and seconds until all is well again."""

    lag_s: float
    #: Events that were in the primary's log and not in the replica's, just before the kill.
    lost: int = 0
    epoch_before: int = 0
    epoch_after: int = 0
    promoted_s: float = 0.0
    ready_s: float = 0.0

    def line(self) -> str:
        epoch = "a new epoch" if self.epoch_after > self.epoch_before else "the same epoch"
        return (
            f"replica {self.lag_s:.1f} s behind: {self.lost} events lost, promoted after {self.promoted_s:.1f} s, "
            f"ready after {self.ready_s:.1f} s in {epoch}"
        )


@dataclass
class Result:
    """What came of all kills."""

    kills: list[Kill] = field(default_factory=list)
    jobs: int = 0
    pods: int = 0
    faults: list[str] = field(default_factory=list)


def fail_overs(kube: RealKube, group: WatchedRedis, folder: Path, lags_s: Sequence[float]) -> Result:
    """Kill the primary once for each of `lags_s`, with two processes of all roles and jobs that come and end."""
    result = Result()
    history = History(kube.kubeconfig)
    history.start()
    with kubelets(kube, *_NODES), fleet(redis_url=group.url(), kube=kube, folder=folder) as workers:
        workers.start((), ())
        leaders = Leaders(kube)
        with _load(kube, leaders) as names:
            for lag_s in lags_s:
                created = len(history.created())
                eventually("jobs start", lambda least=created: len(history.created()) > least)  # type: ignore[misc]
                result.kills.append(_kill(group, list(workers.workers.values()), lag_s))
        eventually("every job has ended", leaders.all_ended)
        eventually("their pods are cleaned", lambda: not kube.request("GET", "/api/v1/pods")[1]["items"])
        last = [job(f"last-{number}", workers=WORKERS) for number in range(4)]
        apply(kube, *last)
        eventually("the last jobs run", lambda: list(stages(kube).values()).count("Running") == len(last))
        eventually("the log says what the cluster has", lambda: not _differences(kube, group.url()), within_s=30)
        eventually("the last jobs have ended", leaders.all_ended)
        history.stop()
    result.jobs, result.pods = len(names) + len(last), len(history.created())
    failed = {name: stage for name, stage in stages(kube).items() if stage != "Succeeded"}
    result.faults = [*history.faults(), *(f"{name} is {stage}" for name, stage in failed.items()), *_unnoticed(result)]
    return result


@contextmanager
def _load(kube: RealKube, leaders: Leaders) -> Iterator[list[str]]:
    """Creates jobs and ends those that run, until the end of the block. Yields the names of the jobs so far."""
    names: list[str] = []
    done = threading.Event()

    def create() -> None:
        for number in itertools.count():
            if done.wait(1 / JOBS_A_SECOND):
                return
            apply(kube, job(f"job-{number:03}", workers=WORKERS))
            names.append(f"job-{number:03}")
            leaders.all_ended()

    creating = threading.Thread(target=create, daemon=True)
    creating.start()
    try:
        yield names
    finally:
        done.set()
        creating.join()


def _kill(group: WatchedRedis, workers: Sequence[Worker], lag_s: float) -> Kill:
    kill = Kill(lag_s, epoch_before=epoch_of(group.primary))
    replica = group.replica
    if lag_s:
        group.hold_back()
        time.sleep(lag_s)
        kill.lost = end_offset(group.primary) - end_offset(replica)
    began_s = time.monotonic()
    kill.promoted_s = group.fail_over()
    if kill.lost:
        eventually("the loss is noticed", lambda: epoch_of(replica) > kill.epoch_before)
    for worker in workers:
        worker.wait_ready()
    kill.ready_s = time.monotonic() - began_s
    kill.epoch_after = epoch_of(replica)
    group.mend()
    return kill


def _unnoticed(result: Result) -> list[str]:
    return [f"a loss went unnoticed: {k.line()}" for k in result.kills if k.lost and k.epoch_after <= k.epoch_before]


def _differences(kube: RealKube, url: str) -> set[object]:
    """Pods with node and phase, and jobs with their stage, of which either the log or the API server knows nothing."""
    state = asyncio.run(_folded(url))
    logged: set[object] = {(pod.uid, pod.node, str(pod.phase)) for pod in state.pods.values()}
    logged |= {(one.uid, one.stage.value) for one in state.jobs.values()}
    there: set[object] = set()
    for item in kube.request("GET", "/api/v1/pods")[1]["items"]:
        there.add((item["metadata"]["uid"], item["spec"]["nodeName"], item["status"]["phase"]))
    for item in kube.request("GET", "/apis/arranger.dev/v1/tyjobs")[1]["items"]:
        there.add((item["metadata"]["uid"], (item.get("status") or {}).get("stage")))
    return logged ^ there


async def _folded(url: str) -> State:
    log = await open_log(url, "default")
    try:
        start = await log.start()
        state = State(epoch=start.epoch)
        async for entry in entries(log, start, until=(await log.end()).offset):
            apply_entry(state, entry, Changes())
    finally:
        await log.close()
    return state


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.failovers", description=__doc__)
    parser.add_argument("--kills", type=int, default=10, help="how often the primary is killed")
    given = parser.parse_args()
    lags_s = list(itertools.islice(itertools.cycle(LAGS_S), given.kills))
    with real_kube() as kube, watched_redis() as group, tempfile.TemporaryDirectory() as folder:
        kube.install_crd()
        result = fail_overs(kube, group, Path(folder), lags_s)
    for kill in result.kills:
        print(kill.line())
    print(f"{result.jobs} jobs, {result.pods} pods created, {len(result.faults)} faults")
    for fault in result.faults:
        print(fault)
    return 1 if result.faults else 0


if __name__ == "__main__":
    sys.exit(main())
