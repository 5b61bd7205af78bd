"""LeaderWorkerSets: each replica is a TYJob of its own, with its leader and its workers."""

import re

from arranger.convert.fields import Fields, NoteKind
from arranger.convert.parts import Head, precedence, tyjob, worker_set
from arranger.convert.pod_rules import Label, Pods, job_label, known_label, select_own
from arranger.convert.templates import Json, Template, template_of
from arranger.convert.whole_input import Input
from arranger.model.names import JOB_LABEL, LEADER_ROLE, ROLE_LABEL

_DOMAIN = "leaderworkerset.sigs.k8s.io"
#: More replicas than this are no list of jobs that anybody applies.
MOST_REPLICAS = 1000
_PORT = 29500


def jobs_of(root: Fields, around: Input) -> list[Json]:
    """A TYJob for each replica."""
    head, spec = Head(root, around), root.record("spec")
    topology = _topology(head)
    replicas = spec.whole("replicas")
    group = spec.record("leaderWorkerTemplate")
    size = group.whole("size", least=1) or 1
    worker = template_of(group, "workerTemplate")
    leader = template_of(group, "leaderTemplate") if "leaderTemplate" in group else worker.copy()
    again = _restarts(group, [leader, worker])
    _claims(group, [leader, worker])
    _no_equivalent(spec, group)
    late = spec.one_of("startupPolicy", "LeaderCreated", "LeaderReady") == "LeaderReady"
    leader_name, worker_name = head.named(["leader", "worker"])
    count = 1 if replicas is None else replicas
    if not count:
        spec.fault("replicas", "0 replicas: there is no pod to run")
    if count > MOST_REPLICAS:
        spec.fault("replicas", f"more than {MOST_REPLICAS}: each would be a TYJob")
        count = 0
    spec.say(
        NoteKind.TO_DO,
        "",
        f"select pods by arranger.dev/job and arranger.dev/role=leader in Services: they have no labels of {_DOMAIN}",
    )
    names = [head.name] if count == 1 else [head.suffixed(f"-{number}") for number in range(count)]
    if count > 1:
        spec.changed("replicas", f"{count} TYJobs, {names[0]} to {names[-1]}: add or delete TYJobs to scale")
    pods = Pods(_labels(head.source_name, names), names)
    jobs = []
    for number, name in enumerate(names):
        parts = [leader.copy(), worker.copy()]
        for part in parts:
            _tell(part, head.source_name, number, (name, leader_name, worker_name), alone=size == 1)
        select_own(parts[0], pods, name, leader_name, leader=True)
        select_own(parts[1], pods, name, worker_name)
        sets = []
        if size > 1:
            workers = worker_set(
                worker_name, parts[1], size - 1, minCount=size - 1, restart=again.get("worker"),
                startAfter="LeaderReady" if late else None, rendezvous={"port": _PORT, "scope": "Job"},
            )  # fmt: skip
            sets.append(workers)
        made = {
            "queue": head.queue,
            **precedence(head, parts[: 1 + (size > 1)]),
            "topology": topology,
            "minWorkersNum": None if size > 1 else 0,
            "leader": {"name": leader_name, "restart": again["leader"], "template": parts[0].value},
            "workerSets": sets,
        }
        jobs.append(tyjob(head, made, name))
    return jobs


def _labels(source: str, names: list[str]) -> dict[str, Label]:
    """What stands for the labels of its pods: the name, the number and the key of a replica, and the leader's index."""
    return {
        f"{_DOMAIN}/name": job_label({source: names}),
        f"{_DOMAIN}/group-index": known_label(
            {str(n): {JOB_LABEL: (name,)} for n, name in enumerate(names)}, (JOB_LABEL,)
        ),
        f"{_DOMAIN}/group-key": known_label({}, (JOB_LABEL,)),
        f"{_DOMAIN}/worker-index": known_label({"0": {ROLE_LABEL: (LEADER_ROLE,)}}),
    }


def _topology(head: Head) -> Json | None:
    annotations, key = head.annotations, f"{_DOMAIN}/exclusive-topology"
    level = annotations.text(key)
    annotations.changed(key, "the pods of a replica share one domain (topology), and other jobs may use it too")
    annotations.lost(f"{_DOMAIN}/subgroup-exclusive-topology", "the pods of a replica are one unit of the topology")
    return {"levels": [level], "mode": "Required"} if level else None


