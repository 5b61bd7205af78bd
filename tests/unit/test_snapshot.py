"""Snapshots and digests: from the log, from a snapshot and its tail, or step by step, the same bytes; else refused."""

import hashlib
from itertools import permutations
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.events.codec import decode_batch, encode_batch
from arranger.model.pod import PodTraits
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.fold import apply_entry
from arranger.projections.snapshot import UnusableSnapshot
from arranger.projections.state import Changes, State
from arranger.scheduling.cycle import take_cycle
from tests.interpreter import told_elsewhere
from tests.random_worlds import LONG, Step, live_through, steps
from tests.world import World

BY_CHANCE = settings(max_examples=80, print_blob=True, suppress_health_check=[HealthCheck.too_slow])


def folded(world: World, *, cut: int = 0, start: State | None = None) -> State:
    """The state from the entries after `cut`, on top of `start`."""
    state = start or State()
    for entry in world.entries[cut:]:
        apply_entry(state, entry, Changes())
    return state


@pytest.fixture(scope="module")
def long_world() -> World:
    world = live_through(LONG)
    assert world.state.jobs and world.state.pods, "the fixed history must leave something to snapshot"
    return world


@BY_CHANCE
@given(history=steps(), cuts=st.lists(st.integers(0, 200), min_size=1, max_size=4))
@example(history=list(LONG), cuts=[3, 50, 77, 120])
def test_log_and_snapshot_with_tail_and_step_by_step_give_the_same_bytes(history: list[Step], cuts: list[int]) -> None:
    world = live_through(history)
    grown = snapshot.encode(world.state)
    assert snapshot.encode(folded(world)) == grown
    for cut in cuts:
        at = cut % len(world.entries)
        early = State()
        for entry in world.entries[:at]:
            apply_entry(early, entry, Changes())
        restored = snapshot.restore(snapshot.encode(early))
        assert snapshot.encode(restored) == snapshot.encode(early)
        assert snapshot.encode(folded(world, cut=at, start=restored)) == grown


@BY_CHANCE
@given(history=steps())
@example(history=list(LONG))
def test_a_worker_that_was_restored_goes_on_as_one_that_never_stopped(history: list[Step]) -> None:
    world = live_through(history)
    restored = snapshot.restore(snapshot.encode(world.state))
    assert take_cycle(restored, world.config, world.now_ms) == take_cycle(world.state, world.config, world.now_ms)
    other = World(config=world.config)
    other.state, other.terms, other.now_ms = restored, dict(world.terms), world.now_ms
    more = [("round", 1, 1), ("pod gone", 3, 0), ("node", 2, 9), ("round", 1, 1), ("job", 2, 3), ("round", 1, 1)]
    other._versions = world._versions
    assert live_through(more, other).digest() == live_through(more, world).digest()


@BY_CHANCE
@given(history=steps(least=15, most=60))
@example(history=list(LONG))
def test_no_history_leaks_capacity_or_holds_half_a_job(history: list[Step]) -> None:
    world = World()
    for step in history:
        live_through([step], world)
        validate(world.state)


@BY_CHANCE
@given(history=steps(least=15, most=60))
def test_once_everything_is_gone_nothing_is_left_of_any_history(history: list[Step]) -> None:
    world = live_through(history)
    for job in list(world.state.jobs.values()):
        world.job_gone(job)
    for uid in list(world.state.pods):
        world.pod_gone(uid)
    for name, row in list(world.state.nodes.rows.items()):
        world.node_gone(name, uid=world.state.nodes.uids[row])
    world.wait_for_late_pods()
    nodes = world.state.nodes
    assert not nodes.rows and not nodes.used.any() and not nodes.allocatable.any() and not world.state.pods_of


def test_the_digest_is_the_same_under_every_hash_seed(long_world: World) -> None:
    script = (
        "from tests.random_worlds import LONG, live_through\n"
        "from arranger.projections import snapshot\n"
        "world = live_through(LONG)\n"
        "print(world.digest(), snapshot.digest(snapshot.restore(snapshot.encode(world.state))))\n"
    )
    for seed in ("0", "1", "4242"):
        assert told_elsewhere(script, PYTHONHASHSEED=seed).split() == [long_world.digest()] * 2


