"""Temporary refusals by the API server, with its own messages: for quota, permissions, an admission webhook, or a
namespace that is being deleted.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from arranger.kube.cluster import EVENTS, NAMESPACES, PODS, TYJOBS, ApiError
from arranger.sandbox.status import forbidden

if TYPE_CHECKING:
    from tests.simulation.world import World

#: A namespace that is deleted and created again now and then; jobs are in it and in `default`.
TEAM = "team"
_ACCOUNT = "system:serviceaccount:arranger:arranger"
_WEBHOOK = "policy.example.dev"

#: One active refusal: (operation, namespace, name) → the reason, or None.
_Denial = Callable[[str, str, str], ApiError | None]


class Denials:
    """Sets and lifts refusals; has those that are active now."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed} denials")
        self._denial: _Denial | None = None
        self._terminating: set[str] = set()
        world.store.create(NAMESPACES, "", {"metadata": {"name": TEAM}})

    async def judge(self, what: str, namespace: str, name: str) -> None:
        """Called before an effect; raises the API server's refusal, if any."""
        if what.startswith("create") and namespace in self._terminating:
            self._world.faults.hit("namespace ends: create refused")
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise forbidden(what.removeprefix("create "), "", name, why, causes=[cause])
        refused = self._denial(what, namespace, name) if self._denial is not None and self._world.faults.on else None
        if refused is not None:
            if refused.code == 500:
                await asyncio.sleep(self._chance.uniform(0.5, 10.0))
            raise refused

    async def run(self) -> None:
        """Set one refusal after the other, each for a while, until the faults stop."""
        kinds = (self._quota, self._no_right, self._no_right_to_statuses, self._webhook_away, self._webhook_denies)
        while self._world.faults.on:
            await asyncio.sleep(self._chance.expovariate(1 / 20.0))
            if not self._world.faults.on:
                return
            told, self._denial = self._chance.choice(kinds)()
            self._world.step("denials", told)
            await asyncio.sleep(self._chance.choice((1.0, 5.0, 20.0, 60.0)) * self._chance.uniform(0.5, 1.0))
            self._denial = None
            self._world.step("denials", f"lifted: {told}")

    def _hit(self, site: str) -> None:
        self._world.faults.hit(site)

    def _quota(self) -> tuple[str, _Denial]:
        limit = self._chance.randrange(1, 6)

        def denial(what: str, namespace: str, name: str) -> ApiError | None:
            pods = [stored.object for (home, _), stored in self._world.store.collection(PODS).objects.items()
                    if home == namespace]  # fmt: skip
            used = sum((pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed") for pod in pods)
            if what != "create pods" or used < limit:
                return None
            self._hit("quota exceeded by a pod of a gang")
            why = f"exceeded quota: compute, requested: pods=1, used: pods={used}, limited: pods={limit}"
            return forbidden("pods", "", name, why)

        return f"a quota of {limit} pods a namespace", denial

    def _no_right(self) -> tuple[str, _Denial]:
        def denial(what: str, namespace: str, _name: str) -> ApiError | None:
            if what != "create pods":
                return None
            self._hit("no right to create pods")
            who = f'User "{_ACCOUNT}" cannot create resource "pods" in API group "" in the namespace "{namespace}"'
            return ApiError(403, "Forbidden", f"pods is forbidden: {who}")

        return "no right to create pods", denial

    def _no_right_to_statuses(self) -> tuple[str, _Denial]:
        def denial(what: str, namespace: str, name: str) -> ApiError | None:
            if what != "patch tyjobs":
                return None
            self._hit("no right to write statuses")
            who = f'User "{_ACCOUNT}" cannot patch resource "tyjobs/status" in API group "arranger.dev"'
            return forbidden("tyjobs", "arranger.dev", name, f'{who} in the namespace "{namespace}"')

        return "no right to write statuses", denial

    def _webhook_away(self) -> tuple[str, _Denial]:
        def denial(what: str, _namespace: str, _name: str) -> ApiError | None:
            if what != "create pods":
                return None
            self._hit("webhook times out")
            post = 'failed to call webhook: Post "https://policy.policy.svc:443/pods?timeout=10s"'
            why = f'Internal error occurred: failed calling webhook "{_WEBHOOK}": {post}: context deadline exceeded'
            return ApiError(500, "InternalError", why)

        return "an admission webhook doesn't answer", denial

    def _webhook_denies(self) -> tuple[str, _Denial]:
        code, reason = self._chance.choice(((400, ""), (403, "Forbidden"), (422, "Invalid")))
        of_job = self._chance.randrange(3)

        def denial(what: str, _namespace: str, name: str) -> ApiError | None:
            if what != "create pods" or sum(name.encode()) % 3 != of_job:
                return None
            self._hit("webhook denies a pod")
            why = f'admission webhook "{_WEBHOOK}" denied the request: the image is not signed'
            return ApiError(code, reason, why)

        return f"an admission webhook denies some pods with {code}", denial

    # --- namespaces ----------------------------------------------------------------------------------------

    async def delete_namespaces(self) -> None:
        """Delete the namespace `team` once in a while as its controller does, one object after the other in any order,
        while nothing can be created; create it again some time later."""
        store, world = self._world.store, self._world
        while world.faults.on:
            await asyncio.sleep(self._chance.expovariate(1 / 60.0))
            if not world.faults.on:
                return
            self._terminating.add(TEAM)
            world.faults.hit("namespace deleted")
            world.step("denials", f"namespace {TEAM} is being deleted")
            await asyncio.sleep(self._chance.uniform(0.0, 3.0))
            await self._empty()
            store.delete(NAMESPACES, "", TEAM)
            while ("", TEAM) in store.collection(NAMESPACES).objects:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.5)
            self._terminating.discard(TEAM)
            world.step("denials", f"namespace {TEAM} is gone")
            await asyncio.sleep(self._chance.choice((0.0, 1.0, 10.0)))
            store.create(NAMESPACES, "", {"metadata": {"name": TEAM}})
            world.faults.hit("namespace created again")
            world.step("denials", f"namespace {TEAM} is there again")

    async def _empty(self) -> None:
        """Delete the objects in the namespace, one by one."""
        store = self._world.store
        there = [
            (resource, name)
            for resource in (PODS, TYJOBS, EVENTS)
            for home, name in sorted(store.collection(resource).objects)
            if home == TEAM
        ]
        self._chance.shuffle(there)
        for resource, name in there:
            with suppress(ApiError):
                store.delete(resource, TEAM, name)
                if resource != EVENTS:
                    self._world.step("denials", f"deletes {resource.plural}/{name} with its namespace")
                    await asyncio.sleep(self._chance.expovariate(1 / 0.5))
