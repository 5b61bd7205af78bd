"""JobSets: one TYJob, in which each replicated job is a worker set and each of its Jobs a worker group. What has to be
complete before others start is a TYJob of its own."""

import itertools
import re

import msgspec

from arranger.convert.batch_job import (
    INDEX_KEYS,
    INDEX_VARIABLE,
    JOB_NAME_LABELS,
    JobPart,
    job_part,
    say_others_go_on,
)
from arranger.convert.fields import Fields, NoteKind
from arranger.convert.parts import (
    Head,
    claim_of,
    point_out_hosts,
    precedence,
    success,
    suspended,
    tyjob,
    worker_set,
)
from arranger.convert.pod_rules import Label, Pods, job_label, known_label, select_own, set_label
from arranger.convert.templates import Json
from arranger.convert.whole_input import Input
from arranger.model.names import JOB_LABEL, WORKER_SET_LABEL

_DOMAIN = "jobset.sigs.k8s.io"
_EXCLUSIVE = f"alpha.{_DOMAIN}/exclusive-topology"
_SELECTORS = f"alpha.{_DOMAIN}/node-selector"


class ReplicatedJob(msgspec.Struct):
    """One entry of `replicatedJobs`."""

    fields: Fields
    #: Its name in the source, and as a worker set.
    name: str
    set_name: str
    part: JobPart
    replicas: int
    after_ready: str
    after_complete: str
    topology: Json | None

    @property
    def group_size(self) -> int:
        """The pods of one Job, if there are several Jobs of several pods; else 1."""
        return self.part.count if self.replicas > 1 else 1

    @property
    def counts(self) -> int:
        return self.replicas if self.replicas > 1 else self.part.count

    @property
    def index_in_job(self) -> str:
        """The variable with the pod's index in its Job."""
        return "TYJOB_GROUP_RANK" if self.replicas > 1 else "TYJOB_WORKER_INDEX"


def jobs_of(root: Fields, around: Input) -> list[Json]:
    """The TYJobs of a JobSet: one, or one more for each time that replicated jobs wait for the end of others."""
    head, spec = Head(root, around), root.record("spec")
    suspend = suspended(head, spec)
    spec.lost("managedBy", "Arranger runs the TYJob")
    exclusive = _exclusive(head.annotations)
    jobs = _jobs(head, spec, exclusive)
    _in_order(spec, jobs)
    _known(jobs)
    claims = _claims(spec, head, jobs)
    _tell(spec, head, jobs)
    restart = _restart(spec, jobs)
    stages = _stages(jobs)
    _select(head, stages)
    succeeding = _succeeding(spec, jobs)
    ttl = spec.whole("ttlSecondsAfterFinished")
    tyjobs = []
    for number, stage in enumerate(stages):
        last = number == len(stages) - 1
        awaited = succeeding if last else {later.after_complete for later in jobs}
        decisive = [of.set_name for of in stage if of.name in awaited]
        made = {
            "queue": head.queue,
            **precedence(head, [of.part.template for of in stage]),
            "suspend": suspend,
            "after": [{"name": _stage_name(head, number - 1, stages)}] if number else None,
            "successPolicy": success(decisive, len(stage) - len(decisive)),
            "cleanPodPolicy": "Running",
            "activeDeadlineSeconds": _deadline(stage),
            "ttlSecondsAfterFinished": ttl,
            "workerSets": [_worker_set(of, stage, restart) for of in stage],
        }
        tyjobs.append(tyjob(head, made, _stage_name(head, number, stages)))
    if len(stages) > 1:
        names = ", ".join(_stage_name(head, number, stages) for number in range(len(stages)))
        spec.say(NoteKind.CHANGED, "replicatedJobs", f"{len(stages)} TYJobs, each after the one before: {names}")
    return [*claims, *tyjobs]


def _jobs(head: Head, spec: Fields, exclusive: str) -> list[ReplicatedJob]:
    """The replicated jobs that have pods, with their names as worker sets."""
    jobs = [found for of in spec.records("replicatedJobs") if (found := _replicated(of, exclusive)) is not None]
    if not jobs:
        spec.fault("replicatedJobs", "there is no pod to run: each has 0 replicas, or there is none")
    names = head.named([of.name for of in jobs], [(of.fields, "name") for of in jobs])
    for of, name in zip(jobs, names, strict=True):
        of.set_name = name
    return jobs


