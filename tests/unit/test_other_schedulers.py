"""A second scheduler that places pods which name Arranger is noticed by what it does, and only then."""

import msgspec
import pytest

from arranger.cli.rendering.problem_words import _WORDS
from arranger.kube.cluster import PODS
from arranger.model.pod import GroupKind
from arranger.workers.members.problems import MemberProblem, ProblemKind
from arranger.workers.watching import other_schedulers
from arranger.workers.watching.other_schedulers import taken_by_others
from tests.unit.test_watcher import POD, Scene, watching
from tests.world import World, shape


def taken(world: World, node: str, uid: str = "") -> bool:
    """Whether the observation that the only pod, or one of this UID, is on a node says that others bound it."""
    (pod,) = world.state.pods.values()
    seen = msgspec.structs.replace(pod, node=node, uid=uid or pod.uid)
    return bool(taken_by_others([seen], world.state))


@pytest.mark.parametrize("asked", [{}, {"group": "train", "group_kind": GroupKind.LABELS, "least": 1}])
def test_a_pod_on_a_node_that_arranger_didnt_decide_was_placed_by_another(asked: dict[str, object]) -> None:
    world = World()
    world.node("n1", cpu=4)
    world.node("n2", cpu=1)
    job = world.pod_to_place("web", of=shape(cpu=2), **asked)  # type: ignore[arg-type]
    assert taken(world, "n2"), "nothing is decided yet"
    world.cycle()
    assert [*job.placements.values()] == ["n1"]
    assert not taken(world, "n1") and taken(world, "n2")
    assert not taken(world, "n2", uid="another"), "it had its node when it was seen first, as where a log begins late"
    world.pod_to_place("web", "n1", of=shape(cpu=2), **asked)  # type: ignore[arg-type]
    assert not taken(world, "n1")


async def test_the_watcher_tells_of_another_scheduler_until_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async with watching() as scene:
        for name in ("web", "plain"):
            spec = {**POD["spec"], "schedulerName": "arranger" if name == "web" else "default-scheduler"}
            await scene.cluster.create(PODS, "default", {"metadata": {"name": name}, "spec": spec})
        await scene.until(lambda: scene.names() == ["plain", "web"])
        assert await _problems(scene, "plain") == ()
        (told,) = await _problems(scene, "web")
        assert (told.kind, told.subject, told.cause) == (ProblemKind.OTHER_SCHEDULER, "arranger", "last: default/web")
        assert "take {subject} out of scheduler_names" in _WORDS[told.kind][1]
        monkeypatch.setattr(other_schedulers, "_TOLD_S", 0.0)
    assert scene.watcher._parts.problems.present() == (), "whoever has the watch next tells it"


async def test_what_an_earlier_epoch_has_decided_is_not_taken_for_another_scheduler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new epoch lists a pod as waiting whose binding is under way, and knows nothing of the decision."""
    async with watching() as scene:
        spec = {**POD["spec"], "schedulerName": "arranger"}
        for name in ("bound", "later"):
            await scene.cluster.create(PODS, "default", {"metadata": {"name": name}, "spec": spec})
        await scene.until(lambda: scene.names() == ["bound", "later"])
        lost = scene.follower.state.epoch
        scene.home.lose_everything()
        await scene.until(lambda: scene.follower.state.epoch != lost and scene.names() == ["bound", "later"])
        await scene.until(lambda: bool(scene.follower.state.listed.get(scene.kind)))
        assert await _problems(scene, "bound") == ()
        monkeypatch.setattr(other_schedulers, "_UNDER_WAY_S", 0.0)
        assert [told.cause for told in await _problems(scene, "later")] == ["last: default/later"]


async def _problems(scene: Scene, name: str) -> tuple[MemberProblem, ...]:
    """Those of the process once it has seen that somebody bound a pod."""
    live = await scene.cluster.get(PODS, "default", name)
    await scene.cluster.bind("default", name, uid=live["metadata"]["uid"], node="n1")
    await scene.until(lambda: any(of.name == name and of.node for of in scene.follower.state.pods.values()))
    return scene.watcher._parts.problems.present()
