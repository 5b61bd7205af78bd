"""Queues in the answers to questions about a log: what keeps a job, what would help, what would be otherwise."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from arranger.cli.rendering.explain_page import ExplanationPrinter
from arranger.events import kinds as k
from arranger.events.codec import encode_batch
from arranger.messages.shortages import shortage_text
from arranger.model.job import DEFAULT_GRACE_S, HANGS_AFTER_MS, Stage
from arranger.model.queue import QueueSpec, QueueState
from arranger.model.quota import LimitKind
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.jobs.records import JobRecord
from arranger.replay.bisect.cycle_conditions import QuorumFits, WouldBePlaced
from arranger.replay.explain.in_queue import InQueue, KeptBy, QueueAmount
from arranger.replay.explain.waiting import Waiting
from arranger.replay.export.pseudonyms import Pseudonyms
from arranger.replay.what_if.hypothesis import queue_gone, queue_seen, supposed
from arranger.replay.what_if.one_cycle import Variation, vary
from arranger.replay.what_if.overrides import Overrides
from arranger.scheduling import in_order
from arranger.scheduling.cycle import take_cycle
from tests.reasons import lacking_quota
from tests.unit.replay_worlds import ROOM, explained, verified
from tests.unit.test_pseudonyms import renamed
from tests.world import World, shape

GPU = "nvidia.com/gpu"


def world(gpus: int = 8) -> World:
    made = World()
    made.node("n1", cpu=256, gpus=gpus)
    return made


def job(there: World, name: str, of_queue: str, gpus: int, **more: Any) -> JobRecord:
    return there.job(name, of_queue=of_queue, leader=shape(gpus=gpus), **more)


def why(there: World, name: str) -> Waiting:
    waiting = explained(there.entries, name).waiting
    assert waiting is not None and waiting.in_queue is not None
    return waiting


def kept_by(there: World, name: str) -> KeptBy | None:
    found = why(there, name).in_queue
    assert found is not None
    return found.kept_by


def short_of_capability() -> World:
    there = world()
    there.queue("all", capability=((GPU, 6),))
    there.queue("rl", parent="all", capability=((GPU, 4),))
    job(there, "first", "rl", 3)
    there.settle()
    job(there, "large", "rl", 4, created=1)
    job(there, "other", "rl", 5, created=2)
    there.cycle()
    return there


def test_explain_says_where_the_job_stands_in_its_queue_and_that_the_capability_keeps_it() -> None:
    waiting = why(short_of_capability(), "large")
    text = f"0 of 1 required pods fit; queue rl has too little {GPU} (needs 4, 1 left of its capability 4)"
    assert waiting.why == text
    assert waiting.in_queue == InQueue("rl", 1, 2, 1, None, (QueueAmount(GPU, 3, 4, 4),), KeptBy.CAPABILITY, "rl")
    found = {remedy.kind: remedy for remedy in waiting.remedies}
    raised = f"raise {GPU} of the capability of queue rl to 7 and raise {GPU} of the capability of queue all to 7"
    assert found["queue"].text == raised or raised in [one.text for one in waiting.remedies]
    assert "when default/first ends" in [one.text for one in waiting.remedies]


def test_explain_shows_what_a_deleted_queue_still_uses() -> None:
    there = world()
    there.queue("rl")
    job(there, "first", "rl", 3)
    there.settle()
    job(there, "second", "rl", 2, created=1)
    there.queue_gone("rl")
    found = why(there, "second").in_queue
    assert found is not None and (found.kept_by, found.running) == (KeptBy.NO_QUEUE, 1)
    assert found.amounts == (QueueAmount(GPU, 3, 3, None),)


def test_explain_knows_max_running_max_waiting_guarantees_and_room() -> None:
    there = world()
    there.queue("few", max_running=1, max_waiting=2)
    there.queue("robots", guarantee=((GPU, 2),))
    job(there, "first", "few", 1)
    there.settle()
    for at, name in enumerate(("second", "third", "fourth"), start=1):
        job(there, name, "few", 1, created=at)
    job(there, "greedy", "default", 6)
    there.job("huge", of_queue="robots", leader=shape(cpu=300))
    there.cycle()
    kept = {name: kept_by(there, name) for name in ("second", "fourth", "greedy", "huge")}
    assert kept == {
        "second": KeptBy.MAX_RUNNING,
        "fourth": KeptBy.MAX_WAITING,
        "greedy": KeptBy.GUARANTEES,
        "huge": KeptBy.INFEASIBLE,
    }
    assert "raise maxRunning of queue few to 2" in [one.text for one in why(there, "second").remedies]
    assert why(there, "fourth").position == why(there, "fourth").queue_length


def test_of_queues_with_equal_ratios_the_one_with_the_more_senior_job_goes_first_and_explain_says_so() -> None:
    there = world(gpus=8)
    for name, created in (("a", 9), ("b", 5)):
        there.queue(name)
        job(there, f"of-{name}", name, 5, created=created)
    there.cycle()
    assert there.state.jobs["uid-of-b"].placements
    there.job("of-c", of_queue="c", leader=shape(gpus=5), created=1)
    there.queue("c")
    there.cycle()
    [ahead] = why(there, "of-a").ahead
    ratios = "c uses 0% of its share, a uses 0% of its share"
    assert ahead.decided_by == f"{ratios} (equal ones go by their first jobs: created 0.008 s earlier)"


def test_between_a_queues_own_jobs_and_a_queue_below_it_the_use_of_the_own_jobs_decides() -> None:
    there = world(gpus=8)
    there.queue("all")
    there.queue("rl", parent="all")
    job(there, "runs", "rl", 2)
    there.settle()
    job(there, "below", "rl", 7, created=1)
    job(there, "own", "all", 7, created=2)
    there.cycle()
    [ahead] = why(there, "below").ahead
    assert ahead.job == "default/own"
    assert ahead.decided_by == f"all's own jobs use 0% of their share, rl uses 50% of its share of {GPU}"


def test_explain_tells_the_order_from_room() -> None:
    there = world(gpus=4)
    there.queue("a", weight=9)
    there.queue("b")
    job(there, "before", "a", 4, created=5)
    job(there, "after", "b", 4, created=1)
    waiting = why(there, "after")
    assert waiting.in_queue is not None and waiting.in_queue.kept_by == KeptBy.ORDER
    [ahead] = waiting.ahead
    assert ahead.decided_by == "a uses 0% of its share, b has no share now" and ahead.gets == "1 pod now"
    assert kept_by(there, "before") is None


def test_explain_names_the_resource_of_which_a_queue_has_nothing() -> None:
    """Jobs of its queue request GPUs that another one deserves, so it comes after that one although it uses nothing."""
    there = world(gpus=4)
    there.queue("borrows")
    there.queue("deserves", deserved=((GPU, 4),))
    there.job("runs", of_queue="deserves", leader=shape(cpu=1, gpus=2))
    there.settle()
    there.job("before", of_queue="deserves", leader=shape(cpu=1, gpus=2), created=5)
    there.job("after", of_queue="borrows", leader=shape(cpu=1, gpus=2), created=1)
    [ahead] = why(there, "after").ahead
    assert ahead.job == "default/before"
    assert ahead.decided_by == (
        f"deserves uses 50% of its share of cpu, borrows has no share of {GPU} now, which jobs request"
    )


def test_explain_names_later_jobs_that_were_placed_first() -> None:
    there = world(gpus=8)
    there.queue("rl")
    there.queue("vision")
    job(there, "early", "rl", 1)
    there.settle()
    job(there, "large", "rl", 8)
    there.cycle()
    job(there, "small", "rl", 2, created=1)
    job(there, "urgent", "rl", 1, created=2, priority=9)
    job(there, "other", "vision", 1, created=3)
    there.cycle()
    passed = {one.job: (one.queue, one.why, one.amounts, one.nodes) for one in why(there, "large").passed_by}
    assert passed == {
        "default/small": ("rl", "room for it, although it was behind", ((GPU, 2),), ("n1",)),
        "default/urgent": ("rl", "priority 9 against 5", ((GPU, 1),), ("n1",)),
        "default/other": ("vision", "the turns of its own queue vision", ((GPU, 1),), ("n1",)),
    }


def test_explain_names_a_job_that_came_back_while_this_one_waits_and_each_once() -> None:
    """It was seen before this job, and lost its nodes: it is behind by its priority, and got nodes anew."""
    there = world(gpus=8)
    there.queue("rl")
    job(there, "first", "rl", 4, priority=8)
    back = job(there, "back", "rl", 4, created=1, priority=3)
    there.settle()
    there.pass_time(1)
    job(there, "large", "rl", 8, created=2, priority=6)
    there.cycle()
    for times in (1, 2):
        there.pass_time(1)
        lost = there.state.jobs[back.uid]
        there.say(k.StageDecided(lost.uid, lost.version, lost.attempt, Stage.RESCHEDULING, StageReason.AS_RECORDED))
        there.settle()
        [one] = why(there, "large").passed_by
        assert (one.job, one.behind, one.times) == ("default/back", True, times)
        assert one.why == "room for it, although it was behind"


@pytest.mark.parametrize(("uid", "behind"), [("uid-a", False), ("uid-z", True)])
def test_who_was_behind_is_what_the_order_of_the_cycle_says(uid: str, behind: bool) -> None:
    """Of jobs of the same second, the lower UID comes first, whichever was seen first."""
    there = world(gpus=8)
    there.queue("rl")
    job(there, "before", "rl", 4)
    there.settle()
    job(there, "large", "rl", 8, created=1)
    job(there, "small", "rl", 2, uid=uid, created=1)
    there.cycle()
    waiting = why(there, "large")
    [passed] = waiting.passed_by
    assert (passed.job, passed.behind) == ("default/small", behind)
    assert passed.why == ("room for it, although it was behind" if behind else "the lower UID, uid-a against uid-large")


def test_who_was_behind_in_the_cycle_is_so_after_the_settings_and_the_priority_changed() -> None:
    there = world(gpus=8)
    there.queue("rl")
    job(there, "before", "rl", 4)
    there.settle()
    large = job(there, "large", "rl", 8, created=1, priority=7)
    job(there, "small", "rl", 2, created=2, priority=6)
    there.cycle()
    spec = msgspec.structs.replace(large.valid_spec, priority=1)
    there.say(msgspec.structs.replace(large.seen, spec=spec, generation=2, resource_version="9"))
    there.queue("rl", queue_policy="DRF")
    there.pass_time(1)
    there.cycle()
    [passed] = why(there, "large").passed_by
    assert (passed.behind, passed.why) == (True, "room for it, although it was behind")


def test_a_job_that_got_nodes_before_this_one_asked_for_any_wasnt_behind() -> None:
    """A pod of its earlier attempt hung when the other was placed."""
    there = world(gpus=16)
    there.queue("rl")
    large = job(there, "large", "rl", 8)
    there.settle()
    there.say(k.StageDecided(large.uid, large.version, large.attempt, Stage.RESCHEDULING, StageReason.AS_RECORDED))
    there.pass_time(DEFAULT_GRACE_S + HANGS_AFTER_MS / 1000)
    job(there, "small", "rl", 2, created=9)
    assert large.uid not in [one.uid for one in in_order(there.state, there.config, time_ms=there.now_ms)]
    there.cycle()
    there.control()
    there.apply()
    there.pass_time(60)
    there.node("n9", cpu=1)
    [passed] = why(there, "large").passed_by
    assert (passed.behind, passed.why) == (False, "this one asked for no nodes then")


def test_explain_compares_priorities_as_they_count_in_their_queues() -> None:
    there = world(gpus=1)
    there.queue("rl", max_priority=5)
    job(there, "older", "rl", 1, created=1, priority=5)
    job(there, "boastful", "rl", 1, created=2, priority=100)
    waiting = why(there, "boastful")
    [ahead] = waiting.ahead
    assert waiting.priority == 5 and ahead.decided_by == "created 0.001 s earlier"


def test_the_page_shows_the_queue_and_who_passed(capsys: pytest.CaptureFixture[str]) -> None:
    there = short_of_capability()
    there.config = msgspec.structs.replace(there.config, guests=True)
    job(there, "small", "rl", 1, created=9)
    there.cycle()
    ExplanationPrinter(explained(there.entries, "large"), again="arranger explain", everything=True).print()
    page = " ".join(capsys.readouterr().out.split())
    text = f"Queue rl: position 1 of 2; {GPU} 4 used, share 4, capability 4; 2 jobs with nodes"
    assert f"{text}; kept waiting by the capability of queue rl" in page
    assert "Other jobs that got nodes since it waits" in page and "room for it, although it was behind" in page


def test_the_page_shows_that_it_waited_for_its_queue(capsys: pytest.CaptureFixture[str]) -> None:
    there = short_of_capability()
    there.pass_time(5)
    there.queue("rl", parent="all", capability=((GPU, 9),))
    there.queue("all")
    there.settle()
    assert there.state.jobs["uid-large"].placements
    ExplanationPrinter(explained(there.entries, "large"), again="arranger explain --at", everything=True).print()
    page = " ".join(capsys.readouterr().out.split())
    assert f"it waited 5.0s for its queue: queue rl has too little {GPU};" in page


def test_what_if_takes_a_changed_queue_into_account() -> None:
    there = short_of_capability()
    seen = there.state.queues["rl"]
    assert seen.spec is not None
    wider = msgspec.structs.replace(seen, spec=msgspec.structs.replace(seen.spec, parent="", capability=()))
    vary(there.state, Variation(Overrides(), (wider,), (), ()), there.now_ms)
    placed = [event for event in take_cycle(there.state, there.config, there.now_ms) if isinstance(event, k.Placed)]
    assert [event.job_uid for event in placed] == ["uid-large"]


def test_what_holds_the_quorum_up_is_asked_again_when_a_queue_changes() -> None:
    there = short_of_capability()
    of = there.state.jobs["uid-large"]
    room = QuorumFits(of.seen, there.config)
    placed = WouldBePlaced(room)
    assert not room.holds(there.state) and not placed.holds(there.state)
    there.queue("rl")
    assert room.holds(there.state) and placed.holds(there.state)


def test_a_supposed_change_of_a_queue_or_a_namespace_leaves_the_state_as_it_is() -> None:
    there = short_of_capability()
    there.namespace("default", team="rl")
    there.namespace("other")
    there.cycle()
    before, seen = there.digest(), there.state.namespaces["default"]
    tree = there.state.queue_tree
    relabelled = msgspec.structs.replace(seen, labels=(("team", "vision"),), queue="rl")
    for change in (
        queue_seen(there.state, "rl", QueueSpec(parent="all")),
        queue_seen(there.state, "new", QueueSpec()),
        queue_gone(there.state, "rl"),
        relabelled,
        k.ObjectGone(k.Watched.NAMESPACE, seen.term, "", "default", seen.uid),
    ):
        assert snapshot.digest(supposed(there.state, [change])) != before
        assert there.digest() == before
        there.state.tree_changed()
        assert there.state.queue_tree == tree


def limits(entries: list[Any]) -> Iterator[tuple[LimitKind, str]]:
    for entry in entries:
        for event in entry.batch.events:
            if isinstance(event, k.Waits) and (lack := lacking_quota(event)) is not None:
                yield lack.limit, shortage_text(event.shortage)


def test_without_names_queues_say_the_same_and_every_cycle_is_taken_again() -> None:
    there = short_of_capability()
    there.config = msgspec.structs.replace(there.config, half_life_ms=60_000)
    there.queue("secret", guarantee=((GPU, 2),), user_fairness=True)
    there.pass_time(30)
    for at, name in enumerate("abc"):
        job(there, name, "secret", 3, user=f"user{at}", created=at)
    there.cycle()
    there.pass_time(30)
    there.settle()
    assert verified(there.entries).different == 0
    told = renamed(there.entries)
    report = verified(told)
    assert report.different == 0 and report.identical == report.cycles > 0
    content = b"".join(encode_batch(entry.batch) for entry in told).replace(b"uid-secret", b"")
    assert b"secret" not in content
    assert "queue queue-0002 has too little" in dict(limits(told))[LimitKind.CAPABILITY]


def test_a_state_without_names_has_the_same_queues() -> None:
    there = short_of_capability()
    there.config = msgspec.structs.replace(there.config, half_life_ms=60_000, guests=True)
    there.cycle()
    there.pass_time(60)
    job(there, "small", "rl", 1, created=9)
    small = there.state.jobs["uid-small"]
    there.cycle()
    there.job_gone(small)
    assert there.state.assumed and there.state.queue_use.decayed
    image, names = snapshot.image_of(snapshot.encode(there.state)), Pseudonyms()
    names.walk(image)
    names.begin()
    renamed_state = snapshot.restore(snapshot.encode_image(names.walk(image)))
    before, after = there.state.queue_use, renamed_state.queue_use
    assert after.own == {"queue-0002": before.own["rl"]}
    assert after.averages(there.now_ms) == {"queue-0002": before.averages(there.now_ms)["rl"]}


def test_another_queue_in_which_a_job_further_back_would_start_is_named_before_what_ends_others() -> None:
    world, one = World(), shape(gpus=1)
    world.node("n1", gpus=4)
    world.queue("default", capability=((GPU, 3),))
    world.queue("other")
    world.queue("closed", state=QueueState.CLOSED)
    world.job("runs", leader=one, workers=2, worker=one)
    world.settle()
    world.job("first", leader=shape(gpus=2), priority=6)
    world.job("back", leader=one)
    world.cycle()
    waiting = explained(world.entries, "back").waiting
    assert waiting is not None
    texts = [one.text for one in waiting.remedies]
    assert "queue other instead of default" in texts and "queue closed instead of default" not in texts
    ending = [number for number, remedy in enumerate(waiting.remedies) if remedy.kind == "capacity" or remedy.room_from]
    assert all(texts.index("queue other instead of default") < number for number in ending)


def lowered(gpus: int, **above: Any) -> World:
    """`low` has 4 GPUs of a queue whose capability is then lowered to 2; `high` needs 3. A queue that has more than its
    capability takes no room."""
    there = World(config=ROOM)
    there.node("n1", cpu=16, gpus=gpus)
    if above:
        there.queue("all", **above)
    there.queue("rl", parent="all" if above else "", capability=((GPU, 8),))
    there.job("low", leader=shape(gpus=4), of_queue="rl", priority=1, created=there.now_ms)
    there.settle()
    there.queue("rl", parent="all" if above else "", capability=((GPU, 2),))
    there.job("high", leader=shape(gpus=3), of_queue="rl", priority=9, created=there.now_ms)
    there.cycle()
    return there


def raises(there: World) -> list[str]:
    return [one.text for one in why(there, "high").remedies if one.text.startswith("raise")]


def test_a_limit_is_raised_no_further_than_the_job_needs_once_others_have_given_it_room() -> None:
    [least] = raises(lowered(4))
    assert least.startswith(f"raise {GPU} of the capability of queue rl to 4; it would take room from default/low ")


def test_a_limit_that_takes_room_from_nobody_is_told_beside_the_least_one() -> None:
    whole, least = raises(lowered(8))
    assert whole == f"raise {GPU} of the capability of queue rl to 7"
    assert least.startswith(f"raise {GPU} of the capability of queue rl to 4; it would take room from default/low ")


def test_a_limit_above_is_not_raised_if_the_room_that_others_give_is_enough_there() -> None:
    [least] = raises(lowered(4, capability=((GPU, 5),)))
    assert least.startswith(f"raise {GPU} of the capability of queue rl to 4; it would take room from default/low ")


# --- a limit for which several wait ----------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["capability", "maxRunning", "above"])
@pytest.mark.parametrize("never", [False, True])
def test_the_second_in_line_is_told_to_raise_the_limit_for_the_job_ahead_too(limit: str, never: bool) -> None:
    """As a quota is. A job ahead that could not start then doesn't count."""
    world = World()
    for number in range(4):
        world.node(f"n{number}", cpu=64, gpus=8)
    rules = {"max_running": 1} if limit == "maxRunning" else {"capability": ((GPU, 10),)}
    world.queue("r", **({"parent": "all"} if limit == "above" else rules))
    if limit == "above":
        world.queue("all", **rules)
    world.job("run1", leader=shape(gpus=8), of_queue="r")
    world.settle()
    if never:
        world.job("never", leader=shape(gpus=9), of_queue="r", created=1)
    world.job("ahead", leader=shape(gpus=4), of_queue="r", created=2)
    world.job("mine", leader=shape(gpus=4), of_queue="r", created=3)
    world.cycle()
    waiting = explained(world.entries, "mine").waiting
    assert waiting is not None
    told = [one.text for one in waiting.remedies if one.text.startswith("raise ")]
    what = "maxRunning of queue r to 3" if limit == "maxRunning" else f"{GPU} of the capability of queue r to 16"
    what = what.replace("queue r ", "queue all ") if limit == "above" else what
    assert told == [f"raise {what}, for a job ahead of it too"]
