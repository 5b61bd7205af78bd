"""What a process reports of its parts to /readyz and /healthz."""

from types import SimpleNamespace
from typing import Any

import pytest

from arranger.metrics import Metrics
from arranger.workers.health.http import Health
from arranger.workers.health_report import HealthReport
from arranger.workers.members.membership import Member
from arranger.workers.members.problems import MemberProblem, ProblemKind
from tests.members import HandClock
from tests.parts import parts


class Scene:
    """A process that is well, with a watch of pods and with archiving."""

    def __init__(self) -> None:
        self.clock = HandClock()
        writes, forgery = SimpleNamespace(problem=None), SimpleNamespace(entry=None)
        state = SimpleNamespace(epoch=1, offset=7)
        follower: Any = SimpleNamespace(
            connected=True, writes=writes, forgery=forgery, stopped=None, refused=None, caught_up=True,
            state=state, lag=(0, 0.0), cluster="",
        )  # fmt: skip
        self.members: list[Member] = []
        membership: Any = SimpleNamespace(progress=lambda *_, **__: None, seen=lambda: tuple(self.members))
        self.metrics = Metrics(self.clock)
        self.watcher = SimpleNamespace(problem="")
        self.parts = parts(follower=follower, membership=membership, clock=self.clock, metrics=self.metrics,
                           time=SimpleNamespace(offset_ms=lambda: 0, right=True))  # fmt: skip
        roles: Any = SimpleNamespace(api=None, watchers={"pod": self.watcher}, tasks={"archive": None})
        self.health = Health(["log", "clock", "fold"], self.metrics)
        self.report = HealthReport(self.parts, roles, self.health)
        self.metrics.heard("pod")

    def failing(self) -> dict[str, str]:
        self.report.tell()
        return {name: check.reason for name, check in self.health.checks().items() if not check.ok}


def connected(*problems: MemberProblem, roles: tuple[str, ...] = ("watcher",)) -> Member:
    return Member("connected", roles, 1, 1, 0, problems=problems)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_failing_archive_is_shown_and_leaves_the_process_ready(scene: Scene) -> None:
    assert scene.failing() == {}
    scene.parts.problems.tell(ProblemKind.ARCHIVE, True, cause="no folder")
    assert scene.failing() == {"archive": "archiving fails: no folder"}
    assert scene.health.ready and scene.health.alive
    check = scene.metrics.registry.get_sample_value
    assert check("arranger_check", {"check": "archive"}) == 0
    assert check("arranger_check", {"check": "log"}) == check("arranger_ready") == 1
    scene.parts.problems.tell(ProblemKind.ARCHIVE, False)
    assert scene.failing() == {}


def test_a_deaf_watch_makes_the_process_unready_and_then_calls_for_its_restart(scene: Scene) -> None:
    scene.clock.now_s += 119
    assert scene.failing() == {}
    scene.clock.now_s += 2
    assert scene.failing() == {"watch-pod": "silent for 121 s"}
    assert not scene.health.ready and scene.health.alive
    assert [(one.kind, one.subject) for one in scene.parts.problems.present()] == [(ProblemKind.WATCH, "pod")]
    scene.clock.now_s += 180
    assert scene.failing() == {"watch-pod": "silent for 301 s"}
    assert not scene.health.alive
    scene.metrics.heard("pod")
    assert scene.failing() == {} and scene.health.ready


def test_a_decider_is_not_ready_while_all_that_are_connected_say_that_another_log_holds_the_cluster(
    scene: Scene,
) -> None:
    """It isn't connected to the API server itself."""
    held = MemberProblem(ProblemKind.HELD, "system/other@7", cause="another log, system/other@7, holds this cluster")
    scene.members = [connected(held), connected(held, roles=("applier",)), connected(roles=("scheduler",))]
    assert scene.failing() == {"holder": held.cause}
    assert not scene.health.ready and scene.health.alive
    scene.members = [connected(held), connected(roles=("applier",))]
    assert scene.failing() == {}, "one is just about to begin, or to end"
    scene.members = [connected(roles=("scheduler",))]
    assert scene.failing() == {} and scene.health.ready