def _select(head: Head, stages: list[list[ReplicatedJob]]) -> None:
    """Rules about other pods select by Arranger's labels. A Job is a worker set if it is the only one of its name."""
    names = [_stage_name(head, number, stages) for number in range(len(stages))]
    jobs = {
        f"{head.source_name}-{of.name}-0": {JOB_LABEL: (name,), WORKER_SET_LABEL: (of.set_name,)}
        for name, stage in zip(names, stages, strict=True)
        for of in stage
        if of.replicas == 1
    }
    labels: dict[str, Label] = {
        f"{_DOMAIN}/jobset-name": job_label({head.source_name: names}),
        f"{_DOMAIN}/replicatedjob-name": set_label({of.name: of.set_name for stage in stages for of in stage}),
        **dict.fromkeys(JOB_NAME_LABELS, known_label(jobs)),
    }
    for name, stage in zip(names, stages, strict=True):
        for of in stage:
            select_own(of.part.template, Pods(labels, names), name, of.set_name)


def _deadline(stage: list[ReplicatedJob]) -> int | None:
    """The deadline of the TYJob: the shortest of those of its Jobs, each of which would end alone."""
    least = min((of.part.deadline_s for of in stage if of.part.deadline_s is not None), default=None)
    for of in stage if sum(each.replicas for each in stage) > 1 else ():
        words = f"the whole TYJob fails after {least} s, with the pods of all Jobs"
        words += "" if of.part.deadline_s == least else ": the shortest of their deadlines counts"
        of.fields.record("template").record("spec").changed("activeDeadlineSeconds", words)
    return least


def _replicated(fields: Fields, exclusive: str) -> ReplicatedJob | None:
    name, replicas = fields.text("name"), fields.whole("replicas")
    fields.ignore("groupName")
    template = fields.record("template")
    metadata = template.record("metadata")
    annotations, labels = metadata.record("annotations"), metadata.record("labels")
    metadata.ignore("creationTimestamp", "name", "namespace", "generateName")
    level = _exclusive(annotations) or exclusive
    for keys in (annotations, labels):
        for key in keys.names():
            if not keys.taken(key):
                keys.lost(key, "the child Jobs of a JobSet have it; a TYJob has none: put it into the pod template")
    spec = template.record("spec")
    spec.ignore("suspend")
    spec.lost("successPolicy", "a worker set has succeeded when all of its pods have")
    before: dict[str, str] = {}
    for of in fields.records("dependsOn"):
        status, other = of.one_of("status", "Ready", "Complete"), of.text("name")
        if status in before:
            of.lost("name", f"a worker set starts after one other; it waits for {before[status]}")
        before.setdefault(status, other)
    if replicas == 0:
        fields.say(NoteKind.NO_EQUIVALENT, "", "0 replicas: left out")
        spec.ignore(*spec.names())
        return None
    spec.lost("ttlSecondsAfterFinished", "that of the JobSet holds for all pods")
    part = job_part(spec)
    topology = part.template.topology
    if level:
        topology = {"levels": [level], "mode": "Required"}
    found = ReplicatedJob(
        fields, name, name, part, replicas or 1, before.get("Ready", ""), before.get("Complete", ""), topology
    )
    if topology is not None:
        found.topology = topology | ({"within": "Group"} if found.replicas > 1 else {})
    if found.replicas > 1 and part.count > 1:
        fields.changed(
            "replicas", f"each Job is a worker group of {part.count} pods: they get nodes, and are restarted, together"
        )
    return found


def _exclusive(annotations: Fields) -> str:
    annotations.lost(_SELECTORS, "the topology of the TYJob needs no labels of a JobSet on nodes")
    level = annotations.text(_EXCLUSIVE)
    annotations.changed(_EXCLUSIVE, "pods of each Job share one domain (topology), and other jobs may use it too")
    return level


def _in_order(spec: Fields, jobs: list[ReplicatedJob]) -> None:
    """The startup policy: each replicated job starts when the one before is ready."""
    policy = spec.record("startupPolicy")
    if policy.one_of("startupPolicyOrder", "AnyOrder", "InOrder") == "InOrder":
        for before, of in itertools.pairwise(jobs):
            of.after_ready = of.after_ready or before.name


def _known(jobs: list[ReplicatedJob]) -> None:
    """Leave out dependencies on what isn't there."""
    names = {of.name for of in jobs}
    for of in jobs:
        if missing := {of.after_ready, of.after_complete} - names - {""}:
            of.fields.lost(
                "dependsOn", f"there is no replicated job with pods that is named {min(missing)}: not waited for"
            )
            of.after_ready, of.after_complete = (
                name if name in names else "" for name in (of.after_ready, of.after_complete)
            )


