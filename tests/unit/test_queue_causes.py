"""`arranger explain` names exactly what keeps a job from its nodes, for ten known causes, and `bisect` names the event.
The logs are folded and their cycles taken as in production."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.model.pod import Requirement
from arranger.model.queue import NamespaceRule, NonPreemptible, QueueState
from arranger.replay.explain.in_queue import KeptBy
from tests.commands import Run, to_file
from tests.unit.replay_worlds import explained, with_room_rules
from tests.world import GIB, World, shape

GPU = "nvidia.com/gpu"
_RL = NamespaceRule(selector=(Requirement("team", "In", ("rl",)),))


class Known(msgspec.Struct):
    """The known cause: what keeps the job, the queue where it does, the offset of the event, and what the page says."""

    kept_by: str
    kept_at: str
    offset: int
    says: tuple[str, ...]


Cause = Callable[[World], Known]


def victim(world: World, gpus: int = 4, **more: object) -> None:
    """The job that waits in the end."""
    world.job("victim", leader=shape(gpus=gpus), of_queue="rl", created=world.now_ms, **more)  # type: ignore[arg-type]


def first(world: World, name: str, gpus: int, of_queue: str = "rl") -> int:
    """An earlier job gets its nodes; returns the offset of that decision."""
    world.job(name, leader=shape(gpus=gpus), of_queue=of_queue, created=world.now_ms)
    events = world.cycle()
    placed = next(number for number, event in enumerate(events) if isinstance(event, k.Placed))
    decided = world.state.offset - len(events) + 1 + placed
    world.settle()
    world.pass_time(1)
    return decided


def end(world: World, name: str) -> None:
    """A job and its pods go."""
    job = world.state.jobs[f"uid-{name}"]
    for uid in list(world.state.pods_of[job.uid]):
        world.pod_gone(uid)
    world.job_gone(job)


def capability(world: World) -> Known:
    """The queue's capability is lowered."""
    first(world, "first", 2)
    victim(world)
    world.queue("rl", parent="lab", capability=((GPU, 5),))
    says = "kept waiting by the capability of queue rl", f"{GPU} 2 used, share 5, capability 5"
    return Known("Capability", "rl", world.state.offset, (*says, f"raise {GPU} of the capability of queue rl to 6"))


def parents_capability(world: World) -> Known:
    """The capability of the queue above is lowered, and another queue below that uses some of it."""
    first(world, "first", 2, "vision")
    victim(world)
    world.queue("lab", capability=((GPU, 5),))
    says = "kept waiting by the capability of queue lab", f"raise {GPU} of the capability of queue lab to 6"
    return Known("Capability", "lab", world.state.offset, says)


def max_running(world: World) -> Known:
    """One job more than the queue's maxRunning would have nodes."""
    first(world, "first", 2)
    victim(world)
    world.queue("rl", parent="lab", max_running=1)
    says = (
        "1 job of at most 1 with nodes",
        "kept waiting by maxRunning of queue rl",
        "raise maxRunning of queue rl to 2",
    )
    return Known("MaxRunning", "rl", world.state.offset, says)


def closed(world: World) -> Known:
    """The queue above is closed."""
    victim(world)
    world.queue("lab", state=QueueState.CLOSED)
    says = "waits for queue rl, which is closed, because lab is", "kept waiting by queue lab, which is closed"
    return Known("Closed", "lab", world.state.offset, (*says, "queue lab: state Open instead of Closed"))


def not_admitted(world: World) -> Known:
    """The namespace loses the label that the queue selects."""
    world.queue("rl", parent="lab", namespaces=_RL)
    world.namespace("default", team="rl")
    victim(world)
    world.namespace("default", team="vision")
    says = "can't use queue rl: its spec.namespaces doesn't include the job's namespace", "the namespaces of queue rl"
    return Known("NotAdmitted", "rl", world.state.offset, (*says, "labels team=rl instead of team=vision"))


def no_queue(world: World) -> Known:
    """The queue is deleted."""
    victim(world)
    world.queue_gone("rl")
    says = "waits for queue rl, which doesn't exist", "kept waiting by its queue, which doesn't exist"
    return Known("NoQueue", "rl", world.state.offset, (*says, "create queue rl again"))


