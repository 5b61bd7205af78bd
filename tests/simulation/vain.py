"""Nobody is disturbed for a job that can't start: who took room and then wasn't Running takes none again, until its
spec, one of the nodes that it got, or a quota has changed; but once more if the kubelet of one node refused its pods.
In some runs, kubelets refuse each pod of some of the jobs that compete for room.

The record follows the accepted decisions and the observations of the log, not the product's own notes.
"""

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.kube.cluster import TYJOBS, Object
from arranger.model.job import ENDED, Stage
from arranger.model.names import GROUP_PREFIX, POD_PREFIX
from arranger.model.pod import REFUSALS
from arranger.model.stages import StageReason
from arranger.projections.state import State, Verdict
from tests.simulation.invariants import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

#: In a run that is about this, kubelets refuse each pod of many jobs.
REFUSED = "kubelets refuse each pod of a job"
VAIN = "room is taken in vain"
ONCE_MORE = "room is taken once more after one kubelet's refusal"
_LEAST_PRIORITY = 6
_JOBS = ("crowd", "left", "right")
_ASKED_FOR = (StageReason.SUSPENDED, StageReason.RESUMED)


@dataclass
class _Taken:
    """Room that a job took, on these nodes, and why it lost that without having been Running. `refused` are the nodes
    whose kubelets refused its pods since, and `once_more` is whether it took such room before."""

    namespace: str
    nodes: dict[str, None]
    once_more: bool
    refused: dict[str, None] = field(default_factory=dict)
    ended: StageReason | None = None

    @property
    def pardoned(self) -> bool:
        return self.ended is not None and len(self.refused) == 1 and not self.once_more


class Vain:
    """Follows who took room and didn't start."""

    def __init__(self, world: "World") -> None:
        self._world = world
        chance = random.Random(f"{world.seed} vain")
        often = world.faults.often(REFUSED)
        self._refused = 0.7 if often else chance.choice((0.0, 0.0, 0.2))
        #: Jobs (UIDs) whose pods kubelets refuse even when the faults have stopped.
        self.always: set[str] = set()
        #: By the UID of the job.
        self._taken: dict[str, _Taken] = {}
        #: (Namespace, name) of a quota → its limits.
        self._limits: dict[tuple[str, str], object] = {}
        #: UID → the generation of the job that was seen last.
        self._generations: dict[str, int | None] = {}

    def refuses(self, pod: Object) -> bool:
        """Whether every kubelet refuses this pod, most of them only while there are faults."""
        owners = pod["metadata"].get("ownerReferences") or ()
        if any(owner["uid"] in self.always for owner in owners):
            self._world.faults.hit(REFUSED)
            return True
        of = next((owner for owner in owners if owner["name"].startswith(_JOBS)), None)
        if of is None or not self._refused or not self._world.faults.on:
            return False
        if random.Random(f"{self._world.seed} {of['uid']}").random() >= self._refused:
            return False
        stored = self._world.store.collection(TYJOBS).objects.get((pod["metadata"]["namespace"], of["name"]))
        if stored is None or stored.object["spec"].get("priority", 0) < _LEAST_PRIORITY:
            return False  # somebody must run who may give room
        self._world.faults.hit(REFUSED)
        return True

    def forget(self) -> None:
        """Another epoch begins, or the log lost its tail: what it doesn't know binds no cycle."""
        self._taken.clear()
        self._limits.clear()

    def after(self, state: State, entry: Entry, verdicts: dict[int, Verdict]) -> None:
        """Called after an entry is folded. Raises `Violation` for a job that takes room again."""
        for number, event in enumerate(entry.batch.events):
            verdict = verdicts.get(entry.first + number)
            if verdict is None:
                self._observe(event)
            elif verdict.accepted and isinstance(event, k.StageDecided):
                self._decided(event)
            elif verdict.accepted and isinstance(event, k.Preempted):
                self._drop([of.job_uid for of in event.victims if of.kind.whole and self._is_open(of.job_uid)])
                uid = event.placed.job_uid
                before = self._taken.get(uid)
                if before is not None and before.pardoned:
                    self._world.faults.hit(ONCE_MORE)
                elif before is not None and before.ended is not None:
                    raise Violation(f"a job takes room again that took some in vain ({before.ended})", job=uid)
                job = state.jobs.get(uid)
                if job is not None and not uid.startswith((POD_PREFIX, GROUP_PREFIX)):
                    nodes = {pods.node: None for pods in event.placed.pods}
                    again = before is not None and (before.once_more or before.ended is not None)
                    self._taken[uid] = _Taken(job.seen.namespace, nodes, again)

    def _decided(self, event: k.StageDecided) -> None:
        taken = self._taken.get(event.job_uid)
        if taken is None or event.stage == Stage.STARTING:
            return
        over = event.stage == Stage.RUNNING or event.stage in ENDED or event.reason in _ASKED_FOR
        by_others = taken.ended is None and event.reason == StageReason.ROOM_NOT_FREED
        if over or by_others:
            del self._taken[event.job_uid]
        elif taken.ended is None:
            taken.ended = event.reason
            self._world.faults.hit(VAIN)

    def _is_open(self, uid: str) -> bool:
        """Whether a job has the room that it took: if others take it, that isn't the job's fault."""
        return uid in self._taken and self._taken[uid].ended is None

    def _observe(self, event: k.Event) -> None:
        if k.seen_or_gone(event, k.JobSeen):
            self._seen(event)
        elif isinstance(event, k.PodSeen):
            taken = self._taken.get(event.owner.job_uid) if event.owner is not None else None
            if taken is not None and taken.ended is None and event.reason.startswith(REFUSALS):
                taken.refused[event.node] = None
        elif k.seen_or_gone(event, k.NodeSeen):
            self._drop([uid for uid, of in self._taken.items() if event.name in of.nodes])
        elif k.seen_or_gone(event, k.QuotaSeen):
            limits = (event.hard, event.scopes) if isinstance(event, k.QuotaSeen) else None
            if self._limits.get((event.namespace, event.name)) != limits or limits is None:
                self._drop([uid for uid, of in self._taken.items() if of.namespace == event.namespace])
            self._limits[event.namespace, event.name] = limits
        elif isinstance(event, k.WatchRefused):
            self._limits.clear()

    def _seen(self, event: k.JobSeen | k.ObjectGone) -> None:
        """A job may have been edited."""
        known = self._generations.get(event.uid)
        generation = event.generation if isinstance(event, k.JobSeen) else None
        if known != generation:
            self._drop([event.uid])
        self._generations[event.uid] = generation

    def _drop(self, uids: list[str]) -> None:
        for uid in uids:
            self._taken.pop(uid, None)
