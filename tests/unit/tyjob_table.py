"""Good and bad TYJobs, as JSON. The controller's own check, the embedded cluster and a real API server must all accept
what is good, and refuse what is bad naming the same field.

`GOOD` and `BAD` are applied to an empty namespace; `CHANGES` change a job that has a stage already.
"""

import copy
from typing import Any, NamedTuple

Object = dict[str, Any]

#: A change that deletes the field.
GONE = object()


class Good(NamedTuple):
    """A TYJob that must be accepted."""

    case: str
    tyjob: Object


class Bad(NamedTuple):
    """A TYJob that must be refused, naming `field` with a message that contains `says`."""

    case: str
    tyjob: Object
    field: str
    says: str


class Change(NamedTuple):
    """An update of a job in `stage` ("" for none yet); `field` is the one that is refused, "" when it is accepted."""

    case: str
    stage: str
    before: Object
    after: Object
    field: str


def tyjob(name: str = "job") -> Object:
    """A small valid TYJob: a learner and two actors."""
    return {
        "apiVersion": "arranger.dev/v1",
        "kind": "TYJob",
        "metadata": {"name": name},
        "spec": {
            "leader": {"name": "learner", "template": template(cpu="2", memory="4Gi")},
            "workerSets": [{"name": "actors", "counts": 2, "template": template(cpu="500m")}],
        },
    }


def template(**requests: Any) -> Object:
    """A pod template of one container."""
    return {"spec": {"containers": [{"name": "main", "image": "app:1", "resources": {"requests": requests}}]}}


def tyjob_with(changes: dict[str, Any], *, base: Object | None = None) -> Object:
    """A valid TYJob with the values at these dotted paths (numbers are list positions) replaced."""
    changed = copy.deepcopy(base if base is not None else tyjob())
    for path, value in changes.items():
        *way, last = (int(step) if step.isdigit() else step for step in path.split("/"))
        target: Any = changed
        for step in way:
            target = target[step] if isinstance(step, int) else target.setdefault(step, {})
        if value is GONE:
            del target[last]
        else:
            target[last] = copy.deepcopy(value)
    return changed


def _good(case: str, changes: dict[str, Any]) -> Good:
    return Good(case, tyjob_with(changes))


def _bad(case: str, field: str, says: str, changes: dict[str, Any]) -> Bad:
    return Bad(case, tyjob_with(changes), field, says)


LEADER = "spec/leader/template/spec"
WORKER = "spec/workerSets/0/template/spec"
REQUEST = f"{LEADER}/containers/0/resources/requests"
LIMIT = f"{LEADER}/containers/0/resources/limits"
IN_LEADER = "spec.leader.template.spec"
IN_WORKER = "spec.workerSets[0].template.spec"
NODE_TERMS = f"{LEADER}/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
IN_NODE_TERMS = f"{IN_LEADER}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
POD_TERMS = f"{LEADER}/affinity/podAffinity/{REQUIRED}"
IN_POD_TERMS = f"{IN_LEADER}.affinity.podAffinity.{REQUIRED}"
ANTI_TERMS = f"{WORKER}/affinity/podAntiAffinity/{REQUIRED}"
IN_ANTI_TERMS = f"{IN_WORKER}.affinity.podAntiAffinity.{REQUIRED}"
SPREAD = f"{LEADER}/topologySpreadConstraints"
IN_SPREAD = f"{IN_LEADER}.topologySpreadConstraints[0]"
EXISTS = {"key": "a", "operator": "Exists"}
SETS = [{"name": name, "template": template(cpu=1)} for name in ("actors", "evaluators", "replay")]

