"""When the room of a preemption became free by itself: the estimate of `arranger preemptions` against brute force.

Brute force makes another cluster for each point: the same nodes, the victims' pods in their places, everything else
that is used, and the beneficiary among the jobs that wait. The room is free once a cycle there gives that job its
quorum.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.stages import StageReason
from arranger.projections.jobs.records import JobRecord, expand, holds, requests_of
from arranger.projections.state import Changes, State
from arranger.replay.ledger import preemptions
from arranger.replay.ledger.preemptions import PreemptionLedger
from arranger.replay.reading.history import Span, advance
from arranger.scheduling.cycle import take_cycle
from arranger.scheduling.queues.waiting import waiting_jobs
from tests.unit.replay_worlds import GPU, filled, gpu_job, with_room_rules
from tests.world import World

Action = tuple[str, int]
#: A node, and what is requested there.
Used = tuple[str, tuple[tuple[str, int], ...]]


@pytest.fixture(autouse=True, scope="module")
def _look_each_time() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preemptions, "LOOK_AGAIN_AFTER", 0)
        yield


def free_ms(world: World) -> list[int | None]:
    ledger = PreemptionLedger(State(), Span(), CycleConfig())
    for entry in world.entries:
        ledger.feed(entry)
    return [one.free_ms for one in ledger.found]


#: When a preemption was decided, the decision, where all jobs had their pods before, and its beneficiary's observation.
Decided = tuple[int, k.Preempted, dict[str, dict[tuple[int, int], str]], k.JobSeen]


def by_brute_force(world: World) -> list[int | None]:
    """The same, by a cycle at each entry, until the beneficiary loses the room without having begun."""
    state, decided, found = State(), list[Decided](), {}
    begun: set[str] = set()
    lost: set[int] = set()
    for entry in world.entries:
        before = {uid: dict(job.placements) for uid, job in state.jobs.items()}
        seen = {uid: job.seen for uid, job in state.jobs.items()}
        changes = Changes()
        advance(state, entry, changes)
        accepted = {of.offset for of in changes.verdicts if of.accepted}
        said = [one for offset, one in enumerate(entry.batch.events, start=entry.first) if offset in accepted]
        for event in said:
            if isinstance(event, k.StageDecided) and event.stage == Stage.STARTING:
                begun.add(event.job_uid)
            elif isinstance(event, k.StageDecided) and event.job_uid not in begun:
                lost.update(number for number, one in enumerate(decided) if one[1].placed.job_uid == event.job_uid)
        for event in said:
            if isinstance(event, k.Preempted):
                decided.append((state.time_ms, event, before, seen[event.placed.job_uid]))
                begun.discard(event.placed.job_uid)
        for number, (since_ms, *_) in enumerate(decided):
            looks = number not in found and number not in lost and state.time_ms > since_ms
            if looks and _fits(state, decided[number:]):
                found[number] = state.time_ms - since_ms
    return [found.get(number) for number in range(len(decided))]


def _fits(state: State, decided: list[Decided]) -> bool:
    other = World(config=with_room_rules(preemption=None, reservations=0).config)
    nodes = state.nodes
    for row in nodes.by_name().tolist():
        gpus, facts = nodes.amounts(row).get(GPU, (0, 0))[1], nodes.facts[row]
        other.node(nodes.names[row], cpu=16, gpus=gpus, cordoned=facts.cordoned, ready=facts.ready)
    waiting, lost, whole = _changed(decided)
    others, stays = [*_others(state, {*waiting, *whole}, lost)], [*_stays(state, lost)]
    if not _fits_beside_the_displaced(state, others, stays, decided[0][3]):
        return False
    for number, (node, amounts) in enumerate([*others, *stays]):
        other.pod(f"used-{number}", node, amounts=amounts)
    first = decided[0][1].placed.job_uid
    again = {uid: of.seen for uid, of in state.jobs.items() if of.active and uid not in lost
             and (not of.placements or uid in waiting)}  # fmt: skip
    again |= {first: decided[0][3]}
    more = {job.uid: _further(job) for job in waiting_jobs(state, state.time_ms) if job.uid not in (*again, *lost)}
    for uid, seen in (again | more).items():
        gpu_job(other, uid, 1, uid=uid)
        of = msgspec.structs.replace(other.state.jobs[uid].seen, spec=seen.spec, created_ms=seen.created_ms)
        other.say(msgspec.structs.replace(of, generation=2, resource_version="9"))
    events = take_cycle(other.state, other.config, other.now_ms)
    return any(isinstance(one, k.Placed) and one.job_uid == first for one in events)


def _fits_beside_the_displaced(state: State, others: list[Used], stays: list[Used], seen: k.JobSeen) -> bool:
    """Whether the quorum, of pods with one GPU, fits by numbers once those have gone elsewhere that came where the
    victims would be."""
    nodes, displaced = state.nodes, 0
    free: dict[str, int] = {}
    for row in nodes.by_name().tolist():
        name, facts = nodes.names[row], nodes.facts[row]
        if facts.ready and not facts.cordoned:
            there = [sum(dict(of).get(GPU, 0) for at, of in used if at == name) for used in (others, stays)]
            before = nodes.amounts(row).get(GPU, (0, 0))[1] - there[0]
            free[name] = before - there[1]
            displaced += max(-free[name], 0) - max(-before, 0)
    left = sum(max(amount, 0) for amount in free.values()) - displaced
    return seen.spec is not None and left >= seen.spec.min_workers


def _further(job: JobRecord) -> k.JobSeen:
    """A job of the pods that a running job still wants: it takes what is free, before quorums of lower priority."""
    leader, workers = job.valid_spec.groups
    count = job.pods_desired() - len(job.placements)
    groups = (leader, msgspec.structs.replace(workers, count=count, min_count=0))
    return msgspec.structs.replace(job.seen, spec=msgspec.structs.replace(job.valid_spec, groups=groups, min_workers=0))


def _changed(decided: list[Decided]) -> tuple[set[str], dict[str, dict[tuple[int, int], str]], set[str]]:
    """Who got room by these preemptions, who lost which pods by them, and who lost all: of each the first time."""
    waiting: set[str] = set()
    lost: dict[str, dict[tuple[int, int], str]] = {}
    whole: set[str] = set()
    for _, event, had, _ in decided:
        if event.placed.job_uid not in lost:
            waiting.add(event.placed.job_uid)
        for victim in event.victims:
            uid, slots = victim.job_uid, expand(victim.pods)
            if uid in waiting or uid in whole:
                continue
            of = lost.setdefault(uid, {})
            of.update({slot: node for slot, node in slots.items() if slot in had[uid] and slot not in of})
            if victim.kind.whole:
                whole.add(uid)
    return waiting, lost, whole


def _others(
    state: State, gone: set[str], lost: dict[str, dict[tuple[int, int], str]]
) -> Iterator[tuple[str, tuple[tuple[str, int], ...]]]:
    """What is used by all but these jobs, wherever they went, and the slots that were lost."""

    def aside(uid: str, group: str, index: int) -> bool:
        job = state.jobs.get(uid)
        names = [of.name for of in job.valid_spec.groups] if job is not None else []
        return uid in gone or (group in names and (names.index(group), index) in lost.get(uid, ()))

    for pod in state.pods.values():
        of = pod.owner
        if holds(pod) and not (of and aside(of.job_uid, of.group_name, of.index)):
            yield pod.node, pod.requests
    for assumed in state.assumed.values():
        if not aside(assumed.owner.job_uid, assumed.owner.group_name, assumed.owner.index):
            yield assumed.node, assumed.requests
    for uid, job in state.jobs.items():
        for slot, node in job.placements.items():
            if slot not in job.bound and not aside(uid, job.valid_spec.groups[slot[0]].name, slot[1]):
                yield node, requests_of(job, slot)


def _stays(
    state: State, lost: dict[str, dict[tuple[int, int], str]]
) -> Iterator[tuple[str, tuple[tuple[str, int], ...]]]:
    """The pods that the victims lost, of jobs that haven't ended since, and slots that haven't done their part."""
    for uid, slots in lost.items():
        job = state.jobs.get(uid)
        if job is None or job.ended or job.seen.deleting:
            continue
        for slot, node in slots.items():
            if state.nodes.has(node) and not job.slots.over(slot):
                yield node, requests_of(job, slot)


def contested(**config: object) -> World:
    """`high` took the room of `low`, and the surplus of `wide`; a second node has no room yet."""
    world = filled(**config)
    world.settle()
    world.pass_time(5)
    return world


def ends(world: World, name: str, stage: Stage = Stage.SUCCEEDED) -> None:
    job = world.state.jobs[f"uid-{name}"]
    world.say(k.StageDecided(job.uid, job.version, job.attempt, stage, StageReason.TERMINATED))


@pytest.mark.parametrize("how", ["Succeeded", "Failed", "gone", "deleted with pods", "deleted"])
def test_what_the_beneficiary_doesnt_use_any_more_isnt_counted_twice(how: str) -> None:
    """Its pods end while its victims, that still run, would have kept their room: nothing became free by itself."""
    world = contested()
    high = world.state.jobs["uid-high"]
    uids = list(high.bound.values())
    assert len(uids) == 3
    if how.startswith("deleted"):
        world.job_gone(high)
    for uid in uids if how != "deleted with pods" else ():
        if how in ("Succeeded", "Failed"):
            world.change_pod(uid, phase=how)
        else:
            world.pod_gone(uid)
    world.pass_time(5)
    world.node("n2", cpu=1)
    assert free_ms(world) == by_brute_force(world) == [None]


def test_where_a_victims_surplus_went_instead_is_free_without_the_preemption() -> None:
    """The worker that `wide` gave up is placed again on a new node, whose room its first pod would have left free."""
    world = contested()
    world.pass_time(20)
    world.node("n2", cpu=16, gpus=3)
    world.settle()
    assert any(node == "n2" for node in world.state.jobs["uid-wide"].placements.values())
    [found] = free_ms(world)
    assert found is not None and [found] == by_brute_force(world)


def test_a_victim_that_is_deleted_while_it_waits_would_have_made_room() -> None:
    world = contested()
    ends(world, "wide")
    world.settle()
    world.pass_time(50)
    before = free_ms(world)
    world.job_gone(world.state.jobs["uid-low"])
    assert (before, free_ms(world)) == ([None], by_brute_force(world))
    assert free_ms(world) != [None]


def test_nodes_that_take_no_pods_have_no_room() -> None:
    world = contested()
    world.node("n2", cpu=16, gpus=4, cordoned=True)
    world.node("n3", cpu=16, gpus=4, ready=False)
    assert free_ms(world) == [None]
    world.pass_time(5)
    world.node("n2", cpu=16, gpus=4)
    assert free_ms(world) == by_brute_force(world) != [None]


_ACTIONS = ("job", "end", "deleted", "pod", "gone", "node", "cordon", "settle", "cycle", "time")


def _act(world: World, what: str, number: int) -> None:
    jobs = sorted(world.state.jobs.values(), key=lambda job: job.uid)
    pods = sorted(world.state.pods)
    if what == "job":
        gpu_job(world, f"j{len(world.entries)}", 1 + number % 3, least=1 + number % 2, priority=number % 9)
    elif what == "end" and jobs and not (job := jobs[number % len(jobs)]).ended:
        ends(world, job.seen.name, (Stage.SUCCEEDED, Stage.FAILED)[number % 2])
    elif what == "deleted" and jobs:
        world.job_gone(jobs[number % len(jobs)])
    elif what == "pod" and pods and world.state.pods[pods[number % len(pods)]].phase == "Running":
        world.change_pod(pods[number % len(pods)], phase=("Succeeded", "Failed")[number % 2])
    elif what == "gone" and pods:
        world.pod_gone(pods[number % len(pods)])
    elif what in ("node", "cordon"):
        world.node(f"n{1 + number % 3}", cpu=16, gpus=1 + number % 4, cordoned=what == "cordon")
    elif what == "settle":
        any(not (world.cycle() or world.control() or world.apply()) for _ in range(8))
    elif what == "cycle":
        world.cycle()
    world.pass_time((1, 15)[what == "time"])


@example([("end", 0), ("end", 2), ("settle", 0), ("pod", 0)])
@given(st.lists(st.tuples(st.sampled_from(_ACTIONS), st.integers(0, 11)), min_size=4, max_size=25))
@settings(max_examples=80, print_blob=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_estimate_is_what_a_cycle_says_at_each_point(history: list[Action]) -> None:
    world = contested()
    for what, number in history:
        _act(world, what, number)
    # Only of the first: of later ones, brute force leaves out what jobs before them have reserved, among other things.
    assert free_ms(world)[:1] == by_brute_force(world)[:1]


#: Histories with later preemptions. In the first, a job of priority 8 runs and wants further pods, which it gets before
#: one of priority 7 gets its quorum. In the second, one of priority 9 waits again, with less room than it needs.
_LATER: list[list[Action]] = [
    [("job", 0), ("end", 0), ("settle", 0), ("job", 7), ("job", 8), ("settle", 0), ("end", 10)],
    [("node", 2), ("settle", 0), ("job", 2), ("gone", 0), ("node", 9), ("settle", 0), ("job", 0)],
]


@pytest.mark.parametrize("history", _LATER)
def test_the_estimate_of_later_preemptions_is_what_a_cycle_says(history: list[Action]) -> None:
    world = contested(reservations=0)
    for what, number in history:
        _act(world, what, number)
    found = free_ms(world)
    assert len(found) == 3 and found == by_brute_force(world)


# --- room that the beneficiary may not use ------------------------------------------------------------------


def taken(world: World, *, of_queue: str = "") -> World:
    """`low` runs for ever on the whole node, and `high` takes its room."""
    gpu_job(world, "low", 4, priority=1, of_queue=of_queue)
    world.settle()
    world.pass_time(100)
    gpu_job(world, "high", 4, priority=9, of_queue=of_queue)
    world.settle()
    world.pass_time(5)
    assert [of.taking.job for of in ledger(world).found] == ["default/high"]
    return world


def ledger(world: World) -> PreemptionLedger:
    found = PreemptionLedger(State(), Span(), CycleConfig())
    for entry in world.entries:
        found.feed(entry)
    return found


@pytest.mark.parametrize(
    ("limit", "of", "raised"),
    [
        ("kept", {"guarantee": ((GPU, 4),)}, {"guarantee": ()}),
        ("own", {"capability": ((GPU, 4),)}, {"capability": ((GPU, 8),)}),
        ("own", {"max_running": 1}, {"max_running": 2}),
    ],
)
def test_idle_room_that_a_queue_may_not_use_isnt_free(
    limit: str, of: dict[str, object], raised: dict[str, object]
) -> None:
    """Once the limit is gone, it is."""
    world = with_room_rules()
    world.watch_queues()
    world.node("n2", cpu=16, gpus=4)
    for name in ("own", "kept"):
        world.queue(name, **of if name == limit else {})
    taken(world, of_queue="own")
    world.pass_time(50)
    world.node("n9", cpu=1)
    assert free_ms(world) == [None]
    world.queue(limit, **raised)
    world.pass_time(50)
    world.node("n9", cpu=2)
    assert free_ms(world) != [None]


def test_idle_room_beyond_a_resource_quota_isnt_free() -> None:
    """The quota allows the pods of one of the two jobs, and the victim would still have its own."""
    world = taken(with_room_rules())
    world.watch_quotas()
    world.quota("q", hard={"pods": 7}, used={"pods": 4})
    world.node("n2", cpu=16, gpus=4)
    world.pass_time(5)
    world.node("n9", cpu=1)
    assert free_ms(world) == [None]
    world.quota("q", hard={"pods": 8}, used={"pods": 4})
    world.pass_time(5)
    world.node("n9", cpu=2)
    assert free_ms(world) != [None]


@pytest.mark.parametrize(("priority", "free"), [(8, True), (10, False)])
def test_room_that_is_reserved_for_a_job_before_it_isnt_free(priority: int, free: bool) -> None:
    world = with_room_rules()
    gpu_job(world, "low", 4, priority=1)
    world.settle()
    world.pass_time(100)
    gpu_job(world, "high", 4, priority=9, preemptible=False)
    world.settle()
    world.pass_time(5)
    gpu_job(world, "large", 8, priority=priority)
    world.node("n2", cpu=16, gpus=4)
    world.settle()
    world.pass_time(5)
    world.node("n9", cpu=1)
    assert (free_ms(world) != [None]) == free


@pytest.mark.parametrize("known", [{"expected_s": 120}, {"deadline_s": 120}])
def test_a_victim_whose_end_is_known_would_have_ended_then(known: dict[str, Any]) -> None:
    """Between two entries, and not when it ends in the log, which is later, because it had to begin anew."""
    world = with_room_rules()
    low = gpu_job(world, "low", 4, priority=1, **known)
    world.settle()
    world.pass_time(100)
    gpu_job(world, "high", 4, priority=9)
    world.settle()
    world.pass_time(300)
    world.node("n9", cpu=1)
    [one] = ledger(world).found
    assert one.free_ms is not None and 0 < one.free_ms <= 20_000
    assert one.taking.time_ms + one.free_ms >= world.state.jobs[low.uid].seen.created_ms + 120_000


def test_room_that_was_free_only_for_a_moment_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another job has it soon after, and the last look in vain was just before."""
    monkeypatch.setattr(preemptions, "LOOK_AGAIN_AFTER", 0.5)
    world = taken(with_room_rules())
    gpu_job(world, "other", 4, priority=8)
    world.pass_time(50)
    world.node("n9", cpu=1)
    world.pass_time(0.1)
    world.node("n2", cpu=16, gpus=4)
    since_ms = world.now_ms
    world.pass_time(0.1)
    world.cycle()
    world.pass_time(100)
    world.node("n9", cpu=2)
    [one] = ledger(world).found
    assert one.free_ms == since_ms - one.taking.time_ms


