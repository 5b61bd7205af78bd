"""TFJobs, PyTorchJobs and MPIJobs of Kubeflow's operators."""

import json
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from arranger.convert.fields import Fields, NoteKind, meant
from arranger.convert.parts import (
    Head,
    deadline,
    point_out_hosts,
    precedence,
    success,
    suspended,
    tyjob,
    worker_set,
)
from arranger.convert.pod_rules import Label, Pods, Selected, every_label, job_label, known_label, select_own, set_label
from arranger.convert.templates import Json, Template, stand_in, template_of
from arranger.convert.whole_input import Input
from arranger.model.names import LEADER_ROLE, ROLE_LABEL, WORKER_SET_LABEL
from arranger.model.text import counted

#: Characters of a variable's value that surely fit: Linux has 131,072 bytes for name and value.
LONGEST_VARIABLE = 130_000
_DOMAIN = "training.kubeflow.org"
_RUN_ON = "with None, pods that still run when the job has ended keep their nodes, in no queue; Running deletes them"
_QUEUE = ("spec", "runPolicy", "schedulingPolicy", "queue")


class Replicas(msgspec.Struct):
    """One type of replicas: `Worker`, say."""

    fields: Fields
    kind: str
    count: int
    template: Template
    #: None if its containers are restarted without a limit of their own.
    limit: int | None
    name: str = ""


class RunPolicy(msgspec.Struct):
    """What is said of the job as a whole."""

    fields: Fields
    spec: Json
    min_available: int | None
    limit: int | None
    #: Whether the operator restarts for ever without a limit.
    unlimited: bool


def _replicas(specs: Fields, kinds: Sequence[str], default_restart: str) -> list[Replicas]:
    """The types of replicas that have pods, in the order of `kinds`; their names may be in any case."""
    found: list[Replicas] = []
    unknown = [name for name in specs.names() if name.lower() not in [kind.lower() for kind in kinds]]
    for name in unknown:
        specs.ignore(name)
        specs.fault(name, f"must be one of {', '.join(kinds)}{meant(name, kinds)}")
    for kind in kinds:
        for name in [name for name in specs.names() if name.lower() == kind.lower()]:
            of = specs.record(name)
            count = of.whole("replicas")
            if count == 0:
                of.say(NoteKind.NO_EQUIVALENT, "", "0 replicas: left out")
                of.ignore(*of.names())
                continue
            template = template_of(of)
            restarts = ("OnFailure", "Never", "Always", "ExitCode")
            chosen = of.one_of(
                "restartPolicy", default_restart, *(each for each in restarts if each != default_restart)
            )
            found.append(Replicas(of, kind, 1 if count is None else count, template, _restart(of, template, chosen)))
    if not found:
        words = "there is no pod to run: no replicas of a known type, or 0 of each"
        specs.fault("", words, of=[specs.at(name) for name in unknown])
        found = [_stand_in(specs, kinds[-1])]
    return found


def _within_replicas(policy: RunPolicy, specs: Fields, replicas: Sequence[Replicas]) -> None:
    """The pods that start together are at most all of them; else the minimum counts as absent."""
    total, given = _count(replicas), policy.min_available
    if given is not None and given > total:
        words = f"must not be above the replicas of all types, which are {total}, but is {given}"
        policy.fields.record("schedulingPolicy").fault("minAvailable", words, of=_counted(specs))
        policy.min_available = None


def _counted(specs: Fields) -> list[str]:
    """The paths of what says how many pods there are: which types of replicas, and how many of each."""
    return [specs.path, *(path for name in specs.names() for path in (specs.at(name), specs.at(f"{name}.replicas")))]


def _stand_in(specs: Fields, kind: str) -> Replicas:
    """Replicas in place of those that are missing, for which a fault is noted: so the rest of the object is looked
    at."""
    return Replicas(specs, kind, 1, stand_in(specs.path, specs.notes), None)