GOOD: list[Good] = [
    _good("the smallest", {"spec/workerSets/0/counts": GONE}),
    _good("a leader alone", {"spec/workerSets": GONE}),
    _good("a leader alone, with null worker sets", {"spec/workerSets": None}),
    _good("a leader alone in full", {"spec/workerSets": [], "spec/minWorkersNum": 0}),
    _good("three sets", {"spec/workerSets": SETS, "spec/minWorkersNum": 3}),
    _good("a job of equals", {"spec/leader": GONE}),
    _good("a job of equals with a null leader", {"spec/leader": None, "spec/minWorkersNum": 2}),
    _good("a job of equals with a minimum of 0 of its set", {"spec/leader": GONE, "spec/workerSets/0/minCount": 0}),
    _good("the end of all workers", {"spec/successPolicy": {"type": "AllWorkers"}}),
    _good("the leader's end", {"spec/successPolicy": {"type": "Leader"}}),
    _good("the end of one set", {"spec/successPolicy": {"type": "Sets", "sets": ["actors"]}}),
    _good(
        "sets that start one after the other",
        {
            "spec/workerSets": [
                {**SETS[0], "startAfter": "evaluators"},
                {**SETS[1], "startAfter": "LeaderReady"},
                {**SETS[2], "startAfter": "LeaderAddress"},
            ]
        },
    ),
    _good(
        "equals that start one after the other",
        {"spec/leader": GONE, "spec/workerSets": [{**SETS[0], "startAfter": "replay"}, *SETS[1:]]},
    ),
    _good(
        "every field set",
        {
            "spec/restartLimit": 0,
            "spec/cleanPodPolicy": "Running",
            "spec/terminating": False,
            "spec/suspend": True,
            "spec/leaderService": True,
            "spec/ttlSecondsAfterFinished": 0,
            "spec/activeDeadlineSeconds": 2147483647,
            "spec/expectedRuntimeSeconds": 2147483647,
            "spec/startGraceSeconds": 2147483647,
            "spec/preemptible": False,
            "spec/minWorkersNum": 2,
            "spec/priority": 10,
            "spec/schedulerPolicy": {"jobQueuePolicy": "DRF", "basicPolicy": "MinFragment"},
            "spec/volumes": [{"name": "data", "emptyDir": {}}],
        },
    ),
    _good("a minimum of a set", {"spec/workerSets/0/minCount": 2}),
    _good(
        "worker groups that meet, with a minimum and a quorum",
        {
            "spec/workerSets/0/groupSize": 4,
            "spec/workerSets/0/minCount": 2,
            "spec/minWorkersNum": 8,
            "spec/workerSets/0/restart": {"scope": "Group", "limit": 1},
            "spec/workerSets/0/rendezvous": {"scope": "Group"},
        },
    ),
    _good("as many workers in worker groups as a job may have", {"spec/workerSets/0/groupSize": 5000}),
    _good(
        "worker groups of one, restarted one by one",
        {"spec/workerSets/0/groupSize": 1, "spec/workerSets/0/restart": {"scope": "Worker"}},
    ),
    _good(
        "worker groups restarted as a set",
        {"spec/workerSets/0/groupSize": 2, "spec/workerSets/0/restart": {"scope": "Set"}},
    ),
    _good("a minimum of 0, and none in all", {"spec/workerSets/0/minCount": 0}),
    _good(
        "minimums of two sets beside minWorkersNum",
        {"spec/workerSets": [{**workers, "counts": 2, "minCount": 1} for workers in SETS], "spec/minWorkersNum": 5},
    ),
    _good(
        "a restart policy of a set", {"spec/workerSets/0/restart": {"scope": "Set", "limit": 0, "windowSeconds": 600}}
    ),
    _good("empty restart policies", {"spec/workerSets/0/restart": {}, "spec/leader/restart": {}}),
    _good("a limit of the leader", {"spec/leader/restart": {"limit": 1000000}}),
    _good("which end restarts others", {"spec/workerSets/0/restart": {"scope": "Set", "event": "PodFailed"}}),
    _good("a limit of the leader in a window", {"spec/leader/restart": {"limit": 0, "windowSeconds": 2147483647}}),
    _good("a priority class", {"spec/priorityClassName": "system-node-critical"}),
    _good("no job to wait for", {"spec/after": []}),
    _good(
        "jobs to wait for",
        {
            "spec/after": [
                {"name": "prep"},
                {"name": "a", "onFailure": "Fail"},
                {"name": "x" * 49, "onFailure": "Ignore"},
            ]
        },
    ),
    _good("an empty rendezvous", {"spec/workerSets/0/rendezvous": {}}),
    _good(
        "a rendezvous with every field",
        {"spec/workerSets/0/rendezvous": {"port": 65535, "scope": "Job", "membersFile": True}},
    ),
    _good(
        "rendezvous of several sets with other ports, of which one counts the job",
        {
            "spec/workerSets": [
                {**SETS[0], "rendezvous": {"port": 1, "scope": "Job"}},
                {**SETS[1], "rendezvous": {"port": 2, "scope": "Set"}},
                SETS[2],
            ]
        },
    ),
    _good("a topology of the job", {"spec/topology": {"levels": ["rack"]}}),
    _good(
        "topologies of the job and of a set with every field",
        {
            "spec/topology": {"levels": ["a.b/Rack_1", "x.io/block"], "mode": "Preferred", "within": "Job"},
            "spec/workerSets/0/topology": {"levels": list("abcdefgh"), "mode": "Required", "within": "Group"},
        },
    ),
    _good("a queue", {"spec/queue": "research-2"}),
    _good("a queue that is null", {"spec/queue": None}),
    _good("a queue policy alone", {"spec/schedulerPolicy": {"jobQueuePolicy": "Priority"}}),
    _good("an empty scheduler policy", {"spec/schedulerPolicy": {}}),
    _good("terminating from the start", {"spec/terminating": True}),
    _good(
        "not suspended, kept for long, with a short deadline",
        {"spec/suspend": False, "spec/ttlSecondsAfterFinished": 2147483647, "spec/activeDeadlineSeconds": 1},
    ),
    _good(
        "an expectation of a second, beside a shorter deadline",
        {"spec/expectedRuntimeSeconds": 2, "spec/activeDeadlineSeconds": 1},
    ),
    _good(
        "preemptible and without an expectation, both null",
        {"spec/preemptible": None, "spec/expectedRuntimeSeconds": None},
    ),
    _good("preemptible", {"spec/preemptible": True}),
    _good("no workers needed", {"spec/minWorkersNum": 0}),
    _good(
        "replicas in place of counts", {"spec/replicas": 3, "spec/workerSets/0/counts": GONE, "spec/minWorkersNum": 3}
    ),
    _good(
        "replicas of another set", {"spec/workerSets": SETS[:2], "spec/replicas": 4, "spec/scaledSet": SETS[1]["name"]}
    ),
    _good("a scaled set without replicas", {"spec/scaledSet": "actors"}),
    _good("a minimum above counts and not above replicas", {"spec/workerSets/0/minCount": 5, "spec/replicas": 5}),
    _good("scaled to nothing", {"spec/replicas": 0, "spec/minWorkersNum": 0}),
    _good("the most workers", {"spec/workerSets/0/counts": 10000, "spec/minWorkersNum": 10000}),
    _good("a worker set named like the job", {"spec/workerSets/0/name": "job"}),
    _good("a name that begins with a digit", {"spec/leader/name": "0learner"}),
    _good("names that just fit", {"spec/leader/name": "l" * 47, "spec/workerSets/0/name": "w" * 47}),
    _good(
        "integer and text quantities",
        {
            REQUEST: {"cpu": 2, "memory": "1.5Gi", "nvidia.com/gpu": "1", "x.io/y": "1e3"},
            LIMIT: {"cpu": "2500m", "memory": "1536Mi", "nvidia.com/gpu": 1, "x.io/y": "1k"},
        },
    ),
    _good("whole devices by their limits alone", {LIMIT: {"nvidia.com/gpu": 8, "rdma/hca": "1k"}}),
    _good(
        "amounts that no machine has, and as good as none",
        {
            REQUEST: {"cpu": "2e-10", "memory": "16Ei", "ephemeral-storage": "1e98"},
            LIMIT: {"cpu": "1e-99", "memory": "8Ei", "ephemeral-storage": "1e99"},
        },
    ),
    _good("huge pages", {LIMIT: {"cpu": 2, "hugepages-2Mi": "4Mi"}}),
    _good("fractions of what can be shared", {LIMIT: {"cpu": "2.5", "memory": "4.5Gi", "ephemeral-storage": "0.5Gi"}}),
    _good("limits alone", {f"{LEADER}/containers/0/resources": {"limits": {"cpu": "+1", "memory": ".5G"}}}),
    _good(
        "pod-level resources and overhead",
        {f"{LEADER}/resources": {"requests": {"cpu": "3"}}, f"{LEADER}/overhead": {"cpu": "100m"}},
    ),
    _good("a sidecar", {f"{LEADER}/initContainers": [{"name": "log", "image": "log:1", "restartPolicy": "Always"}]}),
    _good(
        "selector and tolerations",
        {
            f"{LEADER}/nodeSelector": {"disk": "ssd"},
            f"{LEADER}/tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoSchedule"}],
        },
    ),
    _good(
        "required node affinity",
        {
            NODE_TERMS: {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["a100", "h100"]}]},
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
                ]
            }
        },
    ),
    _good(
        "what pods ask of each other",
        {
            f"{LEADER}/affinity": {
                "nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [EXISTS]}}]},
                "podAffinity": {REQUIRED: [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}]},
                "podAntiAffinity": {
                    REQUIRED: [
                        {
                            "topologyKey": "rack",
                            "labelSelector": {"matchExpressions": [EXISTS]},
                            "namespaceSelector": {},
                            "namespaces": ["a"],
                            "matchLabelKeys": ["b"],
                        }
                    ],
                    PREFERRED: [{"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}],
                },
            },
            f"{LEADER}/topologySpreadConstraints": [
                {
                    "topologyKey": "zone",
                    "maxSkew": 1,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "minDomains": 2,
                    "labelSelector": {},
                    "nodeTaintsPolicy": "Honor",
                    "nodeAffinityPolicy": "Ignore",
                },
            ],
            f"{LEADER}/containers/0/ports": [{"containerPort": 80, "hostPort": 8080, "protocol": "UDP"}],
            f"{LEADER}/hostNetwork": True,
        },
    ),
    _good(
        "labels and annotations of the template's own",
        {"spec/leader/template/metadata": {"labels": {"app": "rl"}, "annotations": {"arranger.dev/note": "x"}}},
    ),
    _good(
        "probes, variables, mounts and a security context",
        {
            "spec/volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": "c"}}],
            f"{LEADER}/volumes": [
                {"name": "own", "configMap": {"name": "c", "defaultMode": 420, "items": [{"key": "a", "path": "b"}]}},
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
                {"name": "all", "projected": {"sources": [{"secret": {"name": "s"}}, {"configMap": {"name": "c"}}]}},
                {"name": "nothing"},
            ],
            f"{LEADER}/containers/0/volumeMounts": [
                {"name": "own", "mountPath": "/own", "readOnly": True},
                {"name": "shared", "mountPath": "/shared", "subPath": "a"},
            ],
            f"{LEADER}/containers/0/env": [
                {"name": "A", "value": ""},
                {"name": "A", "value": "again"},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
                {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
            ],
            f"{LEADER}/containers/0/livenessProbe": {"httpGet": {"port": "web", "path": "/"}, "periodSeconds": 5},
            f"{LEADER}/containers/0/startupProbe": {"exec": {"command": ["true"]}},
            f"{LEADER}/containers/0/lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
            f"{LEADER}/containers/0/securityContext": {"runAsUser": 0, "capabilities": {"add": ["NET_ADMIN"]}},
            f"{LEADER}/containers/0/ports": [{"containerPort": 80, "name": "web"}, {"containerPort": 80}],
            f"{LEADER}/securityContext": {"fsGroup": 5000000000, "sysctls": [{"name": "a", "value": "b"}]},
            f"{LEADER}/terminationGracePeriodSeconds": 0,
            f"{LEADER}/imagePullSecrets": [{"name": "a"}, {"name": "a"}],
        },
    ),
    _good(
        "what is empty where the API server sets a default",
        {
            f"{LEADER}/restartPolicy": "",
            f"{LEADER}/dnsPolicy": "",
            f"{LEADER}/containers/0/imagePullPolicy": "",
            f"{LEADER}/containers/0/ports": [{"containerPort": 80, "protocol": ""}],
        },
    ),
    _good(
        "what kubectl generates",
        {
            "spec/leader/template/metadata": {"creationTimestamp": None, "labels": {"app": ""}},
            f"{LEADER}/containers/0/resources": {},
        },
    ),
    _good(
        "nulls among names and their values",
        {
            f"{LEADER}/nodeSelector": {"a": None},
            REQUEST: {"cpu": None},
            LIMIT: {"memory": None},
            f"{LEADER}/overhead": {"cpu": None},
            "spec/leader/template/metadata": {"labels": {"a": None, "arranger.dev/job": None}},
        },
    ),
    _good(
        "fields of a pod that Arranger doesn't know",
        {f"{LEADER}/containers/0/workingDir": "/app", f"{LEADER}/hostNetwork": True},
    ),
    _good("empty nodeName and schedulerName", {f"{LEADER}/nodeName": "", f"{LEADER}/schedulerName": ""}),
    _good("no resource claims", {f"{LEADER}/resourceClaims": [], f"{WORKER}/resourceClaims": None}),
    _good(
        "resource claims that pods share, and that each pod has for itself",
        {
            f"{LEADER}/resourceClaims": [{"name": "net", "resourceClaimName": "nets.one"}],
            f"{WORKER}/resourceClaims": [
                {"name": "net", "resourceClaimName": "nets.one"},
                {"name": "gpu", "resourceClaimTemplateName": "gpu"},
            ],
        },
    ),
    _good("no scheduling gates", {f"{LEADER}/schedulingGates": [], f"{WORKER}/schedulingGates": None}),
    _good(
        "a null where a field may be absent",
        {"spec/priority": None, "spec/volumes": None, f"{LEADER}/nodeSelector": None, f"{LEADER}/nodeName": None},
    ),
]

