"""How commands name a pod group, and lead from a pod to its group."""

import pytest

from arranger.cli.inputs.reading import namespace_and_name, unknown_job
from arranger.model.pod import GroupKind
from arranger.replay.explain.job_index import JobIndex
from tests.world import World


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("train", (None, "train")),
        ("team/train", ("team", "train")),
        ("podgroup/train", (None, "group:train")),
        ("team/podgroup/train", ("team", "group:train")),
        ("group:train", (None, "group:train")),
        ("podgroup", (None, "podgroup")),
    ],
)
def test_a_name_after_podgroup_is_that_of_a_group(text: str, parts: tuple[str | None, str]) -> None:
    assert namespace_and_name(text) == parts


@pytest.mark.parametrize("kind", GroupKind)
def test_a_pod_leads_to_its_group(kind: GroupKind) -> None:
    world, index = World(), JobIndex()
    world.pod_to_place("p0", group="train", group_kind=kind)
    world.pod_to_place("alone")
    for entry in world.entries:
        index.feed(entry)
    hint = "the pod is placed with its group: arranger explain default/podgroup/train"
    assert unknown_job("pod:p0", index).hint == unknown_job("default/pod:p0", index).hint == hint
    assert "group" not in str(unknown_job("pod:other", index).hint)
