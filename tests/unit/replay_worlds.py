"""Histories for the tests of the replay tools: worlds with waiting, partly placed and rejected, and ways to read and
to forge their logs."""

from collections.abc import Callable

import msgspec
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.events.codec import encode_batch
from arranger.events.log import Entry
from arranger.events.log_keys import next_chain
from arranger.model.config import CycleConfig
from arranger.model.node import Taint
from arranger.model.queue import Preemption
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.replay.explain.answer import Explanation, explanation, pod_names
from arranger.replay.explain.job_history import AskedJob, JobHistories
from arranger.replay.reading.history import Span
from arranger.replay.reading.verify import Report, Survey, Verification
from arranger.scheduling.cycle import VERSIONS, take_cycle
from tests.world import GIB, World, shape

GPU = "nvidia.com/gpu"


def crowded() -> World:
    """Four open nodes of 4 GPUs that `small` and `wide` fill up; `big`, `other` and `never` wait, `wrong` fails."""
    world = World()
    for number in range(1, 5):
        world.node(f"n{number}", cpu=16, gpus=4, memory=64 * GIB)
    world.node("n5", cpu=16, gpus=4, cordoned=True)
    world.node("n6", cpu=64, taints=[Taint("dedicated", "infra", "NoSchedule")])
    one = shape(cpu=1, gpus=1)
    world.job("small", leader=one, workers=4, worker=one, min_workers=2, created=world.now_ms)
    world.settle()
    world.pass_time(5)
    world.job("wide", leader=one, workers=16, worker=one, min_workers=2, created=world.now_ms)
    world.settle()
    world.pass_time(5)
    whole = shape(cpu=1, gpus=4)
    world.job("big", leader=one, workers=2, worker=whole, min_workers=2, created=world.now_ms, priority=8)
    world.job("other", leader=shape(cpu=1, gpus=2), created=world.now_ms)
    world.settle()
    world.pass_time(65)
    world.job("never", leader=shape(cpu=1, gpus=16), created=world.now_ms)
    world.job("wrong", invalid="spec.priority", created=world.now_ms)
    world.settle()
    world.pass_time(10)
    return world


def contended() -> World:
    """Two jobs of one priority want the only node; the older one asks for more, so DRF prefers the younger."""
    world = World()
    world.node("n1", gpus=4)
    world.job("early", leader=shape(gpus=1))
    world.settle()
    world.job("large", leader=shape(gpus=3), created=1)
    world.job("small", leader=shape(gpus=2), created=2)
    world.settle()
    return world


#: The configuration of worlds in which jobs take room and keep it.
ROOM = CycleConfig(
    versions=VERSIONS,
    refusal_avoid_ms=60_000,
    search_steps=30_000,
    preemption=Preemption(),
    room_bound_ms=60_000,
    reservations=1,
    reservation_refresh_ms=30_000,
)


def with_room_rules(**config: object) -> World:
    """A node of 4 GPUs, in a cluster where room is taken back and kept."""
    world = World(config=msgspec.structs.replace(ROOM, **config))
    world.node("n1", cpu=16, gpus=4)
    return world


def gpu_job(world: World, name: str, workers: int, *, least: int | None = None, **spec: object) -> JobRecord:
    """A job of workers with a GPU each, and no leader, created now."""
    least = workers if least is None else least
    return world.job(
        name, workers=workers, worker=shape(cpu=1, gpus=1), min_workers=least, equals=True, created=world.now_ms, **spec
    )  # type: ignore[arg-type]


def filled(**config: object) -> World:
    """`low` and `wide` run on the whole node, and `high` comes, for which `low` and the surplus of `wide` make room."""
    world = with_room_rules(**config)
    gpu_job(world, "low", 2, priority=1)
    gpu_job(world, "wide", 2, least=1, priority=2)
    world.settle()
    world.pass_time(100)
    gpu_job(world, "high", 3, priority=9)
    return world


def preempting() -> World:
    """`low` and the surplus of `wide` gave their room to `high`, which runs; `low` waits again."""
    world = filled()
    world.cycle()
    world.pass_time(7)
    world.settle()
    world.pass_time(5)
    world.cycle()
    return world


def taken_on() -> World:
    """`middle` took the room of `low`; before the last pod of `low` had left, `high` took it from `middle`."""
    world = with_room_rules()
    gpu_job(world, "low", 4, priority=1)
    world.settle()
    world.pass_time(100)
    for name, priority in (("middle", 5), ("high", 9)):
        gpu_job(world, name, 4, priority=priority)
        world.cycle()
        world.pass_time(2)
    return world


