"""A definition of TYJobs that is being deleted, and that a finalizer of somebody else keeps, is told."""

import asyncio
from types import SimpleNamespace
from typing import Any

from arranger.kube.cluster import CRDS, ApiError, ClusterUnavailable
from arranger.kube.compatibility import CrdVerdict, compare
from arranger.workers.health.api_check import DEFINITION, ApiCheck
from tests.members import HandClock
from tests.parts import parts


class Server:
    """An API server that answers with this definition, or with an error."""

    def __init__(self) -> None:
        self.answer: dict[str, Any] | Exception = {"metadata": {"name": DEFINITION}}
        self.asked = 0

    async def get(self, resource: object, namespace: None, name: str) -> dict[str, Any]:
        assert (resource, name) == (CRDS, "tyjobs.arranger.dev")
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Scene:
    def __init__(self, *, watches: bool = True) -> None:
        self.clock, self.server = HandClock(), Server()
        known: Any = parts(cluster=self.server, clock=self.clock)
        identity: Any = SimpleNamespace()
        self.check = ApiCheck(known, identity)
        self.check.watches = watches

    def look(self, after_s: float = 60) -> tuple[str, ...] | None:
        self.clock.now_s += after_s
        asyncio.run(self.check._look_at_definition())
        return self.check.kept_by


def deleted(*finalizers: str) -> dict[str, Any]:
    return {"metadata": {"deletionTimestamp": "1970-01-01T00:01:40Z", "finalizers": [*finalizers]}}


def test_who_keeps_a_definition_that_is_being_deleted_is_known_until_it_is_gone() -> None:
    scene = Scene()
    assert scene.look() is None
    scene.server.answer = deleted("customresourcecleanup.apiextensions.k8s.io", "example.org/keep")
    assert scene.look() == ("customresourcecleanup.apiextensions.k8s.io", "example.org/keep")
    assert scene.check.deleting_s == 120
    scene.server.answer = ClusterUnavailable("gone")
    assert scene.look() is not None
    scene.server.answer = ApiError(404, "NotFound", "there is none")
    assert scene.look() is None


def test_without_the_right_nobody_asks_again_and_others_than_watchers_never() -> None:
    scene = Scene()
    scene.server.answer = ApiError(403, "Forbidden", "no")
    for _ in range(100):
        assert scene.look() is None
    assert scene.server.asked == 1
    scene = Scene(watches=False)
    scene.look()
    assert scene.server.asked == 0


def test_the_definition_is_looked_at_now_and_then() -> None:
    scene = Scene()
    for _ in range(60):
        scene.look(after_s=1)
    assert scene.server.asked == 2


def test_an_upgrade_check_says_so_too() -> None:
    found = compare({"metadata": {"name": DEFINITION}}, deleted("example.org/keep"))
    assert (found.verdict, found.beyond) == (CrdVerdict.DELETED, ("finalizer example.org/keep",))
