"""Row H: a rolling upgrade to the next release keeps epoch and history, on a trimmed log without an archive.

No release is there yet, so the next one is invented (`tests/next_release.py`): it has another layout of snapshots.
"""

import time
from collections.abc import Mapping

import redis

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import epoch_of, eventually, job
from tests.next_release import next_release
from tests.trial.forged import stage
from tests.trial.pauses import judge, streamed
from tests.trial.readings import log_events
from tests.trial.scene import Lab, Scene, grant, scene
from tests.trial.streams import Programs, Stream, create
from tests.trial.verdicts import Verdict

NODES = [NodeTemplate(f"node-{number}", cpu="32") for number in range(8)]


def rolling_upgrade(
    lab: Lab,
    *,
    replicas: int = 2,
    every_s: float = 0.5,
    between_s: float = 8.0,
    settings: Mapping[str, object] | None = None,
) -> Verdict:
    """Replace the processes one by one by the next release's while jobs stream, and kill one of them meanwhile."""
    found = Verdict("H", "rolling upgrade to the next release")
    later = next_release(lab.folder / "next", lab.code)
    trimming = {
        "keep_events": 300, "snapshot_every_s": 1, "snapshot_every_events": 100, "upgrade_grace_s": 10,
        **(settings or {}),
    }  # fmt: skip
    with scene(lab, nodes=NODES, settings=trimming) as there:
        groups = replicas * ("watcher", "decider", "applier")
        before = there.start(*groups)
        create(lab.kube, "default", job("runs-on", workers=2))
        eventually("it runs", lambda: stage(there, "runs-on") == "Running")
        epoch = epoch_of(there.redis)
        with Programs(lab.kube, there.history, work_s=0.5, spare=frozenset({"default"})):
            there.namespace("streams")
            stream = Stream(
                lab.kube, "streams", lambda name: streamed(name, ttl_s=5), every_s=every_s, pods=2, prefix="s"
            ).start()
            eventually("the log is trimmed", lambda: _trimmed(there))
            grant(lab.kube, lab.code)
            there.lab = Lab(lab.kube, lab.folder, later)
            for worker, group in zip(before, groups, strict=True):
                there.start(group, code=later)
                if worker is not before[-1]:
                    before[-1].kill()
                    before[-1].start()
                time.sleep(between_s)
                worker.stop()
            time.sleep(between_s)
            stream.stop()
            _judge(there, found, epoch)
            lab.kube.request("DELETE", "/apis/arranger.dev/v1/namespaces/default/tyjobs/runs-on")
            judge(there, found, stream)
        _readable(there, found)
        found.faults += there.tracebacks()
    return found


def _trimmed(there: Scene) -> bool:
    """Whether the log begins after its first event."""
    reply = there.redis.command("HGET", "arranger:{default}:meta", "start")
    return reply.partition(b"\r\n")[2].strip() not in (b"", b"0")


def _judge(there: Scene, found: Verdict, epoch: int) -> None:
    """Check that the epoch stayed, and that the log can be read."""
    now = epoch_of(there.redis)
    begun = [event for event in log_events(there) if event.kind == "EpochBegun"]
    found.told(new_epoch=now != epoch, epoch_events=len(begun))
    why = ", ".join(f"{event.writer}: {event.fields}" for event in begun)
    found.expect(now == epoch, f"a new epoch began: {epoch} became {now} ({why})")
    found.expect(stage(there, "runs-on") == "Running", "a job that ran before the upgrade doesn't run on")


def _readable(there: Scene, found: Verdict) -> None:
    """Check that the log can be read from its oldest snapshot on. No process writes meanwhile."""
    for worker in there.processes:
        worker.close()
    with redis.Redis.from_url(there.redis.url) as client:
        snapshots = sorted(int(offset) for offset in client.hkeys("arranger:{default}:snapshots"))
    kept = [event.offset for event in log_events(there)]
    usable = min(offset for offset in snapshots if offset >= kept[0] - 1)  # may be of the log's end, on a slow machine
    found.told(kept_events=len(kept), snapshots=len(snapshots))
    for command in (
        ("events",),
        ("replay",),
        ("replay", "--at", str(min(usable + 1, kept[-1]))),
        ("verify",),
    ):
        done = there.arranger(*command)
        found.expect(done.returncode == 0, f"arranger {' '.join(command)}: {(done.stderr or done.stdout)[-300:]}")
