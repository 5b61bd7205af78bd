"""Jobs of Volcano: a job of equals, in which each task is a worker set."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec

from arranger.convert.fields import MAX_INT32, Fields, NoteKind, meant, misspelt
from arranger.convert.kubeflow import mount_keys, say_keys, tell_tensorflow
from arranger.convert.parts import Head, claim_of, point_out_hosts, precedence, success, tyjob, worker_set
from arranger.convert.pod_rules import Pods, every_label, job_label, select_own, set_label
from arranger.convert.templates import Json, Template, template_of
from arranger.convert.whole_input import Input
from arranger.model.text import counted

_DEFAULT_RETRIES = 3
_RESTARTS = {"RestartJob": "Job", "RestartTask": "Set", "RestartPod": "Worker", "RestartPartition": "Set"}
_ENDS = ("AbortJob", "TerminateJob")
#: A pod has ended with a failure, its containers restarted in place too often, or it was deleted, as a drain does.
_FAILED, _WORN, _EVICTED = "PodFailed", "TaskFailed", "PodEvicted"
#: Scopes of restarts, the widest last, and what each restarts.
_SCOPES = {"": "nothing", "Worker": "that pod", "Set": "the pods of its task", "Job": "the whole job"}
#: Restarts of a container in place, which Volcano doesn't limit.
_IN_PLACE = {"limit": 10, "windowSeconds": 3600}
#: The fields of a task, and the actions and events of policies: all that Volcano knows.
_TASK = (
    *("name", "replicas", "minAvailable", "template", "policies", "topologyPolicy", "maxRetry", "dependsOn"),
    *("partitionPolicy", "networkTopology"),
)
_ACTIONS = (*_RESTARTS, *_ENDS, "CompleteJob", "ResumeJob", "SyncJob", "EnqueueJob")
_EVENTS = (
    *("*", "PodPending", "PodRunning", "PodFailed", "PodEvicted", "JobUnknown", "TaskCompleted", "TaskFailed"),
    *("Unknown", "OutOfSync", "CommandIssued", "JobUpdated", "JobCompleted"),
)
#: The arguments of plugins that mean something to a TYJob, or need nothing of it.
_ARGUMENTS = {
    "env": frozenset[str](),
    "svc": frozenset({"publish-not-ready-addresses", "disable-network-policy"}),
    "ssh": frozenset({"ssh-key-file-path"}),
    "mpi": frozenset({"master", "worker"}),
    "pytorch": frozenset({"master", "worker", "port"}),
    "tensorflow": frozenset({"ps", "worker", "chief", "evaluator", "port"}),
}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|m|s|ms)")
_UNITS_S = {"h": 3600, "m": 60, "s": 1, "ms": 0.001}


class Task(msgspec.Struct):
    """One task that has pods."""

    fields: Fields
    name: str
    replicas: int
    least: int | None
    template: Template
    restart: Json
    #: Whether the job has succeeded when this task has.
    decides: bool
    after: str
    #: Whether a policy restarts something at an end of its pods.
    again: bool
    set_name: str = ""


class Lifecycle(msgspec.Struct):
    """What a list of policies says."""

    #: The actions of failures and evictions by their event: the first policy with an event counts.
    actions: dict[str, str] = msgspec.field(default_factory=dict)
    #: Whether the end of a task is the success of the job.
    decides: bool = False


def jobs_of(root: Fields, around: Input) -> list[Json]:
    """The TYJob of a Volcano Job."""
    head, spec = Head(root, around, ("spec", "queue")), root.record("spec")
    tasks = _tasks(head, spec)
    least = _least(spec, tasks)
    claims = _volumes(spec, head, tasks)
    plugins = spec.record("plugins")
    port = _plugins(plugins, head, tasks)
    _hosts(head, tasks)
    _select(head, tasks)
    decisive = [of.set_name for of in tasks if of.decides]
    _no_equivalent(spec, tasks)
    made = {
        "queue": head.queue,
        **precedence(head, [of.template for of in tasks], (spec, "priorityClassName")),
        "minWorkersNum": least,
        "successPolicy": success(decisive, len(tasks) - len(decisive)),
        "cleanPodPolicy": "Running",
        "ttlSecondsAfterFinished": spec.whole("ttlSecondsAfterFinished"),
        "expectedRuntimeSeconds": _duration(spec, "runningEstimate"),
        "workerSets": [_worker_set(of, tasks, port) for of in tasks],
    }
    return [*claims, tyjob(head, made)]


def _tasks(head: Head, spec: Fields) -> list[Task]:
    """The tasks that have pods, with their names as worker sets."""
    scheduler = spec.text("schedulerName")
    if scheduler not in ("", "volcano", "default-scheduler"):
        spec.changed("schedulerName", f"Arranger places the pods, and not the scheduler {scheduler}")
    retries, of_job = spec.whole("maxRetry"), _lifecycle(spec)
    if of_job.decides and len(spec.records("tasks")) > 1:
        spec.say(NoteKind.NO_EQUIVALENT, "policies", "the end of any task: name the decisive sets in successPolicy")
    tasks = [
        found
        for number, of in enumerate(spec.records("tasks"))
        if (found := _task(spec, of, f"default{number}", of_job, retries or _DEFAULT_RETRIES)) is not None
    ]
    if not tasks:
        words = "there is no pod to run: each task has 0 replicas, or there is none"
        spec.fault("tasks", words, of=_replica_fields(spec))
    if any(of.again for of in tasks):
        words = "restarts aren't counted for the job: restart.limit holds for each pod alone"
        spec.say(NoteKind.CHANGED, "maxRetry", f"{words}, and evictions and drains don't count")
    tasks = _first_master(spec, tasks)
    names = head.named([of.name for of in tasks], [(of.fields, "name") for of in tasks])
    for of, name in zip(tasks, names, strict=True):
        of.set_name = name
    return tasks


def _worker_set(of: Task, tasks: Sequence[Task], port: int | None) -> Json:
    before = next((other.set_name for other in tasks if other.name == of.after), None)
    meet = {"port": port, "scope": "Job"} if port is not None else {}
    return worker_set(
        of.set_name, of.template, of.replicas, minCount=of.least, startAfter=before, restart=of.restart, rendezvous=meet
    )


def _task(spec: Fields, fields: Fields, default_name: str, of_job: Lifecycle, retries: int) -> Task | None:
    name, replicas = fields.text("name") or default_name, fields.whole("replicas") or 0
    if not replicas and fields.sound("replicas"):
        wrong = misspelt(fields, "replicas", _TASK)
        for each in wrong:
            fields.fault(each, "unknown field, did you mean replicas?")
            replicas = _meant_replicas(fields, each) or 1
        if not wrong and _below_its_replicas(fields, fields.whole("minAvailable"), 0):
            fields.say(NoteKind.NO_EQUIVALENT, "", "0 replicas: left out")
            fields.ignore(*fields.names())
            return None
    least = fields.whole("minAvailable")
    fields.lost("topologyPolicy", "the NUMA policy of the kubelet counts")
    fields.lost("partitionPolicy", "give the worker set a groupSize (docs/jobs.md, Worker groups)")
    fields.lost("networkTopology", "give the worker set a topology, with the labels of nodes (docs/jobs.md, Topology)")
    policies = _lifecycle(fields)
    template = template_of(fields)
    actions = of_job.actions | policies.actions
    restart = _restart(fields if policies.actions else spec, fields, template, actions, retries)
    again = any(action in _RESTARTS for action in actions.values())
    return Task(fields, name, replicas, least, template, restart, policies.decides, _after(fields), again)


def _restart(policies: Fields, task: Fields, template: Template, actions: Mapping[str, str], retries: int) -> Json:
    """The restart policy of a task. Notes about its policies are said of `policies`, the task's or the job's."""
    in_place = _in_place(template)
    worn = actions.get(_WORN, "") if in_place else ""
    failed, evicted, again = (_scope(of) for of in (actions.get(_FAILED, ""), actions.get(_EVICTED, ""), worn))
    evicted = "" if actions.get(_EVICTED) in _ENDS else evicted
    scope = max(failed, evicted, again, key=[*_SCOPES].index)
    restart: Json = {"scope": scope} if scope else {}
    if scope in ("Set", "Job"):
        if evicted in ("", "Worker"):
            restart["event"] = _FAILED
            words = f"a pod of a drained or lost node restarts {_SCOPES[scope]} too (restart.scope)"
            _say(policies, f"{words}, and one that is deleted on an open node comes back alone (restart.event)")
        elif evicted != scope:
            _say(policies, f"an evicted pod restarts {_SCOPES[scope]}, and not only {_SCOPES[evicted]} (restart.scope)")
    if failed not in ("", scope):
        words = f"a failed pod restarts {_SCOPES[scope]}, and not only {_SCOPES[failed]}"
        _say(policies, f"{words}: restart.scope is one for failures and evictions")
    if "RestartPartition" in actions.values():
        _say(policies, "all pods of a task restart, and not its partition alone: a groupSize makes worker groups")
    if in_place:
        return restart | _limit_in_place(task, template, worn, scope)
    task.lost("maxRetry", "no effect, as in Volcano: pods with restartPolicy Never don't restart in place")
    if actions.get(_FAILED) in _RESTARTS:
        return restart | {"limit": retries}
    if not failed and scope == "Job":
        _say(policies, "a failed pod fails the job at once (restart.limit is 0), and the others don't go on")
    return restart | {"limit": 0}


def _scope(action: str) -> str:
    """The scope that an action needs: only the failure of a pod of the scope Job ends the job."""
    return "Job" if action in _ENDS else _RESTARTS.get(action, "")


def _say(policies: Fields, words: str) -> None:
    policies.say(NoteKind.CHANGED, "policies", words)


def _in_place(template: Template) -> bool:
    """Whether kubelets restart containers that fail, as they do here then."""
    kubelet = template.spec.get("restartPolicy") or "Always"
    if kubelet == "Always":
        path = f"{template.path}.spec.restartPolicy"
        words = "a pod that has ended with exit code 0 has finished, and isn't run again"
        template.notes.add(NoteKind.CHANGED, path, words)
        template.spec["restartPolicy"] = "OnFailure"
    return bool(kubelet != "Never")


def _limit_in_place(task: Fields, template: Template, worn: str, scope: str) -> Json:
    """How often kubelets restart containers. `worn` is the action of Volcano once they did so too often in a task."""
    path, own = f"{template.path}.spec.restartPolicy", task.whole("maxRetry", least=-1) or _DEFAULT_RETRIES
    end = "the job fails" if scope == "Job" else "the pod is given up"
    if (worn in _RESTARTS or worn in _ENDS) and own > 0:
        words = f"containers restart in place {counted(own, 'time')} in each pod, not in the task together; then {end}"
        words += f": this isn't followed by a {worn}" if worn in _RESTARTS or scope != "Job" else ""
        template.notes.add(NoteKind.CHANGED, path, f"{words} (restart.limit)")
        task.changed("maxRetry", "the limit holds for each pod alone")
        return {"limit": own}
    words = f"containers restart in place at most 10 times an hour in each pod, then {end} (restart.limit and"
    template.notes.add(NoteKind.CHANGED, path, f"{words} windowSeconds): Volcano doesn't limit this")
    task.lost("maxRetry", "no effect, as in Volcano without a policy for TaskFailed")
    return dict(_IN_PLACE)


def _lifecycle(fields: Fields) -> Lifecycle:
    """Take a list of policies."""
    found = Lifecycle()
    for policy in fields.records("policies"):
        action, events = policy.text("action"), _events(policy)
        _supported(policy, "action", [action] if action else [], _ACTIONS)
        policy.lost(
            "timeout", "the action is taken at once; see startGraceSeconds for pods that don't start (docs/jobs.md)"
        )
        policy.lost("exitCode", "all exit codes but 0 are treated alike, and this policy isn't carried over")
        if "exitCode" in policy:
            continue
        known = [event for event in events if _take(found, action, event)]
        for event in [event for event in events if event not in known]:
            words = f"{event} leads to no {action} here: docs/jobs.md says what a failure restarts"
            policy.say(NoteKind.NO_EQUIVALENT, "event" if "event" in policy else "events", words)
        if "*" in events:
            words = "every event: here failures, evictions and lost nodes"
            policy.say(NoteKind.CHANGED, "event" if "event" in policy else "events", words)
    return found


def _events(policy: Fields) -> list[str]:
    """The events of a policy."""
    events = [event for event in (*policy.texts("events"), policy.text("event")) if event]
    _supported(policy, "event" if "event" in policy else "events", events, _EVENTS)
    return events


def _supported(policy: Fields, field: str, given: Sequence[str], known: Sequence[str]) -> None:
    """Refuse what Volcano's webhook refuses."""
    for each in given:
        if each not in known:
            words = f'Unsupported value: "{each}": supported values: {", ".join(known)}{meant(each, known)}'
            policy.fault(field, words)