def _stages(jobs: list[ReplicatedJob]) -> list[list[ReplicatedJob]]:
    """Replicated jobs by the number of others that have to be complete before them, one after the other."""
    by_name = {of.name: of for of in jobs}
    depth: dict[str, int] = {}

    def depth_of(name: str, above: frozenset[str]) -> int:
        of = by_name.get(name)
        if of is None or name in above:
            return -1
        if name not in depth:
            ready, complete = (depth_of(other, above | {name}) for other in (of.after_ready, of.after_complete))
            depth[name] = max(0, ready, complete + 1)
        return depth[name]

    last = max((depth_of(of.name, frozenset()) for of in jobs), default=0)
    complete = {of.after_complete for of in jobs}
    for _ in jobs:
        # Whoever nobody waits for the end of runs beside those who need it, or beside those at the end.
        for of in jobs:
            if of.name not in complete:
                depth[of.name] = min(
                    (depth[other.name] for other in jobs if other.after_ready == of.name), default=last
                )
    return [[of for of in jobs if depth[of.name] == number] for number in range(last + 1)]


def _stage_name(head: Head, number: int, stages: list[list[ReplicatedJob]]) -> str:
    """The last TYJob has the name of the JobSet."""
    last = len(stages) - 1
    return head.name if number == last else head.suffixed(f"-before-{last - number}")


def _least(of: ReplicatedJob) -> int | None:
    """How many of its Jobs, or of the pods of its one Job, start together; None if they needn't."""
    return of.counts if of.part.parallelism >= of.part.count else None


def _worker_set(of: ReplicatedJob, stage: list[ReplicatedJob], restart: Json) -> Json:
    before = next((other.set_name for other in stage if other.name == of.after_ready), None)
    size = of.group_size if of.group_size > 1 else None
    own = restart or {"limit": of.part.limit}
    return worker_set(
        of.set_name, of.part.template, of.counts, minCount=_least(of), groupSize=size, startAfter=before, restart=own,
        rendezvous={}, topology=of.topology,
    )  # fmt: skip


def _restart(spec: Fields, jobs: list[ReplicatedJob]) -> Json:
    """The restart policy of all worker sets; empty if each has its own limit."""
    policy = spec.record("failurePolicy")
    limit = policy.whole("maxRestarts") or 0
    if policy.text("restartStrategy") == "InPlaceRestart":
        policy.changed("restartStrategy", "pods are deleted and made again, and not restarted in place")
    for rule in policy.records("rules"):
        rule.ignore(*rule.names())
        rule.say(NoteKind.NO_EQUIVALENT, "", "failures are all treated alike: see restart.scope and restart.limit")
    if not limit:
        for of in jobs:
            say_others_go_on(of.fields.record("template").record("spec"), of.part, _least(of) and of.part.count)
        return {}
    words = "the limit holds for each pod alone (restart.limit), and evictions and drains don't count"
    policy.changed("maxRestarts", f"{words}: they restart the whole job too")
    for of in jobs:
        if of.part.template.spec.get("restartPolicy") != "Never":
            of.part.template.spec["restartPolicy"] = "Never"
            words = "Never: each failure restarts the whole job (restart.scope), and no kubelet a container in place"
            of.part.template.notes.add(NoteKind.CHANGED, f"{of.part.template.path}.spec.restartPolicy", words)
        if of.part.limit:
            template = of.fields.record("template").record("spec")
            words = "each failure restarts the whole job at once (restart.scope: Job), and isn't retried within its Job"
            template.say(NoteKind.CHANGED, "backoffLimit", words)
    return {"scope": "Job", "limit": min(limit, 1_000_000)}


def _succeeding(spec: Fields, jobs: list[ReplicatedJob]) -> set[str]:
    """The replicated jobs whose success is that of the JobSet."""
    policy = spec.record("successPolicy")
    every = policy.one_of("operator", "All", "Any") == "All"
    names = policy.texts("targetReplicatedJobs") or [of.name for of in jobs]
    targets = [of for of in jobs if of.name in names]
    if not targets:
        known = ", ".join(of.name for of in jobs if of.name) or "none"
        words = f"there is no such replicated job with pods (allowed: {known})"
        policy.fault(
            "targetReplicatedJobs", words, of=[spec.at("replicatedJobs"), *(of.fields.at("name") for of in jobs)]
        )
        targets = jobs
    if targets and not every and (len(targets) > 1 or targets[0].replicas > 1):
        policy.changed("operator", "the TYJob has succeeded when all of these have, and not when any has")
    return {of.name for of in targets}


