"""Hypotheses: a copy of a state with additional events folded into it. The original state is unchanged.

A hypothesis consists of events, so the fold defines its meaning: to uncordon a node is to see the node without the
cordon, and to end a job is to delete the job and its pods.
"""

import dataclasses
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from typing import TypeVar

import msgspec

from arranger.events import kinds as k
from arranger.events.devices import ResourceClaimSeen
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.model.job import JobSpec, Stage
from arranger.model.node import NodeFacts
from arranger.model.queue import QueueSpec
from arranger.model.stages import StageReason, may_enter
from arranger.model.steps import Steps
from arranger.projections.cluster.nodes import NodeTable
from arranger.projections.derived.departing import hanging
from arranger.projections.derived.expected_ends import reaches_deadline
from arranger.projections.fold import apply_entry
from arranger.projections.folding.slots import forget_assumed
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord, asked_record, pods_of_record
from arranger.projections.state import Changes, State
from arranger.replay.reading.describe import label
from arranger.replay.what_if.claim_account import freed
from arranger.replay.what_if.quota_account import accounted

#: So many jobs are copied in one step.
_AT_ONCE = 256

_Result = TypeVar("_Result")
_Observation = TypeVar("_Observation", bound=msgspec.Struct)
_PodsOf = dict[str, dict[str, k.PodSeen]]


def supposed(state: State, events: Sequence[k.Event]) -> State:
    """A copy of the state with these events folded after all others. No assumed pods are added for the slots that they
    release. The two states share the parts that the events don't touch."""
    events = accounted(state, [*events, *freed(state, events)])
    of_namespaces = any(k.seen_or_gone(event, k.NamespaceSeen) for event in events)
    of_pods = of_namespaces or any(k.seen_or_gone(event, k.PodSeen) for event in events)
    touched = dict.fromkeys(state.jobs if any(map(_of_any_job, events)) else _touched(state, events))
    fork = _fork(state, touched, of_pods=of_pods)
    _fold(fork, state.time_ms, events)
    return fork


#: What admission adds to the pods of any job, and the namespaces that the terms of any pod and job select.
_OF_ALL = frozenset({k.Watched.NAMESPACE, k.Watched.PRIORITY_CLASS, k.Watched.RUNTIME_CLASS, k.Watched.LIMIT_RANGE})


def _of_any_job(event: k.Event) -> bool:
    """Whether an event is about an object that any job may name. A claim that was made for a pod is its job's alone."""
    own = isinstance(event, ResourceClaimSeen) and event.facts.owner is not None
    kind = k.watch_of(event)
    return kind in _OF_ALL or (kind in k.SETTING_OF and not own)


def private_copy(state: State) -> State:
    """A copy that events may change without the original. Both share what the fold replaces and never changes."""
    return Steps(copy_bit_by_bit(state)).finish()


def copy_of(state: State, pods: dict[str, k.PodSeen], jobs: dict[str, JobRecord], pods_of: _PodsOf) -> State:
    """A copy that has these jobs and pods, and all other parts of its own."""
    fork = _forked(state, jobs, pods_of, nodes=state.nodes.copy(), of_pods=False)
    fork.pods, fork.repelling, fork.deleting = pods, dict(state.repelling), dict(state.deleting)
    fork.finished = {uid: dict(of) for uid, of in state.finished.items()}
    return fork


def copy_bit_by_bit(state: State) -> Generator[None, None, State]:
    """`private_copy` in steps of some milliseconds. The state must not change between them."""
    jobs: dict[str, JobRecord] = {}
    for number, (uid, job) in enumerate(state.jobs.items()):
        if number and not number % _AT_ONCE:
            yield
        jobs[uid] = job.copy()
    yield
    pods_of = {uid: dict(pods) for uid, pods in state.pods_of.items()}
    yield
    nodes = state.nodes.copy()
    yield
    return _forked(state, jobs, pods_of, nodes=nodes, of_pods=True)


def say(state: State, time_ms: int, events: Sequence[k.Event]) -> Changes:
    """Fold hypothetical events into a state as one more entry, and return what they touched. No assumed pods are added
    for the slots that they release."""
    return _fold(state, time_ms, accounted(state, [*events, *freed(state, events)]))


def _fold(state: State, time_ms: int, events: tuple[k.Event, ...]) -> Changes:
    changes = Changes()
    if events:
        first, assumed = state.offset + 1, dict(state.assumed)
        batch = k.Batch("supposed", first, time_ms, events)
        apply_entry(state, Entry(first, first + len(events) - 1, "", batch), changes)
        forget_assumed(state, [pod for of, pod in state.assumed.items() if pod != assumed.get(of)], changes)
    return changes


