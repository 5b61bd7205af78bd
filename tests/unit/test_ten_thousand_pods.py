"""A job of 10,000 pods: placed whole, started, mended after the loss of a node, and ended; its status stays small."""

import msgspec

from arranger.lifecycle.desired import desired_status
from arranger.model.job import Stage
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from tests.unit.replay_worlds import verified
from tests.world import World, shape

WORKERS = 9_999
NODES = 100


def test_a_job_of_ten_thousand_pods_lives_its_whole_life() -> None:
    world = World()
    for number in range(NODES):
        world.node(f"n{number:03}", cpu=64, pods=110)
    job = world.job("large", leader=shape(cpu=0.1), workers=WORKERS, min_workers=WORKERS)
    world.settle()
    assert (job.stage, len(job.bound)) == (Stage.RUNNING, WORKERS + 1)
    status = desired_status(world.state, job)
    assert status["ready"] == f"{WORKERS}/{WORKERS}"
    assert len(msgspec.json.encode(status)) < 20_000

    lost = next(node for slot, node in job.placements.items() if slot[0] and node != job.placements[(0, 0)])
    gone = [uid for slot, uid in job.bound.items() if job.placements[slot] == lost]
    world.node_gone(lost)
    for uid in gone:
        world.pod_gone(uid)
    world.settle()
    assert (job.stage, len(job.bound)) == (Stage.RUNNING, WORKERS + 1)
    assert lost not in job.placements.values()
    validate(world.state)
    assert snapshot.encode(snapshot.restore(snapshot.encode(world.state))) == snapshot.encode(world.state)

    world.change_pod(job.bound[(0, 0)], phase="Succeeded", ready=False)
    world.settle()
    assert (job.stage, world.state.pods_of) == (Stage.SUCCEEDED, {})
    assert world.used("n000") == 0

    report = verified(world.entries)
    assert report.sound and report.identical == report.cycles > 0
