"""Group checks and permits of other packages: who waits for them, for how long, and what is kept meanwhile."""

from collections import Counter
from random import Random

import msgspec
import pytest
from hypothesis import given

from arranger.events import kinds as k
from arranger.events.facts import Objected, Objection, ShortageFacts
from arranger.lifecycle.provisioning import lacks_nodes
from arranger.messages.shortages import shortage_text
from arranger.model.config import CycleConfig
from arranger.model.job import ScheduleState, Stage
from arranger.model.queue import Preemption, Provisioning
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from arranger.replay.ledger.causes import Cause, causes_of
from arranger.replay.what_if.overrides import Overrides
from arranger.scheduling import BUILT_IN, GroupCheck, Hold, Permit, QuorumAsked, policies_with
from arranger.scheduling.cycle import Cycles, take_cycle
from tests.random_worlds import Step, live_through, steps
from tests.world import World, shape

GPU = shape(cpu=1, gpus=1)


class Frozen(GroupCheck):
    """Namespaces that are frozen."""

    name, version = "Frozen", 1

    def refuses(self, asked: QuorumAsked) -> str:
        return "its namespace is frozen" if asked.namespace_labels.get("frozen") == "true" else ""


class Few(GroupCheck):
    """At most three pods at once."""

    name, version = "Few", 1

    def refuses(self, asked: QuorumAsked) -> str:
        return "more than 3 pods at once" if sum(asked.pods.values()) > 3 else ""


class Approval(Permit):
    """Waits for the word `approved` in the job's annotation."""

    name, version = "Approval", 1
    seconds, keep_room = 60, True

    def holds(self, asked: QuorumAsked) -> Hold | None:
        if "approved" in asked.job.seen.permits or asked.job.seen.name.startswith("free"):
            return None
        return Hold("it isn't approved", self.seconds, self.keep_room)


class Roomless(Approval):
    """The same without room."""

    keep_room = False


class Prepared(Permit):
    """Waits until all of its nodes are prepared."""

    name, version = "Prepared", 1

    def holds(self, asked: QuorumAsked) -> Hold | None:
        ready = [node for node, facts in asked.nodes.items() if ("prepared", "true") in facts.labels]
        assert [of.node for of in asked.placed] == [*asked.nodes]
        return Hold("its nodes aren't prepared", 60, True) if len(ready) < len(asked.nodes) else None


def world(*permits: Permit, checks: tuple[GroupCheck, ...] = (), nodes: int = 1, gpus: int = 4) -> World:
    of = World(policies=policies_with(checks=checks, permits=permits))
    for number in range(nodes):
        of.node(f"n{number}", cpu=16, gpus=gpus)
    return of


def waiting(of: World, name: str, workers: int, **spec: object) -> JobRecord:
    return of.job(name, workers=workers, worker=GPU, min_workers=workers, equals=True, **spec)  # type: ignore[arg-type]


def shortage(job: JobRecord) -> ShortageFacts:
    assert job.waits is not None
    return job.waits.shortage


def objection(job: JobRecord) -> Objection:
    found = shortage(job)
    assert isinstance(found, Objected)
    return found.objection


def retaken(of: World) -> bool:
    """Whether each recorded cycle, taken again on the state that it was based on, has the same events."""
    other, cycles = World(policies=of.policies, listed=False), 0
    other.state = type(of.state)()
    for entry in of.entries:
        taken = entry.batch.events[0]
        if isinstance(taken, k.CycleTaken):
            cycles += 1
            policies = of.policies.recorded(taken.config)
            if take_cycle(other.state, taken.config, taken.time_ms, policies=policies) != entry.batch.events:
                return False
            restored = snapshot.restore(snapshot.encode(other.state))
            if take_cycle(restored, taken.config, taken.time_ms, policies=policies) != entry.batch.events:
                return False
        other.fold(entry)
    return cycles > 0


def test_a_group_check_refuses_a_whole_quorum_and_says_why() -> None:
    of = world(checks=(Frozen(),))
    of.namespace("default", frozen="true")
    job = waiting(of, "a", 2)
    of.cycle()
    assert not job.placements
    assert shortage_text(shortage(job)) == "0 of 2 required pods fit; refused by Frozen: its namespace is frozen"
    assert causes_of(of.state, job) == ((Cause.PLUGIN, 1),)
    assert of.cycle() == ()  # nothing is new

    of.namespace("default")
    of.cycle()
    assert len(job.placements) == 2
    assert retaken(of)


def test_a_check_of_one_job_says_nothing_about_its_equals() -> None:
    """Jobs that are alike share results within a cycle, but not the answer of a plugin."""
    of = world(Approval(), checks=(Few(),), nodes=2)
    first, second = waiting(of, "a", 2), waiting(of, "b", 2, permits=("approved",))
    third, large = waiting(of, "c", 2, permits=("approved",)), waiting(of, "d", 4)
    of.cycle()
    assert not first.placements and len(second.placements) == len(third.placements) == 2
    assert objection(large).plugin == "Few"
    assert retaken(of)


