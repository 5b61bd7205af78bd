"""ResourceQuotas of the simulated world: they appear, shrink, grow and are deleted, their controller pauses, and the
API server may deny reading them. Also the checks of decisions under quotas.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from arranger.events import kinds as k
from arranger.kube.cluster import QUOTAS, ApiError
from arranger.model.job import PodGroup
from arranger.projections.state import State

if TYPE_CHECKING:
    from tests.simulation.world import World

NAMESPACES = ("default", "team")
_PACE_S = 15.0
_NAMES = ("compute", "objects")


class Quotas:
    """Creates, changes and deletes quotas; some may remain to the end."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = chance = random.Random(f"{world.seed} quotas")
        #: Whether this run has quotas.
        self.comes = chance.random() < 0.5
        #: Listing and watching quotas is denied now.
        self.refused = False

    def judge_reading(self, plural: str) -> None:
        """Called before a listing or a watch; raises the API server's refusal, if any."""
        if self.refused and plural == QUOTAS.plural:
            self._world.faults.hit("no right to read quotas")
            raise ApiError(403, "Forbidden", 'resourcequotas is forbidden: User "arranger" cannot list resource')

    async def run(self) -> None:
        """Make one change after the other until the faults stop; then the controller works and reading is allowed."""
        if not self.comes:
            return
        self.refused = self._chance.random() < 0.1
        acts = [(self._set, 6), (self._remove, 2), (self._pause_controller, 1), (self._refuse, 1)]
        while self._world.faults.on:
            await asyncio.sleep(self._chance.expovariate(1 / _PACE_S))
            if not self._world.faults.on:
                return
            [act] = self._chance.choices([act for act, _ in acts], [weight for _, weight in acts])
            with suppress(ApiError):
                act()

    def end(self) -> None:
        """Delete the quotas that would keep Arranger from a good end; the others remain."""
        self.refused = False
        self._world.store.quota_controller(works=True)

    def _did(self, site: str, what: str) -> None:
        self._world.faults.hit(site)
        self._world.step("quotas", what)

    def _set(self) -> None:
        store, chance = self._world.store, self._chance
        namespace, name = chance.choice(NAMESPACES), chance.choice(_NAMES)
        hard = self._hard(name)
        there = store.collection(QUOTAS).objects.get((namespace, name))
        if there is None:
            spec = {"hard": hard, **({"scopes": ["NotBestEffort"]} if chance.random() < 0.3 else {})}
            store.create(QUOTAS, namespace, {"metadata": {"name": name}, "spec": spec})
            self._did("a quota comes", f"quota {namespace}/{name} of {hard}")
        else:
            replaced = dict.fromkeys(there.object["spec"]["hard"]) | hard
            store.patch(QUOTAS, namespace, name, {"spec": {"hard": replaced}})
            self._did("a quota changes", f"quota {namespace}/{name} is {hard}")

    def _hard(self, name: str) -> dict[str, str]:
        chance = self._chance
        if name == "objects":
            return {chance.choice(("pods", "pods", "count/pods")): str(chance.randrange(0, 16))}
        hard = {chance.choice(("requests.cpu", "limits.cpu", "cpu")): str(chance.choice((0, 2, 6, 12, 24, 40)))}
        if chance.random() < 0.3:
            hard["requests.nvidia.com/gpu"] = str(chance.randrange(0, 3))
        return hard

    def _remove(self) -> None:
        there = sorted(self._world.store.collection(QUOTAS).objects)
        if there:
            namespace, name = self._chance.choice(there)
            self._world.store.delete(QUOTAS, namespace, name)
            self._did("a quota goes", f"quota {namespace}/{name} goes")

    def _pause_controller(self) -> None:
        works = self._chance.random() < 0.5
        self._world.store.quota_controller(works=works)
        if not works:
            self._did("quota controller stands still", "the quota controller stands still")

    def _refuse(self) -> None:
        self.refused = not self.refused
        self._world.step("quotas", f"quotas may {'not ' if self.refused else ''}be read")


# --- checks ------------------------------------------------------------------------------------------------------


_Pods = list[tuple[PodGroup, int]]


def beyond(state: State, events: Sequence[k.Event]) -> str:
    """The quota, as observed at a cycle's base, that the cycle's placements exceed; empty if none."""
    placed: dict[str, _Pods] = {}
    for decision in events:
        event = decision.placed if isinstance(decision, k.Preempted) else decision
        if isinstance(event, k.Placed):
            job = state.jobs[event.job_uid]
            assert job.spec is not None
            for pods in event.pods if not job.of_pods else ():  # the API server counted it when it was created
                count = sum(last - first + 1 for first, last in pods.indices)
                placed.setdefault(job.seen.namespace, []).append((job.spec.groups[pods.group], count))
    for namespace, new in placed.items():
        decided = _decided(state, namespace)
        for quota in state.quotas.get(namespace, {}).values():
            used, asked, before = dict(quota.used), _asked(quota, new), _asked(quota, decided)
            for resource, hard in quota.hard:
                there = used.get(resource, hard) + before[resource] + asked[resource]
                if asked[resource] and there > hard:
                    return f"{namespace}/{quota.name}: {resource} would be {there} of {hard}"
    return ""


def _decided(state: State, namespace: str) -> _Pods:
    """Placements without a pod."""
    return [
        (job.spec.groups[slot[0]], 1)
        for job in state.jobs.values()
        if job.seen.namespace == namespace and job.spec is not None and not job.of_pods
        for slot in job.placements
        if slot not in job.bound
    ]


def _asked(quota: k.QuotaSeen, pods: _Pods) -> Counter[str]:
    """The usage of a quota by pods, for the resources of the quotas that this module creates."""
    total = Counter[str]()
    for group, count in pods:
        requests, limits = dict(group.shape.requests), dict(group.traits.limits)
        if quota.scopes and not {"cpu", "memory"} & {*requests, *limits}:
            continue  # the pods may have any QoS class
        cpu, gpus = requests.get("cpu", 0), requests.get("nvidia.com/gpu", 0)
        total.update({"pods": count, "count/pods": count, "cpu": cpu * count, "requests.cpu": cpu * count})
        total.update({"limits.cpu": limits.get("cpu", 0) * count, "requests.nvidia.com/gpu": gpus * count})
    return total
