"""The tree of queues: each queue's way to the root, and what is wrong with it."""

import random

from hypothesis import given
from hypothesis import strategies as st

from arranger.events.kinds import QueueSeen
from arranger.model.faults import Fault, FaultKind
from arranger.model.queue import DEFAULT_SPEC, MAX_DEPTH, QueueSpec
from arranger.projections.queues.tree import QueueProblem, QueueProblemKind, queue_tree

GPU = "nvidia.com/gpu"
K = QueueProblemKind


def queues(**parents: str) -> dict[str, QueueSeen]:
    """Queues by name, with these parents."""
    return {name: seen(name, QueueSpec(parent)) for name, parent in parents.items()}


def seen(name: str, spec: QueueSpec | None) -> QueueSeen:
    faults = () if spec is not None else (Fault("spec.weight", FaultKind.WRONG_TYPE),)
    return QueueSeen(1, name, f"uid-{name}", "1", 1, spec, faults, "")


def test_the_queue_default_exists_without_being_created() -> None:
    tree = queue_tree({})
    assert tree.specs == {"default": DEFAULT_SPEC} and tree.paths == {"default": ("default",)}
    created = queue_tree({"default": seen("default", QueueSpec("all", weight=3)), **queues(all="")})
    assert created.specs["default"].weight == 3 and created.paths["default"] == ("default", "all")


def test_a_path_begins_with_the_queue_and_ends_below_the_root() -> None:
    tree = queue_tree(queues(all="", rl="all", actors="rl", vision="all"))
    assert tree.paths["actors"] == ("actors", "rl", "all")
    assert tree.children == {"": ("all", "default"), "all": ("rl", "vision"), "rl": ("actors",)}
    assert tree.problems == {}


def test_an_unknown_parent_is_a_problem_of_all_queues_below_it() -> None:
    tree = queue_tree(queues(rl="all", actors="rl", other=""))
    assert tree.problems == {name: QueueProblem(K.UNKNOWN_PARENT, "rl", "all") for name in ("actors", "rl")}
    assert tree.paths.keys() == {"default", "other"}


def test_a_cycle_is_a_problem_of_its_queues_and_of_those_below_them() -> None:
    tree = queue_tree(queues(a="below", b="c", c="d", d="b", below="d"))
    assert tree.problems == {name: QueueProblem(K.CYCLE, "b", "c") for name in ("a", "b", "below", "c", "d")}


def test_an_invalid_queue_is_a_problem_of_those_below_it() -> None:
    tree = queue_tree({"bad": seen("bad", None), **queues(below="bad")})
    assert tree.problems == {name: QueueProblem(K.INVALID, "bad") for name in ("bad", "below")}
    assert "bad" not in tree.specs


def test_eight_queues_may_be_above_each_other_and_no_more() -> None:
    chain = {f"q{depth}": f"q{depth - 1}" if depth > 1 else "" for depth in range(1, 11)}
    tree = queue_tree(queues(**chain))
    assert len(tree.paths["q8"]) == MAX_DEPTH
    assert tree.problems == {
        "q10": QueueProblem(K.TOO_DEEP, "q10", "q9", 10),
        "q9": QueueProblem(K.TOO_DEEP, "q9", "q8", 9),
    }


def test_amounts_above_the_parents_are_a_problem_that_blocks_nothing() -> None:
    parent = QueueSpec(guarantee=(("cpu", 1000),), deserved=((GPU, 4),), capability=((GPU, 8), ("cpu", 9000)))
    found = {
        "fits": QueueSpec("all", deserved=((GPU, 4), ("memory", 1)), capability=((GPU, 8),)),
        "guarantee": QueueSpec("all", guarantee=(("cpu", 1001), (GPU, 9))),
        "guaranteed-gpus": QueueSpec("all", guarantee=((GPU, 9),)),
        "deserved": QueueSpec("all", deserved=((GPU, 5),)),
        "capability": QueueSpec("all", capability=((GPU, 9),)),
    }
    tree = queue_tree({name: seen(name, spec) for name, spec in {"all": parent, **found}.items()})
    above = {
        "guarantee": ("guarantee", "cpu", 1001, 1000),
        "guaranteed-gpus": ("guarantee", GPU, 9, 8),
        "deserved": ("deserved", GPU, 5, 4),
        "capability": ("capability", GPU, 9, 8),
    }
    assert tree.problems == {name: QueueProblem(K.ABOVE_PARENT, name, "all", 0, *of) for name, of in above.items()}
    assert not any(problem.blocks for problem in tree.problems.values())
    assert tree.paths.keys() == {"all", "default", *found}


NAMES = tuple("abcdefghij")
PARENTS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(("", "missing", *NAMES)))


@given(PARENTS, st.randoms(use_true_random=False))
def test_every_queue_has_either_a_path_or_a_problem_whatever_the_parents(
    parents: dict[str, str], chance: random.Random
) -> None:
    given_queues = queues(**parents)
    tree = queue_tree(given_queues)
    assert not tree.paths.keys() & tree.problems.keys()
    assert tree.paths.keys() | tree.problems.keys() == {"default", *parents}
    for name, path in tree.paths.items():
        assert path[0] == name and len(path) <= MAX_DEPTH and len(set(path)) == len(path)
        assert [tree.specs[each].parent for each in path] == [*path[1:], ""]
    order = list(given_queues)
    chance.shuffle(order)
    again = queue_tree({name: given_queues[name] for name in order})
    assert (again, [*again.paths]) == (tree, [*tree.paths])


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 12)), min_size=1, max_size=7))
def test_guarantees_below_a_queue_are_together_at_most_what_it_states(drawn: list[tuple[int, int | None]]) -> None:
    """What a queue is guaranteed is kept from all others: it can't be more than the one above it was granted."""
    stated = {f"q{number}": amount for number, (_, amount) in enumerate(drawn)}
    parents = {f"q{number}": f"q{parent}" if parent < number else "" for number, (parent, _) in enumerate(drawn)}
    tree = queue_tree(
        {
            name: seen(name, QueueSpec(parents[name], guarantee=((GPU, amount),) if amount is not None else ()))
            for name, amount in stated.items()
        }
    )

    def kept(name: str) -> int:
        below = sum(map(kept, tree.children.get(name, ())))
        return dict(tree.specs[name].guarantee).get(GPU, below)

    for name, amount in stated.items():
        below = sum(map(kept, tree.children.get(name, ())))
        assert below <= kept(name), "nobody below has what isn't kept for this one"
        if amount is not None:
            assert kept(name) <= amount
            ways = [of for of in tree.paths[name][1:] if stated[of] is not None]
            assert kept(name) == amount or ways, "nobody above states anything"


def test_guarantees_above_the_parents_are_cut_in_proportion_and_the_queue_is_told() -> None:
    stated = (("p", "", 6), ("c", "p", 8), ("d", "p", 4), ("e", "c", 8), ("x", "", None), ("y", "x", 5))
    tree = queue_tree(
        {
            name: seen(name, QueueSpec(parent, guarantee=((GPU, amount),) if amount is not None else ()))
            for name, parent, amount in stated
        }
    )
    kept = {name: dict(tree.specs[name].guarantee).get(GPU) for name, _, _ in stated}
    assert kept == {"p": 6, "c": 4, "d": 2, "e": 4, "x": None, "y": 5}
    cut = QueueProblem(K.GUARANTEE_CUT, "d", "p", 0, "guarantee", GPU, 4, 2)
    assert (tree.problems["c"].kind, tree.problems["d"]) == (K.ABOVE_PARENT, cut)
