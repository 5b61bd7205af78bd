"""RayClusters and RayJobs of KubeRay: the head is the leader, and each group of workers a worker set.

KubeRay writes the commands that start Ray, and so does this: from `rayStartParams` and the limits of the first
container.
"""

import json
import math
import re
import shlex
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgspec
import yaml

from arranger.convert.fields import MAX_INT32, Fields, NoteKind, misspelt
from arranger.convert.parts import Head, deadline, precedence, suspended, tyjob, worker_set
from arranger.convert.pod_rules import Pods, every_label, job_label, known_label, role_label, select_own, set_label
from arranger.convert.reading import Loader
from arranger.convert.templates import Json, Template, template_of
from arranger.convert.whole_input import Input
from arranger.model.names import JOB_LABEL, LEADER_ROLE, ROLE_LABEL, WORKER_ROLE
from arranger.model.quantity import exact
from arranger.model.text import counted

_PORT = 6379
_DASHBOARD = "http://127.0.0.1:8265"
_HEAD = "head"
#: Restarts of a worker: Ray runs its tasks elsewhere.
_WORKER_RESTARTS = {"limit": 10, "windowSeconds": 3600}
#: Labels with which KubeRay makes a gang of the cluster, whatever they say.
_GANG = {"ray.io/gang-scheduling-enabled", "ray.io/scheduler-name"}
#: The port of Ray's metrics in KubeRay.
_METRICS_PORT = "8080"
#: Resources whose number is that of Ray's GPUs, with the parts of NVIDIA's.
_GPU = re.compile(r".*gpu|(.*\.)?nvidia\.com/mig-\d+g\.\d+gb")
#: Accelerators that Ray counts by names of their own. KubeRay tells Ray of one of them, the first by name.
_ACCELERATORS = {"aws.amazon.com/neuroncore": "neuron_cores", "google.com/tpu": "TPU"}
#: Flags of `ray start` that take a truth value, where others are there or not.
_WITH_TRUTH_VALUES = ("include-dashboard", "log-color")
_OWN_COMMAND = "ray.io/overwrite-container-cmd"


class Group(msgspec.Struct):
    """One group of workers."""

    fields: Fields
    #: As a worker set, and in the source.
    name: str
    group_name: str
    template: Template
    params: dict[str, str]
    counts: int
    least: int
    size: int
    #: `maxReplicas`, None without it.
    most: int | None


def clusters_of(root: Fields, around: Input) -> list[Json]:
    """The TYJob of a RayCluster: it runs until somebody deletes it."""
    head, spec = Head(root, around), root.record("spec")
    own_command = _labels(head)
    spec_of = _cluster(head, spec, own_command=own_command, program=None)
    spec_of["suspend"] = suspended(head, spec)
    words = "the cluster runs until the TYJob is deleted, or until its spec.terminating is true"
    spec.say(NoteKind.TO_DO, "", words)
    spec_of["leader"]["restart"] = dict(_WORKER_RESTARTS)
    words = "the head is restarted 10 times an hour at most (restart): KubeRay restarts for ever"
    spec.record("headGroupSpec").say(NoteKind.CHANGED, "", words)
    return [tyjob(head, spec_of)]


def jobs_of(root: Fields, around: Input) -> list[Json]:
    """The TYJob of a RayJob: a cluster that begins and ends with its program."""
    head, spec = Head(root, around), root.record("spec")
    own_command = _labels(head)
    interactive = _mode(spec)
    program = None if interactive else _submission(spec)
    made = {
        "suspend": suspended(head, spec),
        "activeDeadlineSeconds": deadline(spec),
        "ttlSecondsAfterFinished": _ttl(spec),
    }
    limit = spec.whole("backoffLimit") or 0
    if "rayClusterSpec" not in spec:
        words = (
            "a RayJob of a cluster that runs already: submit it there with ray job submit, or give it a rayClusterSpec"
        )
        spec.ignore("clusterSelector", "rayClusterSpec")
        spec.fault("clusterSelector" if "clusterSelector" in spec else "rayClusterSpec", words)
        return []
    spec.lost("clusterSelector", "the job has a cluster of its own, as rayClusterSpec says")
    cluster = spec.record("rayClusterSpec")
    cluster.ignore("suspend", "managedBy")
    spec_of = _cluster(head, cluster, own_command=own_command, program=program) | made
    spec_of["leader"]["restart"] = {"limit": limit}
    words = "counts failures of the head alone: one that is evicted, drained or lost starts again, and doesn't count"
    spec.say(NoteKind.CHANGED, "backoffLimit", words)
    if not interactive:
        cluster.say(
            NoteKind.CHANGED, "", "the program starts once the head runs; Ray waits for the workers that it needs"
        )
    return [tyjob(head, spec_of)]