def _take(found: Lifecycle, action: str, event: str) -> bool:
    """Whether a TYJob does this at such an event; then it's noted."""
    events = (_FAILED, _WORN, _EVICTED) if event == "*" else (event,)
    for each in events:
        found.actions.setdefault(each, action)
    if event == "TaskCompleted" and action == "CompleteJob":
        found.decides = True
        return True
    if action in _RESTARTS or action in _ENDS:
        known = (_FAILED, _WORN, _EVICTED) if action in _RESTARTS else (_FAILED, _WORN)
        return event == "*" or event in known
    return action in ("", "SyncJob", "ResumeJob") or (action == "CompleteJob" and event == "JobCompleted")


def _after(fields: Fields) -> str:
    """The task that has to be ready before this one starts."""
    depends = fields.record("dependsOn")
    names, any_of = depends.texts("name"), depends.one_of("iteration", "all", "any") == "any"
    if len(names) > 1:
        words = f"a worker set starts after one other: after {names[-1]}"
        depends.changed("name", words + (", and not after any of these" if any_of else ""))
    return names[-1] if names else ""


def _least(spec: Fields, tasks: Sequence[Task]) -> int | None:
    """`minWorkersNum`; the minimums of the tasks are set, or left out where Volcano wouldn't keep them."""
    total, given = sum(of.replicas for of in tasks), spec.whole("minAvailable")
    of_tasks = sum(of.replicas if of.least is None else of.least for of in tasks)
    _below_replicas(spec, tasks, given or 0)
    if not given:
        for of in tasks:
            of.least = of.replicas if of.least is None else of.least
        return None if of_tasks else 1
    if given < of_tasks:
        for of in tasks:
            of.fields.changed(
                "minAvailable", "has no effect, as in Volcano: minAvailable of the job is less than all of them"
            )
            of.least = None
    elif given < total:  # Volcano then needs all replicas of a task that says nothing
        for of in tasks:
            of.least = of.replicas if of.least is None else of.least
    if given < total:
        words = "a pod that failed for good fails the TYJob once the others have finished, whatever minAvailable is"
        spec.changed("minAvailable", words)
        _may_be_left_out(tasks, given)
    return given


