"""An autoscaler of the simulated world: it is asked for the nodes of quorums by ProvisioningRequests or placeholders.
It answers, answers late or with a failure, takes its answer back, or adds nodes and says nothing. Some nodes come, or
all of them, before or after the answer, and go again.

Safety: no job fails while the autoscaler may still provide its nodes, or before the grace after its last answer is
over. A quorum is never split over a part of the nodes: the oracle checks each placement. Liveness: at the end a job
that lacks nodes has its request or its placeholders, and nobody else has any.
"""

import asyncio
import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from arranger.events import kinds as k
from arranger.kube.cluster import NODES, POD_TEMPLATES, PODS, PROVISIONING_REQUESTS, ApiError, Object
from arranger.model.job import ScheduleState, Stage
from arranger.model.provisioning import HOLDS_FOR_LABEL, NodesAnswer, Provisioning, placeholder_names
from arranger.projections.folding.provisioning import name_of, present_request, way_of
from arranger.projections.jobs.records import JobRecord
from arranger.projections.observed.priorities import lacks_class
from arranger.projections.state import State
from arranger.sandbox.garbage import DeleteOptions
from arranger.sandbox.history import Collection
from arranger.sandbox.kinds import custom_kinds
from arranger.sandbox.nodes import NodeTemplate
from tests.provisioning import DEFINITION, condition
from tests.reasons import lacking_quota
from tests.simulation.calm import CALM
from tests.simulation.faults import AUTOSCALER_FAULTS, PLACEHOLDERS, REQUESTS
from tests.simulation.queue_rules import unusable

if TYPE_CHECKING:
    from tests.simulation.world import World

#: How an autoscaler answers a request → how often.
_ANSWERS = {"at once": 5, "late": 3, "never": 2, "failure": 3, "in part": 3}
_LOOK_S, _LATE_S, _PACE_S = 1.5, (5.0, 40.0), 6.0
#: The most nodes that it adds, how large they are, and how long one may be empty.
_MOST, _CPU, _EMPTY_S = 3, 8, 20.0


