"""Names of resources are users' to make up: what no node has costs what it takes to name it, and waits."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from arranger.messages.shortages import shortage_text
from arranger.model.job import ScheduleState
from arranger.model.node import NodeFacts
from arranger.model.pod import PodShape
from arranger.model.reasons import Reason, ReasonKind, absent
from arranger.projections import snapshot
from arranger.projections.cluster.nodes import NodeTable
from arranger.projections.verdicts.judging import lacking
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.filters.nodes import Filters
from tests.unit.replay_worlds import explained
from tests.world import World, shape


def asking_for(*names: str, cpu: int = 1) -> PodShape:
    """One core and one of each of these."""
    return PodShape(tuple(sorted([("cpu", cpu * 1000), *((name, 1) for name in names)])))


def test_what_waiting_jobs_ask_for_makes_no_row_wider() -> None:
    world = World()
    world.node("n1")
    wide = world.state.nodes.used.shape[1]
    for number in range(50):
        names = (f"example.com/{number}-{each}" for each in range(20))
        workers = ("actors", 2, asking_for(f"example.com/{number}", cpu=0))
        world.job(f"j{number}", leader=asking_for(*names) if number % 2 else None, workers=[workers])
    assert len(world.cycle()) > 50
    world.settle()
    assert world.state.nodes.used.shape[1] == wide == len(world.state.nodes.columns)
    assert world.state.jobs["uid-j0"].placements, "its leader asks for a core only"


def test_what_pods_on_a_node_ask_for_makes_no_row_wider_and_is_counted_all_the_same() -> None:
    world = World()
    world.node("n1")
    wide = world.state.nodes.used.shape[1]
    names = [f"example.com/{number:03}" for number in range(300)]
    world.pod("many", "n1", amounts=tuple((name, 2) for name in names))
    world.pod("one", "n1", amounts=((names[7], 3),))
    nodes, row = world.state.nodes, world.state.nodes.rows["n1"]
    assert nodes.used.shape[1] == wide
    assert [nodes.amounts(row)[name] for name in names[6:9]] == [(2, 0), (5, 0), (2, 0)]
    content = snapshot.encode(world.state)
    assert snapshot.encode(snapshot.restore(content)) == content
    for pod in ("many", "one"):
        world.pod_gone(f"uid-{pod}")
    assert not nodes.elsewhere(row)


def test_what_is_held_of_a_resource_counts_from_when_a_node_has_it() -> None:
    world = World()
    world.node("n1")
    world.pod("early", "n1", amounts=(("a.example/x", 1), ("b.example/y", 3)))
    world.node("n1", **{"a.example/x": 2})
    nodes = world.state.nodes
    assert nodes.amounts(nodes.rows["n1"])["a.example/x"] == (1, 2)
    job = world.job("j", leader=asking_for("a.example/x"), workers=1, min_workers=1)
    world.cycle()
    assert not job.placements, "there is room for one of the two"
    world.pod_gone("uid-early")
    world.cycle()
    assert len(job.placements) == 2
    assert not nodes.elsewhere(nodes.rows["n1"])


def test_the_reason_names_the_first_of_the_scarcest() -> None:
    world = World()
    world.node("n1", **{"b.example/has": 1})
    world.node("n2", cordoned=True)
    filters = Filters(ClusterView(world.state.nodes))
    asked = asking_for("c.example/z", "b.example/has", "a.example/x", cpu=1000)
    assert filters.reasons(asked) == ((Reason(ReasonKind.CORDONED), 1), (absent("a.example/x", 1, ""), 1))
    assert filters.refusal(asked, 0) == absent("a.example/x", 1, "")
    assert filters.refusal(asking_for("b.example/has", "c.example/z"), 0) == absent("c.example/z", 1, "")


def test_a_job_that_asks_for_what_no_node_has_is_told_so_until_a_node_has_it() -> None:
    world = World()
    world.node("n1")
    job = world.job("j", leader=asking_for("example.com/tpu"))
    world.cycle()
    assert job.waits is not None
    text = shortage_text(job.waits.shortage)
    assert "even an empty cluster of these nodes" in text and "1 without example.com/tpu, which no node has" in text
    world.node("n2", **{"example.com/tpu": 1})
    world.cycle()
    assert (job.placements, job.schedule_state) == ({(0, 0): "n2"}, ScheduleState.SUCCEED)


def test_a_decision_for_room_that_no_node_has_is_rejected_with_its_name() -> None:
    world = World()
    world.node("n1")
    job = world.job("j", leader=asking_for("b.example/y", "a.example/x"))
    assert lacking(world.state.nodes, job, {(0, 0): "n1"}) == "node n1 lacks a.example/x"
    assert lacking(world.state.nodes, job, {(0, 0): "n2"}) == "node n2 is gone"


def test_a_pod_that_holds_what_its_node_has_lost_stands_on_an_overbooked_node() -> None:
    world = World()
    world.node("n1")
    asked = asking_for("example.com/x").requests
    assert not world.state.nodes.overbooked("n1", asked)
    world.pod("p", "n1", amounts=asked)
    assert world.state.nodes.overbooked("n1", asked)
    assert not world.state.nodes.overbooked("n1", asking_for("example.com/other").requests)
    assert not world.state.nodes.overbooked("n1", shape(cpu=1).requests)


def test_explain_names_everything_that_no_node_has() -> None:
    world = World()
    world.node("n1", cpu=4)
    world.job("j", leader=asking_for("c.example/z", "a.example/x", cpu=6))
    world.cycle()
    found = explained(world.entries, "j").waiting
    assert found is not None and found.shortfall is not None and found.shortfall.closest is not None
    assert found.shortfall.closest.lacks == (("cpu", 6000, 4000), ("a.example/x", 1, 0), ("c.example/z", 1, 0))
    assert found.shortfall.resources == ("cpu", "a.example/x", "c.example/z")


def _explained(world: World) -> tuple[str, list[str]]:
    """Of job `j`: what the closest node lacks, and what would help."""
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None and waiting.shortfall is not None and waiting.shortfall.closest is not None
    return waiting.shortfall.closest.text, [remedy.text for remedy in waiting.remedies]


def test_a_misspelt_resource_is_told_with_the_one_that_was_probably_meant() -> None:
    world = World()
    world.node("n1", gpus=4)
    world.job("j", leader=shape(), workers=2, worker=asking_for("nvidia.com/gpus"), min_workers=2)
    meant = "actors asking for nvidia.com/gpu instead of nvidia.com/gpus, which no node has"
    closest, helps = _explained(world)
    unknown = "1 nvidia.com/gpus, which no node has (did you mean nvidia.com/gpu?)"
    assert closest.startswith(f"would take it with {unknown}") and helps[0] == meant


def test_where_the_meant_resource_is_used_up_nodes_with_it_are_asked_for() -> None:
    world = World()
    world.node("n1", gpus=1)
    world.pod("stranger", "n1", gpus=1)
    world.job("j", leader=asking_for("nvidia.com/gpus"), workers=1, worker=asking_for("nvidia.com/gpus"), min_workers=1)
    meant = "learner and actors asking for nvidia.com/gpu instead of nvidia.com/gpus, which no node has"
    assert f"{meant}, and 2 more nodes like n1" in _explained(world)[1]
    assert not [text for text in _explained(world)[1] if "with 1 nvidia.com/gpus" in text]


def test_a_job_whose_requests_cannot_change_any_more_is_told_the_name_that_was_probably_meant() -> None:
    world = World()
    world.node("n1", gpus=4)
    world.job("j", leader=shape(), workers=2, worker=asking_for("nvidia.com/gpus"), min_workers=0)
    world.settle()
    closest, helps = _explained(world)
    unknown = "with 1 nvidia.com/gpus, which no node has (did you mean nvidia.com/gpu?)"
    assert closest == f"would take it {unknown}" and helps == [f"one more node like n1 {unknown}"]


def test_a_job_that_no_change_helps_is_told_the_name_that_was_probably_meant() -> None:
    world = World()
    world.node("n1", gpus=4)
    world.watch_queues()
    world.queue("rl", capability=(("nvidia.com/gpu", 0),))
    world.job("j", leader=asking_for("nvidia.com/gpus"), of_queue="rl")
    world.cycle()
    unknown = "1 nvidia.com/gpus, which no node has (did you mean nvidia.com/gpu?)"
    assert _explained(world) == (f"would take it with {unknown}", [])


def test_where_no_name_is_similar_the_extended_resources_of_the_nodes_are_told() -> None:
    world = World()
    world.node("n1", gpus=4, **{"example.org/nic": 1})
    world.job("j", leader=asking_for("example.com/tpu"))
    there = "the nodes have example.org/nic and nvidia.com/gpu"
    node = "one more node like n1 with 1 example.com/tpu"
    assert _explained(world)[1] == [f"{node}, which no node has ({there})"]
    world = World()
    world.node("n1")
    world.job("j", leader=asking_for("example.com/tpu"))
    assert _explained(world)[1] == [f"{node}, which no node has (the nodes have no extended resources)"]


_NAMES = st.sampled_from(("cpu", "memory", "a.example/x", "b.example/y", "c.example/z"))
_AMOUNTS = st.dictionaries(_NAMES, st.integers(0, 3), max_size=4).map(lambda found: tuple(sorted(found.items())))
_NODES = st.sampled_from(("n1", "n2", "n3"))
_STEPS = st.lists(
    st.tuples(st.sampled_from(("see", "forget", "hold", "hold all", "release", "copy")), _NODES, _AMOUNTS), max_size=25
)


@given(_STEPS)
def test_amounts_are_those_of_a_plain_count(steps: list[tuple[str, str, tuple[tuple[str, int], ...]]]) -> None:
    nodes = NodeTable()
    held: list[tuple[str, tuple[tuple[str, int], ...]]] = []
    for what, name, amounts in steps:
        if what == "see":
            nodes.see(name, "u", "1", NodeFacts(amounts, ready=True, cordoned=False), time_ms=1)
        elif what == "forget":
            nodes.forget(name, "u", time_ms=1)
        elif what == "release" and held:
            nodes.release(*held.pop())
        elif what == "copy":
            nodes = nodes.copy()
        elif what.startswith("hold"):
            more = [(name, amounts)] * (1 if what == "hold" else 2)
            held += more
            nodes.hold_all(Counter(more)) if what == "hold all" else nodes.hold(name, amounts)
        for node, row in nodes.rows.items():
            assert nodes.amounts(row) == _plainly(node, dict(nodes.facts[row].allocatable), held)
    assert (nodes.used[:, nodes.columns[""]] == 0).all() and (nodes.allocatable[:, nodes.columns[""]] == 0).all()


def _plainly(
    node: str, there: dict[str, int], held: list[tuple[str, tuple[tuple[str, int], ...]]]
) -> dict[str, tuple[int, int]]:
    used: dict[str, int] = {}
    for name, amounts in held:
        for resource, amount in (*amounts, ("pods", 1)) if name == node else ():
            used[resource] = used.get(resource, 0) + amount
    both = {name: (used.get(name, 0), there.get(name, 0)) for name in sorted(used.keys() | there.keys())}
    return {name: pair for name, pair in both.items() if any(pair)}