def _may_be_left_out(tasks: Sequence[Task], given: int) -> None:
    """Point out the tasks of one replica that a quorum of `given` pods may be without."""
    for of in tasks:
        if of.replicas == 1 and not of.least and len(tasks) > 1:
            words = f"the quorum of {counted(given, 'pod')} may be without it: if the others need it, as a learner"
            of.fields.to_do("replicas", f"{words}, set minCount: 1 of worker set {of.set_name or of.name}")


def _meant_replicas(task: Fields, name: str) -> int | None:
    """The number of a misspelt field; None if it's none."""
    value = task.raw(name)
    return value if isinstance(value, int) and 0 < value <= MAX_INT32 else None


def _replica_fields(spec: Fields) -> list[str]:
    """The paths of the tasks' replicas, also where they are misspelt and no number."""
    return [
        of.at(name)
        for of in spec.records("tasks")
        for name in (
            "replicas",
            *(each for each in misspelt(of, "replicas", _TASK) if _meant_replicas(of, each) is None),
        )
    ]


def _below_replicas(spec: Fields, tasks: Sequence[Task], given: int) -> None:
    """The minimums of the job and of its tasks are at most their replicas."""
    for of in tasks:
        _below_its_replicas(of.fields, of.least, of.replicas)
    total = sum(of.replicas for of in tasks)
    if given > total:
        words = f"must not be above the replicas of all tasks, which are {total}, but is {given}"
        spec.fault("minAvailable", words, of=[spec.at("tasks"), *_replica_fields(spec)])