def _restart(of: Fields, template: Template, policy: str) -> int | None:
    """Give a template its restart policy; the limit of restarts that follows from it."""
    template.spec["restartPolicy"] = "Never" if policy in ("Never", "ExitCode") else "OnFailure"
    if policy == "Always":
        of.changed("restartPolicy", "OnFailure: a pod that has ended with exit code 0 has finished")
    if policy == "ExitCode":
        of.changed("restartPolicy", "pods are restarted after every exit code but 0, and not only after those from 128")
    return 0 if policy == "Never" else None


def _run_policy(head: Head, spec: Fields, *, clean: str = "None", unlimited: bool = True) -> RunPolicy:
    """Take the run policy. `clean` is the default of its `cleanPodPolicy`; without a limit of restarts, the operator
    restarts for ever or has one of its own."""
    others = [each for each in ("None", "Running", "All") if each != clean]
    policy = spec.record("runPolicy")
    scheduling = policy.record("schedulingPolicy")
    scheduling.lost("minResources", "the requests of the pods of the quorum count")
    scheduling.lost("scheduleTimeoutSeconds", "a job waits until there is room (docs/jobs.md)")
    # The first version of MPIJobs has it in the spec.
    clean = (spec if "cleanPodPolicy" in spec else policy).one_of("cleanPodPolicy", clean, *others)
    if clean == "None":
        policy.say(NoteKind.TO_DO, "cleanPodPolicy", _RUN_ON)
    policy.lost("managedBy", "Arranger runs the TYJob")
    limit = policy.whole("backoffLimit")
    policy.changed("backoffLimit", "the limit holds for each pod alone, and evictions and drains don't count")
    made: Json = {
        "queue": head.queue,
        "suspend": suspended(head, policy),
        "restartLimit": limit,
        "cleanPodPolicy": clean,
        "activeDeadlineSeconds": deadline(policy),
        "ttlSecondsAfterFinished": policy.whole("ttlSecondsAfterFinished"),
    }
    return RunPolicy(policy, made, scheduling.whole("minAvailable"), limit, unlimited)


def _hosts(head: Head, replicas: Sequence[Replicas]) -> None:
    """The names of the pods' Services, and references to the labels of the pods. A pod alone may have no host name."""
    alone = sum(of.count for of in replicas) == 1
    for of in replicas:
        known = {
            f"{_DOMAIN}/job-name": "$(TYJOB_NAME)",
            f"{_DOMAIN}/replica-type": of.kind.lower(),
            f"{_DOMAIN}/replica-index": "$(TYJOB_WORKER_INDEX)",
        }
        of.template.answer_references(known)
        for other in replicas:
            own = f"{re.escape(head.source_name)}-{other.kind.lower()}"
            pattern = re.compile(rf"(?<![\w.-]){own}-(\d+)(?:\.{re.escape(head.source_name)}(?=[.:]|$))?(?![\w-])")
            of.template.rename_hosts(pattern, _renamed("" if alone else other.name, head.name))
        point_out_hosts(head, of.template)


def _select(head: Head, replicas: Sequence[Replicas], leader: Replicas | None) -> None:
    """Rules about other pods select by Arranger's labels. A master's role is that of a chief too, and an MPIJob's roles
    are its types of replicas; the index of a pod is in no label that stands for one."""
    sets = {of.kind.lower(): of.name for of in replicas if of is not leader}
    parts = set_label(sets, leader=leader.kind.lower() if leader is not None else "")
    roles: dict[str, Selected] = {
        name: {WORKER_SET_LABEL: (sets[name],)}
        for name in ("launcher", "worker")
        if "launcher" in sets and name in sets
    }
    masters = [of for of in replicas if of.kind in ("Master", "Chief")]
    if leader is not None:
        roles["master"] = {ROLE_LABEL: (LEADER_ROLE,)}
    elif len(masters) == 1:
        roles["master"] = {WORKER_SET_LABEL: (masters[0].name,)}
    labels: dict[str, Label] = {
        "operator-name": every_label("pytorchjob-controller", "tfjob-controller", "mpijob-controller", "mpi-operator"),
        "job-name": job_label({head.source_name: (head.name,)}),
        "replica-type": parts,
        "job-role": known_label(roles),
    }
    # Without the domain, those of the operators before the common one.
    labels |= {f"{_DOMAIN}/{name}": label for name, label in labels.items()} | {
        "group-name": every_label("kubeflow.org")
    }
    for of in replicas:
        select_own(of.template, Pods(labels, (head.name,)), head.name, of.name, leader=of is leader)