def order(world: World) -> Known:
    """Both jobs fit alone; a cycle gives the nodes to the job of the queue that has been given more weight."""
    first(world, "first", 1)
    first(world, "other", 1, "vision")
    world.job("rival", leader=shape(gpus=4), of_queue="vision", created=world.now_ms + 1)
    victim(world)
    world.queue("vision", parent="lab", weight=9)
    says = "kept waiting by the order: it would fit", "weight 7 of queue rl instead of 1", "queue vision: weight 1 → 9"
    ahead = "vision uses 20% of its share of nvidia.com/gpu, rl uses 33% of its share of nvidia.com/gpu"
    return Known("Order", "", world.state.offset, (*says, ahead))


def overtaken(world: World) -> Known:
    """A job waits for the whole node, and a later one gets a part of it before that is free."""
    first(world, "running", 5)
    victim(world, gpus=8)
    world.cycle()
    world.pass_time(1)
    later = first(world, "later", 1)
    end(world, "running")
    says = (
        "kept waiting by room: a job that was behind it got what it needs",
        f"room for it, although it was behind  1 {GPU} on n1",
    )
    return Known("Overtaken", "", later, says)


def usage(world: World) -> Known:
    """Queue rl used much for a long time. Now it uses nothing, and the job of the queue that uses some has its turn."""
    world.config = msgspec.structs.replace(world.config, half_life_ms=600_000)
    first(world, "steady", 2, "vision")
    first(world, "greedy", 6)
    world.pass_time(1200)
    end(world, "greedy")
    world.wait_for_late_pods()
    world.job("rival", leader=shape(gpus=5), of_queue="vision", created=world.now_ms)
    came = world.state.offset
    victim(world, gpus=5)
    says = "kept waiting by the order: its queue used more before", "when what queue rl used before counts less"
    return Known("Usage", "", came, (*says, "rl uses 0% of its share, 1"))


def room(world: World) -> Known:
    """An earlier job has the room."""
    filling = first(world, "filling", 6, "vision")
    victim(world)
    world.cycle()
    says = "kept waiting by room: no nodes have enough for it", "events before its creation"
    return Known("Room", "", filling, (*says, "when default/filling"))


CAUSES: tuple[Cause, ...] = (
    capability,
    parents_capability,
    max_running,
    closed,
    not_admitted,
    no_queue,
    order,
    overtaken,
    usage,
    room,
)