def _below_its_replicas(task: Fields, least: int | None, replicas: int) -> bool:
    """Whether the minimum of a task is at most its replicas."""
    if least is None or least <= replicas:
        return True
    words = f"must not be above replicas, which is {replicas}, but is {least}"
    task.fault("minAvailable", words, of=[task.at("replicas")])
    return False


def _volumes(spec: Fields, head: Head, tasks: Sequence[Task]) -> list[Json]:
    """Mount the claims of the job into all containers; those that Volcano would make are in the output."""
    made: list[Json] = []
    for number, volume in enumerate(spec.records("volumes")):
        path, claim = volume.text("mountPath"), volume.text("volumeClaimName")
        volume.ignore("generateName", "volumeClaim")
        if not path:
            volume.fault("mountPath", "Required value")
        if "volumeClaim" in volume:
            claim = claim or f"{head.name}-volume-{number}"
            metadata = {"name": claim} | ({"namespace": head.namespace} if head.namespace else {})
            made.append(claim_of(metadata, volume, "volumeClaim"))
            volume.changed("volumeClaim", f"the claim {claim} is in the output, and isn't deleted with the TYJob")
        source: Json = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}
        for of in tasks:
            of.template.add_volume(f"volume-{number}", source, path)
    return made


# --- plugins ----------------------------------------------------------------------------------------------------


