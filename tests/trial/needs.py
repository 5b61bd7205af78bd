"""Rows L and E4: a full Redis, an archive that can't be written, and a silent watch are reported.

They appear in `arranger status`, in the metrics, and in /readyz. A process that can't do its work is unready.
"""

import contextlib
import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import Worker, job
from tests.servers import RealRedis
from tests.trial.faults import Wire
from tests.trial.forged import stage
from tests.trial.scene import Lab, Scene, scene, within
from tests.trial.streams import create
from tests.trial.verdicts import Verdict

NODES = [NodeTemplate("node-0", cpu="32")]
#: After so many refusals in all, a server is full, and not only for a moment.
_MANY = 100
#: Every process notices within this time that Redis is full.
_NOTICED_S = 5.0


def redis_full(lab: Lab, *, settings: Mapping[str, object] | None = None, patience_s: float = 45.0) -> Verdict:
    """Redis is at its maxmemory and evicts nothing, so it refuses all writes."""
    found = Verdict("L", "Redis full")
    with scene(lab, nodes=NODES, settings=settings) as there:
        workers = there.start()
        there.redis.command("CONFIG", "SET", "maxmemory", "1")
        create(lab.kube, "default", job("waits", workers=1))
        unready = within(
            lambda: [worker.name for worker in workers if not worker.ready] == [w.name for w in workers],
            within_s=patience_s,
        )
        told = _status_says(there, "memory", "full", within_s=patience_s)
        _, text, _ = there.status()
        ready = {worker.name: worker.metrics().get("arranger_ready") for worker in workers}
        found.told(unready=bool(unready), said=told, no_live="no live" in text)
        found.expect(bool(unready), f"processes are ready though Redis takes nothing: {ready}")
        found.expect(told, f"status doesn't say that Redis is full: {text[-400:]}")
        found.expect("no live" not in text, "status says that processes don't live, which do")
        there.redis.command("CONFIG", "SET", "maxmemory", "0")
        there.wait_ready()
        found.expect(
            bool(within(lambda: stage(there, "waits") == "Running", within_s=60)), "nothing goes on afterwards"
        )
        found.faults += there.tracebacks()
    return found


def redis_fills(lab: Lab, *, lasts_s: float = 45.0, settings: Mapping[str, object] | None = None) -> Verdict:
    """Another program fills Redis up to its maxmemory. Two processes of each kind run, and most have nothing to append.

    What a server at its limit uses moves with its clients' buffers, so it accepts one write and refuses the next one.
    Soon after it is full, no process may be ready.
    """
    found = Verdict("E4", "Redis fills up")
    with scene(lab, nodes=NODES, settings=settings) as there:
        workers = there.start(*("watcher", "decider", "applier") * 2)
        create(lab.kube, "default", job("runs", workers=1))
        found.expect(bool(within(lambda: stage(there, "runs") == "Running", within_s=60)), "nothing runs at first")
        used = int(there.redis.info("memory")["used_memory"])
        there.redis.command("CONFIG", "SET", "maxmemory", str(used + 4 * 2**20))
        with filled(there.redis) as stranger:
            found.expect(bool(within(lambda: stranger.refused > _MANY, within_s=60)), "Redis didn't fill up")
            time.sleep(_NOTICED_S)
            create(lab.kube, "default", job("waits", workers=1))
            looks, ready = 0, Counter[str]()
            until_s = time.monotonic() + lasts_s
            while time.monotonic() < until_s:
                looks += 1
                ready.update(worker.name for worker in workers if worker.ready)
                time.sleep(0.25)
            told = _status_says(there, "memory", "full", within_s=10.0)
        found.told(
            looks=looks, others_taken=stranger.taken, others_refused=stranger.refused, said=told,
            **{f"ready_{of}": times for of, times in ready.items()},
        )  # fmt: skip
        found.expect(not ready, f"in {looks} looks, processes were ready while Redis was full: {dict(ready)}")
        found.expect(told, f"status doesn't say that Redis is full: {there.status()[1][-400:]}")
        there.redis.command("CONFIG", "SET", "maxmemory", "0")
        there.wait_ready()
        found.expect(bool(within(lambda: stage(there, "waits") == "Running", within_s=90)), "nothing goes on")
        found.faults += there.tracebacks()
    return found