def node_seen(state: State, name: str, facts: NodeFacts) -> k.NodeSeen:
    nodes = state.nodes
    uid = nodes.uids[nodes.rows[name]] if nodes.has(name) else f"supposed-{name}"
    return k.NodeSeen(state.terms.get(k.Watched.NODE, 0), name, uid, "", facts)


def renamed(facts: NodeFacts, old: str, new: str) -> NodeFacts:
    """The facts for a node with another name: label values that are the old name become the new one."""
    labels = tuple((key, new if value == old else value) for key, value in facts.labels)
    return msgspec.structs.replace(facts, labels=labels)


def node_copies(state: State, names: Sequence[str]) -> tuple[k.NodeSeen, ...]:
    """For each of these present nodes another one with its amounts, labels and taints, ready and not cordoned. The
    taints that Kubernetes sets while a node isn't that are left out."""
    copies: dict[str, NodeFacts] = {}
    for name in names:
        facts = state.nodes.facts[state.nodes.rows[name]]
        number = 1
        while state.nodes.has(new := f"{name}-copy-{number}") or new in copies:
            number += 1
        taints = tuple(taint for taint in facts.taints if not taint.key.startswith("node.kubernetes.io/"))
        copies[new] = msgspec.structs.replace(renamed(facts, name, new), ready=True, cordoned=False, taints=taints)
    return tuple(node_seen(state, new, facts) for new, facts in copies.items())


def job_seen(job: JobRecord, state: State, spec: JobSpec) -> k.JobSeen:
    """The observation of the job after an edit to this spec."""
    return msgspec.structs.replace(retold(job.seen, state), spec=spec, generation=job.seen.generation + 1)


def job_gone(job: JobRecord, state: State) -> tuple[k.Event, ...]:
    """The deletion of the job and its pods."""
    return (*job_alone_gone(job, state), *pods_gone(state, state.pods_of.get(job.uid, {}).values()))


def job_ended(job: JobRecord, state: State, config: CycleConfig) -> tuple[k.Event, ...]:
    """The same of a job that has ended before as is expected, which those know that wait for it: it has succeeded, or
    its deadline has failed it."""
    fails = reaches_deadline(state, job, config, state.time_ms)
    end, reason = (Stage.FAILED, StageReason.AS_RECORDED) if fails else (Stage.SUCCEEDED, StageReason.ASSUMED)
    waited_for = (job.seen.namespace, job.seen.name) in state.dependents and not job.of_pods
    if not (waited_for and may_enter(job.stage, reason, end)):
        return job_gone(job, state)
    return (k.StageDecided(job.uid, job.version, job.attempt, end, reason), *job_gone(job, state))


def job_alone_gone(job: JobRecord, state: State) -> tuple[k.Event, ...]:
    """The deletion of the job without its pods. The record of a pod, or of a group, goes only with its pods."""
    if job.of_pods:
        return pods_gone(state, [state.pods[uid] for uid in pods_of_record(job)])
    return (k.gone(job.seen, state.terms.get(k.Watched.JOB, 0)),)


def slots_gone(job: JobRecord, state: State, slots: Collection[SlotKey]) -> tuple[k.Event, ...]:
    """The deletion of the job and of its pods in these slots. Pods of nobody stand for those in its other slots: pods
    of a job that is gone would leave, and be room for which another one could wait."""
    left, gone = [slot for slot in job.placements if slot not in slots], [*job.bound.values()]
    first: tuple[k.Event, ...] = ()
    if job.of_group:  # it goes with its last pod, and those in the other slots stay
        filled = frozenset(gone)
        gone = [uid for uid in pods_of_record(job) if uid not in filled]
        gone += [uid for slot, uid in job.bound.items() if slot in slots]
        left = [slot for slot in left if slot not in job.bound]
    else:
        first = job_alone_gone(job, state)
    pods = [state.pods[uid] for uid in gone]
    return (*first, *pods_gone(state, pods), *[_supposed_pod(job, state, slot) for slot in left])


