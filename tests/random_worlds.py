"""Random histories: lists of small numbers, interpreted as actions of a cluster, its users and the workers.

`steps()` is the hypothesis strategy, and `live_through` plays a list of steps in a `World`. `consistency.validate` must
succeed after every step.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.model.job import Stage
from arranger.model.node import Taint
from arranger.model.pod import NO_TRAITS, TERMINAL, HostPort, PodRules, PodTerm, PodTraits, Requirement
from arranger.model.pods_to_place import SLOT, pod_of
from arranger.model.queue import NonPreemptible
from arranger.projections.jobs.records import JobRecord, asked_record
from tests.world import World, shape

#: An action, and two numbers that select its object and its variant.
Step = tuple[str, int, int]

_POLICIES = ("", "BinPack", "Gang", "LeaderFirst", "MinFragment", "JobAffinity", "JobAntiAffinity", "FragmentGradient")
_REASONS = {2: "OutOfcpu", 7: "Evicted"}
_QUEUES = ("", "Priority", "DRF")
#: Names of Queues; jobs name those that are there.
_NAMES = ("a", "b", "default")
_HALF_LIVES_MS = (0, 60_000, 600_000)
_PHASES = ("Running", "Pending", "Failed", "Succeeded", "Unknown")
#: A foreign pod that repels pods of a job from its pool, and the rules that pods of a job may have.
_REPELLING = PodTraits(anti_affinity=(PodTerm("pool", (Requirement("arranger.dev/job", "Exists", ()),)),))
_RULES = (
    None, None, None,
    PodRules(host_ports=(HostPort(80),)),
    PodRules(anti_affinity=(PodTerm("pool", (Requirement("arranger.dev/worker-set", "In", ("eval",)),)),)),
)  # fmt: skip


def steps(*, least: int = 5, most: int = 40) -> st.SearchStrategy[list[Step]]:
    """Lists of steps; every list is a possible history."""
    one = st.tuples(st.sampled_from(sorted(_STEPS)), st.integers(0, 11), st.integers(0, 11))
    return st.lists(one, min_size=least, max_size=most)


def live_through(history: Iterable[Step], world: World | None = None) -> World:
    """The world after these steps; impossible steps are skipped."""
    world = world or World()
    for name, a, b in history:
        _STEPS[name](world, a, b)
    return world


def calm_down(world: World) -> None:
    """Stop the faults: delete foreign pods, let kubelets run and end pods, and repeat all work until none is left."""
    for uid, pod in sorted(world.state.pods.items()):
        if pod.owner is None:
            world.pod_gone(uid)
        elif pod.phase in ("Pending", "Running", "Unknown"):
            world.change_pod(uid, phase="Running", ready=True, ip="10.0.0.1")
    for name in sorted(world.state.queues.keys() | {job.spec.queue for job in world.state.jobs.values() if job.spec}):
        if name:
            world.queue(name)
    if "default" in world.state.namespaces:
        world.namespace("default")
    quiet = 0
    for _ in range(90):
        for uid, pod in sorted(world.state.pods.items()):
            if pod.deleting:
                world.pod_gone(uid)
        quiet = 0 if world.cycle() or world.control() or world.apply() else quiet + 1
        if quiet == 3:
            return
        if quiet:
            world.pass_time(400)  # longer than every grace and back-off
    raise AssertionError("the world doesn't come to rest")


# --- steps -------------------------------------------------------------------------------------------------------


def _node(world: World, a: int, b: int) -> None:
    taints = (Taint("infra", "", "NoSchedule"),) if b == 7 else ()
    world.node(f"n{a % 4}", cpu=2 + b, gpus=b % 3, pods=3 + b, ready=b != 5, cordoned=b == 6, taints=taints,
               labels={"pool": str(b % 2)}, uid=f"uid-n{a % 4}-{b // 8}")  # fmt: skip


def _node_gone(world: World, a: int, b: int) -> None:
    world.node_gone(f"n{a % 4}", uid=f"uid-n{a % 4}-{b // 8}")


def _stranger(world: World, a: int, b: int) -> None:
    world.pod(f"s{a % 5}", f"n{b % 5}" if b else "", phase=_PHASES[a % 5], cpu=b % 3, gpus=a % 2,
              traits=_REPELLING if a == 3 else NO_TRAITS)  # fmt: skip


def _pod_to_place(world: World, a: int, b: int) -> None:
    """A pod that names Arranger; some are on a node already, or on another than was decided."""
    queue = _NAMES[b % 3] if _NAMES[b % 3] in world.state.queues else ""
    world.pod_to_place(f"p{a % 4}", f"n{a % 5}" if b > 8 else "", of=shape(cpu=1 + b % 2, rules=_RULES[b % 5]),
                       priority=a % 7, gates=("later",) if b == 7 else (), of_queue=queue, deleting=b == 6,
                       preempts=a % 3 > 0, created=b)  # fmt: skip


def _grouped_pod(world: World, a: int, b: int) -> None:
    """The same in one of two groups; the pods of a group may have different shapes and minimums."""
    world.pod_asking(f"g{a % 6}", f"n{a % 5}" if b > 12 else "", of=shape(cpu=1 + (b == 3), rules=_RULES[b % 5]),
                       priority=a % 7, gates=("later",) if b == 7 else (), deleting=b == 6, preempts=a % 3 > 0,
                       created=b % 3, group=f"group{b % 2}", least=1 + (a + b // 5) % 3,
                       phase=_PHASES[a % 5] if b > 10 else "Pending")  # fmt: skip


def _bind(world: World, a: int, b: int) -> None:
    """Appliers bind the pods that they may bind, and one of them binds another to the node that it gave up."""
    for uid, pod in sorted(world.state.pods.items()):
        job = world.state.jobs.get(asked_record(pod))
        slot = job.slots.members.get(uid, SLOT) if job is not None else SLOT
        begun = job is not None and job.stage in (Stage.STARTING, Stage.RUNNING)
        late = b % 2 and job is not None and job.of_group and slot[1] % 2  # those of a group are bound one by one
        if job is not None and begun and not pod.node and not pod.deleting and slot in job.placements and not late:
            world.change_pod(uid, node=job.placements[slot], phase="Running")
    for assumed in [pod for pod in world.state.assumed.values() if a % 3 == 0]:
        job = world.state.jobs.get(assumed.owner.job_uid)
        if job is None or not job.of_pods:
            continue
        slots = {slot: uid for uid, slot in job.slots.members.items()} if job.of_group else {SLOT: pod_of(job.uid)}
        uid = slots.get(job.slot_of(assumed.owner) or SLOT, "")
        if uid in world.state.pods and not world.state.pods[uid].node:
            world.change_pod(uid, node=assumed.node, phase="Running")


def _job(world: World, a: int, b: int) -> None:
    sets = [
        ("actors", max(b % 5, int(a % 4 == 3)), shape(cpu=1, gpus=a % 2)),
        ("eval", a % 3, shape(cpu=2, selector={"pool": "1"}, rules=_RULES[b % 5])),
    ]
    workers = sum(count for _, count, _ in sets)
    sizes = {name: 2 for name, count, _ in sets if count % 2 == 0 and a % 2}
    world.job(f"j{a % 4}", leader=shape(cpu=1 + b % 2), workers=sets, min_workers=min(b % 4, workers),
              priority=1 + b % 3, policy=_POLICIES[(a + b) % 8], queue=_QUEUES[a % 3], created=a,
              equals=a % 4 == 3, success=(1,) if a % 4 == 2 else (0,),
              start_after={"eval": a % 4 % 2} if a % 4 in (1, 2, 3) else None,
              restart_limit=1, terminating=b == 11, suspend=b == 6, deadline_s=90 if a == 7 else None,
              deleting=b == 10, invalid="spec" if b == 9 and a > 8 else "", group_sizes=sizes,
              user=("", "ann", "ben")[a % 3], image=("", "i1", "i2")[b % 3], preemptible=a % 5 != 1,
              expected_s=60 * b if a % 4 == 1 and b else None, checkpoint_ms=world.now_ms - 1000 * b if b % 2 else 0,
              of_queue=_NAMES[b % 3] if _NAMES[b % 3] in world.state.queues else "")  # fmt: skip


def _jobs(world: World, number: int) -> JobRecord | None:
    uids = sorted(world.state.jobs)
    return world.state.jobs[uids[number % len(uids)]] if uids else None


def _job_gone(world: World, a: int, _b: int) -> None:
    job = _jobs(world, a)
    if job is not None:
        world.job_gone(job)


def _some_pod(world: World, number: int) -> str:
    uids = sorted(world.state.pods)
    return uids[number % len(uids)] if uids else ""


def _pod_changes(world: World, a: int, b: int) -> None:
    uid = _some_pod(world, a)
    if uid:
        traits = _REPELLING if b == 8 else NO_TRAITS if b == 9 else world.state.pods[uid].traits
        world.change_pod(uid, phase=_PHASES[b % 5], restarts=b % 3, deleting=b == 4, ready=b < 5, traits=traits,
                         reason=_REASONS.get(b, ""))  # fmt: skip


def _pod_gone(world: World, a: int, _b: int) -> None:
    uid = _some_pod(world, a)
    if uid:
        world.pod_gone(uid)


def _pod_relabelled(world: World, a: int, b: int) -> None:
    uid = _some_pod(world, a)
    owner = world.state.pods[uid].owner if uid else None
    if owner is not None:
        world.change_pod(uid, owner=msgspec.structs.replace(owner, index=b % 3) if b % 2 else None)


def _pod_doubled(world: World, a: int, b: int) -> None:
    """Observe a pod's successor before the end of the pod."""
    uid = _some_pod(world, a)
    if uid:
        copy = msgspec.structs.replace(world.state.pods[uid], uid=f"uid-{b}-{a}", node=f"n{b % 5}")
        world.say(copy)