def _renamed(name: str, job: str) -> Callable[[re.Match[str]], str]:
    return lambda match: f"{name}-{match[1]}.{job}" if name else "localhost"


def _minimums(policy: RunPolicy, replicas: Sequence[Replicas], leaders: int) -> tuple[int | None, bool]:
    """`minWorkersNum`, and whether all workers are needed instead."""
    if policy.min_available is None:
        return None, True
    scheduling = policy.fields.record("schedulingPolicy")
    workers = sum(of.count for of in replicas) - leaders
    least = policy.min_available - leaders
    if least >= workers:
        scheduling.changed("minAvailable", "all workers are needed (minCount)")
        return None, True
    least = max(least, 1 - leaders)
    uncounted = ": it doesn't count the leader, which is always needed" if leaders else ""
    scheduling.changed("minAvailable", f"minWorkersNum is {least}{uncounted}")
    return least, False


def _assembled(
    head: Head,
    policy: RunPolicy,
    leader: Replicas | None,
    workers: Sequence[Replicas],
    made: Mapping[str, Json | None],
    *,
    of_set: Callable[[Replicas], Mapping[str, object]],
    least: Callable[[Replicas], int | None] = lambda of: of.count,
) -> Json:
    """The TYJob of a leader and worker sets. `of_set` has further fields of a set, `least` its minimum."""
    everyone = [*([leader] if leader else []), *workers]
    if policy.unlimited and policy.limit is None and any(of.limit is None for of in everyone):
        words = "failed pods are restarted 3 times each (restartLimit): without this, Kubeflow restarts for ever"
        policy.fields.say(NoteKind.CHANGED, "backoffLimit", words)
    number, whole = _minimums(policy, everyone, int(leader is not None))
    if not workers:
        number = 0
    sets = []
    for of in workers:
        restart = {"limit": of.limit} if of.limit is not None else None
        minimum = least(of) if whole else None
        more = {"restart": restart, **of_set(of)}
        if more["restart"] == {"limit": 0} and minimum != of.count:
            words = "a failed pod is given up, and the others go on while they are enough: Kubeflow fails the job"
            of.fields.say(NoteKind.CHANGED, "restartPolicy", words)
        sets.append(worker_set(of.name, of.template, of.count, minCount=minimum, **more))
    spec = {**policy.spec, **made, "minWorkersNum": number}
    scheduling = policy.fields.record("schedulingPolicy")
    spec |= precedence(head, [of.template for of in everyone], (scheduling, "priorityClass"))
    if leader:
        own = {"restart": {"limit": leader.limit}} if leader.limit is not None else {}
        spec["leader"] = {"name": leader.name, **own, "template": leader.template.value}
        words = "the leader: its failure restarts all pods, and the workers start when it has an address"
        leader.fields.say(NoteKind.CHANGED, "", words)
    return tyjob(head, spec | {"workerSets": sets})


def _single(replicas: Sequence[Replicas], kinds: Sequence[str]) -> Replicas | None:
    """The replicas that lead the job, if there is one of these types with one pod."""
    return next((of for of in replicas if of.kind in kinds and of.count == 1), None)


def _named(head: Head, replicas: Sequence[Replicas]) -> None:
    for of, name in zip(replicas, head.named([of.kind.lower() for of in replicas]), strict=True):
        of.name = name


# --- PyTorchJob ------------------------------------------------------------------------------------------------