def _arguments(plugins: Fields, name: str) -> dict[str, str]:
    """The arguments of a plugin: `--port=2222`, or `--port 2222`. Words that are no argument are named like one."""
    words = " ".join(plugins.texts(name)).replace("=", " ").split()
    found: dict[str, str] = {}
    flag = ""
    for word in words:
        if word.startswith("-"):
            flag = word.lstrip("-")
            found[flag] = "true"
        elif flag:
            found[flag] = word
            flag = ""
        else:
            found[word] = ""
    return found


def _odd_arguments(plugins: Fields) -> None:
    """Name the arguments of plugins that nobody takes."""
    for plugin, known in _ARGUMENTS.items():
        for name in [name for name in _arguments(plugins, plugin) if plugin in plugins and name not in known]:
            plugins.say(NoteKind.NO_EQUIVALENT, plugin, f"the argument {name} has no effect here")


def _number(plugins: Fields, plugin: str, given: str | None, default: int) -> int:
    """A port that a plugin was given."""
    if given is None:
        return default
    if not given.isdecimal() or not 0 < int(given) < 1 << 16:
        plugins.fault(plugin, f"the port must be a number from 1 to 65535, and not {given!r}")
        return default
    return int(given)


def _first_master(spec: Fields, tasks: list[Task]) -> list[Task]:
    """The tasks with that of the master first, because rank 0 is in the first worker set."""
    plugins = spec.record("plugins")
    if "pytorch" not in plugins:
        return tasks
    master = _arguments(plugins, "pytorch").get("master", "master")
    return sorted(tasks, key=lambda of: of.name != master)


def _plugins(plugins: Fields, head: Head, tasks: Sequence[Task]) -> int | None:
    """Tell pods what Volcano's plugins tell them; the port of a rendezvous of the whole job, if one has it."""
    hosts = {of.name: [f"{of.set_name}-{number}.{head.name}" for number in range(of.replicas)] for of in tasks}
    plugins.ignore("env", "svc")
    _odd_arguments(plugins)
    if "svc" in plugins or "mpi" in plugins:
        _told_hosts(tasks, hosts)
        if "disable-network-policy" not in _arguments(plugins, "svc"):
            plugins.changed("svc", "other pods can reach these: make a NetworkPolicy that selects arranger.dev/job")
    if "ssh" in plugins or "mpi" in plugins:
        keys = _arguments(plugins, "ssh").get("ssh-key-file-path", "/root/.ssh")
        for of in tasks:
            mount_keys(of.template, f"{head.name}-ssh", keys)
        say_keys(plugins, "ssh" if "ssh" in plugins else "mpi", f"{head.name}-ssh")
    _mpi(plugins, tasks, hosts)
    _tensorflow(plugins, head, tasks)
    plugins.lost("ray", "write the commands of Ray into the templates: docs/recipes/ray.md")
    plugins.lost("hcclrank", "ranks are TYJOB_RANK (docs/jobs.md, What a pod is told)")
    port = _pytorch(plugins, tasks)
    for name in [name for name in plugins.names() if not plugins.taken(name)]:
        plugins.lost(name, "Arranger has no plugin of this name")
    for of in tasks:
        _told_index(of, head)
    return port


def _mpi(plugins: Fields, tasks: Sequence[Task], hosts: dict[str, list[str]]) -> None:
    """The plugin `mpi`: the master starts once the workers are ready, and knows their hosts."""
    if "mpi" not in plugins:
        return
    given = _arguments(plugins, "mpi")
    worker = given.get("worker", "worker")
    for of in tasks:
        if of.name == given.get("master", "master"):
            of.template.tell({"MPI_HOST": ",".join(hosts.get(worker, []))})
            of.after = of.after or worker


def _pytorch(plugins: Fields, tasks: Sequence[Task]) -> int | None:
    """The plugin `pytorch`: the port of the rendezvous of the whole job."""
    if "pytorch" not in plugins:
        return None
    for of in tasks:
        of.template.tell({"WORLD_SIZE": "$(NNODES)", "RANK": "$(NODE_RANK)"})
    return _number(plugins, "pytorch", _arguments(plugins, "pytorch").get("port"), 23456)