def _labels(head: Head) -> bool:
    """Take KubeRay's labels and annotations; whether containers have their own commands."""
    head.labels.ignore("ray.io/scheduler-name", "ray.io/gang-scheduling-enabled")
    return head.annotations.text(_OWN_COMMAND).lower() == "true"


def _mode(spec: Fields) -> bool:
    """Take the submission mode; whether somebody else submits the program."""
    mode = spec.one_of("submissionMode", "K8sJobMode", "HTTPMode", "SidecarMode", "InteractiveMode")
    for name in ("submitterPodTemplate", "submitterConfig"):
        spec.lost(name, "the program is submitted in the container of the head")
    spec.lost("managedBy", "Arranger runs the TYJob")
    spec.lost("schedule", "apply the TYJob anew each time, by a CronJob with kubectl, for instance")
    spec.lost("preRunningDeadlineSeconds", "a job waits until there is room: see startGraceSeconds (docs/jobs.md)")
    if mode == "InteractiveMode":
        words = "submit the program with ray job submit; then end the job by setting its spec.terminating to true"
        spec.to_do("submissionMode", words)
        return True
    return False


def _ttl(spec: Fields) -> int | None:
    """How long the TYJob stays after its end."""
    shut_down, seconds = spec.flag("shutdownAfterJobFinishes"), spec.whole("ttlSecondsAfterFinished")
    if not shut_down:
        spec.say(NoteKind.CHANGED, "shutdownAfterJobFinishes", "the cluster ends with its program")
    for name in ("deletionStrategy", "deletionPolicy"):
        spec.lost(name, "the cluster ends with its program; ttlSecondsAfterFinished deletes the TYJob")
    if not shut_down or seconds is None:
        spec.changed("ttlSecondsAfterFinished", "the TYJob stays: without shutdownAfterJobFinishes, it has no effect")
        return None
    spec.changed("ttlSecondsAfterFinished", "the TYJob is deleted after this time, and its pods when it ends")
    return seconds


def _submission(spec: Fields) -> str:
    """The command that submits the program and waits for it."""
    entry = spec.text("entrypoint")
    if not entry.strip():
        spec.fault("entrypoint", "Required value: the program to run", of=[spec.at("submissionMode")])
    flags = [f"--address={_DASHBOARD}"]
    for name, flag in (("jobId", "--submission-id"), ("entrypointResources", "--entrypoint-resources")):
        if value := spec.text(name):
            flags.append(f"{flag}={shlex.quote(value)}")
    for name, flag in (("entrypointNumCpus", "--entrypoint-num-cpus"), ("entrypointNumGpus", "--entrypoint-num-gpus")):
        value = spec.raw(name)
        if value and (isinstance(value, bool) or not isinstance(value, (int, float))):
            spec.fault(name, "must be a number")
        if value:
            flags.append(f"{flag}={value}")
    if metadata := spec.pairs("metadata"):
        flags.append(f"--metadata-json={shlex.quote(json.dumps(metadata))}")
    if environment := _runtime_env(spec):
        flags.append(f"--runtime-env-json={shlex.quote(json.dumps(environment))}")
    try:
        words = shlex.join(shlex.split(entry))
    except ValueError as problem:
        words = ""
        spec.fault("entrypoint", f"not a command line: {problem}")
    ready = f"until ray job list --address={_DASHBOARD} > /dev/null 2>&1; do sleep 2; done"
    return f"{{ {ready}; }} && exec ray job submit {' '.join(flags)} -- {words}"


