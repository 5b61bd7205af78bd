"""Writes a log in which the example plugins decided, in a new process: `python -m tests.plugin_log FILE`.

The plugins are those on the path of that process. It prints the names and versions that its cycles recorded.
"""

import json
import sys
from pathlib import Path

from arranger.events import kinds as k
from arranger.model.config import CycleConfig
from arranger.plugins import installed
from arranger.scheduling.cycle import take_cycle
from tests.commands import to_file
from tests.world import World, shape


def main() -> None:
    """Write the log of a cluster in which each of the five example plugins makes a difference."""
    policies = installed()
    config = CycleConfig(
        queue_policy="Oldest", pod_policy="WorstFit", versions=policies.versions(), filter_order=("Maintenance",)
    )
    world = World(config=config)
    world.node("n1", cpu=8, cordoned=True, labels={"example.com/maintenance": "true"})
    world.node("n2", cpu=3)
    world.node("n3", cpu=8)
    world.job("late", created=2, priority=9, leader=shape(cpu=4))
    world.job("early", created=1, priority=1, leader=shape(cpu=5))
    world.job("small", created=3, leader=shape(cpu=1), workers=1)
    world.namespace("frozen", **{"example.com/frozen": "true"})
    world.namespace("checked", **{"example.com/approval": "required"})
    world.job("refused", created=4, leader=shape(cpu=1), namespace="frozen")
    world.job("held", created=5, leader=shape(cpu=1), namespace="checked")
    world.job("approved", created=6, leader=shape(cpu=1), namespace="checked", permits=("approved",))
    for _ in range(3):
        world.pass_time(1)
        events = take_cycle(world.state, config, world.now_ms, policies=policies)
        if events:
            world.say(*events)
    taken = [event for entry in world.entries for event in entry.batch.events if isinstance(event, k.CycleTaken)]
    to_file(world.entries, Path(sys.argv[1]))
    placed = {
        job.seen.name: [job.placements[slot] for slot in sorted(job.placements)] for job in world.state.jobs.values()
    }
    print(json.dumps({"versions": dict(taken[0].config.versions), "placed": placed}))


if __name__ == "__main__":
    main()