def test_the_order_in_which_unrelated_nodes_and_pods_were_seen_leaves_no_trace() -> None:
    digests = set()
    for order in permutations(range(4)):
        world = World()
        seen = []
        for number, (name, resource) in enumerate((("n1", "a/x"), ("n2", "b/y"))):
            other = World()
            other._versions = number
            other.node(name, cpu=4, **{resource: 2})
            seen.append(other.entries[-1].batch.events[0])
        for name, node in (("p1", "n1"), ("p2", "n2")):
            other = World()
            other.pod(name, node, cpu=1)
            seen.append(other.entries[-1].batch.events[0])
        for number in order:
            event = seen[number]
            kind = k.Watched.NODE if isinstance(event, k.NodeSeen) else k.Watched.POD
            world.say(msgspec.structs.replace(event, term=world.terms[kind]))
        assert world.state.room_news  # of the last of the nodes
        world.state.room_news = 0
        digests.add(world.digest())
    assert len(digests) == 1


def test_a_digest_tells_states_apart_that_differ_in_one_thing() -> None:
    world = World()
    world.node("n1", cpu=4)
    digests = [world.digest()]
    for change in (
        lambda: world.pod("p", "n1", cpu=1),
        lambda: world.change_pod("uid-p", restarts=1),
        lambda: world.job("ppo"),
        world.cycle,
        lambda: world.say(k.EpochBegun(2, 1, "")),
    ):
        change()
        digests.append(world.digest())
    assert len(set(digests)) == len(digests)
    assert digests[-1] == hashlib.blake2b(snapshot.encode(world.state), digest_size=16).hexdigest()


def test_equal_parts_of_pods_are_written_once_and_one_object_in_a_restored_state() -> None:
    world = World()
    world.node("n1", cpu=8)
    for number in range(600):
        traits = PodTraits((("app", f"app-{number % 2}"),))
        world.pod(f"p{number:03}", "n1", traits=traits, cpu=1 + number % 3)
    pods = msgspec.msgpack.decode(snapshot.encode(world.state))[OFFSETS["pods"]]
    assert [requests[0][1] for requests in pods[REQUESTS][0]] == [1000, 2000, 3000]
    assert pods[TRAITS][1] == [number % 2 for number in range(600)]
    restored = snapshot.restore(snapshot.encode(world.state))
    assert restored.pods == world.state.pods
    for name, different in (("requests", 3), ("traits", 2)):
        assert len({id(getattr(pod, name)) for pod in restored.pods.values()}) == different
    # And the same one as in the next observation of such a pod.
    pod = restored.pods["uid-p000"]
    (seen,) = decode_batch(encode_batch(k.Batch("w", 1, 1, (pod,))), 1).events
    assert isinstance(seen, k.PodSeen) and seen is not pod
    assert seen.requests is pod.requests and seen.traits is pod.traits


# --- what can't be used is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"", b"\xc0", b"\x90", b"\x91\xa1a", b"\x91\x01", b"{}", b"not a snapshot", b"\xff" * 9]
)
def test_what_is_no_snapshot_is_refused(content: bytes) -> None:
    with pytest.raises(UnusableSnapshot):
        snapshot.restore(content)


def test_a_snapshot_of_another_layout_is_refused_before_it_is_read(long_world: World) -> None:
    fields = msgspec.msgpack.decode(snapshot.encode(long_world.state))
    for content in ([99, *fields[1:]], [99], [99, "whatever"]):
        with pytest.raises(UnusableSnapshot, match="layout 99"):
            snapshot.restore(msgspec.msgpack.encode(content))


