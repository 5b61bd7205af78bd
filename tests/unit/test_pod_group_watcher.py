"""The watches of PodGroups: what is told of them, and what happens without their definition."""

import logging
import time
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

import pytest

from arranger.events import kinds as k
from arranger.events.log import entries
from arranger.kube.cluster import NATIVE_GROUPS, ApiError, ListPage, Resource, WatchEvent, always
from arranger.model.pod import NATIVE_VERSIONS, GroupKind
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.history import Collection
from arranger.sandbox.kinds import custom_kinds
from arranger.sandbox.store import Store
from arranger.workers.watching import observer
from tests.pod_groups import CUSTOM, definition, native_definition, native_group, pod_group
from tests.unit.test_watcher import Scene, watching

KINDS = list(CUSTOM)


def install(store: Store, kind: GroupKind) -> None:
    kinds = custom_kinds(definition(kind))
    store.collections[kinds[0].key] = Collection(kinds, 1000)


def known(scene: Scene) -> dict[str, int]:
    return {of.name: of.facts.min_count for of in scene.follower.state.pod_groups.values()}


async def observations(scene: Scene) -> list[Any]:
    log = scene.follower.log
    return [e for entry in [one async for one in entries(log, await log.start())] for e in entry.batch.events]


@pytest.mark.parametrize("kind", KINDS)
async def test_groups_come_change_and_go_and_a_status_counts_where_arranger_writes_it(kind: GroupKind) -> None:
    store, of = Store(now=time.time), CUSTOM[kind]
    install(store, kind)
    async with watching(k.GROUP_WATCHES[kind], DirectCluster(store)) as scene:
        await scene.cluster.create(of, "default", pod_group("train", kind, 3))
        await scene.until(lambda: known(scene) == {"train": 3})
        subresource = "" if kind == GroupKind.VOLCANO else "status"
        body = {"status": {"phase": "Pending", "occupiedBy": "default/train"}}
        await scene.cluster.patch(of, "default", "train", body, subresource=subresource)
        await scene.cluster.patch(of, "default", "train", {"spec": {"minMember": 4}})
        await scene.until(lambda: known(scene) == {"train": 4})
        await scene.cluster.delete(of, "default", "train")
        await scene.until(lambda: not known(scene))
        events = [event for event in await observations(scene) if isinstance(event, k.PodGroupSeen)]
        written = [(3, "Pending")] if kind == GroupKind.VOLCANO else []
        phase = "Pending" if written else ""
        assert [(event.facts.min_count, event.phase) for event in events] == [(3, ""), *written, (4, phase)]


class Serving(DirectCluster):
    """A cluster that serves Kubernetes' own kind in one version, whichever it is stored in."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.version = NATIVE_VERSIONS[-1]
        self.listed = 0

    def _stored(self, resource: Resource) -> Resource:
        if resource.version != self.version:
            raise ApiError(404, "NotFound", f"the server doesn't have {resource.api_version}")
        return NATIVE_GROUPS[0]

    async def listing(self, resource: Resource, *, limit: int = 500, at: str = "") -> AsyncGenerator[ListPage, None]:
        async for page in super().listing(self._stored(resource), limit=limit, at=at):
            self.listed += limit > 1
            yield page

    async def watch(
        self, resource: Resource, resource_version: str, *, timeout_s: float = 300.0, accepted: Any = always
    ) -> AsyncGenerator[list[WatchEvent], None]:
        served = self._stored(resource)
        async for changes in super().watch(served, resource_version, timeout_s=0.02, accepted=accepted):
            yield changes


async def test_the_version_that_is_served_is_watched_and_after_an_upgrade_the_next_one_without_another_listing() -> (
    None
):
    """Kubernetes 1.37 has no v1alpha2 any more, and before it there is no v1beta1."""
    store = Store(now=time.time)
    kinds = custom_kinds(native_definition(NATIVE_GROUPS[0]))
    store.collections[kinds[0].key] = Collection(kinds, 1000)
    cluster = Serving(store)
    store.create(NATIVE_GROUPS[0], "default", native_group(NATIVE_GROUPS[0], "train", 3))
    async with watching(k.Watched.NATIVE_GROUP, cluster) as scene:
        await scene.until(lambda: known(scene) == {"train": 3})
        for least, version in enumerate(reversed(NATIVE_VERSIONS), 4):
            cluster.version = version
            changed = {"spec": {"schedulingPolicy": {"gang": {"minCount": least}}}}
            store.patch(NATIVE_GROUPS[0], "default", "train", changed)
            expected = {"train": least}
            await scene.until(partial(lambda of: known(scene) == of, expected))
        assert cluster.listed == 1 and scene.follower.state.unwatched == {}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_kind_that_isnt_installed_is_said_once_without_a_warning_and_found_later(
    kind: GroupKind, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(observer, "_ASK_AGAIN_S", 0.01)
    store, watched = Store(now=time.time), k.GROUP_WATCHES[kind]
    async with watching(watched, DirectCluster(store)) as scene:
        state = scene.follower.state
        assert state.unwatched == {watched: 404} and scene.watcher.problem == ""
        install(store, kind)
        await scene.cluster.create(CUSTOM[kind], "default", pod_group("train", kind, 3))
        await scene.until(lambda: known(scene) == {"train": 3})
        assert state.unwatched == {}
        assert sum(isinstance(event, k.WatchRefused) for event in await observations(scene)) == 1
    assert [of.levelname for of in caplog.records if "refuses the watch" in of.getMessage()] == ["INFO"]
