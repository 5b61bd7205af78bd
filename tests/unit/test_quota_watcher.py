"""The watch of ResourceQuotas: what is told of them, and that it may be refused."""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from arranger.events import kinds as k
from arranger.events.log import entries
from arranger.kube.cluster import PODS, QUOTAS, ApiError, ListPage, Resource
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.store import Store
from arranger.workers.watching import observer
from tests.unit.test_watcher import POD, Scene, watching


def limit(pods: int, services: int = 3) -> dict[str, Any]:
    return {"spec": {"hard": {"pods": str(pods), "services": str(services)}}}


async def create(scene: Scene, name: str, pods: int) -> None:
    await scene.cluster.create(QUOTAS, "default", {"metadata": {"name": name}, "spec": {"hard": {"pods": str(pods)}}})


def known(scene: Scene) -> dict[str, dict[str, int]]:
    return {name: dict(of.hard) for name, of in scene.follower.state.quotas.get("default", {}).items()}


async def test_quotas_come_change_and_go() -> None:
    async with watching(k.Watched.QUOTA) as scene:
        await create(scene, "few", 2)
        await scene.until(lambda: "few" in known(scene))
        await scene.cluster.patch(QUOTAS, "default", "few", limit(3))
        await scene.until(lambda: known(scene) == {"few": {"pods": 3}})
        await scene.cluster.delete(QUOTAS, "default", "few")
        await scene.until(lambda: not known(scene))


async def test_what_a_quota_says_of_other_objects_makes_no_event() -> None:
    async with watching(k.Watched.QUOTA) as scene:
        await create(scene, "few", 2)
        await scene.cluster.patch(QUOTAS, "default", "few", limit(3))
        await scene.until(lambda: known(scene) == {"few": {"pods": 3}})
        await scene.cluster.patch(QUOTAS, "default", "few", limit(3, services=4))
        await create(scene, "more", 2)
        await scene.until(lambda: "more" in known(scene))
        log = scene.follower.log
        seen = [e for entry in [one async for one in entries(log, await log.start())] for e in entry.batch.events]
        versions = [event.hard for event in seen if isinstance(event, k.QuotaSeen) and event.name == "few"]
        assert len(versions) == len(set(versions))


class Refusing(DirectCluster):
    """Refuses to list quotas for as long as `code` says."""

    code = 403

    def listing(self, resource: Resource, *, limit: int = 500, at: str = "") -> AsyncGenerator[ListPage, None]:
        if resource == QUOTAS and self.code:
            raise ApiError(self.code, "Forbidden", "resourcequotas is forbidden")
        return super().listing(resource, limit=limit, at=at)


@pytest.mark.parametrize("code", [403, 404])
async def test_a_refused_watch_is_said_once_and_nobody_waits_for_it(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "_ASK_AGAIN_S", 0.01)
    cluster = Refusing(Store(now=time.time))
    cluster.code = code
    async with watching(k.Watched.QUOTA, cluster) as scene:
        state = scene.follower.state
        assert state.unwatched == {k.Watched.QUOTA: code} and not state.listed[k.Watched.QUOTA]
        assert scene.watcher.problem == ""
        await asyncio.sleep(0.1)
        log = scene.follower.log
        seen = [e for entry in [one async for one in entries(log, await log.start())] for e in entry.batch.events]
        assert sum(isinstance(event, k.WatchRefused) for event in seen) == 1
        assert sum(isinstance(event, k.WatchClaimed) for event in seen) == 1
        cluster.code = 0
        await create(scene, "few", 2)
        await scene.until(lambda: state.listed[k.Watched.QUOTA])
        assert state.unwatched == {} and "few" in known(scene)


async def test_pods_are_not_done_without() -> None:
    cluster = Refusing(Store(now=time.time))
    async with watching(k.Watched.POD, cluster) as scene:
        await scene.cluster.create(PODS, "default", {**POD, "metadata": {"namespace": "default", "name": "a"}})
        await scene.until(lambda: scene.names() == ["a"])
        assert scene.follower.state.unwatched == {}