def test_a_permit_holds_a_quorum_back_until_the_fact_is_there() -> None:
    of = world(Approval())
    job = waiting(of, "a", 4)
    of.cycle()
    held = objection(job)
    assert (job.stage, job.placements, job.schedule_state) == (Stage.PENDING, {}, ScheduleState.UNSCHEDULED)
    assert (held.plugin, held.until_ms - held.since_ms, [of.node for of in held.pods]) == ("Approval", 60_000, ["n0"])
    assert shortage_text(shortage(job)) == (
        "4 of 4 required pods fit; held back by Approval: it isn't approved; its room is kept meanwhile"
    )
    of.pass_time(30)
    assert of.cycle() == ()

    waiting(of, "a", 4, permits=("approved",))
    assert of.changes.schedulable and job.version == held_version(of, job)
    of.cycle()
    assert (job.stage, set(job.placements.values())) == (Stage.STARTING, {"n0"})
    assert retaken(of)


def held_version(of: World, job: JobRecord) -> int:
    assert job.waits is not None
    return job.waits.based_on


def test_nobody_gets_the_room_that_a_permit_keeps() -> None:
    of = world(Approval())
    held = waiting(of, "a", 3)
    of.cycle()
    later = waiting(of, "free-later", 2, priority=9)
    of.cycle()
    assert not later.placements
    assert shortage(later).reasons[0][0].kind == "Reserved"
    small = waiting(of, "free-small", 1, priority=9)
    of.cycle()
    assert len(small.placements) == 1
    waiting(of, "a", 3, permits=("approved",))
    of.cycle()
    assert len(held.placements) == 3 and not later.placements
    assert retaken(of)


def test_after_its_time_a_held_quorum_waits_on_without_room() -> None:
    of = world(Approval())
    held = waiting(of, "a", 3)
    of.cycle()
    until_ms = objection(held).until_ms
    later = waiting(of, "free-later", 2)
    of.cycle()
    of.now_ms = until_ms - 1
    assert of.cycle() == ()
    of.now_ms = until_ms
    of.cycle()
    assert objection(held).over and objection(held).pods == ()
    assert shortage_text(shortage(held)).endswith("it isn't approved; its time is over, so no room is kept for it")
    of.cycle()
    assert len(later.placements) == 2
    of.cycle()
    assert shortage(held).of_nodes  # now it lacks room like any other
    assert retaken(of)


def test_a_permit_without_room_lets_others_go_first() -> None:
    of = world(Roomless())
    held, other = waiting(of, "a", 3, priority=9), waiting(of, "free", 3)
    of.cycle()
    assert objection(held).pods == () and len(other.placements) == 3
    assert retaken(of)


def test_a_permit_may_ask_for_facts_of_the_chosen_nodes_and_the_quorum_stays_there() -> None:
    of = world(Prepared(), nodes=2)
    job = waiting(of, "a", 2)
    of.cycle()
    (node,) = {one.node for one in objection(job).pods}
    other = next(name for name in ("n0", "n1") if name != node)
    of.node(other, cpu=16, gpus=2, labels={"prepared": "true"})  # it would be the better one now
    of.cycle()
    assert [one.node for one in objection(job).pods] == [node]
    of.node(node, cpu=16, gpus=4, labels={"prepared": "true"})
    of.cycle()
    assert set(job.placements.values()) == {node}
    assert retaken(of)


def test_a_held_quorum_whose_node_closes_is_held_elsewhere_for_the_rest_of_its_time() -> None:
    of = world(Prepared(), nodes=2)
    job = waiting(of, "a", 2)
    of.cycle()
    first = objection(job)
    of.pass_time(20)
    of.node(first.pods[0].node, cpu=16, gpus=4, cordoned=True)
    of.cycle()
    assert objection(job).pods[0].node != first.pods[0].node
    assert (objection(job).since_ms, objection(job).until_ms) == (first.since_ms, first.until_ms)
    of.node_gone(objection(job).pods[0].node)
    of.cycle()
    assert shortage(job).of_nodes
    assert retaken(of)


def test_a_pod_that_leaves_a_held_group_takes_its_room_along() -> None:
    """The pods of a group come and go without an edit of the group."""
    of = world(Approval())
    for name in ("p1", "p2", "p3"):
        group = of.pod_to_place(name, of=GPU, group="g", least=2)
    of.cycle()
    slots = {(one.group, index) for one in objection(group).pods for first, last in one.indices
             for index in range(first, last + 1)}  # fmt: skip
    assert len(slots) == 2
    leaves = next(uid for uid, slot in group.slots.members.items() if slot in slots)
    of.pod_gone(leaves)
    of.cycle()
    now = objection(group)
    assert sum(last - first + 1 for one in now.pods for first, last in one.indices) == 2
    assert group.slots.members.keys() == {"uid-p1", "uid-p2", "uid-p3"} - {leaves}
    assert retaken(of)