@dataclass
class Stranger:
    """Another program that writes to the same Redis: how many of its writes were accepted and refused."""

    taken: int = 0
    refused: int = 0


@contextlib.contextmanager
def filled(redis: RealRedis, *, bytes_each: int = 2048) -> Iterator[Stranger]:
    """Another program writes to this Redis without an end, whether it is accepted or not."""
    found, stopping = Stranger(), threading.Event()

    def write() -> None:
        while not stopping.wait(0.02 if found.refused else 0.0):
            taken = redis.command("SET", f"stranger:{found.taken}", "x" * bytes_each).startswith(b"+OK")
            found.taken += taken
            found.refused += not taken

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        stopping.set()
        thread.join()


def archive_unwritable(lab: Lab, *, settings: Mapping[str, object] | None = None, patience_s: float = 240.0) -> Verdict:
    """A file replaces the archive's folder. The failure is reported after two minutes."""
    found = Verdict("L", "archive unwritable")
    often = {"archive_every_s": 1, "archive_every_events": 100, "snapshot_every_s": 1}
    with scene(lab, nodes=NODES, settings={**often, **(settings or {})}) as there:
        folder = there.folder / "archive"
        there.settings["archive_url"] = folder
        workers = {worker.name.partition("-")[0]: worker for worker in there.start()}
        create(lab.kube, "default", job("first", workers=1))
        archived = within(lambda: _metric(workers["decider"], "arranger_archiving_total", "ok"), within_s=60)
        found.expect(bool(archived), "nothing was archived at first")
        shutil.rmtree(folder)
        folder.write_text("no folder")
        create(lab.kube, "default", job("second", workers=1))
        failed = within(lambda: _metric(workers["decider"], "arranger_archiving_total", "failed"), within_s=patience_s)
        told = _status_says(there, "archive", "archiv", within_s=patience_s)
        check = json.loads(workers["decider"].get("/readyz")[1])["checks"].get("archive", {})
        found.told(metric=bool(failed), said=told, check=check)
        found.expect(bool(failed), "no metric counts the failures")
        found.expect(check.get("ok") is False and workers["decider"].ready, f"/readyz says of the archive: {check}")
        found.expect(told, f"status doesn't say that archiving fails: {there.status()[1][-400:]}")
    return found


def deaf_watch(lab: Lab, *, settings: Mapping[str, object] | None = None, patience_s: float = 420.0) -> Verdict:
    """All responses from the API server to the watcher are dropped, but the connections stay open."""
    found = Verdict("L", "deaf watch")
    with (
        Wire(lab.kube.port) as wire,
        scene(lab, nodes=NODES, settings=settings) as there,
    ):
        (watcher,) = there.start("watcher", api_url=wire.url("https"))
        there.start("decider", "applier")
        create(lab.kube, "default", job("heard", workers=1))
        found.expect(bool(within(lambda: stage(there, "heard") == "Running", within_s=60)), "nothing runs at first")
        wire.deaf = True
        unready = within(lambda: not watcher.ready, within_s=patience_s)
        told = _status_says(there, "watch", "api", within_s=patience_s)
        found.told(unready=bool(unready), said=told)
        found.expect(bool(unready), "the watcher is ready though it hears nothing")
        found.expect(told, f"status doesn't say that the watch hears nothing: {there.status()[1][-400:]}")
        wire.deaf = False
        wire.cut()
        wire.mend()
        watcher.wait_ready()
        create(lab.kube, "default", job("again", workers=1))
        found.expect(
            bool(within(lambda: stage(there, "again") == "Running", within_s=90)), "nothing goes on afterwards"
        )
    return found


def _status_says(there: Scene, *words: str, within_s: float) -> bool:
    """Whether `arranger status` reports a problem that contains one of these words."""

    def look() -> bool:
        code, _, document = there.status()
        problems = str(document.get("problems", "")).lower()
        return code == 1 and any(word in problems for word in words)

    return bool(within(look, within_s=within_s, every_s=1.0))


def _metric(worker: Worker, name: str, label: str) -> bool:
    """Whether a counter with this label is above zero."""
    return any(of.startswith(name) and label in of and value > 0 for of, value in worker.metrics().items())
