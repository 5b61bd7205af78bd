"""PodGroups of the simulated world: they come before or after their pods, change their minimum, go, and come again."""

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from arranger.kube.cluster import COSCHEDULING_GROUPS, PODS, ApiError
from arranger.model.pod import GroupKind
from arranger.model.pods_to_place import group_uid
from arranger.sandbox.kinds import custom_kinds
from arranger.sandbox.store import Collection
from tests.pod_groups import definition, pod_group

if TYPE_CHECKING:
    from tests.simulation.world import World

#: The label of a pod that names its PodGroup.
LABEL = "scheduling.x-k8s.io/pod-group"
_PACE_S = 3.0


class PodGroups:
    """Makes, changes and deletes PodGroups; at the end each that a pod names is there. Its chance is its own, so that
    the rest of a world doesn't depend on it."""

    def __init__(self, world: "World", history: int) -> None:
        self._world = world
        self._chance = chance = random.Random(f"{world.seed} pod groups")
        self._comes = chance.random() < 0.6
        if self._comes:
            kinds = custom_kinds(definition(GroupKind.COSCHEDULING))
            world.store.collections[kinds[0].key] = Collection(kinds, history)

    def named(self, labels: Mapping[str, str], name: str, least: int) -> dict[str, str]:
        """The labels of pods of a new group: these, or one that names a PodGroup, which may come later."""
        if not self._comes or self._chance.random() < 0.4:
            return dict(labels)
        if self._chance.random() < 0.6:
            self._put(name, least)
        return {LABEL: name}

    async def run(self) -> None:
        """Make one change after the other until the faults stop."""
        while self._comes:
            await asyncio.sleep(self._chance.expovariate(1 / _PACE_S))
            if not self._world.faults.on:
                return
            names = self._asked()
            if names:
                with suppress(ApiError):
                    self._change(self._chance.choice(names))

    def end(self) -> None:
        """Every PodGroup that a pod names is there."""
        for name in self._asked():
            if not self._there(name):
                self._put(name, 1)

    def _asked(self) -> list[str]:
        """The PodGroups that pods name, in the order of their names."""
        pods = [stored.object for stored in self._world.store.collection(PODS).objects.values()]
        names = {(pod["metadata"].get("labels") or {}).get(LABEL, "") for pod in pods}
        return sorted(names - {""})

    def _there(self, name: str) -> bool:
        return ("default", name) in self._world.store.collection(COSCHEDULING_GROUPS).objects

    def _change(self, name: str) -> None:
        if self._there(name) and self._chance.random() < 0.4:
            self._world.store.delete(COSCHEDULING_GROUPS, "default", name)
            self._did("a pod group goes", name, "goes")
        else:
            self._put(name, self._chance.randrange(1, 4))

    def _put(self, name: str, least: int) -> None:
        store = self._world.store
        if self._there(name):
            store.patch(COSCHEDULING_GROUPS, "default", name, {"spec": {"minMember": least}})
            self._did("a pod group changes", name, f"needs {least}")
        else:
            store.create(COSCHEDULING_GROUPS, "default", pod_group(name, GroupKind.COSCHEDULING, least))
            self._did("a pod group comes", name, f"comes and needs {least}")

    def _did(self, site: str, name: str, what: str) -> None:
        self._world.faults.hit(site)
        self._world.step("pod groups", f"{name} {what}")


def group_record(metadata: Mapping[str, Any]) -> str:
    """The UID of the record of the pods of a PodGroup; empty for a pod that names none."""
    name = (metadata.get("labels") or {}).get(LABEL, "")
    return group_uid("default", name, GroupKind.COSCHEDULING) if name else ""