def test_a_permit_without_a_time_keeps_nothing_and_says_no_more_than_its_words() -> None:
    class Never(Permit):
        """Never."""

        name, version = "Never", 1

        def holds(self, asked: QuorumAsked) -> Hold | None:
            return Hold("not today", keep_room=True)

    of = world(Never())
    job = waiting(of, "a", 1)
    of.cycle()
    assert shortage_text(shortage(job)) == (
        "1 of 1 required pods fit; held back by Never: not today; no room is kept meanwhile"
    )


def test_an_edited_job_is_held_from_the_beginning() -> None:
    of = world(Approval())
    job = waiting(of, "a", 2)
    of.cycle()
    first = objection(job)
    of.pass_time(10)
    waiting(of, "a", 3, generation=2)
    of.cycle()
    assert objection(job).since_ms == first.since_ms + 10_000
    assert retaken(of)


def test_nobody_gives_room_to_a_quorum_that_is_held_back() -> None:
    of = world(Approval())
    of.config = msgspec.structs.replace(
        of.config, preemption=Preemption(), room_bound_ms=60_000, reservations=1, reservation_refresh_ms=1000
    )
    low = waiting(of, "free-low", 4, priority=1)
    of.settle()
    high = waiting(of, "high", 4, priority=9)
    of.cycle()
    assert len(low.placements) == 4 and not high.placements
    assert (objection(high).plugin, objection(high).pods) == ("Approval", ())
    assert not of.state.reservations
    waiting(of, "high", 4, priority=9, permits=("approved",))
    assert any(isinstance(event, k.Preempted) for event in of.cycle())
    assert of.verdict("Preempted").accepted
    assert retaken(of)


def test_an_autoscaler_is_not_asked_for_nodes_that_are_not_what_is_lacking() -> None:
    of = world(Approval(), checks=(Few(),))
    held, refused = waiting(of, "a", 2), waiting(of, "b", 4)
    of.lifecycle = msgspec.structs.replace(of.lifecycle, provisioning=Provisioning.REQUEST)
    of.cycle()
    assert not lacks_nodes(of.state, held) and not lacks_nodes(of.state, refused)
    assert of.control() == []


def test_single_pods_and_further_pods_are_asked_about_too_but_only_for_their_quorum() -> None:
    of = world(Approval())
    pod = of.pod_to_place("p")
    job = of.job("j", workers=3, worker=GPU, min_workers=1, equals=True, permits=("approved",))
    of.settle()
    assert objection(pod).plugin == "Approval"
    assert len(job.placements) == 3


def test_the_cycles_of_a_process_are_those_of_a_fresh_one() -> None:
    """A skipped cycle, and what is kept between cycles, change nothing."""
    of = world(Approval(), nodes=3)
    cycles = Cycles(of.policies)
    jobs = [waiting(of, name, 3) for name in ("a", "b", "free")]
    for step in range(90):
        of.pass_time(1)
        if step == 20:
            waiting(of, "b", 3, permits=("approved",))
        expected = take_cycle(of.state, of.config, of.now_ms, policies=of.policies)
        assert cycles.take(of.state, of.config, of.now_ms) == expected
        if expected:
            of.say(*expected)
    assert [len(job.placements) for job in jobs] == [0, 3, 3] and objection(jobs[0]).over


def test_without_plugins_a_log_is_as_it_was() -> None:
    of = World()
    of.node("n0", cpu=4)
    waiting(of, "a", 4)
    of.cycle()
    assert of.policies is BUILT_IN and not BUILT_IN.checks and not BUILT_IN.permits
    with_them = policies_with(checks=(Few(),), permits=(Approval(),))
    recorded = with_them.recorded(of.config)
    assert (recorded.checks, recorded.permits) == ((), ())
    later = CycleConfig(versions=with_them.versions())
    assert BUILT_IN.missing(later) == (("Approval", 1), ("Few", 1))


@pytest.mark.parametrize(
    ("words", "seconds", "told"),
    [("two\nlines", -5, "two"), ("x" * 300, 0, "x" * 197 + "..."), ("far", 10**9, "far")],
)
def test_what_a_plugin_says_is_bounded(words: str, seconds: int, told: str) -> None:
    class Odd(Permit):
        """Odd."""

        name, version = "Odd", 1

        def holds(self, asked: QuorumAsked) -> Hold | None:
            return Hold(words, seconds)

    of = world(Odd())
    job = waiting(of, "a", 1)
    of.cycle()
    assert objection(job).words == told
    assert 0 <= objection(job).until_ms - objection(job).since_ms <= 7 * 86_400_000
    assert objection(job).over == (seconds <= 0)