BAD: list[Bad] = [
    _bad("no spec", "spec", "Required value", {"spec": GONE}),
    _bad("spec is a text", "spec", "must be of type object", {"spec": "x"}),
    _bad("no leader and no set", "spec.workerSets", "a job without a leader needs a worker set",
         {"spec/leader": GONE, "spec/workerSets": []}),
    _bad("equals without a quorum", "spec.minWorkersNum", "at least 1 in a job without a leader",
         {"spec/leader": GONE, "spec/minWorkersNum": 0}),
    _bad("equals scaled to nothing", "spec.replicas", "must be at least 1, so that",
         {"spec/leader": GONE, "spec/replicas": 0, "spec/workerSets/0/minCount": 0}),
    _bad("a service of no leader", "spec.leaderService", "there is no leader",
         {"spec/leader": GONE, "spec/leaderService": True}),
    _bad("the end of no leader", "spec.successPolicy.type", "there is no leader",
         {"spec/leader": GONE, "spec/successPolicy": {"type": "Leader"}}),
    _bad("the end of no worker", "spec.successPolicy.type", "there is no worker set",
         {"spec/workerSets": [], "spec/minWorkersNum": 0, "spec/successPolicy": {"type": "AllWorkers"}}),
    _bad("the end of an unknown set", "spec.successPolicy.sets", "there is no 'critics'",
         {"spec/successPolicy": {"type": "Sets", "sets": ["actors", "critics"]}}),
    _bad("the end of sets that aren't given", "spec.successPolicy.sets", "must be given where the type is Sets",
         {"spec/successPolicy": {"type": "Sets"}}),
    _bad("the end of all workers and of one set", "spec.successPolicy.sets", "must be given where the type is Sets",
         {"spec/successPolicy": {"type": "AllWorkers", "sets": ["actors"]}}),
    _bad("the end of no set", "spec.successPolicy.sets", "at least 1 items",
         {"spec/successPolicy": {"type": "Sets", "sets": []}}),
    _bad("the end of one set twice", "spec.successPolicy.sets[1]", "Duplicate value",
         {"spec/successPolicy": {"type": "Sets", "sets": ["actors", "actors"]}}),
    _bad("a success policy without a type", "spec.successPolicy.type", "Required value",
         {"spec/successPolicy": {"sets": ["actors"]}}),
    _bad("an unknown success policy", "spec.successPolicy.type", 'supported values: "Leader", "AllWorkers", "Sets"',
         {"spec/successPolicy": {"type": "Any"}}),
    _bad("a success policy as text", "spec.successPolicy", "must be of type object",
         {"spec/successPolicy": "AllWorkers"}),
    _bad("a set that starts after no leader", "spec.workerSets", "'actors' is LeaderReady, but there is no leader",
         {"spec/leader": GONE, "spec/workerSets/0/startAfter": "LeaderReady"}),
    _bad("a set that starts after an unknown one", "spec.workerSets", "but there is no 'critics'",
         {"spec/workerSets/0/startAfter": "critics"}),
    _bad("a set that starts after itself", "spec.workerSets", "'actors' would start after itself",
         {"spec/workerSets/0/startAfter": "actors"}),
    _bad("two sets that start after each other", "spec.workerSets", "'actors' would start after itself",
         {"spec/workerSets": [{**SETS[0], "startAfter": "evaluators"}, {**SETS[1], "startAfter": "actors"}, SETS[2]]}),
    _bad("startAfter as a number", "spec.workerSets[0].startAfter", "must be of type string",
         {"spec/workerSets/0/startAfter": 1}),
    _bad("no leader name", "spec.leader.name", "Required value", {"spec/leader/name": GONE}),
    _bad("no leader template", "spec.leader.template", "Required value", {"spec/leader/template": GONE}),
    _bad("an empty leader template", f"{IN_LEADER}", "Required value", {"spec/leader/template": {}}),
    _bad("worker sets as an object", "spec.workerSets", "must be of type array", {"spec/workerSets": {}}),
    _bad("a null worker set", "spec.workerSets[0]", "must be of type object", {"spec/workerSets/0": None}),
    _bad("a set without name", "spec.workerSets[0].name", "Required value", {"spec/workerSets/0/name": GONE}),
    _bad("a set without template", "spec.workerSets[0].template", "Required value",
         {"spec/workerSets/0/template": GONE}),
    _bad("too many sets", "spec.workerSets", "Too many: 65: must have at most 64 items",
         {"spec/workerSets": [{"name": f"s{number}", "template": template()} for number in range(65)]}),
    _bad("counts 0", "spec.workerSets[0].counts", "greater than or equal to 1", {"spec/workerSets/0/counts": 0}),
    _bad("counts as text", "spec.workerSets[0].counts", "must be of type integer", {"spec/workerSets/0/counts": "2"}),
    _bad("counts with a fraction", "spec.workerSets[0].counts", "must be of type integer",
         {"spec/workerSets/0/counts": 1.5}),
    _bad("counts too high", "spec.workerSets[0].counts", "less than or equal to 10000",
         {"spec/workerSets/0/counts": 10001}),
    _bad("minCount above counts", "spec.workerSets", "'actors' must not be above its counts, which is 2, but is 3",
         {"spec/workerSets/0/minCount": 3}),
    _bad("minCount above counts of a set that isn't scaled", "spec.workerSets", "its counts, which is 1, but is 2",
         {"spec/workerSets": [*SETS[:1], {**SETS[1], "counts": 1, "minCount": 2}], "spec/replicas": 9}),
    _bad("replicas negative", "spec.replicas", "greater than or equal to 0",
         {"spec/replicas": -1, "spec/minWorkersNum": 0}),
    _bad("replicas too high", "spec.replicas", "less than or equal to 10000", {"spec/replicas": 10001}),
    _bad("replicas as text", "spec.replicas", "must be of type integer", {"spec/replicas": "3"}),
    _bad("replicas below minCount", "spec.replicas", "below minCount of worker set 'actors', which is 2, but is 1",
         {"spec/replicas": 1, "spec/workerSets/0/minCount": 2, "spec/minWorkersNum": 1}),
    _bad("replicas below the quorum", "spec.replicas",
         "must be at least 2, so that all worker sets together have minWorkersNum, which is 2, but is 1",
         {"spec/replicas": 1, "spec/minWorkersNum": 2}),
    _bad("replicas below the quorum that is needed by default", "spec.replicas", "at least 1, so that all",
         {"spec/replicas": 0}),
    _bad("replicas below what the quorum needs beside other sets", "spec.replicas", "must be at least 3, so that all",
         {"spec/workerSets": [{**workers, "counts": 5} for workers in SETS], "spec/scaledSet": "replay",
          "spec/replicas": 1, "spec/minWorkersNum": 13}),
    _bad("replicas of worker groups below the quorum", "spec.replicas", "must be at least 3, so that all",
         {"spec/workerSets/0/groupSize": 4, "spec/replicas": 2, "spec/minWorkersNum": 9}),
    _bad("replicas of a leader alone", "spec.replicas", "there is no worker set to scale",
         {"spec/workerSets": [], "spec/minWorkersNum": 0, "spec/replicas": 0}),
    _bad("a scaled set that isn't there", "spec.scaledSet", "the name of a worker set, but there is no 'critics'",
         {"spec/scaledSet": "critics", "spec/replicas": 3}),
    _bad("a scaled set of a leader alone", "spec.scaledSet", "must be the name of a worker set",
         {"spec/workerSets": [], "spec/minWorkersNum": 0, "spec/scaledSet": "actors"}),
    _bad("a scaled set that is a number", "spec.scaledSet", "must be of type string", {"spec/scaledSet": 0}),
    _bad("too many workers with replicas", "spec.workerSets", "together must be at most 10000, but are 10001",
         {"spec/workerSets": [{**workers, "counts": 1} for workers in SETS[:2]], "spec/replicas": 10000}),
    _bad("minCount above the default counts", "spec.workerSets", "which is 1, but is 2",
         {"spec/workerSets/0/counts": GONE, "spec/workerSets/0/minCount": 2}),
    _bad("minCount negative", "spec.workerSets[0].minCount", "greater than or equal to 0",
         {"spec/workerSets/0/minCount": -1}),
    _bad("a restart scope that isn't one", "spec.workerSets[0].restart.scope", "Worker",
         {"spec/workerSets/0/restart": {"scope": "Pod"}}),
    _bad("an event that isn't one", "spec.workerSets[0].restart.event", '"PodEnded", "PodFailed"',
         {"spec/workerSets/0/restart": {"event": "PodEvicted"}}),
    _bad("a negative restart limit", "spec.workerSets[0].restart.limit", "greater than or equal to 0",
         {"spec/workerSets/0/restart": {"limit": -1}}),
    _bad("an empty window", "spec.workerSets[0].restart.windowSeconds", "greater than or equal to 1",
         {"spec/workerSets/0/restart": {"windowSeconds": 0}}),
    _bad("a leader's limit as text", "spec.leader.restart.limit", "must be of type integer",
         {"spec/leader/restart": {"limit": "3"}}),
    _bad("an empty window of the leader", "spec.leader.restart.windowSeconds", "greater than or equal to 1",
         {"spec/leader/restart": {"windowSeconds": 0}}),
    _bad("a scope of the leader", "spec.leader.restart.scope", "unknown field",
         {"spec/leader/restart": {"scope": "Job"}}),
    _bad("too many workers in all", "spec.workerSets", "together must be at most 10000, but are 12000",
         {"spec/workerSets": [{**workers, "counts": 6000} for workers in SETS[:2]]}),
    _bad("minWorkersNum above the counts", "spec.minWorkersNum", "worker sets' counts, which is 2, but is 3",
         {"spec/minWorkersNum": 3}),
    _bad("workers needed of a leader alone", "spec.minWorkersNum", "a job of a leader alone needs none",
         {"spec/workerSets": GONE, "spec/minWorkersNum": 1}),
    _bad("minWorkersNum negative", "spec.minWorkersNum", "greater than or equal to 0", {"spec/minWorkersNum": -1}),
    _bad("restartLimit negative", "spec.restartLimit", "greater than or equal to 0", {"spec/restartLimit": -1}),
    _bad("priority 0", "spec.priority", "greater than or equal to 1", {"spec/priority": 0}),
    _bad("priority 11", "spec.priority", "less than or equal to 10", {"spec/priority": 11}),
    _bad("an empty queue", "spec.queue", "must be a DNS label", {"spec/queue": ""}),
    _bad("a queue that can't be", "spec.queue", "must be a DNS label", {"spec/queue": "Research"}),
    _bad("a long queue", "spec.queue", "Too long: may not be more than 63", {"spec/queue": "q" * 64}),
    _bad("a queue that is a number", "spec.queue", "must be of type string", {"spec/queue": 7}),
    _bad("a priority beside a class", "spec.priorityClassName", "must not be given beside priority",
         {"spec/priority": 5, "spec/priorityClassName": "high"}),
    _bad("a priority class without a name", "spec.priorityClassName", "at least 1 chars long",
         {"spec/priorityClassName": ""}),
    _bad("a priority class that can't exist", "spec.priorityClassName", "should match",
         {"spec/priorityClassName": "Very High"}),
    _bad("a priority class that is a number", "spec.priorityClassName", "must be of type string",
         {"spec/priorityClassName": 1000}),
    _bad("priority as a word", "spec.priority", "must be of type integer", {"spec/priority": "high"}),
    _bad("priority true", "spec.priority", "must be of type integer", {"spec/priority": True}),
    _bad("terminating as text", "spec.terminating", "must be of type boolean", {"spec/terminating": "yes"}),
    _bad("unknown cleanPodPolicy", "spec.cleanPodPolicy", 'supported values: "Running", "All", "None"',
         {"spec/cleanPodPolicy": "Some"}),
    _bad("unknown queue policy", "spec.schedulerPolicy.jobQueuePolicy", 'supported values: "Priority", "DRF"',
         {"spec/schedulerPolicy": {"jobQueuePolicy": "FIFO"}}),
    _bad("unknown pod policy", "spec.schedulerPolicy.basicPolicy", 'supported values: "Gang", "BinPack", "LeaderFirst"',
         {"spec/schedulerPolicy": {"basicPolicy": "gang"}}),
    _bad("an empty pod policy", "spec.schedulerPolicy.basicPolicy", "supported values",
         {"spec/schedulerPolicy": {"basicPolicy": ""}}),
    _bad("unknown field of the spec", "spec.workers", "unknown field", {"spec/workers": 3}),
    _bad("unknown field of a set", "spec.workerSets[0].count", "unknown field", {"spec/workerSets/0/count": 3}),
    _bad("unknown field of the leader", "spec.leader.counts", "unknown field", {"spec/leader/counts": 1}),
    _bad("unknown field of the policy", "spec.schedulerPolicy.queue", "unknown field",
         {"spec/schedulerPolicy": {"queue": "a"}}),
    _bad("unknown field of the job", "workers", "unknown field", {"workers": []}),
    _bad("two sets of one name", "spec.workerSets[2]", "Duplicate value",
         {"spec/workerSets": [*SETS[:2], SETS[0]]}),
    _bad("a set with the leader's name", "spec.workerSets", "the leader's name 'learner': every name must be used once",
         {"spec/workerSets/0/name": "learner"}),
    _bad("a leader name in capitals", "spec.leader.name", "must be a DNS label", {"spec/leader/name": "Learner"}),
    _bad("an empty leader name", "spec.leader.name", "must be a DNS label", {"spec/leader/name": ""}),
    _bad("a leader name with a line end", "spec.leader.name", "must be a DNS label", {"spec/leader/name": "learner\n"}),
    _bad("a set name with a dot", "spec.workerSets[0].name", "must be a DNS label", {"spec/workerSets/0/name": "a.b"}),
    _bad("a set name that ends in a dash", "spec.workerSets[0].name", "must be a DNS label",
         {"spec/workerSets/0/name": "a-"}),
    _bad("a leader name of 50", "spec.leader.name", "Too long", {"spec/leader/name": "l" * 50}),
    _bad("job and leader name too long", "spec.leader.name",
         f"so that pod names fit into 63, but 'job' and '{'l' * 48}' have 51",
         {"spec/leader/name": "l" * 48}),
    _bad("job and set name too long", "spec.workerSets",
         f"so that pod names fit into 63, but 'job' and '{'w' * 48}' have 51",
         {"spec/workerSets/0/name": "w" * 48}),
    _bad("a job name with a dot", "metadata.name", "must be a DNS label", {"metadata/name": "my.job"}),
    _bad("a job name of 50", "metadata.name", "Too long", {"metadata/name": "j" * 50}),
    _bad("a volume without name", "spec.volumes[0].name", "Required value", {"spec/volumes": [{"emptyDir": {}}]}),
    _bad("a volume twice", "spec.volumes[1]", "Duplicate value", {"spec/volumes": [{"name": "a"}, {"name": "a"}]}),
    _bad("a volume source that is a text", "spec.volumes[0].hostPath", "must be of type object",
         {"spec/volumes": [{"name": "a", "hostPath": "/mnt"}]}),
    _bad("a command that is a text", f"{IN_WORKER}.containers[0].command", "must be of type array",
         {f"{WORKER}/containers/0/command": "python main.py"}),
    _bad("an argument that is a number", f"{IN_WORKER}.containers[0].args[1]", "must be of type string",
         {f"{WORKER}/containers/0/args": ["--steps", 100]}),
    _bad("no containers", f"{IN_LEADER}.containers", "Required value", {f"{LEADER}/containers": GONE}),
    _bad("empty containers", f"{IN_LEADER}.containers", "should have at least 1 items", {f"{LEADER}/containers": []}),
    _bad("a container without image", f"{IN_WORKER}.containers[0].image", "Required value",
         {f"{WORKER}/containers/0/image": GONE}),
    _bad("a container without name", f"{IN_WORKER}.containers[0].name", "Required value",
         {f"{WORKER}/containers/0/name": GONE}),
    _bad("a template with a nodeName", f"{IN_LEADER}.nodeName", "Arranger chooses the node",
         {f"{LEADER}/nodeName": "n1"}),
    _bad("a template with a schedulerName", f"{IN_WORKER}.schedulerName", "Arranger places",
         {f"{WORKER}/schedulerName": "default-scheduler"}),
    _bad("a template with scheduling gates", f"{IN_WORKER}.schedulingGates", "must not be set, Arranger makes the pods",
         {f"{WORKER}/schedulingGates": [{"name": "example.com/later"}]}),
    _bad("a resource claim without claim and template", f"{IN_LEADER}.resourceClaims[0]",
         "should have at least 2 properties", {f"{LEADER}/resourceClaims": [{"name": "gpu"}]}),
    _bad("a resource claim with a claim and a template", f"{IN_WORKER}.resourceClaims[0]", "must have at most 2 items",
         {f"{WORKER}/resourceClaims": [
             {"name": "gpu", "resourceClaimName": "gpu", "resourceClaimTemplateName": "gpu"}]}),
    _bad("a resource claim with a name that is no part of a claim's", f"{IN_LEADER}.resourceClaims[0].name",
         "should match", {f"{LEADER}/resourceClaims": [{"name": "a.b", "resourceClaimTemplateName": "gpu"}]}),
    _bad("a reserved label", "spec.leader.template.metadata.labels", "labels under arranger.dev/ are set by Arranger",
         {"spec/leader/template/metadata": {"labels": {"arranger.dev/job": "x"}}}),
    _bad("a label that isn't text", "spec.leader.template.metadata.labels.app", "must be of type string",
         {"spec/leader/template/metadata": {"labels": {"app": 1}}}),
    _bad("an unknown restartPolicy", f"{IN_LEADER}.restartPolicy", 'supported values: "Always", "OnFailure", "Never"',
         {f"{LEADER}/restartPolicy": "Sometimes"}),
    _bad("an exponent of three digits", f"{IN_LEADER}.containers[0].resources.requests.cpu", "Invalid value",
         {REQUEST: {"cpu": "1e100"}}),
    _bad("an exponent that nobody can reckon with", f"{IN_WORKER}.containers[0].resources.limits.memory",
         "Invalid value", {f"{WORKER}/containers/0/resources/limits": {"memory": "1e9999999999"}}),
    _bad("a quantity that is none", f"{IN_LEADER}.containers[0].resources.requests.cpu", "Invalid value",
         {REQUEST: {"cpu": "two"}}),
    _bad("a negative quantity", f"{IN_LEADER}.containers[0].resources.requests.memory", "Invalid value",
         {REQUEST: {"memory": "-1Gi"}}),
    _bad("a number beyond 64 bits", f"{IN_LEADER}.containers[0].resources.requests.memory", "Invalid value",
         {REQUEST: {"memory": 1 << 63}}),
    _bad("a negative number", f"{IN_LEADER}.containers[0].resources.requests.cpu", "greater than or equal to 0",
         {REQUEST: {"cpu": -1}}),
    _bad("a fraction as a number", f"{IN_LEADER}.containers[0].resources.requests.cpu", "must be of type integer",
         {REQUEST: {"cpu": 0.5}}),
    _bad("a wrong limit of an init container", f"{IN_WORKER}.initContainers[0].resources.limits.memory",
         "Invalid value", {f"{WORKER}/initContainers": [
             {"name": "i", "image": "i", "resources": {"limits": {"memory": "4GB"}}}]}),
    _bad("a wrong overhead", f"{IN_LEADER}.overhead.cpu", "Invalid value", {f"{LEADER}/overhead": {"cpu": "1 core"}}),
    _bad("half a device", f"{IN_LEADER}.containers[0].resources.limits",
         "nvidia.com/gpu must be a whole number of at most 9007199254740992, here 0.5",
         {REQUEST: {"nvidia.com/gpu": "0.5"}, LIMIT: {"nvidia.com/gpu": "0.5"}}),
    _bad("half a device by its limit alone", f"{IN_WORKER}.containers[0].resources.limits",
         "nvidia.com/gpu must be a whole number of at most 9007199254740992, here 500m",
         {f"{WORKER}/containers/0/resources/limits": {"nvidia.com/gpu": "500m"}}),
    *(
        _bad(f"more devices than are counted: {of}", f"{IN_LEADER}.containers[0].resources.limits",
             f"nvidia.com/gpu must be a whole number of at most 9007199254740992, here {of}",
             {REQUEST: {"nvidia.com/gpu": of}, LIMIT: {"nvidia.com/gpu": of}})
        for of in ("9E", 10**18, (1 << 53) + 1, "99999999999999999999")
    ),
    _bad("a device without a limit", f"{IN_LEADER}.containers[0].resources.limits",
         "Required value: nvidia.com/gpu is requested: it must have an equal limit", {REQUEST: {"nvidia.com/gpu": 1}}),
    _bad("a device limited elsewhere", f"{IN_LEADER}.initContainers[0].resources.limits", "must have an equal limit",
         {f"{LEADER}/initContainers": [
             {"name": "i", "image": "i", "resources": {"requests": {"rdma/hca": 1}, "limits": {"cpu": 1}}}]}),
    _bad("more devices than the limit", f"{IN_LEADER}.containers[0].resources.requests",
         "nvidia.com/gpu must be equal to its limit of 2, here 3",
         {REQUEST: {"nvidia.com/gpu": "3"}, LIMIT: {"nvidia.com/gpu": "2"}}),
    _bad("fewer devices than the limit", f"{IN_LEADER}.containers[0].resources.requests",
         "nvidia.com/gpu must be equal to its limit of 2, here 1",
         {REQUEST: {"nvidia.com/gpu": 1}, LIMIT: {"nvidia.com/gpu": 2}}),
    _bad("huge pages without a limit", f"{IN_LEADER}.containers[0].resources.limits",
         "hugepages-2Mi is requested: it must have an equal limit", {REQUEST: {"cpu": 1, "hugepages-2Mi": "4Mi"}}),
    _bad("more cpu than the limit", f"{IN_WORKER}.containers[0].resources.requests",
         "cpu must not be above its limit of 1, here 1500m",
         {f"{WORKER}/containers/0/resources": {"requests": {"cpu": "1500m"}, "limits": {"cpu": 1}}}),
    _bad("more memory than the limit", f"{IN_LEADER}.containers[0].resources.requests",
         "memory must not be above its limit of 3Gi, here 4Gi", {LIMIT: {"memory": "3Gi"}}),
    _bad("more cpu than the limit of the pod", f"{IN_LEADER}.resources.requests",
         "cpu must not be above its limit of 3, here 4",
         {f"{LEADER}/resources": {"requests": {"cpu": 4}, "limits": {"cpu": "3"}}}),
    _bad("a nodeSelector of a number", f"{IN_LEADER}.nodeSelector.zone", "must be of type string",
         {f"{LEADER}/nodeSelector": {"zone": 1}}),
    _bad("an unknown taint effect", f"{IN_LEADER}.tolerations[0].effect", "supported values",
         {f"{LEADER}/tolerations": [{"key": "a", "effect": "NoRun"}]}),
    _bad("an unknown toleration operator", f"{IN_LEADER}.tolerations[0].operator", "supported values",
         {f"{LEADER}/tolerations": [{"key": "a", "operator": "In"}]}),
    _bad("node affinity without terms", f"{IN_NODE_TERMS}.nodeSelectorTerms", "should have at least 1 items",
         {NODE_TERMS: {"nodeSelectorTerms": []}}),
    _bad("an unknown affinity operator", f"{IN_NODE_TERMS}.nodeSelectorTerms[0].matchExpressions[0].operator",
         "supported values", {NODE_TERMS: {"nodeSelectorTerms": [{"matchExpressions": [
             {"key": "a", "operator": "Has"}]}]}}),
    _bad("a preference without weight", f"{IN_LEADER}.affinity.nodeAffinity.{PREFERRED}[0].weight", "Required value",
         {f"{LEADER}/affinity/nodeAffinity/{PREFERRED}": [{"preference": {}}]}),
    _bad("a preference that weighs too much", f"{IN_LEADER}.affinity.nodeAffinity.{PREFERRED}[0].weight",
         "less than or equal to 100",
         {f"{LEADER}/affinity/nodeAffinity/{PREFERRED}": [{"weight": 101, "preference": {}}]}),
    _bad("pod affinity without topologyKey", f"{IN_POD_TERMS}[0].topologyKey", "Required value",
         {POD_TERMS: [{"labelSelector": {}}]}),
    _bad("pod affinity with an empty topologyKey", f"{IN_POD_TERMS}[0].topologyKey", "at least 1 chars",
         {POD_TERMS: [{"topologyKey": ""}]}),
    _bad("pod affinity terms as an object", IN_POD_TERMS, "must be of type array", {POD_TERMS: {}}),
    _bad("an operator that labels don't have", f"{IN_ANTI_TERMS}[0].labelSelector.matchExpressions[0].operator",
         "supported values", {ANTI_TERMS: [{"topologyKey": "a", "labelSelector": {"matchExpressions": [
             {"key": "a", "operator": "Gt", "values": ["1"]}]}}]}),
    _bad("a namespace that is a number", f"{IN_ANTI_TERMS}[0].namespaces[0]", "must be of type string",
         {ANTI_TERMS: [{"topologyKey": "a", "namespaces": [1]}]}),
    _bad("maxSkew 0", f"{IN_SPREAD}.maxSkew", "greater than or equal to 1",
         {SPREAD: [{"topologyKey": "a", "maxSkew": 0, "whenUnsatisfiable": "DoNotSchedule"}]}),
    _bad("a spread that doesn't say what to do", f"{IN_SPREAD}.whenUnsatisfiable", "Required value",
         {SPREAD: [{"topologyKey": "a", "maxSkew": 1}]}),
    _bad("an unknown whenUnsatisfiable", f"{IN_SPREAD}.whenUnsatisfiable", "supported values",
         {SPREAD: [{"topologyKey": "a", "maxSkew": 1, "whenUnsatisfiable": "Never"}]}),
    _bad("an unknown nodeTaintsPolicy", f"{IN_SPREAD}.nodeTaintsPolicy", "supported values",
         {SPREAD: [{"topologyKey": "a", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": ""}]}),
    _bad("a host port too high", f"{IN_LEADER}.containers[0].ports[0].hostPort", "less than or equal to 65535",
         {f"{LEADER}/containers/0/ports": [{"containerPort": 80, "hostPort": 65536}]}),
    _bad("a port without containerPort", f"{IN_WORKER}.containers[0].ports[0].containerPort", "Required value",
         {f"{WORKER}/containers/0/ports": [{"hostPort": 80}]}),
    _bad("an unknown protocol", f"{IN_LEADER}.containers[0].ports[0].protocol", "supported values",
         {f"{LEADER}/containers/0/ports": [{"containerPort": 80, "protocol": "tcp"}]}),
    # Typing errors in templates.
    _bad("an image that is a number", f"{IN_LEADER}.containers[0].image", "must be of type string",
         {f"{LEADER}/containers/0/image": 5}),
    _bad("an image with a space", f"{IN_WORKER}.containers[0].image", "should match", {
        f"{WORKER}/containers/0/image": "app:1 "}),
    _bad("a port that is a text", f"{IN_LEADER}.containers[0].ports[0].containerPort", "must be of type integer",
         {f"{LEADER}/containers/0/ports": [{"containerPort": "x"}]}),
    _bad("ports as numbers", f"{IN_LEADER}.containers[0].ports[0]", "must be of type object",
         {f"{LEADER}/containers/0/ports": [80]}),
    _bad("limits as a list", f"{IN_LEADER}.containers[0].resources.limits", "must be of type object",
         {f"{LEADER}/containers/0/resources": {"limits": [1]}}),
    _bad("resources without requests or limits", f"{IN_WORKER}.containers[0].resources.cpu", "unknown field",
         {f"{WORKER}/containers/0/resources": {"cpu": 1}}),
    _bad("a resource that there is not", f"{IN_LEADER}.containers[0].resources.limits", "gpu is not a resource",
         {LIMIT: {"gpu": 1}}),
    _bad("a request that there is not", f"{IN_WORKER}.containers[0].resources.requests", "mem is not a resource",
         {f"{WORKER}/containers/0/resources": {"requests": {"mem": "1Gi"}, "limits": {"memory": "1Gi"}}}),
    _bad("an unknown imagePullPolicy", f"{IN_LEADER}.containers[0].imagePullPolicy",
         'supported values: "Always", "IfNotPresent", "Never"',
         {f"{LEADER}/containers/0/imagePullPolicy": "Sometimes"}),
    _bad("a misspelled field of a container", f"{IN_WORKER}.containers[0].imagePulPolicy", "unknown field",
         {f"{WORKER}/containers/0/imagePulPolicy": "Always"}),
    _bad("a misspelled field of a pod", f"{IN_LEADER}.nodeSelectors", "unknown field",
         {f"{LEADER}/nodeSelectors": {"a": "b"}}),
    _bad("a misspelled field of the metadata", "spec.leader.template.metadata.label", "unknown field",
         {"spec/leader/template/metadata": {"label": {"a": "b"}}}),
    _bad("a template without spec around it", "spec.leader.template.containers", "unknown field",
         {"spec/leader/template/containers": []}),
    _bad("ephemeral containers", f"{IN_LEADER}.ephemeralContainers", "unknown field",
         {f"{LEADER}/ephemeralContainers": []}),
    _bad("env as a text", f"{IN_LEADER}.containers[0].env", "must be of type array",
         {f"{LEADER}/containers/0/env": "A=b"}),
    _bad("a variable without name", f"{IN_LEADER}.containers[0].env[1].name", "Required value",
         {f"{LEADER}/containers/0/env": [{"name": "A"}, {"value": "b"}]}),
    _bad("a variable that is a number", f"{IN_LEADER}.containers[0].env[0].value", "must be of type string",
         {f"{LEADER}/containers/0/env": [{"name": "A", "value": 1}]}),
    _bad("a variable named A=b", f"{IN_LEADER}.containers[0].env[0].name", "should match",
         {f"{LEADER}/containers/0/env": [{"name": "A=b"}]}),
    _bad("a variable with a value and a source", f"{IN_LEADER}.containers[0].env[0]", "Too many: 3",
         {f"{LEADER}/containers/0/env": [
             {"name": "A", "value": "b", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}),
    _bad("a variable from nowhere", f"{IN_LEADER}.containers[0].env[0].valueFrom", "at least 1 properties",
         {f"{LEADER}/containers/0/env": [{"name": "A", "valueFrom": {}}]}),
    _bad("a null variable", f"{IN_LEADER}.containers[0].env[0]", "must be of type object",
         {f"{LEADER}/containers/0/env": [None]}),
    _bad("a reference to a key of no secret", f"{IN_LEADER}.containers[0].env[0].valueFrom.secretKeyRef.name",
         "Required value",
         {f"{LEADER}/containers/0/env": [{"name": "A", "valueFrom": {"secretKeyRef": {"key": "k"}}}]}),
    _bad("a mount path that is a number", f"{IN_LEADER}.containers[0].volumeMounts[0].mountPath",
         "must be of type string", {f"{LEADER}/containers/0/volumeMounts": [{"name": "a", "mountPath": 1}]}),
    _bad("a mount without path", f"{IN_LEADER}.containers[0].volumeMounts[0].mountPath", "Required value",
         {f"{LEADER}/containers/0/volumeMounts": [{"name": "a"}]}),
    _bad("two mounts at one path", f"{IN_LEADER}.containers[0].volumeMounts[1]", "Duplicate value",
         {"spec/volumes": [{"name": "a"}],
          f"{LEADER}/containers/0/volumeMounts": [{"name": "a", "mountPath": "/a"}] * 2}),
    _bad("a mount of no volume", f"{IN_LEADER}.containers", "container 'main' mounts a volume that neither",
         {"spec/volumes": [{"name": "a"}],
          f"{LEADER}/containers/0/volumeMounts": [{"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/b"}]}),
    _bad("a mount of no volume in an init container", f"{IN_LEADER}.initContainers", "container 'i' mounts a volume",
         {f"{LEADER}/initContainers": [
             {"name": "i", "image": "i", "volumeMounts": [{"name": "a", "mountPath": "/a"}]}]}),
    _bad("a worker's mount of the leader's volume", "spec.workerSets", "a container of 'actors' mounts a volume",
         {f"{LEADER}/volumes": [{"name": "a"}],
          f"{WORKER}/containers/0/volumeMounts": [{"name": "a", "mountPath": "/a"}]}),
    _bad("a mount of no volume in a worker's init container", "spec.workerSets", "an init container of 'actors' mounts",
         {f"{WORKER}/initContainers": [
             {"name": "i", "image": "i", "volumeMounts": [{"name": "a", "mountPath": "/a"}]}]}),
    _bad("a volume that is two things", f"{IN_LEADER}.volumes[0]", "Too many: 3",
         {f"{LEADER}/volumes": [{"name": "a", "emptyDir": {}, "hostPath": {"path": "/a"}}]}),
    _bad("a volume twice in a template", f"{IN_LEADER}.volumes[1]", "Duplicate value",
         {f"{LEADER}/volumes": [{"name": "a"}, {"name": "a"}]}),
    _bad("a volume with a name in capitals", f"{IN_LEADER}.volumes[0].name", "must be a DNS label",
         {f"{LEADER}/volumes": [{"name": "Data"}]}),
    _bad("a volume of an unknown kind", "spec.volumes[0].pvc", "unknown field",
         {"spec/volumes": [{"name": "a", "pvc": {"claimName": "b"}}]}),
    _bad("a claim without name", "spec.volumes[0].persistentVolumeClaim.claimName", "Required value",
         {"spec/volumes": [{"name": "a", "persistentVolumeClaim": {}}]}),
    _bad("a mode in decimal", f"{IN_LEADER}.volumes[0].secret.defaultMode", "less than or equal to 511",
         {f"{LEADER}/volumes": [{"name": "a", "secret": {"secretName": "s", "defaultMode": 644}}]}),
    _bad("two containers of one name", f"{IN_LEADER}.containers[1]", "Duplicate value",
         {f"{LEADER}/containers": [{"name": "a", "image": "a"}, {"name": "a", "image": "b"}]}),
    _bad("a container's name for an init container", f"{IN_LEADER}.initContainers", "a container's name: 'main'",
         {f"{LEADER}/initContainers": [{"name": "main", "image": "i"}]}),
    _bad("a container name in capitals", f"{IN_WORKER}.containers[0].name", "must be a DNS label",
         {f"{WORKER}/containers/0/name": "Main"}),
    _bad("a container name of 64", f"{IN_WORKER}.containers[0].name", "Too long",
         {f"{WORKER}/containers/0/name": "c" * 64}),
    _bad("too many containers", f"{IN_LEADER}.containers", "Too many: 33: must have at most 32 items",
         {f"{LEADER}/containers": [{"name": f"c{number}", "image": "a"} for number in range(33)]}),
    _bad("a probe of nothing", f"{IN_LEADER}.containers[0].readinessProbe", "must have exactly one of exec, httpGet",
         {f"{LEADER}/containers/0/readinessProbe": {"periodSeconds": 5}}),
    _bad("a probe of two things", f"{IN_LEADER}.containers[0].livenessProbe", "must have exactly one of exec, httpGet",
         {f"{LEADER}/containers/0/livenessProbe": {"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}}}),
    _bad("a probe at port 0", f"{IN_LEADER}.containers[0].livenessProbe.tcpSocket.port", "greater than or equal to 1",
         {f"{LEADER}/containers/0/livenessProbe": {"tcpSocket": {"port": 0}}}),
    _bad("a probe at a list", f"{IN_LEADER}.containers[0].livenessProbe.tcpSocket.port", "must be of type integer",
         {f"{LEADER}/containers/0/livenessProbe": {"tcpSocket": {"port": []}}}),
    _bad("a negative delay", f"{IN_LEADER}.containers[0].livenessProbe.initialDelaySeconds",
         "greater than or equal to 0",
         {f"{LEADER}/containers/0/livenessProbe": {"tcpSocket": {"port": 1}, "initialDelaySeconds": -1}}),
    _bad("a priority beyond 32 bits", f"{IN_LEADER}.priority", "", {f"{LEADER}/priority": 2147483648}),
    _bad("a grace period beyond 64 bits", f"{IN_LEADER}.terminationGracePeriodSeconds", "",
         {f"{LEADER}/terminationGracePeriodSeconds": 9223372036854775808}),
    _bad("a negative grace period", f"{IN_LEADER}.terminationGracePeriodSeconds", "greater than or equal to 0",
         {f"{LEADER}/terminationGracePeriodSeconds": -1}),
    _bad("an unknown dnsPolicy", f"{IN_LEADER}.dnsPolicy", "supported values", {f"{LEADER}/dnsPolicy": "Cluster"}),
    _bad("a label value with a space", "spec.leader.template.metadata.labels.app", "should match",
         {"spec/leader/template/metadata": {"labels": {"app": "a b"}}}),
    _bad("a toleration of no key", f"{IN_LEADER}.tolerations[0].operator", "must be Exists where the key is empty",
         {f"{LEADER}/tolerations": [{"value": "a"}]}),
    _bad("a toleration of any value of one", f"{IN_LEADER}.tolerations[0].value", "must be empty where the operator",
         {f"{LEADER}/tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}),
    _bad("In without values", f"{IN_NODE_TERMS}.nodeSelectorTerms[0].matchExpressions[0].values", "Required value",
         {NODE_TERMS: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]}}),
    _bad("Exists with values", f"{IN_ANTI_TERMS}[0].labelSelector.matchExpressions[0].values", "must be empty",
         {ANTI_TERMS: [{"topologyKey": "a", "labelSelector": {"matchExpressions": [{**EXISTS, "values": ["b"]}]}}]}),
    _bad("a spread twice", f"{IN_LEADER}.topologySpreadConstraints[1]", "Duplicate value",
         {SPREAD: [{"topologyKey": "a", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}] * 2}),
    _bad("a misspelled field of an affinity", f"{IN_POD_TERMS}[0].labelSelectors", "unknown field",
         {POD_TERMS: [{"topologyKey": "a", "labelSelectors": {}}]}),
    _bad("a security context of a text", f"{IN_LEADER}.containers[0].securityContext.runAsUser",
         "must be of type integer", {f"{LEADER}/containers/0/securityContext": {"runAsUser": "root"}}),
    _bad("leaderService as text", "spec.leaderService", "must be of type boolean", {"spec/leaderService": "yes"}),
    _bad("a service of a job whose name begins with a digit", "spec.leaderService", "begins with a letter",
         {"spec/leaderService": True, "metadata/name": "0job"}),
    _bad("a rendezvous of a job whose name begins with a digit", "spec.workerSets", "begins with a letter",
         {"spec/workerSets/0/rendezvous": {}, "metadata/name": "0job"}),
    _bad("a job that waits for itself", "spec.after", "a job can't wait for itself", {"spec/after": [{"name": "job"}]}),
    _bad("a job to wait for without a name", "spec.after[0].name", "Required value",
         {"spec/after": [{"onFailure": "Fail"}]}),
    _bad("a name that no job can have", "spec.after[0].name", "must be a DNS label",
         {"spec/after": [{"name": "a.b"}]}),
    _bad("a name that is too long for a job", "spec.after[0].name", "may not be more than 49",
         {"spec/after": [{"name": "x" * 50}]}),
    _bad("another meaning of a failure", "spec.after[0].onFailure", 'supported values: "Fail", "Ignore"',
         {"spec/after": [{"name": "prep", "onFailure": "Continue"}]}),
    _bad("a job to wait for twice", "spec.after[1]", "Duplicate value",
         {"spec/after": [{"name": "prep"}, {"name": "prep", "onFailure": "Ignore"}]}),
    _bad("names of jobs alone", "spec.after[0]", "must be of type object", {"spec/after": ["prep"]}),
    _bad("another namespace's job", "spec.after[0].namespace", "unknown field",
         {"spec/after": [{"name": "prep", "namespace": "b"}]}),
    _bad("too many jobs to wait for", "spec.after", "must have at most 32 items",
         {"spec/after": [{"name": f"j{number}"} for number in range(33)]}),
    _bad("a rendezvous on port 0", "spec.workerSets[0].rendezvous.port", "greater than or equal to 1",
         {"spec/workerSets/0/rendezvous": {"port": 0}}),
    _bad("a rendezvous on port 65536", "spec.workerSets[0].rendezvous.port", "less than or equal to 65535",
         {"spec/workerSets/0/rendezvous": {"port": 65536}}),
    _bad("a rendezvous of worker groups without their size", "spec.workerSets[0].rendezvous.scope",
         "Group needs groupSize", {"spec/workerSets/0/rendezvous": {"scope": "Group"}}),
    _bad("a restart of worker groups without their size", "spec.workerSets[0].restart.scope", "Group needs groupSize",
         {"spec/workerSets/0/restart": {"scope": "Group"}}),
    _bad("a restart of a part of a worker group", "spec.workerSets[0].restart.scope",
         "must be Group, Set or Job where groupSize is above 1",
         {"spec/workerSets/0/restart": {"scope": "Worker"}, "spec/workerSets/0/groupSize": 2}),
    _bad("worker groups of nobody", "spec.workerSets[0].groupSize", "greater than or equal to 1",
         {"spec/workerSets/0/groupSize": 0}),
    _bad("worker groups too large", "spec.workerSets[0].groupSize", "less than or equal to 10000",
         {"spec/workerSets/0/groupSize": 10001}),
    _bad("worker groups of a size as text", "spec.workerSets[0].groupSize", "must be of type integer",
         {"spec/workerSets/0/groupSize": "2"}),
    _bad("too many workers in worker groups", "spec.workerSets", "together must be at most 10000, but are 10002",
         {"spec/workerSets/0/groupSize": 5001}),
    _bad("too many workers in worker groups with replicas", "spec.workerSets", "at most 10000, but are 10005",
         {"spec/workerSets/0/groupSize": 5, "spec/replicas": 2001}),
    _bad("minCount above counts of worker groups", "spec.workerSets", "which is 2, but is 4",
         {"spec/workerSets/0/groupSize": 4, "spec/workerSets/0/minCount": 4}),
    _bad("a quorum above all worker groups", "spec.minWorkersNum", "which is 8, but is 9",
         {"spec/workerSets/0/groupSize": 4, "spec/minWorkersNum": 9}),
    _bad("a members file at a path", "spec.workerSets[0].rendezvous.membersFile", "must be of type boolean",
         {"spec/workerSets/0/rendezvous": {"membersFile": "/a"}}),
    _bad("a misspelled field of a rendezvous", "spec.workerSets[0].rendezvous.ports", "unknown field",
         {"spec/workerSets/0/rendezvous": {"ports": 1}}),
    _bad("two ports of one job", "spec.workerSets", "must have the same port",
         {"spec/workerSets": [
             {**SETS[0], "rendezvous": {"scope": "Job"}}, {**SETS[1], "rendezvous": {"scope": "Job", "port": 1}}]}),
    _bad("suspend as text", "spec.suspend", "must be of type boolean", {"spec/suspend": "yes"}),
    _bad("failed pods to keep below 0", "spec.keepFailedPods", "greater than or equal to 0",
         {"spec/keepFailedPods": -1}),
    _bad("too many failed pods to keep", "spec.keepFailedPods", "less than or equal to 100",
         {"spec/keepFailedPods": 101}),
    _bad("failed pods to keep as text", "spec.keepFailedPods", "must be of type integer",
         {"spec/keepFailedPods": "3"}),
    _bad("a topology without levels", "spec.topology.levels", "Required value",
         {"spec/topology": {"mode": "Required"}}),
    _bad("no levels", "spec.topology.levels", "should have at least 1 items", {"spec/topology": {"levels": []}}),
    _bad("nine levels", "spec.topology.levels", "must have at most 8 items",
         {"spec/topology": {"levels": list("abcdefghi")}}),
    _bad("a level twice", "spec.topology.levels[1]", "Duplicate value", {"spec/topology": {"levels": ["a", "a"]}}),
    _bad("a level that is no label", "spec.workerSets[0].topology.levels[0]", "should match",
         {"spec/workerSets/0/topology": {"levels": ["a/b/c"]}}),
    _bad("an unknown mode", "spec.topology.mode", 'supported values: "Required", "Preferred"',
         {"spec/topology": {"levels": ["a"], "mode": "Hard"}}),
    _bad("an unknown scope", "spec.topology.within", 'supported values: "Job", "Set", "Group"',
         {"spec/topology": {"levels": ["a"], "within": "Rack"}}),
    _bad("a set's topology within the job", "spec.workerSets[0].topology.within", 'supported values: "Set", "Group"',
         {"spec/workerSets/0/topology": {"levels": ["a"], "within": "Job"}}),
    _bad("a negative ttl", "spec.ttlSecondsAfterFinished", "greater than or equal to 0",
         {"spec/ttlSecondsAfterFinished": -1}),
    _bad("a ttl beyond 32 bits", "spec.ttlSecondsAfterFinished", "less than or equal to 2147483647",
         {"spec/ttlSecondsAfterFinished": 2147483648}),
    _bad("a ttl as text", "spec.ttlSecondsAfterFinished", "must be of type integer",
         {"spec/ttlSecondsAfterFinished": "60s"}),
    _bad("a deadline of nothing", "spec.activeDeadlineSeconds", "greater than or equal to 1",
         {"spec/activeDeadlineSeconds": 0}),
    _bad("a deadline in fractions", "spec.activeDeadlineSeconds", "must be of type integer",
         {"spec/activeDeadlineSeconds": 1.5}),
    _bad("an expectation of nothing", "spec.expectedRuntimeSeconds", "greater than or equal to 1",
         {"spec/expectedRuntimeSeconds": 0}),
    _bad("an expectation beyond 32 bits", "spec.expectedRuntimeSeconds", "less than or equal to 2147483647",
         {"spec/expectedRuntimeSeconds": 2147483648}),
    _bad("a start grace of nothing", "spec.startGraceSeconds", "greater than or equal to 1",
         {"spec/startGraceSeconds": 0}),
    _bad("an expectation as text", "spec.expectedRuntimeSeconds", "must be of type integer",
         {"spec/expectedRuntimeSeconds": "2h"}),
    _bad("preemptible as text", "spec.preemptible", "must be of type boolean", {"spec/preemptible": "false"}),
    _bad("preemptible as a number", "spec.preemptible", "must be of type boolean", {"spec/preemptible": 0}),
    _bad("hostNetwork as text", f"{IN_LEADER}.hostNetwork", "must be of type boolean",
         {f"{LEADER}/hostNetwork": "yes"}),
]  # fmt: skip


def _change(case: str, stage: str, field: str, changes: dict[str, Any]) -> Change:
    before = tyjob_with(
        {"spec/volumes": [{"name": "data", "emptyDir": {}}], f"{LEADER}/containers/0/command": ["python", "learn.py"]}
    )
    return Change(case, stage, before, tyjob_with(changes, base=before), field)


#: Each shows in a `JobSpec`, but for volumes and the parts of a template that don't decide the node.
CHANGES: list[Change] = [
    _change("anything before the first stage", "", "", {f"{LEADER}/nodeSelector": {"a": "b"}, "spec/restartLimit": 1}),
    _change("anything while Pending", "Pending", "", {f"{LEADER}/nodeSelector": {"a": "b"}, "spec/restartLimit": 1}),
    _change("priority", "Running", "", {"spec/priority": 9}),
    _change("counts", "Running", "", {"spec/workerSets/0/counts": 7}),
    _change("replicas", "Running", "", {"spec/replicas": 7}),
    _change("the scaled set", "Running", "", {"spec/scaledSet": "actors"}),
    _change("minWorkersNum", "Starting", "", {"spec/minWorkersNum": 2}),
    _change("minCount", "Running", "", {"spec/workerSets/0/minCount": 1}),
    _change("a set's restart policy", "Running", "", {"spec/workerSets/0/restart": {"scope": "Job"}}),
    _change("the leader's limit", "Running", "spec.leader", {"spec/leader/restart": {"limit": 9}}),
    _change("the leader's window", "Running", "spec.leader", {"spec/leader/restart": {"windowSeconds": 9}}),
    _change("a rendezvous", "Running", "spec.workerSets", {"spec/workerSets/0/rendezvous": {"port": 5}}),
    _change("the size of worker groups", "Running", "spec.workerSets", {"spec/workerSets/0/groupSize": 2}),
    _change("the size of worker groups to what it is", "Running", "", {"spec/workerSets/0/groupSize": 1}),
    _change("the size of worker groups before the start", "Pending", "", {"spec/workerSets/0/groupSize": 2}),
    _change("no leader any more", "Running", "spec.leader", {"spec/leader": GONE}),
    _change("whose end is the job's", "Running", "spec.successPolicy", {"spec/successPolicy": {"type": "AllWorkers"}}),
    _change("whose end is the job's while Pending", "Pending", "", {"spec/successPolicy": {"type": "AllWorkers"}}),
    _change("what a set starts after", "Running", "spec.workerSets", {"spec/workerSets/0/startAfter": "LeaderReady"}),
    _change("a topology of the job", "Running", "spec.topology", {"spec/topology": {"levels": ["rack"]}}),
    _change("a topology while Pending", "Pending", "", {"spec/topology": {"levels": ["rack"]}}),
    _change("a set's topology", "Starting", "spec.workerSets", {"spec/workerSets/0/topology": {"levels": ["rack"]}}),
    _change("terminating", "Running", "", {"spec/terminating": True}),
    _change("suspend", "Running", "", {"spec/suspend": True}),
    _change("resume", "Pending", "", {"spec/suspend": False}),
    _change("how many failed pods are kept", "Running", "", {"spec/keepFailedPods": 0}),
    _change("how long an ended job is kept", "Succeeded", "", {"spec/ttlSecondsAfterFinished": 5}),
    _change("the deadline", "Running", "", {"spec/activeDeadlineSeconds": 5}),
    _change("how long it is expected to run", "Running", "", {"spec/expectedRuntimeSeconds": 5}),
    _change("how long its start may take", "Running", "", {"spec/startGraceSeconds": 5}),
    _change("not preemptible any more", "Running", "", {"spec/preemptible": False}),
    _change("not preemptible any more after the start", "Starting", "", {"spec/preemptible": False}),
    _change("the leader's request", "Starting", "spec.leader", {REQUEST: {"cpu": "3"}}),
    _change("the leader's name", "Running", "spec.leader", {"spec/leader/name": "boss"}),
    _change("a worker's request", "Rescheduling", "spec.workerSets", {
        f"{WORKER}/containers/0/resources/requests/cpu": "1"}),
    _change("a further set", "Running", "spec.workerSets", {"spec/workerSets": SETS}),
    _change("no sets", "Running", "spec.workerSets", {"spec/workerSets": [], "spec/minWorkersNum": 0}),
    _change("a first queue", "Running", "spec.queue", {"spec/queue": "other"}),
    _change("a first queue while Pending", "Pending", "", {"spec/queue": "other"}),
    _change("a first queue while Rescheduling", "Rescheduling", "", {"spec/queue": "other"}),
    _change("a first priority class", "Running", "spec.priorityClassName", {"spec/priorityClassName": "high"}),
    _change("a first priority class while Pending", "Pending", "", {"spec/priorityClassName": "high"}),
    _change("a job to wait for", "Running", "spec.after", {"spec/after": [{"name": "prep"}]}),
    _change("a job to wait for while Pending", "Pending", "", {"spec/after": [{"name": "prep"}]}),
    _change("restartLimit", "Running", "spec.restartLimit", {"spec/restartLimit": 9}),
    _change("a service for the leader", "Running", "spec.leaderService", {"spec/leaderService": True}),
    _change("cleanPodPolicy", "Succeeded", "spec.cleanPodPolicy", {"spec/cleanPodPolicy": "None"}),
    _change("a first policy", "Running", "spec.schedulerPolicy", {"spec/schedulerPolicy": {"basicPolicy": "Gang"}}),
]  # fmt: skip

#: Refused by the schema's rules alone: `refused_change` doesn't see what changes here.
UNSEEN_CHANGES: list[Change] = [
    _change("the leader's image", "Running", "spec.leader", {f"{LEADER}/containers/0/image": "app:2"}),
    _change("a field that the schema doesn't know", "Running", "spec.workerSets", {f"{WORKER}/hostNetwork": True}),
    _change("a volume", "Running", "spec.volumes", {"spec/volumes": [{"name": "data", "hostPath": {"path": "/d"}}]}),
    _change("a command in place of arguments", "Running", "spec.leader", {
        f"{LEADER}/containers/0/command": GONE, f"{LEADER}/containers/0/args": ["python", "learn.py"]}),
    _change("the only volume away", "Failed", "spec.volumes", {"spec/volumes": GONE}),
]  # fmt: skip