def _is_there(coordinator: Fields, name: str, index: int, there: int, whose: str) -> None:
    """The coordinator is one of the pods."""
    if index >= there:
        coordinator.fault(name, f"must be below {whose}, which are {there}, but is {index}")


def _tell(spec: Fields, head: Head, jobs: list[ReplicatedJob]) -> None:
    """Host names and variables that the pods of a JobSet have."""
    network, coordinator = spec.record("network"), spec.record("coordinator")
    subdomain = network.text("subdomain") or head.source_name
    network.ignore("enableDNSHostnames", "publishNotReadyAddresses")
    network.changed("subdomain", f"pods have the host names NAME-N.{head.name}")
    known = {f"{_DOMAIN}/jobset-name": "$(TYJOB_NAME)", f"{_DOMAIN}/restart-attempt": "$(TYJOB_ATTEMPT)"}
    by_name = {of.name: of for of in jobs}
    if chosen := by_name.get(coordinator.text("replicatedJob")):
        job, pod = coordinator.whole("jobIndex") or 0, coordinator.whole("podIndex") or 0
        _is_there(coordinator, "jobIndex", job, chosen.replicas, f"the replicas of {chosen.name}")
        _is_there(coordinator, "podIndex", pod, chosen.part.count, f"the pods of a Job of {chosen.name}")
        known[f"{_DOMAIN}/coordinator"] = f"{chosen.set_name}-{job * chosen.part.count + pod}.{head.name}"
        words = f"the address is {known[f'{_DOMAIN}/coordinator']}: variables that refer to the label have it"
        coordinator.changed("replicatedJob", words)
    coordinator.ignore("jobIndex", "podIndex")
    for of in jobs:
        index = f"$({of.index_in_job})"
        keys = known | dict.fromkeys(INDEX_KEYS, index)
        keys |= {
            f"{_DOMAIN}/replicatedjob-name": of.name,
            f"{_DOMAIN}/replicatedjob-replicas": str(of.replicas),
            f"{_DOMAIN}/job-index": "$(TYJOB_GROUP_INDEX)" if of.replicas > 1 else "0",
        }
        template = of.part.template
        template.spec.pop("subdomain", None)
        template.spec.pop("hostname", None)
        template.answer_references(keys)
        template.tell({INDEX_VARIABLE: index})  # the Jobs of a JobSet are indexed if they say nothing else
        for other in jobs:
            template.rename_hosts(*_renaming(head, other, subdomain))
        point_out_hosts(head, template)


def _renaming(head: Head, of: ReplicatedJob, subdomain: str) -> "tuple[re.Pattern[str], Renamed]":
    own = f"{re.escape(head.source_name)}-{re.escape(of.name)}"
    pattern = re.compile(rf"(?<![\w.-]){own}-(\d+)-(\d+)(?:\.{re.escape(subdomain)})?(?![\w-])")
    return pattern, Renamed(of, head.name)


class Renamed:
    """The host name of a pod of a replicated job in the TYJob."""

    def __init__(self, of: ReplicatedJob, job: str) -> None:
        self._of = of
        self._job = job

    def __call__(self, match: re.Match[str]) -> str:
        return f"{self._of.set_name}-{int(match[1]) * self._of.part.count + int(match[2])}.{self._job}"


def _claims(spec: Fields, head: Head, jobs: list[ReplicatedJob]) -> list[Json]:
    """The shared claims of the JobSet's volume claim policies, mounted where a container names them."""
    made: list[Json] = []
    for policy in spec.records("volumeClaimPolicies"):
        policy.record("retentionPolicy").ignore("whenDeleted")
        for template in policy.records("templates"):
            metadata = template.record("metadata")
            name = metadata.text("name")
            claim = f"{name}-{head.name}"
            template.ignore("apiVersion", "kind", "status")
            metadata.ignore("creationTimestamp")
            content: Json = {"name": claim} | ({"namespace": head.namespace} if head.namespace else {})
            content |= {field: found for field in ("labels", "annotations") if (found := metadata.pairs(field))}
            made.append(claim_of(content, template))
            template.say(NoteKind.CHANGED, "", f"the claim {claim} is in the output, and isn't deleted with the TYJob")
            for of in jobs:
                mounts = [m["name"] for _, c in of.part.template.containers() for m in c.get("volumeMounts") or ()]
                volumes = of.part.template.spec.get("volumes") or []
                if name in mounts and all(volume["name"] != name for volume in volumes):
                    source = {"name": name, "persistentVolumeClaim": {"claimName": claim}}
                    of.part.template.spec["volumes"] = [*volumes, source]
    return made