@pytest.mark.parametrize("seed", range(40))
def test_on_random_worlds_nobody_gets_kept_room_or_goes_without_consent(seed: int) -> None:
    chance = Random(seed)
    of = world(Approval(), checks=(Few(),), nodes=chance.randint(1, 4), gpus=chance.randint(1, 5))
    of.config = msgspec.structs.replace(
        of.config, preemption=Preemption(), room_bound_ms=60_000, reservations=2, reservation_refresh_ms=1000
    )
    cycles, allowed = Cycles(of.policies), dict[str, tuple[str, ...]]()
    for _ in range(25):
        of.pass_time(chance.randint(1, 20))
        name, words = f"j{chance.randint(0, 7)}", ("approved",) if chance.random() < 0.5 else ()
        if name not in allowed or allowed[name] != words:
            if name not in allowed:
                size, priority = chance.randint(1, 5), chance.randint(1, 9)
            else:
                spec = of.state.jobs[f"uid-{name}"].valid_spec
                size, priority = spec.min_workers, spec.priority
            waiting(of, name, size, priority=priority, permits=words)
            allowed[name] = words
        before = {uid for uid, job in of.state.jobs.items() if job.placements}
        expected = take_cycle(of.state, of.config, of.now_ms, policies=of.policies)
        assert cycles.take(of.state, of.config, of.now_ms) == expected
        if expected:
            of.say(*expected)
        for uid, job in of.state.jobs.items():
            assert uid in before or not job.placements or "approved" in job.seen.permits
        assert _room_is_kept(of) or of.state.awaiting  # pods that give room count until they have left
        validate(of.state)
        if chance.random() < 0.3:
            of.control()
            of.apply()
    assert retaken(of)


def _room_is_kept(of: World) -> bool:
    """Whether the room that permits keep is free on every node."""
    kept: Counter[str] = Counter()
    for job in of.state.jobs.values():
        found = job.waits.shortage if job.waits is not None else None
        if isinstance(found, Objected) and not job.placements and of.now_ms < found.objection.until_ms:
            kept.update(
                one.node for one in found.objection.pods for first, last in one.indices for _ in range(first, last + 1)
            )
    free = {of.state.nodes.names[row]: int(of.state.nodes.free()[row, of.state.nodes.columns["nvidia.com/gpu"]])
            for row in of.state.nodes.by_name()}  # fmt: skip
    return all(free[node] >= pods for node, pods in kept.items())


def test_another_configuration_keeps_the_recorded_permits_and_checks() -> None:
    installed = policies_with(checks=(Frozen(), Few()), permits=(Approval(),))
    recorded = policies_with(checks=(Few(),), permits=(Approval(),)).versions()
    overrides = Overrides(pod_policy="Gang", filter_order=("NodeSelector", "NodeReady"))
    config, by = overrides.of(CycleConfig(versions=recorded), installed)
    assert [one.name for one in (*by.checks, *by.permits)] == ["Few", "Approval"]
    assert config.versions == recorded and config.filter_order == ("NodeSelector", "NodeReady")
    assert overrides.text == "pod_policy Gang, filter_order NodeSelector,NodeReady"


class Moody(Permit):
    """Holds some jobs and pods back until enough of the cluster is in the pool of their node, some with their room."""

    name, version = "Moody", 1

    def holds(self, asked: QuorumAsked) -> Hold | None:
        priority = asked.job.valid_spec.priority
        pools = {dict(facts.labels).get("pool") for facts in asked.nodes.values()}
        if priority % 3 == 0 or "1" not in pools:
            return None
        return Hold("its nodes are in pool 1", 200 * (priority % 2), keep_room=priority % 2 == 1)


@given(steps(most=30))
def test_in_any_history_cycles_with_permits_are_accepted_and_taken_again_alike(history: list[Step]) -> None:
    of = World(policies=policies_with(checks=(Few(),), permits=(Moody(),)))
    of.config = msgspec.structs.replace(
        of.config, preemption=Preemption(), room_bound_ms=60_000, reservations=1, reservation_refresh_ms=1000
    )
    cycles = Cycles(of.policies)
    for step in history:
        live_through([step], of)
        expected = take_cycle(of.state, of.config, of.now_ms, policies=of.policies)
        assert cycles.take(of.state, of.config, of.now_ms) == expected
        restored = snapshot.restore(snapshot.encode(of.state))
        assert take_cycle(restored, of.config, of.now_ms, policies=of.policies) == expected
        if expected:
            of.say(*expected)
            assert [one.reason for one in of.changes.verdicts if not one.accepted] == []
        validate(of.state)
