"""LimitRanges of the simulated world: they come, change and go, and containers of jobs name no cpu. Also the check that
plans have what admission gives to these containers.
"""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from arranger.kube.cluster import LIMIT_RANGES, TYJOBS, ApiError, Object
from arranger.kube.translate import limit_range_seen
from arranger.model.template import effective_limits, effective_requests
from arranger.projections.state import State
from arranger.sandbox.admission import limit
from arranger.sandbox.builtin import without_nulls
from arranger.sandbox.pod_run import requests_of
from tests.simulation.quotas import NAMESPACES

if TYPE_CHECKING:
    from tests.simulation.world import World

UNREADABLE = "no right to read limit ranges"
COMES, CHANGES, GOES = "a limit range comes", "a limit range changes", "a limit range goes"
_PACE_S = 12.0
_NAMES = ("defaults", "more")


def forget_given(requests: dict[str, int]) -> None:
    """Take out of a pod's requests what LimitRanges may have given."""
    requests.pop("cpu", None)


class LimitRanges:
    """Creates, changes and deletes LimitRanges; some may remain to the end."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = chance = random.Random(f"{world.seed} limit ranges")
        #: Namespace → how often its LimitRanges changed.
        self._changes: Counter[str] = Counter()
        #: Whether this run has LimitRanges.
        self.comes = chance.random() < 0.3 or world.faults.often(COMES)
        #: Listing and watching LimitRanges is denied now.
        self._refused = self.comes and chance.random() < 0.1

    def draw(self, container: Object) -> None:
        """Let a container of a new job name no cpu, sometimes."""
        if self.comes and self._chance.random() < 0.4:
            resources = container["resources"]
            container["resources"] = {
                side: {name: amount for name, amount in resources[side].items() if name != "cpu"} for side in resources
            }

    async def run(self) -> None:
        """Make one change after the other until the faults stop."""
        while self.comes:
            await asyncio.sleep(self._chance.expovariate(1 / _PACE_S))
            if not self._world.faults.on:
                return
            if self._chance.random() < 0.1:
                self._refused = not self._refused
                self._world.step("limit ranges", f"limit ranges may {'not ' if self._refused else ''}be read")
                continue
            with suppress(ApiError):
                self._change(self._chance.choice(NAMESPACES), self._chance.choice(_NAMES))

    def end(self) -> None:
        self._refused = False

    def judge_reading(self, plural: str) -> None:
        """Called before a listing or a watch; raises the API server's refusal, if any."""
        if self._refused and plural == LIMIT_RANGES.plural:
            self._world.faults.hit(UNREADABLE)
            raise ApiError(403, "Forbidden", 'limitranges is forbidden: User "arranger" cannot list resource')

    def _change(self, namespace: str, name: str) -> None:
        store, chance = self._world.store, self._chance
        self._changes[namespace] += 1
        self._world.checks.limits_change()
        there = (namespace, name) in store.collection(LIMIT_RANGES).objects
        if there and chance.random() < 0.3:
            store.delete(LIMIT_RANGES, namespace, name)
            self._did(GOES, f"limit range {namespace}/{name} goes")
            return
        # Only requests: a request above the limit that another LimitRange gives would be refused.
        spec = {"limits": [{"type": "Container", "defaultRequest": {"cpu": str(chance.randrange(1, 4))}}]}
        if there:
            store.patch(LIMIT_RANGES, namespace, name, {"spec": spec})
        else:
            store.create(LIMIT_RANGES, namespace, {"metadata": {"name": name}, "spec": spec})
        self._did(CHANGES if there else COMES, f"limit range {namespace}/{name} is {spec['limits']}")

    def _did(self, site: str, what: str) -> None:
        self._world.faults.hit(site)
        self._world.step("limit ranges", what)

    def known(self, state: State, namespace: str) -> int:
        """The number of the change that a state knows as the last one of a namespace; -1 if it knows another one."""
        seen = {of.name: of.defaults for of in state.limit_ranges.get(namespace, {}).values()}
        there = {of["metadata"]["name"]: limit_range_seen(of, 0).defaults for of in self._within(namespace)}
        return self._changes[namespace] if seen == there else -1

    def planned(self, pod: Object, known: int) -> dict[str, int]:
        """The requests of a new pod as far as its plan can have them, if that knew this change as the last one."""
        requests = requests_of(pod["spec"])
        if known != self._changes[pod["metadata"]["namespace"]]:
            forget_given(requests)
        return requests

    def _within(self, namespace: str) -> list[Object]:
        there = self._world.store.collection(LIMIT_RANGES).objects
        return [of.object for (within, _), of in there.items() if within == namespace]

    # --- checks ----------------------------------------------------------------------------------------------------

    def apart(self, state: State) -> Iterator[tuple[str, str]]:
        """The jobs whose pods would get other requests, limits or another class than their plans have; one that has
        ended may have kept the plan with which it ended."""
        jobs = {of.object["metadata"]["uid"]: of.object for of in self._world.store.collection(TYJOBS).objects.values()}
        for uid, job in sorted(state.jobs.items()):
            if uid not in jobs or job.spec is None or job.ended:
                continue
            spec = jobs[uid]["spec"]
            templates = [
                of["template"]["spec"] if of else None for of in (spec.get("leader"), *(spec.get("workerSets") or ()))
            ]
            for group, template in zip(job.spec.groups, templates, strict=True):
                planned = group.shape.requests, group.traits.limits
                there = self._admitted(template, job.seen.namespace) if template is not None else planned
                if there != planned:
                    yield uid, f"pods of {job.seen.name} {group.name} would have {there}, and their plan has {planned}"

    def _admitted(self, template: Object, namespace: str) -> tuple[Any, Any]:
        """The requests and limits of a pod of this template: the largest that LimitRanges give in any order."""
        requests: dict[str, int] = {}
        limits: dict[str, int] = {}
        for order in itertools.permutations(self._within(namespace)):
            pod = {"spec": without_nulls(msgspec.json.decode(msgspec.json.encode(template)))}
            limit(pod, order)
            for total, found in ((requests, effective_requests(pod["spec"])), (limits, effective_limits(pod["spec"]))):
                total |= {name: max(amount, total.get(name, 0)) for name, amount in found}
        return tuple(sorted(requests.items())), tuple(sorted(limits.items()))
