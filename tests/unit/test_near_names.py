"""Names that were probably meant."""

import re

import pytest

from arranger.model.near_names import near_names
from arranger.model.reasons import similar_resource
from tests.servers import REPOSITORY


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [
        ("smal", ["small", "large"], ["small"]),
        ("Robots", ["robots", "vision"], ["robots"]),
        ("quick", ["quickstart", "elastic"], ["quickstart"]),
        ("session", ["vision"], []),
        ("nope", ["node-1", "node-2"], []),
        ("hotfix", ["nightly", "sweep-1"], []),
        ("x" * 100_000, ["x" * 90], ["x" * 90]),
        ("", ["a"], []),
        ("podPolicy", ["cleanPodPolicy", "queue", "schedulerPolicy"], ["schedulerPolicy"]),
        ("policy", ["cleanPodPolicy", "schedulerPolicy", "successPolicy"], ["schedulerPolicy"]),
        ("podPolicy", ["basicPolicy", "jobQueuePolicy"], ["basicPolicy"]),
        ("podPolicy", ["cleanPodPolicy", "queue"], ["cleanPodPolicy"]),
    ],
)
def test_a_near_name_is_one_that_was_probably_meant(name: str, known: list[str], near: list[str]) -> None:
    assert near_names(name, known) == near


def test_a_digit_that_is_read_as_a_letter_is_meant_as_one_where_that_is_asked() -> None:
    assert near_names("r1", ["default", "rl"], digits=True) == ["rl"]
    assert near_names("r1", ["default", "rl"]) == []


@pytest.mark.parametrize("name", ["nvdia.com/gpu", "NVIDIA.com/gpu", "nvidia.com/GPU", "nvidia.com/gpus"])
def test_a_resource_is_meant_whatever_the_case_of_its_letters(name: str) -> None:
    assert similar_resource(name, ["cpu", "memory", "nvidia.com/gpu"]) == "nvidia.com/gpu"


@pytest.mark.parametrize("name", ["amd.com/gpu", "example.com/licence", "google.com/tpu"])
def test_a_resource_of_another_maker_is_not_meant(name: str) -> None:
    assert similar_resource(name, ["cpu", "memory", "nvidia.com/gpu"]) == ""


def test_nothing_else_looks_for_near_names() -> None:
    found = {
        path.relative_to(REPOSITORY).as_posix()
        for path in (REPOSITORY / "arranger").rglob("*.py")
        if re.search(r"\bdifflib\b", path.read_text(encoding="utf-8"))
    }
    assert found == {"arranger/model/near_names.py"}