def _runtime_env(spec: Fields) -> Any:
    """The runtime environment, which is YAML in a text."""
    text = spec.text("runtimeEnvYAML")
    try:
        value = yaml.load(text, Loader)
    except (yaml.YAMLError, RecursionError) as problem:
        spec.fault("runtimeEnvYAML", f"not valid YAML: {getattr(problem, 'problem', problem)}")
        return None
    if value is not None and not isinstance(value, dict):
        spec.fault("runtimeEnvYAML", "must be a mapping")
    return value


# --- the cluster ------------------------------------------------------------------------------------------------


def _cluster(head: Head, spec: Fields, *, own_command: bool, program: str | None) -> Json:
    """The spec of the TYJob of a cluster; its head runs until it is deleted, or runs the program."""
    of_head = spec.record("headGroupSpec")
    template, params = template_of(of_head), _params(of_head)
    _of_the_head(spec, of_head)
    scaling = spec.flag("enableInTreeAutoscaling")
    groups, scaled = _groups(head, spec, scaling=scaling)
    _of_the_cluster(spec)
    if scaling:
        _scaled_by_hand(spec, groups, scaled or next(iter(groups), None), head.name)
    port = _port(of_head, params)
    address = f"{_HEAD}-0.{head.name}" if groups else "127.0.0.1"  # without workers, pods have no host names
    _start(template, params, address, port, first=True, program=program, own=own_command)
    of_head.say(NoteKind.CHANGED, "", "the leader: its failure restarts all pods of the cluster")
    for of in groups:
        _start(of.template, of.params, address, port, first=False, program=None, own=own_command)
        words = "a worker is restarted 10 times an hour at most (restart): KubeRay restarts for ever"
        of.fields.say(NoteKind.CHANGED, "", words)
    _select(head, template, groups)
    if not groups:
        template.tell({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
    return {
        "queue": head.queue,
        **precedence(head, [template, *(of.template for of in groups)], (head.labels, "ray.io/priority-class-name")),
        "scaledSet": scaled.name if scaled else None,
        "replicas": 0 if scaled else None,
        "minWorkersNum": None if any(of.least for of in groups) else 0,
        "cleanPodPolicy": "Running",
        "leader": {"name": _HEAD, "template": template.value},
        "workerSets": [_worker_set(of, port) for of in groups],
    }


def _select(head: Head, of_head: Template, groups: list[Group]) -> None:
    """Rules about other pods select by Arranger's labels."""
    name = job_label({head.source_name: (head.name,)})
    roles = {_HEAD: LEADER_ROLE, "worker": WORKER_ROLE}
    identifiers = {
        f"{head.source_name}-{of}": {JOB_LABEL: (head.name,), ROLE_LABEL: (role,)} for of, role in roles.items()
    }
    labels = {
        "ray.io/cluster": name,
        "ray.io/originated-from-cr-name": name,
        "ray.io/originated-from-crd": every_label("RayCluster", "RayJob"),
        "ray.io/group": set_label({of.group_name: of.name for of in groups}, leader="headgroup"),
        "ray.io/node-type": role_label(leader=_HEAD, worker="worker"),
        "ray.io/is-ray-node": every_label("yes"),
        "ray.io/identifier": known_label(identifiers),
        "app.kubernetes.io/name": every_label("kuberay"),
        "app.kubernetes.io/created-by": every_label("kuberay-operator"),
    }
    pods = Pods(labels, (head.name,))
    select_own(of_head, pods, head.name, _HEAD, leader=True)
    for of in groups:
        select_own(of.template, pods, head.name, of.name)


def _scaled_by_hand(spec: Fields, groups: list[Group], by_scale: Group | None, job: str) -> None:
    """What is done in place of Ray's autoscaler. `by_scale` is the group that kubectl scale changes: that of scaledSet,
    or else the first one."""
    scale = f"kubectl scale tyj {job} --replicas=N"
    how = f": {scale} (docs/jobs.md, Scaling)" if by_scale is not None else ""
    spec.changed("enableInTreeAutoscaling", f"Ray's autoscaler can't make pods of a TYJob{how}")
    for of in groups:
        if of.most is not None and of.counts < of.most < MAX_INT32:
            how = scale if of is by_scale else f"counts of worker set {of.name}"
            of.fields.to_do("maxReplicas", f"{counted(of.counts, 'worker')}: ask for up to {of.most} with {how}")


def _worker_set(of: Group, port: int) -> Json:
    return worker_set(
        of.name, of.template, of.counts or 1, minCount=of.least, groupSize=of.size if of.size > 1 else None,
        restart=dict(_WORKER_RESTARTS), rendezvous={"port": port, "scope": "Job"},
    )  # fmt: skip


def _groups(head: Head, spec: Fields, *, scaling: bool) -> tuple[list[Group], Group | None]:
    """The groups of workers with their names as worker sets, and the one of them that has no workers yet."""
    groups = [found for of in spec.records("workerGroupSpecs") if (found := _group(of)) is not None]
    names = head.named([_HEAD, *(of.name for of in groups)], [(spec, ""), *((of.fields, "groupName") for of in groups)])
    for of, name in zip(groups, names[1:], strict=True):
        of.name = name
    _together(head, groups, scaling=scaling)
    idle = [of for of in groups if not of.counts]
    for of in idle[1:]:
        words = "0 replicas: left out, because a TYJob has one set of 0 at most"
        of.fields.say(NoteKind.NO_EQUIVALENT, "", words)
    return [of for of in groups if of not in idle[1:]], idle[0] if idle else None


def _together(head: Head, groups: list[Group], *, scaling: bool) -> None:
    """Which workers start together: a gang of KubeRay, and what Kueue admits, is the whole cluster as it is asked for,
    unless Ray's autoscaler asks for more than the least (`scaling`)."""
    gang, kueue = bool(_GANG & set(head.labels.names())) and not scaling, head.kueue and not scaling
    for of in groups:
        if of.least >= of.counts:
            continue
        if not gang and not kueue:
            how = f"set minCount to {of.counts} for all or nothing"
            words = f"starts with {of.least} of {counted(of.counts, 'worker')}, as KubeRay starts it: {how}"
            of.fields.say(NoteKind.CHANGED, "minReplicas", words)
            continue
        of.least = of.counts
        if not gang:
            words = f"starts with {counted(of.counts, 'worker')} (minCount), as Kueue admits it"
            of.fields.say(NoteKind.CHANGED, "minReplicas", words)


def _params(fields: Fields) -> dict[str, str]:
    """The flags of `ray start`."""
    return fields.pairs("rayStartParams")


def _port(fields: Fields, params: Mapping[str, str]) -> int:
    port = params.get("port", str(_PORT))
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        fields.fault("rayStartParams", f"port must be a number from 1 to 65535, and not {port!r}")
        return _PORT
    return int(port)


def _of_the_head(spec: Fields, of_head: Fields) -> None:
    words = (
        "make a Service that selects arranger.dev/job and arranger.dev/role=leader, for the dashboard (8265) and "
        "clients (10001) from outside; within the job the head is head-0.NAME"
    )
    if "serviceType" in of_head or "headService" in of_head:
        of_head.lost("serviceType", words)
        of_head.lost("headService", words)
    else:
        of_head.say(NoteKind.TO_DO, "", words)
    if of_head.flag("enableIngress"):
        of_head.lost("enableIngress", "make an Ingress for that Service")
    spec.lost("headServiceAnnotations", "the Service of the head is yours to make")
    _resources(of_head)


def _resources(group: Fields) -> None:
    for name, flag in (("resources", "num-cpus, num-gpus, memory and resources"), ("labels", "labels")):
        group.lost(name, f"give it in rayStartParams ({flag})")


def _of_the_cluster(spec: Fields) -> None:
    spec.ignore("rayVersion")
    spec.lost(
        "autoscalerOptions",
        "Ray's autoscaler can't make pods of a TYJob: kubectl scale, or an autoscaler of Kubernetes",
    )
    spec.lost("gcsFaultToleranceOptions", "when the head fails, the whole cluster begins again")
    spec.lost("authOptions", "set the variables of Ray's token authentication in the templates")
    spec.lost("upgradeStrategy", "a TYJob's templates don't change while it runs: apply another TYJob")
    spec.lost("managedBy", "Arranger runs the TYJob")
    spec.lost("networkPolicy", "make a NetworkPolicy that selects arranger.dev/job")


#: The fields of a group of workers.
_GROUP = (
    *("groupName", "replicas", "minReplicas", "maxReplicas", "numOfHosts", "scaleStrategy", "idleTimeoutSeconds"),
    *("rayStartParams", "resources", "labels", "suspend", "template"),
)


def _group(group: Fields) -> Group | None:
    name = group.text("groupName")
    if not name:
        group.fault("groupName", "Required value")
    given, least = group.whole("replicas"), group.whole("minReplicas") or 0
    most, size = group.whole("maxReplicas"), group.whole("numOfHosts", least=1) or 1
    for each in misspelt(group, "replicas", _GROUP):
        group.fault(each, "unknown field, did you mean replicas?")
    counts = max(given or 0, least)
    _range(group, given, least, most)
    group.lost("scaleStrategy", "the workers with the highest indices are removed first")
    group.lost("idleTimeoutSeconds", "Ray's autoscaler can't remove pods of a TYJob")
    _resources(group)
    if group.flag("suspend"):
        group.say(NoteKind.NO_EQUIVALENT, "", "a suspended group: left out")
        group.ignore(*group.names())
        return None
    if not counts:
        group.changed("replicas", "0 workers until somebody scales the TYJob")
    return Group(group, name, name, template_of(group), _params(group), counts, least, size, most)


def _range(group: Fields, given: int | None, least: int, most: int | None) -> None:
    """The least and the number of workers are at most the most; of fewer workers than the least, KubeRay makes it."""
    if most is not None and given is not None and most < given:
        low = f", nor below minReplicas, which is {least}" if most < least else ""
        group.fault("maxReplicas", f"must not be below replicas, which is {given}{low}, but is {most}")
    elif most is not None and most < least:
        group.fault("minReplicas", f"must not be above maxReplicas, which is {most}, but is {least}")
    if given is not None and given < least and group.sound("minReplicas"):
        group.changed("replicas", f"{counted(least, 'worker')}, as minReplicas says: KubeRay makes no fewer either")


def _ask_for_shared_memory(template: Template) -> None:
    """The memory of Ray's object store, as KubeRay mounts it: as large as the container's memory."""
    container = template.spec["containers"][0]
    resources = container.get("resources") or {}
    limit = next((found for of in ("requests", "limits") if (found := (resources.get(of) or {}).get("memory"))), None)
    volume: Json = {"medium": "Memory"} | ({"sizeLimit": limit} if limit else {})
    mounts, volumes = container.get("volumeMounts") or [], template.spec.get("volumes") or []
    if all(of["mountPath"].rstrip("/") != "/dev/shm" for of in mounts):
        if all(of["name"] != "shared-mem" for of in volumes):
            template.spec["volumes"] = [*volumes, {"name": "shared-mem", "emptyDir": volume}]
        container["volumeMounts"] = [*mounts, {"name": "shared-mem", "mountPath": "/dev/shm"}]


def _restart_policy(template: Template, *, first: bool) -> None:
    """The restart policy of the head (`first`), which is restarted with its cluster, or of a worker."""
    spec = template.spec
    kubelet, path = spec.get("restartPolicy") or "Always", f"{template.path}.spec.restartPolicy"
    if first and kubelet != "Never":
        words = "Never: a failure of the head restarts all pods of the cluster, and not its container in place"
        template.notes.add(NoteKind.CHANGED, path, words)
    elif not first and kubelet == "Always":
        words = "OnFailure: a worker that has ended with exit code 0 has finished"
        template.notes.add(NoteKind.CHANGED, path, words)
    spec["restartPolicy"] = "Never" if first else "OnFailure" if kubelet == "Always" else kubelet


def _start(
    template: Template,
    params: Mapping[str, str],
    address: str,
    port: int,
    *,
    first: bool,
    program: str | None,
    own: bool,
) -> None:
    """Give the first container the command that starts Ray, after the one that it has itself."""
    container = template.spec["containers"][0]
    _restart_policy(template, first=first)
    where = "127.0.0.1" if first else "$(MASTER_ADDR)"
    told = {"RAY_IP": where, "RAY_PORT": str(port), "RAY_ADDRESS": f"{where}:{port}"}
    _ask_for_shared_memory(template)
    template.tell({"FQ_RAY_IP": address, "RAY_CLUSTER_NAME": "$(TYJOB_NAME)", **told})
    template.answer_references({"ray.io/cluster": "$(TYJOB_NAME)", "ray.io/group": "$(TYJOB_WORKER_SET)"})
    if own:
        path = f"{template.path}.spec.containers[0]"
        words = f"keeps its own command: the head is {address}:{port}"
        if program:
            words += ", and the command must run the entrypoint and end with it"
        template.notes.add(NoteKind.TO_DO, path, words)
        return
    flags = _flags(params, container, port, first=first, blocks=program is None)
    start = f"ulimit -n 65536; ray start {'--head ' if first else ''}{flags}"
    before = " ".join([*(container.get("command") or ()), *(container.get("args") or ())])
    waits = "" if first else f"until ray health-check --address {where}:{port} > /dev/null 2>&1; do sleep 2; done; "
    command = f"{before} && {start}" if before else start
    container["command"] = ["/bin/bash", "-c", "--"]
    container["args"] = [waits + command + (f" && {program}" if program else "")]


def _flags(params: Mapping[str, str], container: Mapping[str, Any], port: int, *, first: bool, blocks: bool) -> str:
    """The flags of `ray start`: those that are given, and what follows from the container's limits."""
    flags = dict(params)
    _size(flags, container.get("resources") or {})
    flags.setdefault("metrics-export-port", _METRICS_PORT)
    if first:
        flags = {"port": str(port), "dashboard-host": "0.0.0.0"} | flags
    else:
        flags = {"address": f"$(MASTER_ADDR):{port}"} | flags
    flags.pop("block", None)
    if blocks:
        flags["block"] = "true"
    return " ".join(filter(None, map(_flag, flags, flags.values())))


def _flag(name: str, value: str) -> str:
    """A flag as the command line has it; empty for one that isn't set. Most truth values are switches."""
    if value.lower() in ("true", "false") and name not in _WITH_TRUTH_VALUES:
        return f"--{name}" if value.lower() == "true" else ""
    return f"--{name}={value}"


def _size(flags: dict[str, str], resources: Mapping[str, Any]) -> None:
    """Add what the container offers to Ray, where the flags don't say it: CPUs, memory, GPUs and accelerators."""
    limits, requests = (_amounts(resources, kind) for kind in ("limits", "requests"))
    gpus = next((limits[name] for name in sorted(limits) if _GPU.fullmatch(name)), None)
    cpus = limits.get("cpu") or requests.get("cpu")
    for flag, value in (("num-cpus", cpus), ("memory", limits.get("memory")), ("num-gpus", gpus)):
        if value and flag not in flags:
            flags[flag] = str(math.ceil(value))
    accelerator = next((name for name in sorted(_ACCELERATORS) if name in limits), None)
    own = _own_resources(flags)
    if accelerator is None or own is None or not own.keys().isdisjoint(_ACCELERATORS.values()):
        return
    own[_ACCELERATORS[accelerator]] = float(limits[accelerator])
    whole = {name: int(own[name]) if float(own[name]).is_integer() else own[name] for name in sorted(own)}
    flags["resources"] = f"'{json.dumps(whole, separators=(',', ':'))}'"


def _amounts(resources: Mapping[str, Any], kind: str) -> dict[str, Fraction]:
    """The requests or limits above 0, in the units of each."""
    amounts = {name: Fraction(exact(value)) for name, value in (resources.get(kind) or {}).items()}
    return {name: amount for name, amount in amounts.items() if amount}


def _own_resources(flags: Mapping[str, str]) -> dict[str, float] | None:
    """Ray's resources that the flags give; None if they are no JSON of numbers."""
    try:
        found = json.loads(flags.get("resources", "{}").strip("'\"` "))
    except ValueError:
        return None
    numbers = isinstance(found, dict) and all(type(value) in (int, float) for value in found.values())
    return found if numbers else None