def _restarts(group: Fields, templates: list[Template]) -> dict[str, Json]:
    """The restart policies of the leader and of the workers."""
    policy = group.one_of("restartPolicy", "RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None", "Default")
    of_leader: Json = {"limit": 10, "windowSeconds": 3600}
    words = "restarts are limited to 10 an hour (restart.limit and windowSeconds): a LeaderWorkerSet restarts for ever"
    group.say(NoteKind.CHANGED, "restartPolicy", words)
    if policy in ("None", "Default"):
        words = "a leader that failed, or whose node is drained or lost, restarts all pods of its replica"
        group.say(NoteKind.CHANGED, "restartPolicy", words)
        for template in templates:
            template.spec["restartPolicy"] = template.spec.get("restartPolicy") or "Always"
        return {"leader": of_leader, "worker": of_leader}
    for template in templates:
        # A kubelet would start one container alone.
        template.spec["restartPolicy"] = "Never"
    words = (
        "a failed pod restarts its replica. One with exit code 0 has finished: with a leader, the TYJob has succeeded"
    )
    group.say(NoteKind.CHANGED, "restartPolicy", words)
    if policy == "RecreateGroupAfterStart":
        group.changed(
            "restartPolicy", "a failed pod restarts its replica also while others of its pods haven't started"
        )
    return {"leader": of_leader, "worker": {"scope": "Job", **of_leader}}


def _claims(group: Fields, templates: list[Template]) -> None:
    """A claim for each pod: Kubernetes makes it of an ephemeral volume."""
    for claim in group.records("volumeClaimTemplates"):
        metadata = claim.record("metadata")
        name = metadata.text("name")
        claim.ignore("apiVersion", "kind", "status")
        metadata.ignore("creationTimestamp", "namespace")
        content = {key: found for key in ("labels", "annotations") if (found := metadata.pairs(key))}
        source: Json = {"volumeClaimTemplate": {"spec": claim.raw("spec")}}
        if content:
            source["volumeClaimTemplate"]["metadata"] = content
        claim.say(
            NoteKind.CHANGED, "", "an ephemeral volume: each pod has its own claim, which is deleted with the pod"
        )
        for template in templates:
            others = [of for of in template.spec.get("volumes") or () if of["name"] != name]
            template.spec["volumes"] = [*others, {"name": name, "ephemeral": source}]
    group.record("persistentVolumeClaimRetentionPolicy").ignore("whenDeleted", "whenScaled")
    group.lost("resourceClaimTemplates", "name a ResourceClaimTemplate in the pod template (resourceClaims)")


def _no_equivalent(spec: Fields, group: Fields) -> None:
    spec.lost("rolloutStrategy", "a TYJob's templates don't change while it runs: apply another TYJob")
    spec.record("networkConfig").ignore("subdomainPolicy")
    group.lost("subGroupPolicy", "the workers are one set without subgroups: compute them from TYJOB_RANK")


def _tell(template: Template, source: str, number: int, names: tuple[str, str, str], *, alone: bool) -> None:
    """Variables and host names that the pods of a LeaderWorkerSet have."""
    job, leader, worker = names
    template.answer_references(
        {
            f"{_DOMAIN}/name": source,
            f"{_DOMAIN}/group-index": str(number),
            f"{_DOMAIN}/worker-index": "$(TYJOB_RANK)",
            f"{_DOMAIN}/size": "$(TYJOB_WORLD_SIZE)",
        }
    )
    template.tell(
        {
            "LWS_LEADER_ADDRESS": "localhost" if alone else "$(MASTER_ADDR)",
            "LWS_GROUP_SIZE": "$(TYJOB_WORLD_SIZE)",
            "LWS_WORKER_INDEX": "$(TYJOB_RANK)",
        }
    )
    own = re.escape(source)
    pattern = re.compile(rf"(?<![\w.-]){own}-{number}(?:-(\d+))?\.{own}(?:-{number})?(?![\w-])")

    def renamed(match: re.Match[str]) -> str:
        if alone:
            return "localhost"
        return f"{worker}-{int(match[1]) - 1}.{job}" if match[1] and match[1] != "0" else f"{leader}-0.{job}"

    template.rename_hosts(pattern, renamed)
    computed = re.compile(rf"(?<![\w.-]){own}-[\w-]*[${{%]")
    template.point_out(
        computed, f"host names are {leader}-0.{job} and {worker}-N.{job} here: change what computes them"
    )