def pytorch_jobs_of(root: Fields, around: Input) -> list[Json]:
    """The TYJob of a PyTorchJob: the master is the leader, or all pods are equal."""
    head, spec = Head(root, around, _QUEUE), root.record("spec")
    policy = _run_policy(head, spec)
    replicas = _replicas(spec.record("pytorchReplicaSpecs"), ("Master", "Worker"), "OnFailure")
    _within_replicas(policy, spec.record("pytorchReplicaSpecs"), replicas)
    _named(head, replicas)
    _hosts(head, replicas)
    leader = _single(replicas, ("Master",))
    _select(head, replicas, leader)
    workers = [of for of in replicas if of is not leader]
    per_node = _per_node(spec)
    elastic = spec.record("elasticPolicy")
    _elastic_range(elastic, workers, _counted(spec.record("pytorchReplicaSpecs")))
    port = elastic.whole("rdzvPort", least=1, most=65535) or _port(replicas[0].template, "pytorchjob-port", 23456)
    least = _elastic(elastic, workers, leader, per_node, head.name) if "elasticPolicy" in spec else None
    if least is not None and policy.min_available is not None:
        _started_together(policy, elastic, least + int(leader is not None))
        least = None
    elif least is not None:
        words = f"a worker set needs {counted(least, 'worker')} (minCount): those above get nodes as there is room"
        elastic.changed("minReplicas", words)
    told = _told_of_torch(per_node, sum(of.count for of in replicas), elastic="elasticPolicy" in spec)
    if not workers:  # no rendezvous with anybody
        told = {"PYTHONUNBUFFERED": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
        told |= {"WORLD_SIZE": "1", "RANK": "0"}
    for of in replicas:
        of.template.tell(told)
    master = [of.name for of in workers if of.kind == "Master"]
    made = {"successPolicy": success(master, len(workers) - len(master))}
    meet = {"rendezvous": {"port": port, "scope": "Job"}}
    minimum = (lambda of: min(least, of.count)) if least is not None else (lambda of: of.count)
    return [_assembled(head, policy, leader, workers, made, of_set=lambda _: meet, least=minimum)]


def _started_together(policy: RunPolicy, elastic: Fields, least: int) -> None:
    """`minAvailable` says how many pods start together, but for those without which torchrun waits for more."""
    elastic.changed("minReplicas", "minAvailable of schedulingPolicy says how many start together (minWorkersNum)")
    if policy.min_available is not None and policy.min_available < least:
        words = f"{counted(least, 'pod')} start together: torchrun begins with no fewer (minReplicas of elasticPolicy)"
        policy.fields.record("schedulingPolicy").changed("minAvailable", words)
        policy.min_available = least


def _per_node(spec: Fields) -> str:
    """Processes on each node, as torchrun takes it."""
    value = spec.raw("nprocPerNode")
    return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else "auto"


def _told_of_torch(per_node: str, nodes: int, *, elastic: bool) -> dict[str, str]:
    """The variables of Kubeflow's pods: MASTER_ADDR and MASTER_PORT come from the rendezvous."""
    told = {
        "PYTHONUNBUFFERED": "1",
        "PET_NPROC_PER_NODE": per_node,
        "WORLD_SIZE": str(nodes * int(per_node)) if per_node.isdecimal() else "$(NNODES)",
        "RANK": "$(NODE_RANK)",
        "PET_MASTER_ADDR": "$(MASTER_ADDR)",
        "PET_MASTER_PORT": "$(MASTER_PORT)",
        "PET_NODE_RANK": "$(NODE_RANK)",
        "PET_NNODES": "$(NNODES)",
    }
    if elastic:
        for name in ("WORLD_SIZE", "RANK", "PET_NODE_RANK", "PET_NNODES", "PET_MASTER_ADDR", "PET_MASTER_PORT"):
            del told[name]
    return told


def _elastic_range(policy: Fields, workers: Sequence[Replicas], counted_by: Sequence[str]) -> None:
    """The least of the workers is at most the most, and at most all workers: with fewer, torchrun never begins."""
    least, most, there = policy.whole("minReplicas", least=1), policy.whole("maxReplicas", least=1), _count(workers)
    if least is None:
        return
    bounds = [f"maxReplicas, which is {most}"] if most is not None and most < least else []
    if there < least and all(map(policy.notes.sound, counted_by)):
        bounds.append(f"the replicas of the workers, which are {there}")
    if bounds:
        policy.fault("minReplicas", f"must not be above {', nor above '.join(bounds)}, but is {least}")


def _count(replicas: Sequence[Replicas]) -> int:
    return sum(of.count for of in replicas)


def _elastic(
    policy: Fields, workers: Sequence[Replicas], leader: Replicas | None, per_node: str, job: str
) -> int | None:
    """Take an elastic policy; how many workers the job needs at least."""
    workers_now, leaders = _count(workers), int(leader is not None)
    least = policy.whole("minReplicas", least=1) if policy.sound("minReplicas") else None
    most = policy.whole("maxReplicas", least=1)
    nodes = f"{(least or workers_now) + leaders}:{max(most or 0, workers_now) + leaders}"
    if most is not None and most > workers_now:
        more = f": kubectl scale tyj {job} --replicas={most} asks for more" if len(workers) == 1 else ""
        policy.to_do("maxReplicas", f"{counted(workers_now, 'worker')}, as replicas says{more}")
    elif most is not None and most < workers_now:
        policy.changed("maxReplicas", f"{counted(workers_now, 'worker')}, as replicas says: PET_NNODES is {nodes}")
    policy.lost("metrics", "make a HorizontalPodAutoscaler for the TYJob (docs/jobs.md, Scaling)")
    processes = policy.whole("nProcPerNode", least=1)
    if per_node != "auto":
        policy.lost("nProcPerNode", f"nprocPerNode of the job counts: {per_node}")
        processes = None
    if leader is not None and policy.sound("minReplicas"):
        words = f"PET_NNODES is {nodes}, one more than in Kubeflow: the leader is a node of torchrun as each worker is"
        policy.say(NoteKind.CHANGED, "", words)
    told = _told_of_elastic(policy, nodes, processes)
    for of in (*workers, *([leader] if leader else ())):
        of.template.tell(told)
    return least


def _told_of_elastic(policy: Fields, nodes: str, processes: int | None) -> dict[str, str]:
    """The variables by which torchrun knows an elastic policy."""
    host, restarts = policy.text("rdzvHost"), policy.whole("maxRestarts")
    policy.changed("rdzvHost", "the rendezvous is at this host, as given: the first pod is $(MASTER_ADDR)")
    configured = [f"{of.text('key')}={of.text('value')}" for of in policy.records("rdzvConf")]
    told = {
        "PET_NNODES": nodes,
        "PET_RDZV_BACKEND": policy.text("rdzvBackend") or "c10d",
        "PET_RDZV_ID": policy.text("rdzvId") or "$(TYJOB_NAME)",
        "PET_RDZV_ENDPOINT": f"{host or '$(MASTER_ADDR)'}:$(MASTER_PORT)",
        "PET_MAX_RESTARTS": "" if restarts is None else str(restarts),
        "PET_RDZV_CONF": ",".join(configured),
        "PET_STANDALONE": "1" if policy.flag("standalone") else "",
        "PET_NPROC_PER_NODE": "" if processes is None else str(processes),
    }
    return {name: value for name, value in told.items() if value}


def _port(template: Template, name: str, default: int) -> int:
    """The port of this name of a template's containers."""
    ports = [port for _, of in template.containers() for port in of.get("ports") or () if port.get("name") == name]
    return int(ports[0]["containerPort"]) if ports else default


# --- TFJob -----------------------------------------------------------------------------------------------------


def tensorflow_jobs_of(root: Fields, around: Input) -> list[Json]:
    """The TYJob of a TFJob: the chief is the leader, or all pods are equal."""
    head, spec = Head(root, around, _QUEUE), root.record("spec")
    policy = _run_policy(head, spec)
    every = spec.one_of("successPolicy", "", "AllWorkers") == "AllWorkers"
    if spec.flag("enableDynamicWorker"):
        spec.changed("enableDynamicWorker", "TF_CONFIG lists all workers, and doesn't change when the job is scaled")
    kinds = ("Chief", "Master", "PS", "Worker", "Evaluator", "Eval")
    replicas = _replicas(spec.record("tfReplicaSpecs"), kinds, "Never")
    _within_replicas(policy, spec.record("tfReplicaSpecs"), replicas)
    _named(head, replicas)
    _hosts(head, replicas)
    leader = _single(replicas, ("Chief", "Master"))
    _select(head, replicas, leader)
    workers = [of for of in replicas if of is not leader]
    port = _port(replicas[0].template, "tfjob-port", 2222)
    tell_tensorflow(head.name, {of.kind.lower(): (of.name, of.count, of.template) for of in replicas}, port)
    made = {"successPolicy": _all_workers(spec, replicas, leader) if every or leader is None else None}
    meet = {"rendezvous": {"port": port, "scope": "Job"}}
    return [_assembled(head, policy, leader, workers, made, of_set=lambda _: meet)]


def _all_workers(spec: Fields, replicas: Sequence[Replicas], leader: Replicas | None) -> Json | None:
    """The success policy by which the workers decide."""
    workers = [of for of in replicas if of.kind == "Worker" and of is not leader]
    if spec.text("successPolicy") != "AllWorkers" and sum(of.count for of in workers) > 1:
        words = "the TYJob has succeeded when all workers have, and not when the first one has"
        spec.say(NoteKind.CHANGED, "successPolicy", words)
    return success([of.name for of in workers], len(replicas) - len(workers))


def tell_tensorflow(job: str, tasks: Mapping[str, tuple[str, int, Template]], port: int) -> None:
    """Give pods TF_CONFIG. `tasks` has name, count and template of the pods by the type of their task."""
    if sum(count for _, count, _ in tasks.values()) == 1:
        return
    types = {"eval": "evaluator"}
    cluster = {
        types.get(kind, kind): [f"{name}-{number}.{job}.$(TYJOB_NAMESPACE).svc:{port}" for number in range(count)]
        for kind, (name, count, _) in tasks.items()
    }
    for kind, (_, _, template) in tasks.items():
        listed = json.dumps(
            {name: of for name, of in cluster.items() if name != "evaluator" or kind.startswith("eval")}
        )
        task = f'{{"type": "{types.get(kind, kind)}", "index": $(TYJOB_WORKER_INDEX)}}'
        config = f'{{"cluster": {listed}, "task": {task}, "environment": "cloud"}}'
        template.tell({"TF_CONFIG": config})
        if len(config) > LONGEST_VARIABLE:
            words = (
                f"TF_CONFIG has more than {LONGEST_VARIABLE} characters, which Linux refuses: make it in the program"
            )
            template.notes.add(NoteKind.TO_DO, template.path, words)


# --- MPIJob ----------------------------------------------------------------------------------------------------

_HOSTFILE = {
    "OpenMPI": {
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    },
    "Intel": {
        "I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "-o ConnectionAttempts=10",
    },
    "MPICH": {
        "HYDRA_HOST_FILE": "/etc/mpi/hostfile",
        "HYDRA_LAUNCH_EXTRA_ARGS": "-o ConnectionAttempts=10",
    },
}


def mpi_jobs_of(root: Fields, around: Input) -> list[Json]:
    """The TYJob of an MPIJob: workers that run sshd, and a launcher that starts once they are ready."""
    head, spec = Head(root, around, _QUEUE), root.record("spec")
    policy = _run_policy(head, spec, clean="Running", unlimited=False)
    keys = spec.text("sshAuthMountPath") or "/root/.ssh"
    spec.ignore("mainContainer", "waitForWorkers")
    spec.one_of("launcherCreationPolicy", "AtStartup", "WaitForWorkersReady")
    replicas = _replicas(spec.record("mpiReplicaSpecs"), ("Launcher", "Worker"), "Never")
    _within_replicas(policy, spec.record("mpiReplicaSpecs"), replicas)
    _named(head, replicas)
    _hosts(head, replicas)
    launcher = next((of for of in replicas if of.kind == "Launcher"), None)
    if launcher is None:
        spec.fault("mpiReplicaSpecs", "Required value: a Launcher")
        launcher = _stand_in(spec.record("mpiReplicaSpecs"), "Launcher")
    workers = [of for of in replicas if of is not launcher]
    _select(head, replicas, None)
    _hostfile(head, spec, launcher, workers)
    for of in replicas:
        mount_keys(of.template, f"{head.name}-ssh", keys)
    for of in workers:
        _sshd(of, old=root.text("apiVersion").endswith("/v1"))
    say_keys(spec, "sshAuthMountPath", f"{head.name}-ssh")
    if workers:
        launcher.fields.say(NoteKind.CHANGED, "", "the launcher starts once all workers are ready (startAfter)")
    limit = 6 if policy.limit is None else policy.limit
    _say_restarts(policy, workers)
    own = {"startAfter": workers[0].name if workers else None, "rendezvous": {}, "restart": {"limit": limit}}
    of_worker: Json = {"rendezvous": {}}
    made = {"successPolicy": success([launcher.name], len(workers))}
    sets = [*workers, launcher]
    return [_assembled(head, policy, None, sets, made, of_set=lambda of: own if of is launcher else of_worker)]


def _say_restarts(policy: RunPolicy, workers: Sequence[Replicas]) -> None:
    """Say how workers restart: the operator counts restarts of the launcher alone."""
    limit = 3 if policy.limit is None else policy.limit
    for of in workers:
        words = f"a worker is restarted {counted(limit, 'time')} (restartLimit): the operator has no"
        words += " limit for workers"
        if of.limit == 0:
            words = "a failed worker isn't restarted, and fails the job at once: the launcher isn't tried again"
        of.fields.say(NoteKind.CHANGED, "restartPolicy", words)


def _hostfile(head: Head, spec: Fields, launcher: Replicas, workers: Sequence[Replicas]) -> None:
    """Give the launcher the hosts of the workers, as its implementation of MPI reads them."""
    slots = spec.whole("slotsPerWorker", least=1) or 1
    kind = spec.one_of("mpiImplementation", "OpenMPI", "Intel", "MPICH")
    hosts = [f"{of.name}-{number}.{head.name}" for of in workers for number in range(of.count)]
    if spec.flag("runLauncherAsWorker") or not workers:
        hosts = [f"{launcher.name}-0.{head.name}", *hosts]
    form = "{} slots={}\n" if kind == "OpenMPI" else "{}:{}\n"
    hostfile = "".join(form.format(host, slots) for host in hosts)
    launcher.template.add_files("mpi-config", {"hostfile": hostfile}, "/etc/mpi")
    launcher.template.tell(_HOSTFILE[kind])


def _sshd(of: Replicas, *, old: bool) -> None:
    """Let a worker run sshd, if it has no command of its own."""
    container = of.template.spec["containers"][0]
    if old and container.get("command"):
        words = "the old MPI operator reaches workers by kubectl exec: here they need sshd, as in /usr/sbin/sshd -De"
        of.fields.say(NoteKind.TO_DO, "template", words)
    elif not container.get("command") and not container.get("args"):
        container["command"], container["args"] = ["/usr/sbin/sshd"], ["-De"]


def mount_keys(template: Template, secret: str, mount_path: str) -> None:
    """Mount a Secret with the SSH keys of a job."""
    items = [
        {"key": "ssh-privatekey", "path": "id_rsa"},
        {"key": "ssh-publickey", "path": "id_rsa.pub"},
        {"key": "ssh-publickey", "path": "authorized_keys"},
    ]
    template.add_volume(
        "ssh-keys", {"secret": {"secretName": secret, "defaultMode": 0o600, "items": items}}, mount_path
    )


def say_keys(fields: Fields, name: str, secret: str) -> None:
    """Say how to make the Secret of `mount_keys`."""
    words = (
        f"make the Secret {secret} first: ssh-keygen -t rsa -N '' -f key && kubectl create secret generic {secret} "
        "--from-file=ssh-privatekey=key --from-file=ssh-publickey=key.pub"
    )
    fields.say(NoteKind.TO_DO, name, words)
