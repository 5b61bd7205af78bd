"""An observation that shows nothing new of a pod beyond its slot takes a short way through the fold, with the same
result as the whole way."""

from typing import Any

import pytest

from arranger.model.pod import ContainerEnd, HostPort, Phase, PodOwner, PodTerm, PodTimes, PodTraits
from arranger.projections import fold, snapshot
from arranger.projections.consistency import validate
from tests.world import World, shape

CHANGES: list[dict[str, Any]] = [
    {},
    {"name": "another"},
    {"namespace": "another"},
    {"node": "n1"},
    {"node": ""},
    *({"phase": phase} for phase in Phase),
    {"requests": (("cpu", 1),)},
    {"owner": None},
    {"owner": PodOwner("uid-job", 0, "workers", False, 7)},
    {"owner": PodOwner("uid-unknown", 0, "workers", False, 0)},
    {"ready": False},
    {"deleting": True},
    {"ip": "10.0.0.9"},
    {"restarts": 1, "ended": ContainerEnd("main", 1)},
    {"waiting": "ImagePullBackOff"},
    {"traits": PodTraits(labels=(("app", "web"),))},
    {"traits": PodTraits(host_ports=(HostPort(80),))},
    {"traits": PodTraits(anti_affinity=(PodTerm("kubernetes.io/hostname", ()),))},
    {"checkpoint_ms": 5},
    {"times": PodTimes(started_ms=5)},
]


def folded(which: str, changes: list[dict[str, Any]]) -> tuple[bytes, object, int]:
    """What a job's pod, or another one, leaves in the state and tells of changes after observations with these."""
    world = World()
    for number in range(2):
        world.node(f"n{number}", cpu=64)
    job = world.job("job", workers=2, worker=shape(cpu=1))
    world.settle()
    world.pod("other", "n0", cpu=1)
    uid = next(iter(world.state.pods_of[job.uid])) if which == "own" else "uid-other"
    assert uid in world.state.pods
    told = []
    for changed in changes:
        world.change_pod(uid, **changed)
        told.append((list(world.changes.jobs), sorted(world.changes.nodes), world.changes.schedulable))
    validate(world.state)
    return snapshot.encode(world.state), told, world.state.scheduling_changes


@pytest.mark.parametrize("which", ["own", "other"])
@pytest.mark.parametrize("changed", CHANGES, ids=str)
def test_the_short_way_of_an_observation_has_the_result_of_the_whole_way(
    which: str, changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    back: dict[str, Any] = {"ready": True, "deleting": False}
    short = folded(which, [changed, changed, back, changed])
    monkeypatch.setattr(fold, "_goes_on", lambda old, pod: False)
    assert folded(which, [changed, changed, back, changed]) == short
