"""When the room of a preemption became free by itself: the estimate of `arranger preemptions` against brute force.

Brute force makes another cluster for each point: the same nodes, the victims' pods in their places, everything else
that is used, and the beneficiary as its only job. The room is free once a cycle there gives that job its quorum.
"""

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.model.job import Stage
from arranger.model.stages import StageReason
from arranger.projections.jobs import expand, holds, requests_of
from arranger.projections.state import Changes, State
from arranger.replay.ledger.preemptions import PreemptionLedger
from arranger.replay.reading.history import Span, advance
from arranger.scheduling.cycle import take_cycle
from tests.unit.replay_worlds import GPU, filled, gpu_job, with_room_rules
from tests.world import World

Action = tuple[str, int]


def free_ms(world: World) -> list[int | None]:
    ledger = PreemptionLedger(State(), Span())
    for entry in world.entries:
        ledger.feed(entry)
    return [one.free_ms for one in ledger.found]


def by_brute_force(world: World) -> list[int | None]:
    """The same, by a cycle at each entry, until the beneficiary loses the room without having begun."""
    state, preemptions, found = State(), [], {}
    begun: set[str] = set()
    lost: set[int] = set()
    for entry in world.entries:
        before = {uid: dict(job.placements) for uid, job in state.jobs.items()}
        spec_of = {uid: job.spec for uid, job in state.jobs.items()}
        changes = Changes()
        advance(state, entry, changes)
        accepted = {of.offset for of in changes.verdicts if of.accepted}
        said = [one for offset, one in enumerate(entry.batch.events, start=entry.first) if offset in accepted]
        for event in said:
            if isinstance(event, k.StageDecided) and event.stage == Stage.STARTING:
                begun.add(event.job_uid)
            elif isinstance(event, k.StageDecided) and event.job_uid not in begun:
                lost.update(number for number, one in enumerate(preemptions) if one[1].placed.job_uid == event.job_uid)
        for number, (since_ms, event, had, spec) in enumerate(preemptions):
            looks = number not in found and number not in lost and state.time_ms > since_ms
            if looks and _fits(state, event, had, spec):
                found[number] = state.time_ms - since_ms
        for event in said:
            if isinstance(event, k.Preempted):
                preemptions.append((state.time_ms, event, before, spec_of[event.placed.job_uid]))
                begun.discard(event.placed.job_uid)
    return [found.get(number) for number in range(len(preemptions))]


def _fits(state: State, event: k.Preempted, had: dict[str, dict[tuple[int, int], str]], spec: object) -> bool:
    other = World(config=with_room_rules(preemption=None, reservations=0).config)
    nodes = state.nodes
    for row in nodes.by_name().tolist():
        gpus, facts = nodes.amounts(row).get(GPU, (0, 0))[1], nodes.facts[row]
        other.node(nodes.names[row], cpu=16, gpus=gpus, cordoned=facts.cordoned, ready=facts.ready)
    for number, (node, amounts) in enumerate([*_others(state, event), *_stays(state, event, had)]):
        other.pod(f"used-{number}", node, amounts=amounts)
    job = gpu_job(other, "beneficiary", 1)
    other.say(msgspec.structs.replace(job.seen, spec=spec, resource_version="9"))
    events = take_cycle(other.state, other.config, other.now_ms)
    return any(isinstance(one, k.Placed) for one in events)


def _others(state: State, event: k.Preempted) -> Iterator[tuple[str, tuple[tuple[str, int], ...]]]:
    """What is used by all but the beneficiary and the lost pods' slots, and by whole victims wherever they went."""
    whole = {victim.job_uid for victim in event.victims if victim.kind.whole} | {event.placed.job_uid}
    lost = {(victim.job_uid, slot) for victim in event.victims for slot in expand(victim.pods)}

    def aside(uid: str, group: str, index: int) -> bool:
        job = state.jobs.get(uid)
        names = [of.name for of in job.valid_spec.groups] if job is not None else []
        return uid in whole or (group in names and (uid, (names.index(group), index)) in lost)

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
    state: State, event: k.Preempted, had: dict[str, dict[tuple[int, int], str]]
) -> Iterator[tuple[str, tuple[tuple[str, int], ...]]]:
    """The pods that the victims lost, of jobs that haven't ended since, and slots that haven't done their part."""
    for victim in event.victims:
        job = state.jobs.get(victim.job_uid)
        if job is None or job.ended or job.seen.deleting:
            continue
        for slot, node in expand(victim.pods).items():
            if slot in had[victim.job_uid] and state.nodes.has(node) and not job.slots.over(slot):
                yield node, requests_of(job, slot)


def contested() -> World:
    """`high` took the room of `low`, and the surplus of `wide`; a second node has no room yet."""
    world = filled()
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
        gpu_job(world, f"j{len(world.entries)}", 1 + number % 3, least=1 + number % 2, priority=number)
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
    assert free_ms(world) == by_brute_force(world)
