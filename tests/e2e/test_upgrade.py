"""From the present code to an invented next release and back, under load: processes of both on one Redis and one API
server."""

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import (
    apply,
    arranger,
    await_stage,
    epoch_of,
    eventually,
    fleet,
    job,
    kubelets,
    pods_of,
    stages,
)
from tests.e2e.history import History
from tests.next_release import NEW_TAG, next_release
from tests.servers import RealKube, RealRedis

STEADY = ("steady-0", "steady-1")


@pytest.fixture
def following(tmp_path: Path) -> Path:
    """The checkout of the next release."""
    return next_release(tmp_path / "next")


class Load(threading.Thread):
    """Submits a short job every 0.3 seconds until `stop`."""

    def __init__(self, kube: RealKube) -> None:
        super().__init__(daemon=True)
        self._kube = kube
        self._stopped = threading.Event()
        self.names: list[str] = []

    def run(self) -> None:
        while not self._stopped.wait(0.3):
            name = f"short-{len(self.names)}"
            apply(self._kube, job(name, workers=2, run_s=1.0))
            self.names.append(name)

    def goes_on(self, count: int = 10) -> None:
        """Wait until so many more jobs were submitted, and all up to then have succeeded."""
        submitted = len(self.names) + count

        def ended() -> bool:
            now = stages(self._kube)
            return len(self.names) >= submitted and all(now[name] == "Succeeded" for name in self.names[:submitted])

        eventually(f"{submitted} short jobs have succeeded", ended)

    def stop(self) -> None:
        self._stopped.set()
        self.join()


@contextlib.contextmanager
def load(kube: RealKube) -> Iterator[Load]:
    running = Load(kube)
    running.start()
    try:
        yield running
    finally:
        running.stop()


def pods(kube: RealKube) -> set[str]:
    """The UIDs of the pods of the jobs that run all the time."""
    return {pod["metadata"]["uid"] for name in STEADY for pod in pods_of(kube, name)}


def begin_anew(redis: RealRedis) -> None:
    """The command of docs/operations.md, "When something is missing or broken"."""
    names = ("log", "meta", "writers", "cursors", "snapshots")
    redis.command("UNLINK", *[f"arranger:{{default}}:{name}" for name in names])


def checked(redis: RealRedis) -> dict[str, Any]:
    """What `arranger upgrade-check` of this release says."""
    found: dict[str, Any] = json.loads(arranger("upgrade-check", "--log", redis.url, "-o", "json").stdout)
    return found


def test_the_releases_work_side_by_side_and_one_after_the_other_and_disturb_no_pod(
    kube: RealKube, redis: RealRedis, tmp_path: Path, following: Path
) -> None:
    history = History(kube.kubeconfig)
    history.start()
    nodes = [NodeTemplate(f"node-{number}", cpu="16") for number in range(3)]
    with (
        kubelets(kube, *nodes),
        fleet(redis_url=redis.url, kube=kube, folder=tmp_path, verify=False) as workers,
        contextlib.ExitStack() as until_end,
    ):
        earlier = workers.start((), ())
        apply(kube, *[job(name, workers=3) for name in STEADY])
        await_stage(kube, "Running", *STEADY)
        steady = pods(kube)
        arriving = until_end.enter_context(load(kube))
        arriving.goes_on()
        epoch = epoch_of(redis)
        before = checked(redis)
        assert before["verdict"] == "readable" and len(before["processes"]) == 2

        later = workers.start((), (), code=following)
        arriving.goes_on()
        # The present release doesn't know what the next one writes: it stops there, and leaves the work to it.
        for worker in earlier:
            assert worker.wait() == 1
            told = worker.log_path.read_text()
            assert "the fold stops" in told and f"unknown event kind '{NEW_TAG}'" in told
        assert epoch_of(redis) == epoch, "an upgrade keeps the history"
        assert pods(kube) == steady

        for worker in later:
            assert worker.stop() == 0
        (refused,) = workers.start((), wait=False)
        assert refused.wait() == 1, "the present release can't go on with the log of the next one"
        begin_anew(redis)
        earlier = workers.start((), ())
        arriving.goes_on()
        assert epoch_of(redis) > epoch
        epoch = epoch_of(redis)
        assert pods(kube) == steady

        workers.start((), (), code=following)
        arriving.goes_on()
        for worker in earlier:
            assert worker.wait() == 1
        arriving.stop()
        arriving.goes_on(0)
        assert epoch_of(redis) == epoch
        assert pods(kube) == steady
        history.stop()
    done = arranger("verify", "--log", redis.url, code=following)
    assert done.returncode == 0, done.stdout + done.stderr
    # The leader of a short job may end while no process runs that would start its workers.
    assert history.faults(unfinished=(*STEADY, *arriving.names)) == []