def scene(cause: Cause) -> tuple[World, Known]:
    """Two queues below lab, a node with 8 GPUs, and the cause, after which another node comes and goes."""
    world = World()
    world.node("n1", cpu=64, gpus=8)
    world.queue("lab")
    world.queue("rl", parent="lab")
    world.queue("vision", parent="lab")
    world.namespace("default")
    known = cause(world)
    world.node("n2", cordoned=True)
    world.node_gone("n2")
    return world, known


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.__name__)
def test_explain_names_what_keeps_a_job_from_its_nodes(
    cause: Cause, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, known = scene(cause)
    log = to_file(world.entries, tmp_path / "run.log")
    waiting = Run(capsys, "explain", "victim", *log, "-o", "json").json["waiting"]
    assert (waiting["in_queue"]["kept_by"], waiting["in_queue"]["kept_at"]) == (known.kept_by, known.kept_at)
    assert waiting["in_queue"]["queue"] == "rl"
    since = [blocker["offset"] for blocker in waiting["blockers"] or waiting["earlier"]]
    assert since == [known.offset]
    page = Run(capsys, "explain", "victim", *log).out
    assert not [text for text in known.says if text not in page], page


# An overtaken job was blocked before already, by the job that left it too little for the later one to matter.
@pytest.mark.parametrize("cause", [one for one in CAUSES if one is not overtaken], ids=lambda cause: cause.__name__)
def test_bisect_names_the_event_since_which_a_queue_keeps_a_job_waiting(
    cause: Cause, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, known = scene(cause)
    log = to_file(world.entries, tmp_path / "run.log")
    found = Run(capsys, "bisect", "--job", "victim", "--blocked", *log, "-o", "json").json
    assert found["found"]["event"]["offset"] == known.offset


def test_of_several_edits_of_a_queue_only_the_one_that_matters_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the first edit the capability was enough too, but that edit didn't change it."""
    world = World()
    world.node("n1", gpus=8)
    world.queue("rl")
    victim(world)
    world.queue("rl", weight=2)
    world.queue("rl", weight=2, capability=((GPU, 3),))
    lowered = world.state.offset
    world.queue("rl", weight=3, capability=((GPU, 3),))
    world.queue("gone")
    world.queue_gone("gone")
    log = to_file(world.entries, tmp_path / "run.log")
    waiting = Run(capsys, "explain", "victim", *log, "-o", "json").json["waiting"]
    assert [(one["offset"], one["text"]) for one in waiting["blockers"]] == [
        (lowered, f"queue rl: capability unset → 3 {GPU}")
    ]
    assert f"queue rl: capability unset instead of 3 {GPU}, as before its edit" in [
        one["text"] for one in waiting["remedies"]
    ]


def test_an_edit_of_the_job_is_told_from_what_was_to_what_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = with_room_rules()
    world.queue("rl")
    world.node("n1", gpus=8)
    victim(world, priority=8)
    victim(world, priority=2, generation=2)
    edited = world.state.offset
    world.job("other", leader=shape(gpus=8), of_queue="rl", priority=5)
    world.settle()
    log = to_file(world.entries, tmp_path / "run.log")
    waiting = Run(capsys, "explain", "victim", *log, "-o", "json").json["waiting"]
    assert (edited, "its spec was edited: priority 8 → 2") in [(of["offset"], of["text"]) for of in waiting["blockers"]]
    assert "priority 8 instead of 2, as before its edit" in [of["text"].partition(";")[0] for of in waiting["remedies"]]


def test_an_edit_that_a_later_one_undid_or_overwrote_is_no_cause() -> None:
    """A queue with a guarantee was created, deleted, and created again, and a capability was lowered twice."""
    world = World()
    world.node("n1", gpus=8)
    world.queue("rl")
    for guarantee in (((GPU, 6),), (), ((GPU, 6),)):
        world.queue("big", guarantee=guarantee)
        created = world.state.offset
        if guarantee == () or world.state.offset < 8:
            world.queue_gone("big")
    victim(world)
    waiting = explained(world.entries, "victim").waiting
    assert waiting is not None
    assert [one.offset for one in (*waiting.earlier, *waiting.blockers)] == [created]
    assert {one.undoes for one in waiting.remedies} - {0} == {created}
    world = World()
    world.node("n1", gpus=8)
    for most in (8, 3, 2):
        world.queue("rl", capability=((GPU, most),))
    victim(world)
    waiting = explained(world.entries, "victim").waiting
    assert waiting is not None and (waiting.earlier, waiting.blockers) == ((), ())
    world = World()
    world.node("n1", gpus=8)
    world.queue("rl")
    for gpus in (8, 9, 10):
        victim(world, gpus)
    edited = world.state.offset
    world.queue("other")
    waiting = explained(world.entries, "victim").waiting
    assert waiting is not None and waiting.blockers == () and edited not in {one.undoes for one in waiting.remedies}


def closed_before(world: World) -> None:
    world.queue("lab", state=QueueState.CLOSED)
    world.queue("rl", parent="lab", state=QueueState.CLOSED)


def never_there(_: World) -> None:
    pass


def below_nothing(world: World) -> None:
    world.queue("rl", parent="lab")


def below_itself(world: World) -> None:
    world.queue("rl", parent="lab")
    world.queue("lab", parent="rl")


def of_others(world: World) -> None:
    world.queue("rl", namespaces=NamespaceRule(names=("vision",)))


def of_other_labels(world: World) -> None:
    world.namespace("default", team="vision")
    world.queue("rl", namespaces=_RL)


def misspelt(world: World) -> None:
    world.queue("r1")


def considering_few(world: World) -> None:
    world.queue("rl", max_waiting=1)
    for name in ("before", "too"):
        world.job(name, leader=shape(gpus=1), of_queue="rl", created=1)


def deserving_little(world: World) -> None:
    """Only jobs that can't be preempted are limited, so the queue has room for others."""
    world.queue("lab", deserved=((GPU, 5),), non_preemptible=NonPreemptible.WITHIN_DESERVED)
    world.queue("rl", parent="lab", deserved=((GPU, 3),), non_preemptible=NonPreemptible.WITHIN_DESERVED)


def keeping_for_others(world: World) -> None:
    world.queue("rl")
    world.queue("robots", guarantee=((GPU, 5),))
    world.queue("vision", guarantee=((GPU, 1),))


@pytest.mark.parametrize(
    "remedy",
    [
        "preemptible true instead of false, which isn't limited by what queue rl deserves",
        f"raise {GPU} of what queue rl deserves to 4",
        "nonPreemptible MayBorrow of queue rl and nonPreemptible MayBorrow of queue lab",
        "when default/first ends",
    ],
)
def test_a_job_beyond_what_its_queue_deserves_is_told_what_would_help(remedy: str) -> None:
    world = World()
    world.node("n1", cpu=64, gpus=16)
    world.watch_queues()
    deserving_little(world)
    world.job("first", leader=shape(gpus=1), of_queue="rl", preemptible=False)
    world.job("another", leader=shape(gpus=4), of_queue="rl")
    world.settle()
    victim(world, 3, preemptible=False)
    world.cycle()
    waiting = explained(world.entries, "victim").waiting
    assert waiting is not None and waiting.in_queue is not None
    assert (waiting.in_queue.kept_by, waiting.in_queue.kept_at) == (KeptBy.NON_PREEMPTIBLE, "rl")
    assert remedy in [one.text for one in waiting.remedies if one.pods]
    assert "when default/another ends" not in [one.text for one in waiting.remedies]


@pytest.mark.parametrize(
    ("before", "remedy"),
    [
        (closed_before, "open queue rl and open queue lab"),
        (never_there, "create queue rl"),
        (misspelt, "create queue rl (did you mean r1?)"),
        (below_nothing, "create queue lab"),
        (below_itself, "queue lab without the parent rl"),
        (of_others, "add default to spec.namespaces.names of queue rl"),
        (of_other_labels, "label namespace default with team=rl"),
        (considering_few, "raise maxWaiting of queue rl to 3"),
        (keeping_for_others, f"give up 2 {GPU} of the guarantee of queue robots, which it doesn't use"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_was_there_before_the_job_can_be_changed(before: Callable[[World], None], remedy: str) -> None:
    world = World()
    world.node("n1", cpu=64, gpus=8)
    world.watch_queues()
    before(world)
    victim(world)
    waiting = explained(world.entries, "victim").waiting
    assert waiting is not None and remedy in [one.text for one in waiting.remedies]
    assert not [one for one in waiting.remedies if one.text == remedy and not one.pods]


@pytest.mark.parametrize(
    ("guaranteed", "remedies"),
    [
        ({"big": 60}, ["give up 56 nvidia.com/gpu of the guarantee of queue big, which it doesn't use"]),
        ({"big": 3, "other": 2}, [f"give up 1 nvidia.com/gpu of the guarantee of queue {of}, which it doesn't use"
                                  for of in ("big", "other")]),
        ({"big": 9, "other": 7}, ["give up: 9 nvidia.com/gpu of the guarantee of queue big, which it doesn't use; "
                                  "3 nvidia.com/gpu of the guarantee of queue other, which it doesn't use"]),
    ],
)  # fmt: skip
def test_of_guarantees_no_more_is_to_be_given_up_than_is_enough(
    guaranteed: dict[str, int], remedies: list[str]
) -> None:
    """Eight GPUs are there, and the job asks for four; guarantees may be above what nodes offer."""
    world = World()
    world.node("n1", cpu=64, gpus=8)
    world.watch_queues()
    for name, amount in guaranteed.items():
        world.queue(name, guarantee=((GPU, amount),))
    world.queue("rl")
    victim(world)
    world.cycle()
    waiting = explained(world.entries, "victim").waiting
    assert waiting is not None
    assert [one.text for one in waiting.remedies if "give up" in one.text] == remedies


def test_a_job_that_cannot_use_its_queue_is_told_which_others_it_may_name_the_one_probably_meant_first() -> None:
    world = World()
    world.node("n1", cpu=64, gpus=8)
    world.watch_queues()
    world.queue("alpha")
    world.queue("shut", state=QueueState.CLOSED)
    world.queue("of-others", namespaces=NamespaceRule(names=("vision",)))
    world.queue("research")
    world.job("shut-out", leader=shape(gpus=4), of_queue="shut", created=world.now_ms)
    world.job("victim", leader=shape(gpus=4), of_queue="reserch", created=world.now_ms)
    waiting = explained(world.entries, "victim").waiting
    assert waiting is not None
    assert [one.text for one in waiting.remedies] == [
        "create queue reserch (did you mean research?)",
        *(f"queue {name} instead of reserch" for name in ("research", "alpha", "default")),
    ]
    waiting = explained(world.entries, "shut-out").waiting
    assert waiting is not None and waiting.remedies[0].text == "open queue shut"
    assert "queue research instead of shut" in [one.text for one in waiting.remedies if one.pods]


def test_a_suspended_job_is_not_tried_in_other_queues() -> None:
    world = World()
    world.node("n1", cpu=64, gpus=8)
    world.watch_queues()
    world.queue("rl")
    world.job("victim", leader=shape(gpus=4), of_queue="rl", suspend=True, created=world.now_ms)
    waiting = explained(world.entries, "victim").waiting
    assert waiting is not None and [one.text for one in waiting.remedies] == ["spec.suspend false"]
    assert waiting.tried == 1


def helped_by(world: World, name: str = "j") -> list[str]:
    """The changes of queues that give a job nodes."""
    waiting = explained(world.entries, name).waiting
    assert waiting is not None
    return [one.text for one in waiting.remedies if one.kind == "queue" and one.pods]


@pytest.mark.parametrize(
    ("guaranteed", "given_up"),
    [
        ({"b": {"cpu": 6000}}, ["2 cpu of the guarantee of queue b"]),
        ({"b": {"memory": 6 * GIB}}, ["2Gi memory of the guarantee of queue b"]),
        ({"b": {"cpu": 3000}, "c": {"cpu": 5000}}, ["4 cpu of the guarantee of queue c"]),
        ({"b": {"cpu": 4000}, "c": {"cpu": 4000}}, ["4 cpu of the guarantee of queue b"]),
        ({"b": {"cpu": 2000}, "c": {"cpu": 2000}}, []),
    ],
)
def test_a_capability_is_offered_with_the_guarantees_that_come_next(
    guaranteed: dict[str, dict[str, int]], given_up: list[str]
) -> None:
    """The raised capability alone gave nobody nodes, and nothing was offered."""
    world = World()
    world.node("n1", cpu=8, memory=8 * GIB)
    world.queue("a", capability=(("cpu", 2000),))
    for name, amounts in guaranteed.items():
        world.queue(name, guarantee=tuple(amounts.items()))
    world.job("j", leader=shape(cpu=4, memory=4 * GIB), of_queue="a")
    world.cycle()
    parts = [f"give up {of}, which it doesn't use" for of in given_up]
    assert helped_by(world) == [" and ".join(["raise cpu of the capability of queue a to 4", *parts])]


def test_guarantees_are_offered_with_the_capability_that_comes_next() -> None:
    world = World()
    world.node("n1", cpu=8)
    world.queue("a", capability=(("cpu", 3000),))
    world.queue("b", guarantee=(("cpu", 7000),))
    world.job("j", leader=shape(cpu=4), of_queue="a")
    world.cycle()
    lowered = "give up 3 cpu of the guarantee of queue b, which it doesn't use"
    assert helped_by(world) == [f"raise cpu of the capability of queue a to 4 and {lowered}"]


def test_a_capability_is_offered_with_the_quota_that_is_short_too() -> None:
    world = World()
    world.node("n1", cpu=8)
    world.quota("q", {"pods": 0})
    world.queue("a", capability=(("cpu", 2000),))
    world.job("j", leader=shape(cpu=4), of_queue="a")
    world.cycle()
    assert helped_by(world) == ["raise pods of quota q by 1 to 1 and raise cpu of the capability of queue a to 4"]