def _tensorflow(plugins: Fields, head: Head, tasks: Sequence[Task]) -> None:
    """The plugin `tensorflow`: TF_CONFIG."""
    if "tensorflow" not in plugins:
        return
    given, by_name = _arguments(plugins, "tensorflow"), {of.name: of for of in tasks}
    types = {kind: given.get(kind, kind) for kind in ("chief", "ps", "worker", "evaluator")}
    listed = {kind: by_name[name] for kind, name in types.items() if name in by_name}
    kept = {kind: (of.set_name, of.replicas, of.template) for kind, of in listed.items()}
    tell_tensorflow(head.name, kept, _number(plugins, "tensorflow", given.get("port"), 2222))


def _told_index(of: Task, head: Head) -> None:
    """What each pod of Volcano knows of itself."""
    index = "$(TYJOB_WORKER_INDEX)"
    of.template.answer_references(
        {
            "volcano.sh/job-name": "$(TYJOB_NAME)",
            "volcano.sh/job-version": "$(TYJOB_ATTEMPT)",
            "volcano.sh/task-spec": of.name,
            "volcano.sh/task-index": index,
            "volcano.sh/queue-name": head.queue or "default",
        }
    )
    of.template.tell({"VC_TASK_INDEX": index, "VK_TASK_INDEX": index})


def _told_hosts(tasks: Sequence[Task], hosts: dict[str, list[str]]) -> None:
    """Give all pods the hosts of each task, as variables and in files."""
    variables: dict[str, str] = {}
    files: dict[str, str] = {}
    for name, listed in hosts.items():
        key = name.replace("-", "_")
        variables |= {f"VC_{key.upper()}_HOSTS": ",".join(listed), f"VC_{key.upper()}_NUM": str(len(listed))}
        files[f"{key}.host"] = "\n".join(listed) + "\n"
    for of in tasks:
        of.template.tell(variables)
        of.template.add_files("volcano-hosts", files, "/etc/volcano")


def _hosts(head: Head, tasks: Sequence[Task]) -> None:
    """Host names: those of a rendezvous in place of Volcano's."""
    own = re.escape(head.source_name)
    for of in tasks:
        for field in ("hostname", "subdomain"):
            if of.template.spec.pop(field, None):
                words = f"pods have the host names {of.set_name}-N.{head.name}"
                of.template.notes.add(NoteKind.CHANGED, f"{of.template.path}.spec.{field}", words)
        for other in tasks:
            pattern = re.compile(rf"(?<![\w.-]){own}-{re.escape(other.name)}-(\d+)(?:\.{own}(?=[.:]|\b))?(?![\w-])")
            of.template.rename_hosts(pattern, _Renamed(other.set_name, head.name))
        point_out_hosts(head, of.template)


def _select(head: Head, tasks: Sequence[Task]) -> None:
    """Rules about other pods select by Arranger's labels."""
    labels = {
        "volcano.sh/job-name": job_label({head.source_name: (head.name,)}),
        "volcano.sh/job-namespace": every_label(),  # a rule is about the pods of its own namespace anyway
        "volcano.sh/task-spec": set_label({of.name: of.set_name for of in tasks}),
    }
    for of in tasks:
        select_own(of.template, Pods(labels, (head.name,)), head.name, of.set_name)


class _Renamed:
    """The host name of a pod of a task in the TYJob."""

    def __init__(self, name: str, job: str) -> None:
        self._name = name
        self._job = job

    def __call__(self, match: re.Match[str]) -> str:
        return f"{self._name}-{match[1]}.{self._job}"


def _no_equivalent(spec: Fields, tasks: Sequence[Task]) -> None:
    if sum(of.decides for of in tasks) > 1:
        words = "the TYJob has succeeded when all tasks that complete the job have, and not when one has"
        spec.say(NoteKind.CHANGED, "policies", words)
    if spec.whole("minSuccess", least=1) not in (None, sum(of.replicas for of in tasks)):
        spec.lost("minSuccess", "the TYJob has succeeded when all pods of the sets that decide have (successPolicy)")
    spec.lost("networkTopology", "give the TYJob a topology, with the labels of nodes (docs/jobs.md, Topology)")


def _duration(fields: Fields, name: str) -> int | None:
    """A duration as Go writes it (`1h30m`), in seconds."""
    text = fields.text(name)
    if not text:
        return None
    if not re.fullmatch(rf"(?:{_DURATION.pattern})+", text):
        fields.fault(name, "must be a duration, such as 1h30m")
        return None
    seconds = timedelta(seconds=sum(float(number) * _UNITS_S[unit] for number, unit in _DURATION.findall(text)))
    return max(1, round(seconds.total_seconds()))
