"""A cluster's history in a few lines, without a server, for tests of the pure core.

`World` writes entries as the real writers would and folds them at once. `world.entries` is the log so far.
`world.cycle()`, `world.control()` and `world.apply()` run one round of a scheduler, of the controllers, and of appliers
and kubelets together.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from arranger.events import kinds as k
from arranger.events.codec import encode_batch
from arranger.events.log import Entry
from arranger.events.log_keys import next_chain
from arranger.lifecycle.config import LifecycleConfig
from arranger.lifecycle.desired import desired_pods
from arranger.lifecycle.freshness import awaited_ms
from arranger.lifecycle.images import ImageWaits
from arranger.lifecycle.stages import next_decision
from arranger.model.config import CycleConfig
from arranger.model.faults import Fault, FaultKind
from arranger.model.job import (
    NO_QUOTA_TRAITS,
    CleanPodPolicy,
    Dependency,
    JobSpec,
    JobStatusSeen,
    PodGroup,
    QuotaTraits,
    Rendezvous,
    RestartPolicy,
    Stage,
    Topology,
    with_needed,
)
from arranger.model.node import NodeFacts, Taint
from arranger.model.pod import (
    NO_TIMES,
    NO_TRAITS,
    ContainerEnd,
    GroupAsked,
    GroupKind,
    PodGroupFacts,
    PodOwner,
    PodRules,
    PodShape,
    PodTimes,
    PodToPlace,
    PodTraits,
    Preference,
    QosClass,
    RuntimeNeeds,
    Toleration,
)
from arranger.model.queue import QueueSpec
from arranger.model.quota import QuotaScope
from arranger.model.template import limit_defaults
from arranger.model.tyjob import NO_LEADER
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.jobs.records import JobRecord, asked_record
from arranger.projections.state import ASSUMED_MS, Changes, State, Verdict
from arranger.scheduling.cycle import take_cycle
from arranger.scheduling.queues.registry import BUILT_IN, Policies
from tests.reasons import has_its_facts

GIB = 1 << 30


def requests(*, cpu: float = 0, memory: int = 0, gpus: int = 0, **other: int) -> tuple[tuple[str, int], ...]:
    """Requests in the model's units from cores, bytes and whole devices."""
    amounts = {"cpu": round(cpu * 1000), "memory": memory, "nvidia.com/gpu": gpus, **other}
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))


def shape(
    *,
    selector: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    rules: PodRules | None = None,
    preferred: Iterable[Preference] = (),
    tolerations: Iterable[Toleration] = (),
    **amounts: float,
) -> PodShape:
    """A pod shape from amounts as in `requests`, a nodeSelector, labels, and rules about other pods."""
    return PodShape(
        requests(**amounts),  # type: ignore[arg-type]
        tuple(sorted((selector or {}).items())),
        tuple(tolerations),
        labels=tuple(sorted((labels or {}).items())),
        preferred=tuple(preferred),
        rules=rules,
    )