def late_cycle(world: World, meanwhile: Callable[[], object]) -> int:
    """A cycle taken on the present state, appended only after `meanwhile`; answers the offset of its record."""
    events = take_cycle(world.state, world.config, world.now_ms)
    assert events
    meanwhile()
    return world.say(*events)


def forged(entries: list[Entry], number: int, events: tuple[k.Event, ...]) -> list[Entry]:
    """The log with another content of one entry, and a chain that is right again from there on."""
    result = entries[:number]
    chain = entries[number - 1].chain
    offset = entries[number].first
    for position, entry in enumerate(entries[number:]):
        said = events if position == 0 else entry.batch.events
        batch = k.Batch(entry.batch.writer, entry.batch.seq, entry.batch.time_ms, said)
        chain = next_chain(chain, encode_batch(batch))
        result.append(Entry(offset, offset + len(said) - 1, chain, batch))
        offset += len(said)
    return result


def entry_with(entries: list[Entry], kind: type, *, last: bool = False) -> int:
    """Number of the first or last entry that holds such an event."""
    found = [number for number, entry in enumerate(entries) if any(type(e) is kind for e in entry.batch.events)]
    return found[-1 if last else 0]


def verified(entries: list[Entry], *, state: State | None = None, span: Span | None = None) -> Report:
    """The report on a whole log, or on what follows a state."""
    survey = Survey(span or Span())
    for entry in entries:
        survey.feed(entry)
    verification = Verification(state or State(), survey)
    for entry in entries:
        if entry.first > verification.state.offset:
            verification.feed(entry)
    return verification.report


def first_config(entries: list[Entry]) -> CycleConfig:
    """The settings of the first cycle, else the defaults."""
    events = (event for entry in entries for event in entry.batch.events)
    return next((event.config for event in events if isinstance(event, k.CycleTaken)), CycleConfig())


def histories_of(entries: list[Entry], name: str, *, pod: str = "", node: str = "") -> JobHistories:
    """The lives of the jobs of that name, read to the end of the entries."""
    job_histories = JobHistories(State(), AskedJob(name, pod=pod, node=node), first_config(entries))
    for entry in entries:
        job_histories.feed(entry)
    job_histories.finish()
    return job_histories


def explained(entries: list[Entry], name: str, *, pod: str = "", node: str = "") -> Explanation:
    """The explanation of a job at the end of the entries."""
    job_histories = histories_of(entries, name, pod=pod, node=node)
    story = job_histories.stories[f"uid-{name}"]
    job = story.state.jobs[f"uid-{name}"]
    assert not pod or pod in pod_names(story, job)
    return explanation(story, job, job_histories.retaken(job.uid, None if pod else job.attempt), node=node)


@st.composite
def histories(draw: st.DrawFn) -> list[Entry]:
    """A random world: nodes come, change and go, jobs come, change and go, cycles are on time, late or doubled."""
    world = World()
    amounts = st.integers(0, 4)
    for number in range(draw(st.integers(1, 4))):
        world.node(f"n{number}", cpu=draw(st.integers(1, 16)), gpus=draw(st.integers(0, 8)))
    for step in range(draw(st.integers(1, 12))):
        action = draw(st.sampled_from(["node", "job", "job", "cycle", "late", "settle", "end", "cordon", "time"]))
        if action in ("node", "cordon"):
            name = f"n{draw(st.integers(0, 4))}"
            world.node(name, cpu=draw(st.integers(1, 16)), gpus=draw(amounts), cordoned=action == "cordon")
        elif action == "job":
            of = shape(cpu=draw(st.integers(1, 4)), gpus=draw(amounts))
            workers = draw(st.integers(0, 6))
            world.job(f"j{step}", leader=of, workers=workers, worker=shape(cpu=1, gpus=draw(amounts)),
                      min_workers=draw(st.integers(0, workers)), priority=draw(st.integers(1, 3)),
                      policy=draw(st.sampled_from(["", "Gang"])), created=draw(amounts))  # fmt: skip
        elif action == "end" and world.state.jobs:
            world.job_gone(draw(st.sampled_from(list(world.state.jobs.values()))))
        elif action == "late":
            events = take_cycle(world.state, world.config, world.now_ms)
            world.pass_time(draw(amounts))
            world.cycle()
            if events:
                world.say(*events)
        elif action == "settle":
            world.cycle()
            world.control()
            world.apply()
        elif action == "time":
            world.pass_time(draw(st.integers(0, 400)))
        else:
            world.cycle()
    world.cycle()
    return world.entries
