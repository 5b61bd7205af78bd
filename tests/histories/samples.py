"""Snapshots of the layouts that were: kept with the logs that they were made from, and read by every later version.

`python -m tests.histories.samples` writes those of the present layout into `tests/histories/snapshots/`: a file
`layout-N.samples` with the logs and the snapshots (msgpack, xz), and `layout-N.json` with what the states held, as
facts that no layout changes. Do it with the last version of a layout, before the first change of the next one; what is
there already is never written again.
"""

import asyncio
import lzma
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from arranger.events import kinds as k
from arranger.events.codec import StoredEntry, encode_batch, verified_run
from arranger.events.file_log import FileLog
from arranger.events.log import Entry, Position
from arranger.model.job import JobStatusSeen, PlacedPods, Stage
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.jobs import JobRecord
from arranger.projections.state import Changes, State

HISTORIES = Path(__file__).parent
HERE = HISTORIES / "snapshots"

#: Seeds and steps of the simulation whose last epoch is rich: refusals, lost nodes, replaced and given up workers.
SIMULATED = ((106, 500), (110, 500))


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """One log, from `start`, and snapshots of it. `before` is the snapshot at `start`; empty for the empty state."""

    name: str
    start: Position
    before: bytes
    log: tuple[StoredEntry, ...]
    snapshots: tuple[tuple[int, bytes], ...]

    def entries(self) -> list[Entry]:
        """The log, checked."""
        return list(verified_run(self.log, self.start))


def read_samples(layout: int) -> list[Sample]:
    """The samples of a layout."""
    content = lzma.decompress((HERE / f"layout-{layout}.samples").read_bytes())
    return msgspec.msgpack.decode(content, type=list[Sample])


def read_facts(layout: int) -> dict[str, dict[str, Any]]:
    """Sample → offset → what its state held there: for each snapshot, and for the end of the log."""
    found: dict[str, dict[str, Any]] = msgspec.json.decode((HERE / f"layout-{layout}.json").read_bytes())
    return found


def facts(state: State) -> dict[str, Any]:
    """What a state holds, said so that no layout changes it."""
    return {
        "epoch": state.epoch,
        "told_ms": state.time_ms,
        "last_cycle": state.last_cycle,
        "terms": {str(kind): term for kind, term in sorted(state.terms.items())},
        "listed": sorted(str(kind) for kind, listed in state.listed.items() if listed),
        "nodes": {name: _node(state, name) for name in sorted(state.nodes.rows)},
        "pods": {uid: f"{pod.phase} on {pod.node}" for uid, pod in sorted(state.pods.items())},
        "assumed": [f"{each.owner.job_uid} {each.node} {each.until_ms}" for each in state.assumed.values()],
        "jobs": {uid: _job(job) for uid, job in sorted(state.jobs.items())},
    }


def _node(state: State, name: str) -> list[Any]:
    nodes = state.nodes
    row = nodes.rows[name]
    used = {resource: amount for resource, (amount, _) in sorted(nodes.amounts(row).items()) if amount}
    return [nodes.present(row), nodes.holders[row], used]


def _job(job: JobRecord) -> list[Any]:
    return [
        f"{job.seen.namespace}/{job.seen.name}",
        str(job.stage),
        str(job.schedule_state),
        job.attempt,
        job.leader.restarts,
        {f"{group}.{index}": node for (group, index), node in sorted(job.placements.items())},
        {f"{group}.{index}": uid for (group, index), uid in sorted(job.bound.items())},
        [f"{group}.{index}" for group, index in sorted(job.slots.given_up)],
        dict(sorted(job.spent.items())),
        dict(sorted(job.refusals.items())),
        job.leader.address,
    ]


# --- making samples ----------------------------------------------------------------------------------------------


def traits(state: State) -> set[str]:
    """What is special about a state: fields of records that differ from what they begin with."""
    found = {f"stage {job.stage}" for job in state.jobs.values()}
    blank = JobRecord.__dataclass_fields__
    for job in state.jobs.values():
        for name, field in blank.items():
            begins = () if name == "steps" else getattr(field, "default", None)
            value = getattr(job, name)
            if value and value != begins:
                found.add(f"job {name}")
        found |= {"job suspended"} if job.suspended else set()
        found |= {"job invalid"} if job.seen.faults else set()
        found |= {"job deleting"} if job.seen.deleting else set()
    nodes = state.nodes
    found |= {f"node {'down' if nodes.down_ms[row] else 'up'}" for row in nodes.rows.values()}
    found |= {"node gone" for row in nodes.rows.values() if not nodes.present(row)}
    found |= {f"pod {pod.phase}" for pod in state.pods.values()}
    found |= {"repelling"} if state.repelling else set()
    found |= {"assumed"} if state.assumed else set()
    return found