class World:
    """One log and the state that it folds to."""

    def __init__(
        self,
        *,
        config: CycleConfig | None = None,
        listed: bool = True,
        policies: Policies = BUILT_IN,
    ) -> None:
        self.state = State()
        self.entries: list[Entry] = []
        self.now_ms = 1_700_000_000_000
        self.policies = policies
        self.config = config or CycleConfig(versions=policies.versions(), refusal_avoid_ms=60_000)
        self.lifecycle = LifecycleConfig()
        self.images = ImageWaits()
        self.changes = Changes()
        #: The jobs that all changes so far have touched.
        self.touched: dict[str, None] = {}
        self.verdicts: list[Verdict] = []
        #: Whether watchers tell up to when everything is known.
        self.hears = True
        self._seq = 0
        self._chain = ""
        self._versions = 0
        self.say(k.EpochBegun(1, 0, "test"))
        kinds = (k.Watched.NODE, k.Watched.POD, k.Watched.JOB)
        self.terms = {kind: self.say(k.WatchClaimed(kind, "test")) for kind in kinds}
        if listed:
            self.list_all()

    def list_all(self) -> None:
        """End the listings: all existing objects have been observed."""
        for kind in self.terms:
            self.say(k.ListingBegun(kind, self.terms[kind]), k.ListingEnded(kind, self.terms[kind], "1"))

    def watch_all(self) -> None:
        """Watch every kind from now on that is watched without a setting, and without anybody asking."""
        for kind in k.Watched:
            if kind not in k.SETTING_OF and kind != k.Watched.PROVISIONING:
                self._watch(kind)

    def watch_quotas(self) -> int:
        """Watch quotas from now on, which a world doesn't by default; returns the term."""
        return self._watch(k.Watched.QUOTA)

    def watch_classes(self) -> int:
        """Watch PriorityClasses from now on, which a world doesn't by default; returns the term."""
        return self._watch(k.Watched.PRIORITY_CLASS)

    def watch_runtimes(self) -> int:
        """Watch RuntimeClasses from now on, which a world doesn't by default; returns the term."""
        return self._watch(k.Watched.RUNTIME_CLASS)

    def watch_limits(self) -> int:
        """Watch LimitRanges from now on, which a world doesn't by default; returns the term."""
        return self._watch(k.Watched.LIMIT_RANGE)

    def watch_queues(self) -> int:
        """Watch Queues from now on, which a world doesn't by default; returns the term."""
        return self._watch(k.Watched.QUEUE)

    def watch_namespaces(self) -> int:
        """Watch namespaces from now on, which a world doesn't by default; returns the term."""
        return self._watch(k.Watched.NAMESPACE)

    def pod_group(
        self, name: str, least: int, *, kind: GroupKind = GroupKind.COSCHEDULING, uid: str = "", **facts: Any
    ) -> None:
        """Observe a PodGroup; call again with the same name to change it."""
        term, uid = self.watch_groups(kind), uid or f"uid-{name}"
        self.say(k.PodGroupSeen(term, "default", name, uid, self._version(), kind, PodGroupFacts(least, **facts)))

    def pod_group_gone(self, name: str, *, kind: GroupKind = GroupKind.COSCHEDULING, uid: str = "") -> None:
        self.say(k.ObjectGone(k.GROUP_WATCHES[kind], self.watch_groups(kind), "default", name, uid or f"uid-{name}"))

    def watch_groups(self, kind: GroupKind) -> int:
        """Watch PodGroups of a kind from now on, which a world doesn't by default; returns the term."""
        return self._watch(k.GROUP_WATCHES[kind])

    def _watch(self, kind: k.Watched) -> int:
        if kind not in self.terms:
            term = self.terms[kind] = self.say(k.WatchClaimed(kind, "test"))
            self.say(k.ListingEnded(kind, term, "1"))
        return self.terms[kind]

    def say(self, *events: k.Event) -> int:
        """Append events as one batch and fold them; returns the offset of the first."""
        self._seq += 1
        batch = k.Batch("test", self._seq, self.now_ms, events)
        first = self.state.offset + 1
        self._chain = next_chain(self._chain, encode_batch(batch))
        entry = Entry(first, first + len(events) - 1, self._chain, batch)
        self.fold(entry)
        self.entries.append(entry)
        return first

    def fold(self, entry: Entry) -> None:
        """Apply one entry to the state; `changes` then has what it touched."""
        self.changes = Changes()
        apply_entry(self.state, entry, self.changes)
        self.verdicts += self.changes.verdicts
        self.touched.update(self.changes.jobs)

    def verdict(self, kind: str) -> Verdict:
        """The last verdict on a decision of this kind."""
        return next(verdict for verdict in reversed(self.verdicts) if verdict.kind == kind)

    def used(self, node: str, resource: str = "cpu") -> int:
        """The usage on a node, in the model's units; 0 for an unknown node."""
        nodes = self.state.nodes
        return nodes.amounts(nodes.rows[node]).get(resource, (0, 0))[0] if node in nodes.rows else 0

    def digest(self) -> str:
        """The digest of the state so far."""
        return snapshot.digest(self.state)

    def pass_time(self, seconds: float) -> None:
        """Advance the time of later events."""
        self.now_ms += round(seconds * 1000)

    def wait_for_late_pods(self) -> None:
        """Advance the time until all assumed pods have expired, and append an entry."""
        self.now_ms = max(self.now_ms, self.state.time_ms)  # a clock that was set back has no effect
        self.pass_time(ASSUMED_MS / 1000)
        self.say(k.ListingBegun(k.Watched.NODE, self.terms[k.Watched.NODE]))

    def wait_for_back_offs(self) -> None:
        """Advance the time until all back-offs have ended."""
        self.now_ms = max([self.now_ms, *(job.not_before_ms for job in self.state.jobs.values())])

    # --- observations --------------------------------------------------------------------------------------

    def node(
        self,
        name: str,
        *,
        cpu: float = 64,
        memory: int = 256 * GIB,
        gpus: int = 0,
        pods: int = 110,
        ready: bool = True,
        cordoned: bool = False,
        labels: Mapping[str, str] | None = None,
        taints: Iterable[Taint] = (),
        uid: str = "",
        **other: int,
    ) -> None:
        """Observe a node; call again with the same name to change it."""
        allocatable = tuple(sorted((*requests(cpu=cpu, memory=memory, gpus=gpus, **other), ("pods", pods))))
        facts = NodeFacts(allocatable, ready, cordoned, tuple(sorted((labels or {}).items())), tuple(taints))
        self.say(k.NodeSeen(self.terms[k.Watched.NODE], name, uid or f"uid-{name}", self._version(), facts))

    def node_gone(self, name: str, *, uid: str = "") -> None:
        self.say(k.ObjectGone(k.Watched.NODE, self.terms[k.Watched.NODE], "", name, uid or f"uid-{name}"))

    def pod(
        self,
        name: str,
        node: str = "",
        *,
        phase: str = "Running",
        owner: PodOwner | None = None,
        ready: bool = True,
        deleting: bool = False,
        ip: str = "",
        waiting: str = "",
        reason: str = "",
        restarts: int = 0,
        uid: str | None = None,
        namespace: str = "default",
        traits: PodTraits = NO_TRAITS,
        amounts: tuple[tuple[str, int], ...] = (),
        ended: ContainerEnd | None = None,
        asks: PodToPlace | None = None,
        times: PodTimes = NO_TIMES,
        **more: float,
    ) -> str:
        """Observe a pod, a foreign one unless it has an owner; returns its UID."""
        uid = uid or f"uid-{name}"
        asked = amounts or requests(**more)  # type: ignore[arg-type]
        term = self.terms[k.Watched.POD]
        self.say(
            k.PodSeen(term, namespace, name, uid, self._version(), node, phase, asked, owner, ready, deleting,
                      ip=ip, restarts=restarts, reason=reason, waiting=waiting, traits=traits, ended=ended, asks=asks,
                      times=times)
        )  # fmt: skip
        return uid

    def pod_to_place(self, name: str, node: str = "", **asked: Any) -> JobRecord:
        """Observe a pod that no TYJob owns and that names Arranger as its scheduler, as `pod_asking` does; returns its
        record, or that of its group. Call again with the same name to change it."""
        return self.state.jobs[asked_record(self.state.pods[self.pod_asking(name, node, **asked)])]

    def pod_asking(
        self,
        name: str,
        node: str = "",
        *,
        of: PodShape | None = None,
        priority: int = 0,
        gates: tuple[str, ...] = (),
        claims: tuple[str, ...] = (),
        of_queue: str = "",
        preempts: bool = True,
        created: int = 0,
        namespace: str = "default",
        group: str = "",
        least: int = 1,
        group_kind: GroupKind = GroupKind.LABELS,
        qos: QosClass | None = None,
        task: str = "",
        **more: Any,
    ) -> str:
        """Observe such a pod, which may have ended; returns its UID."""
        of = of or shape(cpu=1)
        rules = of.rules or PodRules()
        asked = GroupAsked(group, 0 if group_kind else least, group_kind) if group else None
        asks = PodToPlace(
            of, priority, gates, created, of_queue, preempts=preempts, group=asked, claims=claims, qos=qos, task=task
        )
        traits = PodTraits(of.labels, rules.host_ports, rules.anti_affinity)
        fields = {"phase": "Running" if node else "Pending", "ready": bool(node), **more}
        return self.pod(name, node, amounts=of.requests, traits=traits, asks=asks, namespace=namespace, **fields)

    def pod_gone(self, uid: str) -> None:
        pod = self.state.pods[uid]
        self.say(k.ObjectGone(k.Watched.POD, self.terms[k.Watched.POD], pod.namespace, pod.name, uid))

    def job(
        self,
        name: str,
        *,
        leader: PodShape | None = None,
        workers: int | Iterable[tuple[str, int, PodShape]] = 0,
        worker: PodShape | None = None,
        min_workers: int = 0,
        minimums: Mapping[str, int] | None = None,
        priority: int = 5,
        policy: str = "",
        queue: str = "",
        restart_limit: int = 3,
        restart: Mapping[str, RestartPolicy] | None = None,
        rendezvous: Mapping[str, Rendezvous] | None = None,
        group_sizes: Mapping[str, int] | None = None,
        topologies: Mapping[str, Topology | None] | None = None,
        group_size: int = 1,
        clean: CleanPodPolicy = CleanPodPolicy.ALL,
        terminating: bool = False,
        suspend: bool = False,
        ttl_s: int | None = None,
        deadline_s: int | None = None,
        expected_s: int | None = None,
        image: str = "",
        preemptible: bool = True,
        leader_service: bool = False,
        keep_failed: int = 0,
        created: int = 0,
        uid: str | None = None,
        deleting: bool = False,
        invalid: str = "",
        status: JobStatusSeen | None = None,
        generation: int = 1,
        namespace: str = "default",
        traits: QuotaTraits = NO_QUOTA_TRAITS,
        scaled: int = 1,
        priority_class: str = "",
        after: Iterable[Dependency] = (),
        success: tuple[int, ...] = (0,),
        start_after: Mapping[str, int] | None = None,
        equals: bool = False,
        of_queue: str = "",
        user: str = "",
        checkpoint_ms: int = 0,
        grace_s: int = 30,
        created_by: tuple[str, str] = ("", ""),
        permits: tuple[str, ...] = (),
        start_grace_s: int | None = None,
    ) -> JobRecord:
        """Observe a TYJob; call again with the same name to edit it. `workers` is the count of one set, or all sets.
        `minimums` is minCount by worker set, `restart`, `rendezvous`, `group_sizes` and `topologies` are what a worker
        set has of them (the job's topology without a name), `group_size` is that of all others, `invalid` is a field
        that is missing, `scaled` the group of the scaled set. `success` and `start_after` (by worker set) are groups; a
        job of `equals` has no leader, and by default ends with all of its workers. `queue` is its queue policy,
        `of_queue` the queue that its spec names, `user` that of its label."""
        leader = leader or shape(cpu=1)
        sets = [("actors", workers, worker or leader)] if isinstance(workers, int) else list(workers)
        groups = (
            NO_LEADER if equals else PodGroup("learner", 1, leader, traits, 0,
                                              (restart or {}).get("learner", RestartPolicy(limit=restart_limit))),
            *(
                PodGroup(n, count, of, traits, (minimums or {}).get(n, 0),
                         (restart or {}).get(n, RestartPolicy(limit=restart_limit)), (rendezvous or {}).get(n),
                         (start_after or {}).get(n), (group_sizes or {}).get(n, group_size), (topologies or {}).get(n),
                         grace_s)
                for n, count, of in sets if count or not isinstance(workers, int)
            ),
        )  # fmt: skip
        least = max(min_workers, sum(group.min_count for group in groups), int(equals))
        success = tuple(range(1, len(groups))) if equals and success == (0,) else success
        groups = with_needed(groups, least)
        spec = None if invalid else JobSpec(
            groups, least, 0 if priority_class else priority, queue, policy, restart_limit, clean, terminating,
            suspend, ttl_s, deadline_s, leader_service, scaled if len(groups) > scaled else 0,
            priority_class, not priority_class, keep_failed, tuple(after), success, (topologies or {}).get(""),
            of_queue, preemptible, expected_s, image, start_grace_s=start_grace_s,
        )  # fmt: skip
        uid = uid or f"uid-{name}"
        version = self._version()
        self.say(
            k.JobSeen(self.terms[k.Watched.JOB], namespace, name, uid, version, generation, created, deleting, spec,
                      (Fault(invalid, FaultKind.REQUIRED),) if invalid else (), "", status, user, checkpoint_ms,
                      *created_by, permits)
        )  # fmt: skip
        return self.state.jobs[uid]

    def quota(
        self,
        name: str,
        hard: Mapping[str, int],
        used: Mapping[str, int] | None = None,
        *,
        namespace: str = "default",
        scopes: Iterable[QuotaScope] = (),
    ) -> None:
        """Observe a ResourceQuota, by default unused; call again with the same name to change it."""
        counted = dict.fromkeys(hard, 0) | dict(used or {})
        self.say(
            k.QuotaSeen(self.watch_quotas(), namespace, name, f"uid-{name}", self._version(),
                        tuple(sorted(hard.items())), tuple(sorted(counted.items())), tuple(scopes))
        )  # fmt: skip

    def quota_gone(self, name: str, *, namespace: str = "default") -> None:
        self.say(k.ObjectGone(k.Watched.QUOTA, self.terms[k.Watched.QUOTA], namespace, name, f"uid-{name}"))

    def priority_class(self, name: str, value: int, *, uid: str = "") -> None:
        """Observe a PriorityClass; call again with another UID to replace it."""
        self.say(k.PriorityClassSeen(self.watch_classes(), name, uid or f"uid-{name}", self._version(), value))

    def priority_class_gone(self, name: str, *, uid: str = "") -> None:
        self.say(
            k.ObjectGone(k.Watched.PRIORITY_CLASS, self.terms[k.Watched.PRIORITY_CLASS], "", name, uid or f"uid-{name}")
        )

    def runtime_class(self, name: str, needs: RuntimeNeeds) -> None:
        """Observe a RuntimeClass; call again to change it."""
        self.say(k.RuntimeClassSeen(self.watch_runtimes(), name, f"uid-{name}", self._version(), needs))

    def limit_range(self, name: str, *, namespace: str = "default", **spec: Any) -> None:
        """Observe a LimitRange of containers; call again to change it."""
        term = self.watch_limits()
        defaults = limit_defaults({"limits": [{"type": "Container", **spec}]})
        self.say(k.LimitRangeSeen(term, namespace, name, f"uid-{name}", self._version(), defaults))

    def limit_range_gone(self, name: str, *, namespace: str = "default") -> None:
        self.say(k.ObjectGone(k.Watched.LIMIT_RANGE, self.terms[k.Watched.LIMIT_RANGE], namespace, name, f"uid-{name}"))

    def runtime_class_gone(self, name: str) -> None:
        self.say(k.ObjectGone(k.Watched.RUNTIME_CLASS, self.terms[k.Watched.RUNTIME_CLASS], "", name, f"uid-{name}"))

    def queue(self, name: str, spec: QueueSpec | None = None, *, invalid: str = "", uid: str = "", **of: Any) -> None:
        """Observe a Queue with the given fields of a `QueueSpec`; call again with the same name to change it. `invalid`
        is a field that is missing."""
        spec = None if invalid else spec or QueueSpec(**of)
        faults = (Fault(invalid, FaultKind.REQUIRED),) if invalid else ()
        term, uid = self.watch_queues(), uid or f"uid-{name}"
        self.say(k.QueueSeen(term, name, uid, self._version(), 1, spec, faults, ""))

    def queue_gone(self, name: str, *, uid: str = "") -> None:
        self.say(k.ObjectGone(k.Watched.QUEUE, self.watch_queues(), "", name, uid or f"uid-{name}"))

    def namespace(self, name: str, *, queue: str = "", uid: str = "", **labels: str) -> None:
        """Observe a namespace with these labels, and with an annotation that names the queue of its jobs."""
        of = tuple(sorted(labels.items()))
        self.say(k.NamespaceSeen(self.watch_namespaces(), name, uid or f"uid-{name}", self._version(), of, queue))

    def namespace_gone(self, name: str, *, uid: str = "") -> None:
        self.say(k.ObjectGone(k.Watched.NAMESPACE, self.watch_namespaces(), "", name, uid or f"uid-{name}"))

    def pods_of(self, job: JobRecord) -> dict[tuple[int, int], k.PodSeen]:
        """The pods that fill a job's slots, by slot."""
        return {slot: self.state.pods[uid] for slot, uid in sorted(job.bound.items())}

    def change_pod(self, uid: str, **changes: object) -> None:
        """Observe a pod again with other fields."""
        self.say(msgspec.structs.replace(self.state.pods[uid], resource_version=self._version(), **changes))

    def job_gone(self, job: JobRecord) -> None:
        self.say(k.ObjectGone(k.Watched.JOB, self.terms[k.Watched.JOB], job.seen.namespace, job.seen.name, job.uid))

    # --- rounds of the workers -----------------------------------------------------------------------------

    def hear(self) -> None:
        """Do what watchers do for decisions that wait until everything is known up to their time."""
        for kind in (k.Watched.POD, k.Watched.NODE):
            if self.hears and awaited_ms(self.state, kind, self.config, self.lifecycle, self.now_ms):
                self.say(k.WatchHeard(kind, self.terms[kind], self.now_ms))

    def cycle(self) -> tuple[k.Event, ...]:
        """Take one scheduling cycle, append it and fold it."""
        self.hear()
        events = take_cycle(self.state, self.config, self.now_ms, policies=self.policies)
        if events:
            self.say(*events)
        return events

    def control(self) -> list[k.Event]:
        """Append and fold every present decision of the controllers."""
        self.hear()
        jobs = [self.state.jobs[uid] for uid in sorted(self.state.jobs)] if self.state.synced else []
        decisions = [
            next_decision(
                self.state,
                job,
                self.lifecycle,
                self.now_ms,
                no_image_ms=self.images.since_ms(self.state, job, self.now_ms),
            )
            for job in jobs
        ]
        events: list[k.Event] = [decision for decision in decisions if decision is not None]
        assert all(has_its_facts(event) for event in events if isinstance(event, k.StageDecided))
        if events:
            self.say(*events)
        return events

    def apply(self) -> int:
        """Do the work of appliers and kubelets: desired pods run and are ready, undesired ones are deleted."""
        effects = 0
        for job in [self.state.jobs[uid] for uid in sorted(self.state.jobs)]:
            desired = desired_pods(self.state, job)
            for pod in (*desired.delete, *desired.force):
                self.pod_gone(pod.uid)
            for slot, node in desired.create:
                self.run_pod(job, slot, node)
            effects += len(desired.create) + len(desired.delete) + len(desired.force)
        return effects

    def run_pod(
        self,
        job: JobRecord,
        slot: tuple[int, int],
        node: str,
        *,
        phase: str = "Running",
        ip: str | None = None,
        ready: bool = True,
    ) -> str:
        """Observe the running pod of a slot, by default with an address derived from the slot; returns its UID."""
        assert job.spec is not None
        group = job.spec.groups[slot[0]]
        owner, name = job.owner_of(slot), job.pod_name(slot)
        address = f"10.0.{slot[0]}.{slot[1]}" if ip is None else ip
        traits = PodTraits(group.shape.labels)
        if group.shape.rules is not None:
            traits = PodTraits(group.shape.labels, group.shape.rules.host_ports, group.shape.rules.anti_affinity)
        return self.pod(
            name, node, phase=phase, owner=owner, ip=address, amounts=group.shape.requests, traits=traits,
            namespace=job.seen.namespace, ready=ready,
        )  # fmt: skip

    def settle(self, *, rounds: int = 50) -> None:
        """Repeat cycles, decisions and effects until nothing changes."""
        for _ in range(rounds):
            if not (self.cycle() or self.control() or self.apply()):
                return
        raise AssertionError(f"the world doesn't settle in {rounds} rounds")

    def _version(self) -> str:
        self._versions += 1
        return str(self._versions)


class Edited:
    """The job `ppo` in a world, and edits of its spec; the arguments are those of `World.job`."""

    def __init__(self, world: World, **spec: object) -> None:
        self.world = world
        self.spec = spec
        self.generation = 0
        self.job = self.edit()

    def edit(self, **changes: object) -> JobRecord:
        """Change these fields; the others stay."""
        self.generation += 1
        self.spec = {**self.spec, **changes}
        return self.world.job("ppo", generation=self.generation, **self.spec)  # type: ignore[arg-type]


def starting(*, cpu: float, **job: object) -> tuple[World, JobRecord]:
    """The starting job `ppo`: the pods that fit are placed on the only node `n1`, and no pod exists yet."""
    world = World()
    world.node("n1", cpu=cpu)
    record = world.job("ppo", **job)  # type: ignore[arg-type]
    world.cycle()
    assert record.stage == Stage.STARTING and not record.bound
    return world, record