def _late_decision(world: World, a: int, b: int) -> None:
    """Append an earlier decision again."""
    batches = [e.batch for e in world.entries if isinstance(e.batch.events[0], k.Decision)]
    if batches:
        world.say(*batches[(a * 12 + b) % len(batches)].events)


def _late_observation(world: World, a: int, b: int) -> None:
    """A watcher that lost its kind continues under its old term."""
    seen = [e.batch.events[0] for e in world.entries if isinstance(e.batch.events[0], k.PodSeen | k.NodeSeen)]
    if seen:
        world.say(msgspec.structs.replace(seen[(a * 12 + b) % len(seen)], term=0))


def _effect_failed(world: World, a: int, b: int) -> None:
    job = _jobs(world, a)
    if job is not None:
        slot = k.Slot(b % 3, a % 3)
        world.say(k.EffectFailed(job.uid, job.attempt, "create", slot, 403, "Forbidden", f"quota {b}", b == 0))


def _claim(world: World, a: int, _b: int) -> None:
    kind = list(world.terms)[a % len(world.terms)]
    world.terms[kind] = world.say(k.claim(kind, "another"))


def _quota(world: World, a: int, b: int) -> None:
    name, hard = f"q{a % 2}", {"pods": b % 8} if a % 2 else {"requests.cpu": 1000 * (b % 12)}
    pods = sum(pod.phase not in TERMINAL for pod in world.state.pods.values())
    world.quota(name, hard, {resource: min(pods, b) * (1 if a % 2 else 500) for resource in hard})