def test_what_another_preemption_of_the_victim_frees_isnt_free_by_itself() -> None:
    """`wide` gives its surplus to `high`, and its quorum to `higher`, which ends before `wide` is back."""
    world = with_room_rules()
    gpu_job(world, "wide", 4, least=2, priority=1)
    world.settle()
    world.pass_time(100)
    gpu_job(world, "high", 2, priority=9)
    world.settle()
    world.pass_time(5)
    gpu_job(world, "higher", 2, priority=10)
    world.settle()
    assert len(ledger(world).found) == 2
    world.pass_time(5)
    ends(world, "higher")
    world.control()
    world.apply()
    world.pass_time(5)
    world.node("n9", cpu=1)
    assert free_ms(world) == [None, None]


def test_room_isnt_free_that_is_only_because_somebody_took_the_victims_place() -> None:
    """Without the preemption, who came to the victim's node would have needed the room: the limit that kept the
    beneficiary waiting was met only because a job has its guarantee there."""
    world = with_room_rules()
    world.watch_queues()
    world.node("n2", cpu=16, gpus=4)
    world.queue("own")
    world.queue("kept", guarantee=((GPU, 2),))
    gpu_job(world, "low", 4, priority=1, of_queue="own")
    world.settle()
    world.pod("other", "n2", cpu=1)
    world.pass_time(100)
    gpu_job(world, "high", 4, priority=9, of_queue="own")
    world.settle()
    assert set(world.state.jobs["uid-high"].placements.values()) == {"n2"}
    world.pass_time(5)
    assert [of.taking.job for of in ledger(world).found] == ["default/high"]
    gpu_job(world, "theirs", 2, priority=5, of_queue="kept")
    world.settle()
    world.pass_time(50)
    world.node("n9", cpu=1)
    assert free_ms(world) == by_brute_force(world) == [None]