class Autoscaler:
    """The autoscaler, what others do to its requests, and the rules about both."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = chance = random.Random(f"{world.seed} autoscaler")
        drawn = chance.choices((Provisioning.NONE, Provisioning.REQUEST, Provisioning.PENDING), (60, 25, 15))[0]
        if world.faults.often(REQUESTS):
            drawn = Provisioning.REQUEST
        elif world.faults.often(PLACEHOLDERS):
            drawn = Provisioning.PENDING
        #: How the configuration lets nodes be requested.
        self.way = Provisioning.NONE if world.faults.often(CALM) else drawn
        if self.way != Provisioning.NONE:
            world.faults.more(AUTOSCALER_FAULTS, chance)
        #: UID of a request → how it is answered, from when on, and how many of its nodes are still to come.
        self._plans: dict[str, tuple[str, float, int]] = {}
        #: The nodes that were added, and since when each has been empty.
        self._added: dict[str, float] = {}
        self._count = 0

    @property
    def comes(self) -> bool:
        """Whether there is one."""
        return self.way != Provisioning.NONE

    def begin(self, history: int) -> None:
        """Install the definition of requests."""
        if self.comes:
            kinds = custom_kinds(DEFINITION)
            self._world.store.collections[kinds[0].key] = Collection(kinds, history)

    def _requests(self) -> list[Object]:
        if not self.comes:
            return []
        found = self._world.store.collection(PROVISIONING_REQUESTS).objects
        return [stored.object for _, stored in sorted(found.items())]

    def _placeholders(self) -> list[Object]:
        found = self._world.store.collection(PODS).objects
        return [stored.object for _, stored in sorted(found.items()) if is_placeholder(stored.object)]

    def _did(self, site: str, what: str) -> None:
        self._world.faults.hit(site)
        self._world.step("scaler", what)

    # --- the autoscaler ----------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Look at requests and placeholders until the run ends."""
        while self.comes:
            await asyncio.sleep(_LOOK_S)
            with suppress(ApiError):
                for request in self._requests():
                    await self._answer(request)
                if any(map(_unschedulable, self._placeholders())) and await self._add():
                    self._world.faults.hit(PLACEHOLDERS)
                await self._remove_empty()

    async def _answer(self, request: Object) -> None:
        """Go one step further with a request: accept it, answer it, and add a node for it."""
        uid, now_s, faults = request["metadata"]["uid"], self._world.loop.time(), self._world.faults
        answer = _answer_of(request)
        if answer == "" and not all(self._is_there(request, of) for of in request["spec"]["podSets"]):
            return
        if uid not in self._plans:
            [how] = self._chance.choices([*_ANSWERS], [*_ANSWERS.values()]) if faults.on else ["at once"]
            asked = sum(of["count"] for of in request["spec"]["podSets"])
            due_s = now_s + (self._chance.uniform(*_LATE_S) if how == "late" else 0.0)
            self._plans[uid] = (how, due_s, max(asked - 1, 1) if how == "in part" else asked)
            if self._chance.random() < 0.5:
                self._say(request, NodesAnswer.ACCEPTED)
            return
        how, due_s, coming = self._plans[uid]
        if how != "failure" and coming > 0 and await self._add():
            self._plans[uid] = (how, due_s, coming - 1)
            if how == "in part":
                faults.hit("only a part of the nodes comes")
        if how == "never" and faults.on:
            faults.hit("the answer to a request is lost")
        elif answer in ("", NodesAnswer.ACCEPTED) and (now_s >= due_s or not faults.on):
            faults.hit("a request is answered late" if how == "late" else REQUESTS)
            self._say(request, NodesAnswer.FAILED if how == "failure" else NodesAnswer.PROVISIONED)
        elif answer == NodesAnswer.PROVISIONED and faults.on and self._chance.random() < 0.03:
            self._say(request, self._chance.choice((NodesAnswer.BOOKING_EXPIRED, NodesAnswer.CAPACITY_REVOKED)))

    def _is_there(self, request: Object, pods: Object) -> bool:
        key = (request["metadata"]["namespace"], pods["podTemplateRef"]["name"])
        return key in self._world.store.collection(POD_TEMPLATES).objects

    def _say(self, request: Object, answer: NodesAnswer) -> None:
        of = request["metadata"]
        sites = {
            NodesAnswer.FAILED: "a request fails",
            NodesAnswer.BOOKING_EXPIRED: "a booking expires",
            NodesAnswer.CAPACITY_REVOKED: "capacity is revoked",
        }
        body = condition(answer, "simulated")
        self._world.store.patch(PROVISIONING_REQUESTS, of["namespace"], of["name"], body, subresource="status")
        if answer in sites:
            self._world.faults.hit(sites[answer])
        self._world.step("scaler", f"{of['name']} is {answer} [{_owner_uid(request)}]")

    async def _add(self) -> bool:
        """Add a node, unless it has added so many; returns whether it did."""
        if len(self._added) >= _MOST:
            return False
        self._count += 1
        name = f"a{self._count}"
        self._added[name] = self._world.loop.time()
        await self._world.machines.provide(NodeTemplate(name, cpu=str(_CPU), memory="32Gi", pods=12))
        self._world.step("scaler", f"adds node {name}")
        return True

    async def _remove_empty(self) -> None:
        """Remove a node on which nothing has run for a while."""
        pods = [stored.object for stored in self._world.store.collection(PODS).objects.values()]
        used, now_s = {pod["spec"].get("nodeName", "") for pod in pods}, self._world.loop.time()
        for name in [*self._added]:
            if name in used:
                self._added[name] = now_s
            elif now_s - self._added[name] > _EMPTY_S and self._world.faults.on:
                del self._added[name]
                self._world.machines.take_back(name)
                self._did("a provided node goes again", f"removes node {name}")

    # --- others ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Delete requests and placeholders, or bind a placeholder, until the faults stop."""
        while self.comes:
            await asyncio.sleep(self._chance.expovariate(1 / _PACE_S))
            if not self._world.faults.on:
                return
            with suppress(ApiError):
                self._chance.choice((self._delete_request, self._delete_placeholder, self._bind_placeholder))()

    def _delete_request(self) -> None:
        if found := self._requests():
            of = self._chance.choice(found)["metadata"]
            self._world.store.delete(PROVISIONING_REQUESTS, of["namespace"], of["name"])
            self._did("a request is deleted by others", f"somebody deletes {of['name']}")

    def _delete_placeholder(self) -> None:
        if found := self._placeholders():
            of = self._chance.choice(found)["metadata"]
            self._world.store.delete(PODS, of["namespace"], of["name"], DeleteOptions(grace_s=0))
            self._did("a placeholder is deleted by others", f"somebody deletes {of['name']}")

    def _bind_placeholder(self) -> None:
        nodes = sorted(name for _, name in self._world.store.collection(NODES).objects)
        found = [pod for pod in self._placeholders() if not pod["spec"].get("nodeName")]
        if found and nodes and self._chance.random() < 0.3:
            of = self._chance.choice(found)["metadata"]
            self._world.store.bind(of["namespace"], of["name"], self._chance.choice(nodes), uid=of["uid"])
            self._did("somebody binds a placeholder", f"somebody binds {of['name']}")

    # --- safety ------------------------------------------------------------------------------------------------

    def gives_up(self, state: State, cycle: k.CycleTaken, job: JobRecord) -> str:
        """Why a cycle shouldn't let a job fail; empty if it may."""
        if way_of(state, job, self.way) == Provisioning.NONE:
            return ""
        request = present_request(state, job)
        if request is None:
            return "a job fails, though nobody was asked for its nodes"
        if request.answer in ("", NodesAnswer.ACCEPTED):  # what the API server refuses has an answer
            return "a job fails, though it may still get nodes: it has no answer"
        since_ms = cycle.time_ms - request.answered_ms
        grace_ms = self._world.cycle_config.infeasible_grace_ms
        return f"a job fails {since_ms} ms after the last answer" if since_ms < grace_ms else ""

    def note_waiting(self, state: State) -> None:
        """Note that a quorum waits although some of its nodes were provided."""
        if self._added and any(
            of.answer == NodesAnswer.PROVISIONED
            and not of.over
            and uid in state.jobs
            and not state.jobs[uid].placements
            for uid, of in state.requests.items()
        ):
            self._world.faults.hit("a quorum waits beside a part of its nodes")

    def may_delete(self, resource: Any, stored: Any) -> bool:
        """Whether a worker may delete an object: a request of a TYJob, or a placeholder."""
        if resource == PROVISIONING_REQUESTS:
            return stored is None or bool(_owner_uid(stored.object))
        return resource == PODS and stored is not None and is_placeholder(stored.object)

    # --- liveness ----------------------------------------------------------------------------------------------

    def unsettled(self, state: State) -> Iterator[tuple[str, str]]:
        """(Job UID, the problem): a placeholder or a request that no job needs, or one that is missing."""
        if not self.comes:
            return
        needed: dict[str, str] = {}
        for job in state.jobs.values():
            if (of := self._needs(state, job)) is not None:
                if of.decided.how == Provisioning.REQUEST:
                    needed[name_of(job, of)] = job.uid
                else:
                    names = placeholder_names(job.seen.name, job.uid, of.decided.number, of.decided.pods)
                    needed |= dict.fromkeys(names, job.uid)
        there = {pod["metadata"]["name"]: _owner_uid(pod) for pod in self._placeholders()}
        used = {
            name_of(state.jobs[uid], of)
            for uid, of in state.requests.items()
            if uid in state.jobs and not of.over and of.decided.how == Provisioning.REQUEST
        }
        there |= {
            of["metadata"]["name"]: _owner_uid(of) for of in self._requests() if of["metadata"]["name"] not in used
        }
        for name in sorted(there.keys() - needed.keys()):
            yield there[name], f"{name} outlives the need of its job"
        names = {of["metadata"]["name"] for of in self._requests()} | there.keys()
        for name in sorted(needed.keys() - names):
            yield needed[name], f"{name} is missing, though its job lacks nodes"

    def _needs(self, state: State, job: JobRecord) -> Any:
        """The request of a job that still waits for its answer, restated: it waits for nothing but nodes."""
        request, way = present_request(state, job), way_of(state, job, self.way)
        waits = job.stage in (Stage.PENDING, Stage.RESCHEDULING) and not job.placements
        if request is None or not waits or job.stands_still or job.schedule_state == ScheduleState.FAILED:
            return None
        limited = lacking_quota(job.waits) is not None
        outside = job.valid_spec.unmet or lacks_class(job) or unusable(state, job)
        if limited or outside or request.decided.how != way or request.answer not in ("", NodesAnswer.ACCEPTED):
            return None
        return request if request.decided.pods else None


def is_placeholder(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is a placeholder of a TYJob."""
    return HOLDS_FOR_LABEL in (pod["metadata"].get("labels") or {})


def _unschedulable(pod: Object) -> bool:
    told = {of["type"]: of.get("reason") for of in pod["status"].get("conditions") or ()}
    return told.get("PodScheduled") == "Unschedulable" and not pod["spec"].get("nodeName")


def _answer_of(request: Object) -> str:
    """The last condition of a request."""
    found = (request.get("status") or {}).get("conditions") or [{"type": ""}]
    return str(found[-1]["type"])


def _owner_uid(item: Mapping[str, Any]) -> str:
    owners = item["metadata"].get("ownerReferences") or ()
    return next((str(of["uid"]) for of in owners if of.get("controller")), "")