def _quota_gone(world: World, a: int, _b: int) -> None:
    if f"q{a % 2}" in world.state.quotas.get("default", {}):
        world.quota_gone(f"q{a % 2}")


def _quotas_refused(world: World, a: int, _b: int) -> None:
    if k.Watched.QUOTA in world.terms and a % 4 == 0:
        world.say(k.WatchRefused(k.Watched.QUOTA, world.terms[k.Watched.QUOTA], 403))


def _queue(world: World, a: int, b: int) -> None:
    world.queue(
        _NAMES[a % 3],
        parent=_NAMES[b % 2] if a % 3 != b % 2 and b > 6 else "",
        weight=1 + b % 4,
        guarantee=(("cpu", 1000 * (b % 3)),) if a > 8 else (),
        deserved=(("cpu", 1000 * b),) if a % 3 == 0 else (),
        non_preemptible=NonPreemptible.WITHIN_DESERVED if a % 6 == 0 else NonPreemptible.MAY_BORROW,
        capability=(("cpu", 1000 * b),) if b % 2 else (),
        max_priority=2 if b == 5 else None,
        max_running=b % 3 if a % 4 == 0 else None,
        max_waiting=1 + b % 2 if a % 4 == 1 else None,
        queue_policy=_QUEUES[b % 3],
        user_fairness=a % 2 == 0,
    )


def _queue_gone(world: World, a: int, _b: int) -> None:
    if _NAMES[a % 3] in world.state.queues:
        world.queue_gone(_NAMES[a % 3])


def _namespace(world: World, a: int, _b: int) -> None:
    world.namespace("default", queue=("", *_NAMES)[a % 4] if a > 6 else "")


def _half_life(world: World, a: int, _b: int) -> None:
    world.config = msgspec.structs.replace(world.config, half_life_ms=_HALF_LIVES_MS[a % 3])


_STEPS: dict[str, Callable[[World, int, int], object]] = {
    "node": _node,
    "node again": _node,
    "node gone": _node_gone,
    "stranger": _stranger,
    "pod to place": _pod_to_place,
    "grouped pod": _grouped_pod,
    "bind": _bind,
    "job": _job,
    "job again": _job,
    "job gone": _job_gone,
    "pod changes": _pod_changes,
    "pod gone": _pod_gone,
    "pod relabelled": _pod_relabelled,
    "pod doubled": _pod_doubled,
    "late decision": _late_decision,
    "late observation": _late_observation,
    "effect failed": _effect_failed,
    "claim": _claim,
    "cycle": lambda world, _a, _b: world.cycle(),
    "control": lambda world, _a, _b: world.control(),
    "apply": lambda world, _a, _b: world.apply(),
    "round": lambda world, _a, _b: (world.cycle(), world.control(), world.apply()),
    "quota": _quota,
    "quota again": _quota,
    "quota gone": _quota_gone,
    "quotas refused": _quotas_refused,
    "queue": _queue,
    "queue gone": _queue_gone,
    "namespace": _namespace,
    "half-life": _half_life,
    "time": lambda world, a, b: world.pass_time((a - 3) * 10 * b),
}

#: A random history that covers most actions, for tests that need a fixed one.
LONG: Sequence[Step] = tuple(
    (name, (7 * i + 3 * j) % 12, (5 * i + j) % 12)
    for i in range(6)
    for j, name in enumerate(("node", "job", "round", "stranger", "round", *sorted(_STEPS), "round", "round"))
)