def _supposed_pod(job: JobRecord, state: State, slot: SlotKey) -> k.PodSeen:
    """A pod of nobody that is as the one in a job's slot, or as it will be."""
    group, index = slot
    name, term = f"supposed-{group}-{index}", state.terms.get(k.Watched.POD, 0)
    if (uid := job.bound.get(slot)) is not None:
        return msgspec.structs.replace(retold(state.pods[uid], state), name=name, uid=name, owner=None)
    requests = job.valid_spec.groups[group].shape.requests
    node = job.placements[slot]
    return k.PodSeen(term, job.seen.namespace, name, name, "", node, "Pending", requests, None, False, False)


def queue_seen(state: State, name: str, spec: QueueSpec) -> k.QueueSeen:
    """The observation of the queue with this spec; a new queue if there is none of that name."""
    known, term = state.queues.get(name), state.terms.get(k.Watched.QUEUE, 0)
    uid, generation = (known.uid, known.generation + 1) if known is not None else (f"supposed-{name}", 1)
    return k.QueueSeen(term, name, uid, "", generation, spec, (), "")


def queue_gone(state: State, name: str) -> k.ObjectGone:
    """The deletion of the queue of that name, which exists."""
    return k.gone(state.queues[name], state.terms.get(k.Watched.QUEUE, 0))


def pods_gone(state: State, pods: Iterable[k.PodSeen]) -> tuple[k.Event, ...]:
    term = state.terms.get(k.Watched.POD, 0)
    return tuple(k.gone(pod, term) for pod in pods)


def pods_left(state: State, uids: Iterable[str], time_ms: int, *, bound_ms: int) -> tuple[k.Event, ...]:
    """The end of those of these pods that don't hang: nobody knows when one does that should be gone by now."""
    hang = hanging(state, time_ms, bound_ms)
    return pods_gone(state, [state.pods[uid] for uid in uids if uid not in hang])


def pod_back(state: State, pod: k.PodSeen) -> k.PodSeen:
    return msgspec.structs.replace(retold(pod, state), deleting=False)


def retold(event: _Observation, state: State) -> _Observation:
    """The observation under the present term of its kind."""
    return msgspec.structs.replace(event, term=state.terms.get(k.watch_of(event) or "", 0))


def _touched(state: State, events: Sequence[k.Event]) -> dict[str, None]:
    """The jobs whose records the events change, whatever is in them."""
    found = dict.fromkeys(_concerned(state, events))
    if any(map(state.is_host, found)):  # its end is one for all guests
        found |= {job.uid: None for job in state.jobs.values() if job.slots.hosts or job.slots.lent}
    return found


def _concerned(state: State, events: Sequence[k.Event]) -> Iterable[str]:
    for event in events:
        if k.seen_or_gone(event, k.JobSeen):
            yield event.uid
            yield from state.dependents.get((event.namespace, event.name), ())
        elif isinstance(event, k.PodsTried):
            yield event.job_uid
        elif k.seen_or_gone(event, k.PodSeen):
            pods = [state.pods.get(event.uid), event if isinstance(event, k.PodSeen) else None]
            yield from (asked_record(pod) for pod in pods if pod is not None)
            yield from (pod.owner.job_uid for pod in pods if pod is not None and pod.owner is not None)
        if k.watch_of(event) in _LIFTING:
            yield from state.takers


#: After observations of these, jobs that took room in vain may take some again.
_LIFTING = (k.Watched.NODE, k.Watched.POD, k.Watched.QUOTA)


def _fork(state: State, touched: Iterable[str], *, of_pods: bool) -> State:
    """A copy of all parts that the events change. Pods are copied only for events about pods, because they are many."""
    jobs = dict(state.jobs)
    pods_of = dict(state.pods_of) if of_pods else state.pods_of
    for uid in touched:
        if uid in jobs:
            jobs[uid] = jobs[uid].copy()
        if of_pods and uid in pods_of:
            pods_of[uid] = dict(pods_of[uid])
    return _forked(state, jobs, pods_of, nodes=state.nodes.copy(), of_pods=of_pods)