def test_a_snapshot_cut_off_anywhere_or_with_more_after_it_is_refused(long_world: World) -> None:
    content = snapshot.encode(long_world.state)
    for size in range(0, len(content), max(1, len(content) // 200)):
        with pytest.raises(UnusableSnapshot):
            snapshot.restore(content[:size])
    with pytest.raises(UnusableSnapshot):
        snapshot.restore(content + b"\x00")


@settings(BY_CHANCE, max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.integers(0), byte=st.integers(0, 255))
def test_an_altered_byte_is_refused_or_changes_only_what_it_says(long_world: World, where: int, byte: int) -> None:
    content = bytearray(snapshot.encode(long_world.state))
    content[where % len(content)] = byte
    try:
        restored = snapshot.restore(bytes(content))
    except UnusableSnapshot:
        return
    assert_sound_enough(restored)
    assert snapshot.encode(restored) == bytes(content)


def assert_sound_enough(state: State) -> None:
    """A state that a fold can go on from: everything that is bound is there."""
    for job in state.jobs.values():
        assert job.bound.keys() <= job.placements.keys()
        assert all(uid in state.pods for uid in job.bound.values())


OFFSETS = {"nodes": 8, "pods": 9, "jobs": 10}
REQUESTS, TRAITS = map(k.PodSeen.__struct_fields__.index, ("requests", "traits"))


def each_of(pods: list[Any]) -> list[list[Any]]:
    """What each column of pods has for each pod: a value, or its index."""
    return [column[1] if at in (REQUESTS, TRAITS) else column for at, column in enumerate(pods)]


def altered(world: World, part: str, change: object) -> bytes:
    fields = msgspec.msgpack.decode(snapshot.encode(world.state))
    change(fields[OFFSETS[part]])  # type: ignore[operator]
    return msgspec.msgpack.encode(fields)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("pods", lambda pods: pods.pop()),
        ("pods", lambda pods: pods.append(pods[0])),
        ("pods", lambda pods: pods.reverse()),
        ("pods", lambda pods: [column.pop() for column in each_of(pods)]),
        ("pods", lambda pods: [column.append(column[0]) for column in each_of(pods)]),
        ("pods", lambda pods: [column.reverse() for column in each_of(pods)]),
        ("pods", lambda pods: pods[0].pop()),
        ("pods", lambda pods: pods[REQUESTS][0].append([["cpu", 7]])),
        ("pods", lambda pods: pods[REQUESTS][0].append(pods[REQUESTS][0][0]) or pods[REQUESTS][1].__setitem__(-1, 1)),
        ("pods", lambda pods: pods[REQUESTS][1].pop()),
        ("pods", lambda pods: pods[REQUESTS][1].__setitem__(0, -1)),
        ("pods", lambda pods: pods[REQUESTS][1].__setitem__(0, 99)),
        ("nodes", lambda nodes: nodes.pop(0)),
        ("nodes", lambda nodes: nodes.reverse()),
        ("nodes", lambda nodes: nodes[0].__setitem__(5, 77)),
        ("nodes", lambda nodes: nodes[0][3].__setitem__(0, [["cpu", 1 << 63]])),
        ("nodes", lambda nodes: nodes[0].__setitem__(4, [["cpu", 1]])),
        ("jobs", lambda jobs: jobs[0].__setitem__(1, [[[7, 0], "n1"]])),
        ("jobs", lambda jobs: jobs[0].__setitem__(1, [])),
        ("jobs", lambda jobs: jobs[0].__setitem__(2, [])),
        ("jobs", lambda jobs: jobs[0].__setitem__(2, [[[0, 0], "uid-of-nobody"]])),
        ("jobs", lambda jobs: jobs[0][0].__setitem__("spec", None)),
        ("jobs", lambda jobs: jobs[0][0].__setitem__("stage", "Dancing")),
        ("jobs", lambda jobs: jobs[0][0].__setitem__("placements", [])),
    ],
)
def test_a_snapshot_at_odds_with_itself_is_refused(part: str, change: object) -> None:
    world = World()
    world.node("n1", cpu=8)
    world.node("n2", cpu=8)
    world.job("ppo", workers=2, min_workers=2)
    world.settle()
    assert snapshot.restore(altered(world, part, lambda _: None))
    with pytest.raises(UnusableSnapshot):
        snapshot.restore(altered(world, part, change))


def test_a_states_own_words_for_itself_are_short(long_world: World) -> None:
    # asyncio asks for them whenever a coroutine has returned a state: in full they took a command a second
    assert repr(long_world.state) == f"<State at offset {long_world.state.offset} of epoch {long_world.state.epoch}>"