def chosen(log: Sequence[Entry], state: State, *, most: int) -> list[int]:
    """Offsets at which snapshots show as much as possible of what happens in a log, and its middle and end."""
    seen: dict[int, set[str]] = {}
    for entry in log:
        apply_entry(state, entry, Changes())
        seen[entry.last] = traits(state)
    offsets = [log[len(log) // 2].last, log[-1].last]
    shown = set().union(*(seen[offset] for offset in offsets))
    while len(offsets) < most:
        best = max(seen, key=lambda offset: (len(seen[offset] - shown), offset))
        if not seen[best] - shown:
            break
        offsets.append(best)
        shown |= seen[best]
    return sorted(set(offsets))


def sampled(
    name: str, start: Position, before: bytes, stored: Sequence[StoredEntry], *, most: int
) -> tuple[Sample, Any]:
    """A sample of a log, and its facts."""
    log = list(verified_run(stored, start))
    offsets = chosen(log, snapshot.restore(before) if before else State(), most=most)
    state = snapshot.restore(before) if before else State()
    told: dict[str, Any] = {}
    snapshots = []
    for entry in log:
        apply_entry(state, entry, Changes())
        if entry.last in offsets:
            snapshots.append((entry.last, snapshot.encode(state)))
            told[str(entry.last)] = facts(state)
    return Sample(name, start, before, tuple(stored), tuple(snapshots)), told


def stored(log: Sequence[Entry]) -> list[StoredEntry]:
    """Entries that were written by this version, as they are kept."""
    return [
        StoredEntry(entry.last, entry.last - entry.first + 1, entry.chain, encode_batch(entry.batch)) for entry in log
    ]


async def _history(path: Path) -> tuple[Position, bytes, Sequence[StoredEntry]]:
    log = FileLog(path)
    await log.open()
    try:
        start, before = await log.start(), b""
        if start.offset:
            kept = await log.newest_snapshot(at_most=start.offset)
            assert kept is not None
            before = kept.content
        return start, before, await log.read_stored(start)
    finally:
        await log.close()


def _simulated(seed: int, steps: int) -> list[Entry]:
    from tests.simulation.world import World

    world = World(seed)
    world.run(steps)
    return world.oracle.entries


def _by_hand() -> Iterator[tuple[str, list[Entry]]]:
    """What hardly comes by chance: an assumed pod, a refused edit, a pod known to leave before pods are listed."""
    from tests.world import World, shape, starting

    world, job = starting(cpu=4, leader=shape(cpu=2))
    world.say(k.StageDecided(job.uid, job.version, 0, Stage.RESCHEDULING, StageReason.OTHER))
    other = world.job("other", workers=1)
    world.cycle()
    world.control()
    world.job("other", workers=1, leader=shape(cpu=3), generation=2)
    assert world.state.assumed and other.refused
    world.wait_for_late_pods()
    world.settle()
    yield "assumed-and-refused", world.entries
    world = World(listed=False)
    world.node("n1", cpu=8)
    status = JobStatusSeen(
        "Running", "Succeed", 1, 0, "10.0.0.1", (PlacedPods("n1", 0, ((0, 0),)), PlacedPods("n1", 1, ((0, 2),))),
        replacing=((1, ((1, 1),)),), worker_restarts=(("actors", 1),),
    )  # fmt: skip
    job = world.job("ppo", workers=3, min_workers=1, status=status)
    assert job.slots.leaving
    world.list_all()
    world.settle()
    yield "leaving", world.entries


def _made() -> Iterator[tuple[Sample, Any]]:
    from tests.random_worlds import LONG, live_through

    for path in sorted(HISTORIES.glob("*.log")):
        start, before, kept = asyncio.run(_history(path))
        yield sampled(path.stem, start, before, kept, most=2)
    yield sampled("by-chance", Position(1, 0, ""), b"", stored(live_through(LONG).entries), most=6)
    for name, log in _by_hand():
        yield sampled(name, Position(1, 0, ""), b"", stored(log), most=4)
    for seed, steps in SIMULATED:
        log = _simulated(seed, steps)
        epoch = log[0].batch.events[0].epoch  # type: ignore[union-attr]
        yield sampled(f"simulated-{seed}", Position(epoch, 0, ""), b"", stored(log), most=6)


def main() -> int:
    """The command."""
    target = HERE / f"layout-{snapshot.LAYOUT}.samples"
    if target.exists():
        print(f"{target} is there already", file=sys.stderr)
        return 2
    made = list(_made())
    samples = [sample for sample, _ in made]
    target.write_bytes(lzma.compress(msgspec.msgpack.encode(samples), preset=9 | lzma.PRESET_EXTREME))
    told = msgspec.json.encode({sample.name: told for sample, told in made})
    target.with_suffix(".json").write_bytes(told + b"\n")
    for sample in samples:
        print(f"{sample.name}: {len(sample.log)} entries, snapshots at {[offset for offset, _ in sample.snapshots]}")
    print(f"{target.name}: {target.stat().st_size} bytes; {target.stem}.json: {len(told)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