def _forked(state: State, jobs: dict[str, JobRecord], pods_of: _PodsOf, *, nodes: NodeTable, of_pods: bool) -> State:
    """A state with these parts, and copies of the other ones that events change."""
    return dataclasses.replace(
        state,
        nodes=nodes,
        pods=dict(state.pods) if of_pods else state.pods,
        pods_of=pods_of,
        finished={uid: dict(of) for uid, of in state.finished.items()} if of_pods else state.finished,
        repelling=dict(state.repelling) if of_pods else state.repelling,
        deleting=dict(state.deleting) if of_pods else state.deleting,
        orphaned=dict(state.orphaned),
        pod_groups=dict(state.pod_groups),
        volumes=state.volumes.copy(),
        devices=state.devices.copy(),
        requests=dict(state.requests),
        seen_requests={uid: dict(of) for uid, of in state.seen_requests.items()},
        placeholders={uid: dict(of) for uid, of in state.placeholders.items()},
        jobs=jobs,
        assumed=dict(state.assumed),
        terms=dict(state.terms),
        listed=dict(state.listed),
        heard=dict(state.heard),
        verdicts={kind: list(counts) for kind, counts in state.verdicts.items()},
        quotas={namespace: dict(of_namespace) for namespace, of_namespace in state.quotas.items()},
        plain={kind: dict(of) for kind, of in state.plain.items()},
        limit_ranges={namespace: dict(of) for namespace, of in state.limit_ranges.items()},
        queues=dict(state.queues),
        namespaces=dict(state.namespaces),
        unwatched=dict(state.unwatched),
        named=dict(state.named),
        dependents=dict(state.dependents),
        with_rules=dict(state.with_rules),
        awaiting=dict(state.awaiting),
        takers=dict(state.takers),
        reservations=dict(state.reservations),
        kept_limits=dict(state.kept_limits),
        forecasts=dict(state.forecasts),
        queue_use=state.queue_use.copy(),
        run_times=dict(state.run_times),
    )


# --- dry runs -------------------------------------------------------------------------------------------------
#
# A cycle takes room for a job only once the API server was asked, by a dry run, whether it takes the job's pods. Nobody
# asks it about a job that is only supposed, so a hypothesis supposes the answer: it takes them, unless the log says
# that it refuses these pods.


def answers(state: State) -> tuple[k.PodsTried, ...]:
    """The answers about all jobs that have none. Those with nodes may wait again."""
    return tuple(_answer(job, job.seen) for job in _unanswered(state))


def answered(
    state: State,
    before: State,
    waits: Collection[str],
    take: Callable[[State], tuple[_Result, Collection[str]]],
    tell: Callable[[State, Sequence[k.Event]], State],
) -> tuple[_Result, tuple[str, ...]]:
    """The result of a cycle on a state with changes, with the supposed answers; `before` is the state without them.

    Some jobs may take room only because of the changes, so nobody has asked the API server yet whether it takes their
    pods. It is supposed to take them, unless the log says that it refuses them. Also returns the names of those jobs of
    which the log says nothing. The jobs of the names `waits` wait for the answer without the changes too, and go on
    waiting: else the changes would seem to give the room that only the answer lacks.

    `take` takes the cycle, and names the jobs that would take room but for the answer. `tell` adds answers to a state.
    """
    done, supposed = list(waits), list[str]()
    while True:
        result, untried = take(state)
        names = [name for name in untried if name not in done]
        if not names:
            return result, tuple(supposed)
        waiting = [job for job in _unanswered(state) if not job.placements and label(job) in names]
        asked = [(job, before.jobs.get(job.uid)) for job in waiting]
        state = tell(state, [_answer(was, job.seen) for job, was in asked])
        supposed += [label(job) for job, was in asked if was is None or _known(was, job.seen) is None]
        done += names


def _unanswered(state: State) -> list[JobRecord]:
    return [job for job in state.jobs.values() if job.active and job.dry_run is None and not job.of_pods]


def with_answers(state: State, events: Sequence[k.Event]) -> tuple[k.Event, ...]:
    """Hypothetical events, and the answers about the jobs that they create or edit."""
    seen = [event for event in events if isinstance(event, k.JobSeen)]
    return (*events, *_answers(state, seen))


def _answers(state: State, seen: Iterable[k.JobSeen]) -> Iterable[k.PodsTried]:
    for event in seen:
        job = state.jobs.get(event.uid)
        if job is None or not job.of_pods:
            yield _answer(job, event)


def _answer(job: JobRecord | None, seen: k.JobSeen) -> k.PodsTried:
    known = _known(job, seen) if job is not None else None
    return known or k.PodsTried(seen.uid, seen.generation)


def _known(job: JobRecord, seen: k.JobSeen) -> k.PodsTried | None:
    """The last answer in the log. It holds for an edit that leaves the pods as they are, such as of the priority."""
    same = job.tried is not None and _pods(job.seen.spec) == _pods(seen.spec)
    return msgspec.structs.replace(job.tried, generation=seen.generation) if job.tried is not None and same else None


def _pods(spec: JobSpec | None) -> list[object] | None:
    return [of.shape for of in spec.groups] if spec is not None else None
