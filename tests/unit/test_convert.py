# ruff: noqa: E501  # a case a line
"""What `arranger convert` says: each note, each refusal, and that no field goes without a word."""

import copy
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from arranger.cli.commands.convert import command
from arranger.cli.main import cli, main
from arranger.convert import Conversion, NoteKind, Skipped, Unreadable, converted, documents
from arranger.convert.rights import BASELINE
from arranger.model.checks import below
from arranger.model.queue_rules import queue_spec, validate_queue
from arranger.model.validation import refused_later, validate, warnings

SHAPES = Path(__file__).parents[1] / "convert"
#: What is said of objects, in the order of its weight.
WEIGHTS = ["not converted", "to do", "changed", "no equivalent"]
#: The namespaces of a Queue that is for none.
NO_NAMESPACE = {"selector": {"matchLabels": {"kubernetes.io/metadata.name": ""}}}
LOST, CHANGED, TO_DO = NoteKind.NO_EQUIVALENT, NoteKind.CHANGED, NoteKind.TO_DO


def shapes() -> dict[str, dict[str, Any]]:
    """Every shape by its name."""
    found = [of for path in sorted(SHAPES.glob("*.yaml")) for of in yaml.safe_load_all(path.read_text())]
    return {of["metadata"].get("name") or of["metadata"]["generateName"]: of for of in found}


SHAPE = shapes()


def conversion(value: Any) -> Conversion:
    """What comes of one object."""
    (found,) = converted(documents("f.yaml", json.dumps(value).encode()))
    assert isinstance(found, Conversion)
    return found


def made(value: Any) -> list[dict[str, Any]]:
    """The TYJobs that come of an object, without faults."""
    found = conversion(value)
    assert not found.faults
    return [of for of in found.objects if of["kind"] == "TYJob"]


def spec_of(value: Any) -> dict[str, Any]:
    (job,) = made(value)
    spec: dict[str, Any] = job["spec"]
    return spec


def with_field(name: str, path: str, value: Any) -> dict[str, Any]:
    """A shape with one field changed; the path has dots, and numbers for entries of lists."""
    changed = copy.deepcopy(SHAPE[name])
    *above, last = [int(part) if part.isdecimal() else part.replace("~", ".") for part in path.split(".")]
    at: Any = changed
    for part in above:
        at = at.setdefault(part, {}) if isinstance(at, dict) else at[part]
    at[last] = value
    return changed


POD = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
TASK, JOB_POD = "spec.tasks.0", "spec.template"
RJ, RC, GROUP = "rj-sample", "rc-mini", "spec.workerGroupSpecs.0"
WORKERS = "spec.replicatedJobs.0"
FLAVOR = "spec.resourceGroups.0.flavors.0"
CPU, CPU_AT = f"{FLAVOR}.resources.0", "spec.resourceGroups[0].flavors[0].resources[0]"

#: Shape, path of a field, its value; and the kind of the note, the path that it has, and some of its words.
NOTES = [
    # metadata and templates of all kinds
    ("job-pi", "metadata.labels", {"kueue.x-k8s.io/queue-name": "rl"}, TO_DO, "metadata.labels.kueue.x-k8s.io/queue-name", "arranger queue create rl"),
    ("job-pi", "metadata.labels", {"kueue.x-k8s.io/queue-name": "a.b"}, TO_DO, "metadata.labels.kueue.x-k8s.io/queue-name", "can't have this name"),
    ("job-pi", "metadata.labels", {"kueue.x-k8s.io/priority-class": "p"}, LOST, "metadata.labels.kueue.x-k8s.io/priority-class", "WorkloadPriorityClass"),
    ("job-pi", "metadata.annotations", {"volcano.sh/x": "1"}, LOST, "metadata.annotations.volcano.sh/x", "only the controller"),
    ("job-pi", "metadata.ownerReferences", [{}], LOST, "metadata.ownerReferences", "has no owner"),
    ("job-pi", "metadata.finalizers", ["x/y"], LOST, "metadata.finalizers", "doesn't know the TYJob"),
    ("job-pi", "metadata.name", "a.b." + "c" * 60, CHANGED, "metadata.name", "short DNS label"),
    ("vc-generated-", "metadata.generateName", "g-", TO_DO, "metadata.generateName", "fixed name g"),
    ("job-pi", f"{JOB_POD}.spec.schedulerName", "mine", CHANGED, f"{JOB_POD}.spec.schedulerName", "not the scheduler mine"),
    ("job-pi", f"{JOB_POD}.spec.nodeName", "n1", LOST, f"{JOB_POD}.spec.nodeName", "nodeSelector"),
    ("job-pi", f"{JOB_POD}.spec.schedulingGates", [{"name": "g"}], LOST, f"{JOB_POD}.spec.schedulingGates", "suspend"),
    ("job-pi", f"{JOB_POD}.spec.schedulingGroup", {"podGroupName": "g"}, LOST, f"{JOB_POD}.spec.schedulingGroup", "together"),
    ("job-pi", f"{JOB_POD}.spec.ephemeralContainers", [{}], LOST, f"{JOB_POD}.spec.ephemeralContainers", "added to pods"),
    ("job-pi", f"{JOB_POD}.spec.containers.0.comand", ["x"], LOST, f"{JOB_POD}.spec.containers[0].comand", "did you mean command?"),
    ("job-pi", f"{JOB_POD}.metadata", {"labels": {"arranger.dev/job": "x"}}, LOST, f"{JOB_POD}.metadata.labels.arranger.dev/job", "sets the labels"),
    ("job-pi", f"{JOB_POD}.metadata", {"labels": {"kueue.x-k8s.io/queue-name": "rl"}}, LOST, f"{JOB_POD}.metadata.labels.kueue.x-k8s.io/queue-name", "would gate pods"),
    ("job-pi", f"{JOB_POD}.metadata", {"annotations": {"kueue.x-k8s.io/podset-slice-size": "2"}}, LOST, f"{JOB_POD}.metadata.annotations.kueue.x-k8s.io/podset-slice-size", "topology"),
    ("job-pi", f"{JOB_POD}.spec.containers.0.env", [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['job-index']"}}}], TO_DO, f"{JOB_POD}.spec.containers[0].env[0].valueFrom", "have no job-index"),
    ("job-pi", f"{JOB_POD}.spec.volumes", [{"name": "v", "downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.labels['job-index']"}}]}}], TO_DO, f"{JOB_POD}.spec.volumes[0]", "have no job-index"),
    ("job-names", f"{JOB_POD}.spec.containers.0.command", ["job-names-$i.headless-svc"], TO_DO, f"{JOB_POD}.spec.containers[0].command[0]", "computes"),
    # batch/v1
    ("job-indexed", "spec.parallelism", 2, CHANGED, "spec.parallelism", "as there is room"),
    ("job-queue", "spec.parallelism", 3, CHANGED, "spec.parallelism", "without completions"),
    ("job-pi", "spec.parallelism", 0, CHANGED, "spec.parallelism", "suspended"),
    ("job-leader", "spec.backoffLimit", 2, CHANGED, "spec.backoffLimit", "each pod alone"),
    ("job-indexed", "spec.backoffLimit", 2, LOST, "spec.backoffLimit", "backoffLimitPerIndex"),
    ("job-indexed", "spec.maxFailedIndexes", 2, LOST, "spec.maxFailedIndexes", "has failed"),
    ("job-pi", "spec.podFailurePolicy", {"rules": [{"action": "FailJob"}]}, LOST, "spec.podFailurePolicy.rules[0]", "counted alike"),
    ("job-pi", "spec.managedBy", "x", LOST, "spec.managedBy", "Arranger runs"),
    ("job-pi", "spec.activeDeadlineSeconds", 9, CHANGED, "spec.activeDeadlineSeconds", "time with nodes"),
    ("job-leader", "spec.successPolicy", {"rules": [{"succeededIndexes": "1,3"}]}, LOST, "spec.successPolicy.rules[0]", "all of its pods"),
    ("job-names", "spec.template.spec.subdomain", "x", CHANGED, "spec.template.spec.subdomain", "worker-N.job-names"),
    ("job-names", f"{JOB_POD}.spec.containers.0.command", ["job-names-2.headless-svc"], CHANGED, f"{JOB_POD}.spec.containers[0].command[0]", "worker-2.job-names"),
    ("job-kueue", "spec.suspend", True, CHANGED, "spec.suspend", "asks Kueue"),
    ("job-kueue", "spec.parallelism", 3, CHANGED, "spec.parallelism", "all 3 pods start together (minCount), as Kueue admits them"),
    ("job-names", "spec.parallelism", 3, CHANGED, "spec.parallelism", "all 3 pods start together (minCount), because they find each other by host names"),
    # Volcano
    ("job-pi", "metadata.labels", {"kueue.x-k8s.io/queue-name": "rl"}, TO_DO, "metadata.labels.kueue.x-k8s.io/queue-name", "give those of teams names apart"),
    ("job-pi", "metadata.labels", {"kueue.x-k8s.io/queue-name": "default"}, TO_DO, "metadata.labels.kueue.x-k8s.io/queue-name", "the Queue default"),
    ("vc-plain", "spec.queue", "rl", TO_DO, "spec.queue", "arranger queue create rl"),
    ("vc-plain", "spec.schedulerName", "mine", CHANGED, "spec.schedulerName", "not the scheduler mine"),
    ("vc-plain", "spec.maxRetry", 2, CHANGED, "spec.maxRetry", "each pod alone"),
    ("vc-plain", f"{TASK}.maxRetry", 2, LOST, "spec.tasks[0].maxRetry", "no effect, as in Volcano"),
    ("vc-tensorflow", f"{TASK}.maxRetry", 2, LOST, "spec.tasks[0].maxRetry", "no effect, as in Volcano"),
    ("vc-plain", f"{TASK}.topologyPolicy", "best-effort", LOST, "spec.tasks[0].topologyPolicy", "NUMA"),
    ("vc-plain", f"{TASK}.partitionPolicy", {}, LOST, "spec.tasks[0].partitionPolicy", "groupSize"),
    ("vc-plain", f"{TASK}.networkTopology", {}, LOST, "spec.tasks[0].networkTopology", "topology"),
    ("vc-plain", "spec.networkTopology", {}, LOST, "spec.networkTopology", "topology"),
    ("vc-ordered", f"{TASK}.replicas", 0, LOST, "spec.tasks[0]", "left out"),
    ("vc-plain", "spec.policies", [{"event": "*", "action": "RestartJob"}], CHANGED, "spec.policies[0].event", "every event"),
    ("vc-plain", "spec.policies", [{"event": "PodPending", "action": "RestartJob", "timeout": "10m"}], LOST, "spec.policies[0].timeout", "startGraceSeconds"),
    ("vc-plain", "spec.policies", [{"events": ["Unknown"], "action": "AbortJob"}], LOST, "spec.policies[0].events", "Unknown leads to no AbortJob"),
    ("vc-plain", "spec.policies", [{"exitCode": 3, "action": "AbortJob"}], LOST, "spec.policies[0].exitCode", "alike"),
    ("vc-mpi", "spec.policies", [{"event": "TaskCompleted", "action": "CompleteJob"}], LOST, "spec.policies", "any task"),
    ("vc-mpi", "spec.tasks.1.policies", [{"event": "TaskCompleted", "action": "CompleteJob"}], CHANGED, "spec.policies", "not when one has"),
    ("vc-plain", f"{TASK}.template.spec.restartPolicy", "Always", CHANGED, "spec.tasks[0].template.spec.restartPolicy", "isn't run again"),
    ("vc-plain", "spec.plugins", {"ssh": ["--no-root"]}, LOST, "spec.plugins.ssh", "no-root"),
    ("vc-plain", "spec.plugins", {"env": ["stray"]}, LOST, "spec.plugins.env", "stray"),
    ("vc-plain", "spec.plugins", {"svc": []}, CHANGED, "spec.plugins.svc", "NetworkPolicy"),
    ("tf-multi-worker", "spec.tfReplicaSpecs.Worker.replicas", 4000, TO_DO, "spec.tfReplicaSpecs.Worker.template", "Linux refuses"),
    ("vc-ordered", "spec.tasks.1.dependsOn.name", ["a", "nginx"], CHANGED, "spec.tasks[1].dependsOn.name", "after nginx"),
    ("vc-pytorch", "spec.minAvailable", 1, CHANGED, "spec.tasks[0].minAvailable", "no effect"),
    ("vc-plain", "spec.minAvailable", 1, CHANGED, "spec.minAvailable", "failed for good"),
    ("vc-plain", "spec.minSuccess", 1, LOST, "spec.minSuccess", "successPolicy"),
    ("vc-ordered", "spec.volumes.0.volumeClaim", {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}, CHANGED, "spec.volumes[0].volumeClaim", "vc-ordered-volume-0"),
    ("vc-plain", "spec.plugins", {"ssh": []}, TO_DO, "spec.plugins.ssh", "make the Secret vc-plain-ssh"),
    ("vc-plain", "spec.plugins", {"mpi": []}, TO_DO, "spec.plugins.mpi", "make the Secret"),
    ("vc-plain", "spec.plugins", {"ray": []}, LOST, "spec.plugins.ray", "docs/recipes/ray.md"),
    ("vc-plain", "spec.plugins", {"hcclrank": []}, LOST, "spec.plugins.hcclrank", "TYJOB_RANK"),
    ("vc-plain", "spec.plugins", {"mine": []}, LOST, "spec.plugins.mine", "no plugin"),
    ("vc-plain", f"{TASK}.template.spec.hostname", "h", CHANGED, "spec.tasks[0].template.spec.hostname", "shard-N.vc-plain"),
    # Kubeflow
    ("pt-simple", "spec.runPolicy.backoffLimit", 2, CHANGED, "spec.runPolicy.backoffLimit", "each pod alone"),
    ("pt-simple", "spec.runPolicy", {}, CHANGED, "spec.runPolicy.backoffLimit", "for ever"),
    ("pt-simple", "spec.runPolicy.managedBy", "x", LOST, "spec.runPolicy.managedBy", "Arranger runs"),
    ("pt-simple", "spec.runPolicy.schedulingPolicy", {"minResources": {}}, LOST, "spec.runPolicy.schedulingPolicy.minResources", "requests"),
    ("pt-simple", "spec.runPolicy.schedulingPolicy", {"scheduleTimeoutSeconds": 3}, LOST, "spec.runPolicy.schedulingPolicy.scheduleTimeoutSeconds", "room"),
    ("pt-simple", "spec.runPolicy.schedulingPolicy", {"queue": "rl"}, TO_DO, "spec.runPolicy.schedulingPolicy.queue", "queue create rl"),
    ("pt-simple", "spec.pytorchReplicaSpecs.Worker.replicas", 0, LOST, "spec.pytorchReplicaSpecs.Worker", "left out"),
    ("pt-simple", "spec.pytorchReplicaSpecs.Worker.restartPolicy", "Always", CHANGED, "spec.pytorchReplicaSpecs.Worker.restartPolicy", "OnFailure"),
    ("pt-simple", "spec.pytorchReplicaSpecs.Worker.restartPolicy", "ExitCode", CHANGED, "spec.pytorchReplicaSpecs.Worker.restartPolicy", "every exit code"),
    ("pt-simple", "spec.pytorchReplicaSpecs.Master.replicas", 1, CHANGED, "spec.pytorchReplicaSpecs.Master", "the leader"),
    ("pt-elastic", "spec.elasticPolicy.maxReplicas", 9, TO_DO, "spec.elasticPolicy.maxReplicas", "kubectl scale tyj pt-elastic --replicas=9"),
    ("pt-elastic", "spec.elasticPolicy.metrics", [{}], LOST, "spec.elasticPolicy.metrics", "HorizontalPodAutoscaler"),
    ("pt-elastic", "spec.elasticPolicy.rdzvHost", "h", CHANGED, "spec.elasticPolicy.rdzvHost", "MASTER_ADDR"),
    ("tf-all-workers", "spec.enableDynamicWorker", True, CHANGED, "spec.enableDynamicWorker", "TF_CONFIG"),
    ("tf-multi-worker", "spec.successPolicy", "", CHANGED, "spec.successPolicy", "all workers"),
    ("mpi-pi", "spec.sshAuthMountPath", "/k", TO_DO, "spec.sshAuthMountPath", "ssh-keygen"),
    ("mpi-pi", "spec.slotsPerWorker", 2, CHANGED, "spec.mpiReplicaSpecs.Launcher", "starts once"),
    ("mpi-horovod", "spec.slotsPerWorker", 2, TO_DO, "spec.mpiReplicaSpecs.Worker.template", "sshd"),
    # Ray
    (RC, "spec.rayVersion", "2", TO_DO, "spec", "terminating"),
    (RC, "spec.headGroupSpec.serviceType", "NodePort", LOST, "spec.headGroupSpec.serviceType", "Service"),
    (RC, "spec.headGroupSpec.headService", {}, LOST, "spec.headGroupSpec.headService", "Service"),
    (RC, "spec.rayVersion", "2", TO_DO, "spec.headGroupSpec", "Service"),
    (RC, "spec.rayVersion", "2", CHANGED, "spec.headGroupSpec", "the leader"),
    (RC, "spec.headGroupSpec.enableIngress", True, LOST, "spec.headGroupSpec.enableIngress", "Ingress"),
    (RC, "spec.headServiceAnnotations", {"a": "b"}, LOST, "spec.headServiceAnnotations", "yours"),
    (RC, "spec.headGroupSpec.resources", {"CPU": "1"}, LOST, "spec.headGroupSpec.resources", "rayStartParams"),
    (RC, f"{GROUP}.labels", {"a": "1"}, LOST, "spec.workerGroupSpecs[0].labels", "rayStartParams"),
    (RC, "spec.autoscalerOptions", {}, LOST, "spec.autoscalerOptions", "kubectl scale"),
    (RC, "spec.enableInTreeAutoscaling", True, CHANGED, "spec.enableInTreeAutoscaling", "kubectl scale"),
    (RC, "spec.gcsFaultToleranceOptions", {}, LOST, "spec.gcsFaultToleranceOptions", "begins again"),
    (RC, "spec.authOptions", {}, LOST, "spec.authOptions", "variables"),
    (RC, "spec.upgradeStrategy", {}, LOST, "spec.upgradeStrategy", "another TYJob"),
    (RC, "spec.managedBy", "x", LOST, "spec.managedBy", "Arranger"),
    (RC, "spec.networkPolicy", {}, LOST, "spec.networkPolicy", "NetworkPolicy"),
    (RC, f"{GROUP}.scaleStrategy", {}, LOST, "spec.workerGroupSpecs[0].scaleStrategy", "highest indices"),
    (RC, f"{GROUP}.idleTimeoutSeconds", 3, LOST, "spec.workerGroupSpecs[0].idleTimeoutSeconds", "autoscaler"),
    (RC, f"{GROUP}.suspend", True, LOST, "spec.workerGroupSpecs[0]", "left out"),
    (RC, f"{GROUP}.replicas", 2, CHANGED, "spec.workerGroupSpecs[0]", "10 times an hour"),
    ("rc-autoscaler", f"{GROUP}.maxReplicas", 7, TO_DO, "spec.workerGroupSpecs[0].maxReplicas", "up to 7 with counts of worker set"),
    ("rc-autoscaler", "spec.workerGroupSpecs.1.maxReplicas", 3, TO_DO, "spec.workerGroupSpecs[1].maxReplicas", "up to 3 with kubectl scale tyj rc-autoscaler --replicas=N"),
    ("rc-two-groups", f"{GROUP}.replicas", 0, CHANGED, "spec.workerGroupSpecs[0].replicas", "until somebody scales"),
    ("rc-autoscaler", "spec.workerGroupSpecs.0", {"groupName": "z", "rayStartParams": {}, "template": POD}, LOST, "spec.workerGroupSpecs[1]", "one set of 0"),
    ("rc-own-command", "spec.rayVersion", "2", TO_DO, "spec.headGroupSpec.template.spec.containers[0]", "own command"),
    (RJ, "spec.rayClusterSpec.rayVersion", "2", CHANGED, "spec.rayClusterSpec", "once the head runs"),
    (RJ, "spec.clusterSelector", {"a": "b"}, LOST, "spec.clusterSelector", "own"),
    (RJ, "spec.submissionMode", "InteractiveMode", TO_DO, "spec.submissionMode", "ray job submit"),
    (RJ, "spec.submitterPodTemplate", POD, LOST, "spec.submitterPodTemplate", "container of the head"),
    (RJ, "spec.submitterConfig", {}, LOST, "spec.submitterConfig", "container of the head"),
    (RJ, "spec.managedBy", "x", LOST, "spec.managedBy", "Arranger"),
    (RJ, "spec.schedule", "* * * * *", LOST, "spec.schedule", "CronJob"),
    (RJ, "spec.preRunningDeadlineSeconds", 3, LOST, "spec.preRunningDeadlineSeconds", "room"),
    (RJ, "spec.shutdownAfterJobFinishes", False, CHANGED, "spec.shutdownAfterJobFinishes", "ends with its program"),
    (RJ, "spec.deletionStrategy", {}, LOST, "spec.deletionStrategy", "ttlSecondsAfterFinished"),
    (RJ, "spec.deletionPolicy", "x", LOST, "spec.deletionPolicy", "ttlSecondsAfterFinished"),
    (RJ, "spec.ttlSecondsAfterFinished", 3, CHANGED, "spec.ttlSecondsAfterFinished", "without shutdownAfterJobFinishes"),
    ("rj-ends", "spec.ttlSecondsAfterFinished", 3, CHANGED, "spec.ttlSecondsAfterFinished", "TYJob is deleted"),
    # JobSet
    ("js-pytorch", "spec.managedBy", "x", LOST, "spec.managedBy", "Arranger"),
    ("js-pytorch", "spec.network.subdomain", "net", CHANGED, "spec.network.subdomain", "host names"),
    ("js-initializer", f"{WORKERS}.replicas", 0, LOST, "spec.replicatedJobs[0]", "left out"),
    ("js-driver", f"{WORKERS}.template.metadata", {"labels": {"a": "b"}}, LOST, "spec.replicatedJobs[0].template.metadata.labels.a", "pod template"),
    ("js-driver", f"{WORKERS}.template.spec.successPolicy", {}, LOST, "spec.replicatedJobs[0].template.spec.successPolicy", "all of its pods"),
    ("js-driver", f"{WORKERS}.template.spec.ttlSecondsAfterFinished", 1, LOST, "spec.replicatedJobs[0].template.spec.ttlSecondsAfterFinished", "JobSet"),
    ("js-server", "spec.replicatedJobs.1.dependsOn", [{"name": "x"}], LOST, "spec.replicatedJobs[1].dependsOn", "named x"),
    ("js-server", "spec.replicatedJobs.1.dependsOn", [{"name": "server"}, {"name": "x"}], LOST, "spec.replicatedJobs[1].dependsOn[1].name", "one other"),
    ("js-slices", "spec.replicatedJobs.0.replicas", 3, CHANGED, "spec.replicatedJobs[0].replicas", "worker group of 2"),
    ("js-slices", "metadata.annotations", {"alpha.jobset.sigs.k8s.io/exclusive-topology": "r"}, CHANGED, "metadata.annotations.alpha.jobset.sigs.k8s.io/exclusive-topology", "share one domain"),
    ("js-slices", "metadata.annotations", {"alpha.jobset.sigs.k8s.io/node-selector": "r"}, LOST, "metadata.annotations.alpha.jobset.sigs.k8s.io/node-selector", "no labels"),
    ("js-slices", "spec.failurePolicy.maxRestarts", 2, CHANGED, "spec.failurePolicy.maxRestarts", "each pod alone"),
    ("js-slices", "spec.replicatedJobs.0.template.spec.backoffLimit", 2, CHANGED, "spec.replicatedJobs[0].template.spec.backoffLimit", "isn't retried"),
    ("js-slices", "spec.failurePolicy.restartStrategy", "InPlaceRestart", CHANGED, "spec.failurePolicy.restartStrategy", "not restarted in place"),
    ("js-slices", "spec.failurePolicy.rules", [{"name": "r", "action": "FailJobSet"}], LOST, "spec.failurePolicy.rules[0]", "alike"),
    ("js-server", "spec.successPolicy.operator", "Any", CHANGED, "spec.successPolicy.operator", "any has"),
    ("js-driver", "spec.coordinator.jobIndex", 0, CHANGED, "spec.coordinator.replicatedJob", "driver-0.js-driver"),
    ("js-initializer", "spec.suspend", False, CHANGED, "spec.replicatedJobs", "2 TYJobs"),
    ("js-pytorch", "spec.volumeClaimPolicies", [{"templates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteMany"]}}]}], CHANGED, "spec.volumeClaimPolicies[0].templates[0]", "data-js-pytorch"),
    # LeaderWorkerSet
    ("lws-small", "spec.replicas", 3, CHANGED, "spec.replicas", "3 TYJobs, lws-small-0 to lws-small-2"),
    ("lws-small", "spec.replicas", 1, TO_DO, "spec", "arranger.dev/role=leader"),
    ("lws-small", "spec.rolloutStrategy", {}, LOST, "spec.rolloutStrategy", "another TYJob"),
    ("lws-small", "spec.leaderWorkerTemplate.subGroupPolicy", {}, LOST, "spec.leaderWorkerTemplate.subGroupPolicy", "TYJOB_RANK"),
    ("lws-small", "spec.leaderWorkerTemplate.restartPolicy", "None", CHANGED, "spec.leaderWorkerTemplate.restartPolicy", "10 an hour"),
    ("lws-small", "spec.leaderWorkerTemplate.restartPolicy", "RecreateGroupOnPodRestart", CHANGED, "spec.leaderWorkerTemplate.restartPolicy", "restarts its replica"),
    ("lws-small", "spec.leaderWorkerTemplate.resourceClaimTemplates", [], LOST, "spec.leaderWorkerTemplate.resourceClaimTemplates", "resourceClaims"),
    ("lws-small", "spec.leaderWorkerTemplate.volumeClaimTemplates", [{"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"]}}], CHANGED, "spec.leaderWorkerTemplate.volumeClaimTemplates[0]", "ephemeral"),
    ("lws-topology", "spec.replicas", 1, CHANGED, "metadata.annotations.leaderworkerset.sigs.k8s.io/exclusive-topology", "one domain"),
    ("lws-topology", "metadata.annotations", {"leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology": "r"}, LOST, "metadata.annotations.leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology", "one unit"),
    ("lws-small", "spec.leaderWorkerTemplate.workerTemplate.spec.containers.0.args", ["lws-small-$I.lws-small"], TO_DO, "spec.leaderWorkerTemplate.workerTemplate.spec.containers[0].args[0]", "computes"),
    # queues
    ("vq-weighted", "metadata.name", "a.b", CHANGED, "metadata.name", "the Queue's name is a-b"),
    ("vq-weighted", "metadata.name", "root", LOST, "metadata.name", "no Queue"),
    ("vq-annotated", "spec.parent", "above", LOST, "metadata.annotations.volcano.sh/hierarchy", "spec.parent counts: above"),
    ("vq-weighted", "metadata.ownerReferences", [{}], LOST, "metadata.ownerReferences", "no owner"),
    ("vq-weighted", "metadata.finalizers", ["x/y"], LOST, "metadata.finalizers", "doesn't know the Queue"),
    ("vq-weighted", "metadata.labels", {"volcano.sh/x": "1"}, LOST, "metadata.labels.volcano.sh/x", "only the controller"),
    ("vq-weighted", "spec.weight", 70000, CHANGED, "spec.weight", "65535: weights are whole numbers"),
    ("vq-weighted", "spec.parent", "above", TO_DO, "spec.parent", "arranger queue create above"),
    ("vq-nodes", "spec.priority", 3, LOST, "spec.priority", "ordered by what they use"),
    ("vq-nodes", "spec.affinity", {}, LOST, "spec.affinity", "selects its nodes"),
    ("vq-department", "spec.dequeueStrategy", "fifo", LOST, "spec.dequeueStrategy", "never blocks"),
    ("vq-weighted", "spec.extendClusters", [{}], LOST, "spec.extendClusters", "one cluster"),
    ("vq-weighted", "spec.type", "x", LOST, "spec.type", "no types"),
    ("vq-capacity", "spec.capability.pods", 9, LOST, "spec.capability.pods", "maxRunning"),
    ("vq-capacity", "spec.capability.gpus", 9, LOST, "spec.capability.gpus", "a domain in its name"),
    ("vq-capacity", "spec.capability", {"x/y": "1500m"}, CHANGED, "spec.capability.x/y", "2: a Queue has whole numbers of x/y"),
    ("vq-annotated", "spec.weight", 7, LOST, "spec.weight", "hierarchy-weights counts: 5"),
    ("vq-annotated", "spec.weight", 1, CHANGED, "metadata.annotations.volcano.sh/hierarchy", "parent vq-science"),
    ("kq-lends", "spec.cohort", "lab", CHANGED, "spec.cohort", "the Queue lab above it is in the output too"),
    ("kq-alone", "spec.resourceGroups", [], CHANGED, "spec.resourceGroups", "has no limit: Kueue admits nothing to it"),
    ("kq-alone", "spec.stopPolicy", "None", CHANGED, "spec.resourceGroups", "a resource that isn't named has no limit"),
    ("kq-alone", f"{FLAVOR}.name", "b", LOST, "spec.resourceGroups[0].flavors[0].name", "as its ResourceFlavor says"),
    ("kq-flavors", "spec.stopPolicy", "None", CHANGED, "spec.resourceGroups[0].flavors", "added up"),
    ("kq-flavors", "spec.flavorFungibility", {}, LOST, "spec.flavorFungibility", "a second kind of node"),
    ("kq-flavors", "spec.concurrentAdmissionPolicy", {}, LOST, "spec.concurrentAdmissionPolicy", "a second kind of node"),
    ("kq-alone", "spec.stopPolicy", "HoldAndDrain", CHANGED, "spec.stopPolicy", "run on"),
    ("kq-alone", "spec.namespaceSelector", None, CHANGED, "spec.namespaceSelector", "no namespace may use it"),
    ("kq-alone", "spec.queueingStrategy", "StrictFIFO", LOST, "spec.queueingStrategy", "never blocks"),
    ("kq-alone", "spec.admissionChecks", ["a"], LOST, "spec.admissionChecks", "group checks"),
    ("kq-turns", "spec.admissionChecksStrategy", {}, LOST, "spec.admissionChecksStrategy", "group checks"),
    ("kq-turns", "spec.weight", 1, CHANGED, "spec.admissionScope.admissionMode", "userFairness"),
    ("kq-turns", "spec.stopPolicy", "None", CHANGED, "spec.preemption.withinClusterQueue", "the same priority"),
    ("kq-turns", "spec.stopPolicy", "None", CHANGED, "spec.preemption.reclaimWithinCohort", "whatever their priority"),
    ("kq-turns", "spec.stopPolicy", "None", LOST, "spec.preemption.borrowWithinCohort.policy", "above its share"),
    ("kq-turns", "spec.stopPolicy", "None", LOST, "spec.preemption.borrowWithinCohort.maxPriorityThreshold", "above its share"),
    ("kq-borrows", "spec.fairSharing.weight", "2500m", CHANGED, "spec.fairSharing.weight", "2: weights are whole numbers"),
    ("kq-borrows", "spec.fairSharing.weight", 0, CHANGED, "spec.fairSharing.weight", "1: weights are whole numbers"),
    ("kq-alone", f"{FLAVOR}.resources.0.name", "cpu", LOST, "spec.resourceGroups[0].flavors[0].name", "one kind of node"),
    ("kq-reserve", "metadata.name", "c", CHANGED, "metadata.name", "all ClusterQueues of a cohort at once"),
    ("kq-reserve", "metadata.name", "c", CHANGED, "metadata.name", "no namespace may submit jobs to this Queue itself"),
    ("kq-department", "spec.parentName", "x", CHANGED, "spec.parentName", "the Queue x above it"),
    ("kq-department", "spec.parentName", "x", CHANGED, "spec.parentName", "no namespace may submit jobs to it itself"),
    ("kq-mine", "spec.clusterQueue", "a", TO_DO, "spec.clusterQueue", "annotate namespace NAMESPACE arranger.dev/queue=a. Convert its ClusterQueue too"),
    ("kq-mine", "spec.clusterQueue", "", LOST, "spec.clusterQueue", "no effect"),
    ("kq-mine", "spec.stopPolicy", "Hold", LOST, "spec.stopPolicy", "the namespaces of the Queue kq-lends"),
    ("kq-mine", "spec.fairSharing", {"weight": 2}, LOST, "spec.fairSharing", "weigh alike"),
    ("kq-mine", "spec.wallTimePolicy", {}, LOST, "spec.wallTimePolicy", "activeDeadlineSeconds"),
    ("kq-any", "metadata.name", "a", LOST, "metadata.name", "no object takes its place"),
    ("kq-spot", "spec.nodeLabels", {"a": "b"}, TO_DO, "spec.nodeLabels", "nodeSelector {a: b}"),
    ("kq-spot", "spec.nodeLabels", {"a": "b"}, TO_DO, "spec.tolerations", "these tolerations"),
    ("kq-spot", "spec.topologyName", "t", LOST, "spec.topologyName", "topology"),
    ("kq-spot", "spec.resourceWeights", {"cpu": 2}, LOST, "spec.resourceWeights", "uses most of its share"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "path", "value", "kind", "at", "words"), NOTES)
def test_each_note_names_its_field_and_says_what_follows(
    shape: str, path: str, value: Any, kind: NoteKind, at: str, words: str
) -> None:
    found = conversion(with_field(shape, path, value))
    assert not found.faults
    said = [(note.kind, note.path, note.text) for note in found.notes]
    assert [text for of, where, text in said if (of, where) == (kind, at) and words in text], said


#: Shape, path of a field, its value; and the path and some words of the fault.
FAULTS = [
    ("job-pi", "metadata.name", "", "metadata.name", "Required"),
    ("job-pi", "spec.completions", 0, "spec.completions", "no pod to run"),
    ("job-pi", "spec.completions", "3", "spec.completions", "must be of type integer"),
    ("job-pi", "spec.template", None, "spec.template", "Required value"),
    ("job-pi", "spec.template", [], "spec.template", "must be of type object"),
    ("job-pi", "spec.template.spec.containers.0.image", 5, "spec.template.spec.containers[0].image", "type string"),
    ("job-pi", "spec.completionMode", "Other", "spec.completionMode", "Unsupported value"),
    ("job-pi", "spec", [], "spec", "must be of type object"),
    ("job-pi", f"{JOB_POD}.spec.restartPolicy", "Always", f"{JOB_POD}.spec.restartPolicy", "OnFailure or Never"),
    ("vc-mpi", "spec.tasks.1.name", "master", "spec.tasks[1].name", "Duplicate value"),
    (
        "vc-ordered",
        "spec.volumes.0.volumeClaim",
        {"acessModes": []},
        "spec.volumes[0].volumeClaim.acessModes",
        "unknown field",
    ),
    ("vc-plain", "spec.tasks", [], "spec.tasks", "no pod to run"),
    ("vc-plain", "spec.minAvailable", 9, "spec.minAvailable", "must not be above"),
    ("vc-plain", "spec.tasks.0.minAvailable", 9, "spec.tasks[0].minAvailable", "must not be above"),
    ("vc-ordered", "spec.volumes.0.mountPath", "", "spec.volumes[0].mountPath", "Required"),
    ("vc-ordered", "spec.runningEstimate", "soon", "spec.runningEstimate", "a duration"),
    ("vc-plain", "spec.plugins", {"pytorch": ["--port=x"]}, "spec.plugins.pytorch", "the port must be"),
    ("pt-alone", "spec.pytorchReplicaSpecs", {}, "spec.pytorchReplicaSpecs", "no pod to run"),
    ("pt-alone", "spec.pytorchReplicaSpecs.Wroker", {}, "spec.pytorchReplicaSpecs.Wroker", "did you mean Worker?"),
    (
        "pt-alone",
        "spec.pytorchReplicaSpecs",
        {"Wroker": {}},
        "spec.pytorchReplicaSpecs.Wroker",
        "must be one of Master",
    ),
    ("mpi-pi", "spec.mpiReplicaSpecs.Luncher", {}, "spec.mpiReplicaSpecs.Luncher", "did you mean Launcher?"),
    ("tf-chief", "spec.tfReplicaSpecs.Workers", {}, "spec.tfReplicaSpecs.Workers", "did you mean Worker?"),
    ("mpi-pi", "spec.mpiReplicaSpecs.Launcher.replicas", 0, "spec.mpiReplicaSpecs", "a Launcher"),
    (RC, f"{GROUP}.groupName", None, "spec.workerGroupSpecs[0].groupName", "Required"),
    (RC, f"{GROUP}.maxReplicas", 0, "spec.workerGroupSpecs[0].maxReplicas", "must not be below"),
    (RC, "spec.headGroupSpec.rayStartParams", {"port": "p"}, "spec.headGroupSpec.rayStartParams", "port must be"),
    (RJ, "spec.rayClusterSpec", None, "spec.rayClusterSpec", "submit it there"),
    (RJ, "spec.entrypoint", " ", "spec.entrypoint", "Required"),
    (RJ, "spec.entrypoint", "python 'x", "spec.entrypoint", "not a command line"),
    (RJ, "spec.entrypointNumCpus", True, "spec.entrypointNumCpus", "must be a number"),
    (RJ, "spec.runtimeEnvYAML", "a: [", "spec.runtimeEnvYAML", "not valid YAML"),
    (RJ, "spec.runtimeEnvYAML", "[a]", "spec.runtimeEnvYAML", "must be a mapping"),
    ("js-driver", "spec.replicatedJobs", [], "spec.replicatedJobs", "no pod to run"),
    (
        "js-driver",
        "spec.successPolicy.targetReplicatedJobs",
        ["x"],
        "spec.successPolicy.targetReplicatedJobs",
        "no such",
    ),
    ("lws-small", "spec.replicas", 0, "spec.replicas", "no pod to run"),
    ("lws-small", "spec.replicas", 1001, "spec.replicas", "more than 1000"),
    ("job-pi", "spec.completions", 20000, "", "would be refused"),
    ("vq-weighted", "metadata.name", "", "metadata.name", "Required"),
    ("vq-weighted", "spec.weight", -1, "spec.weight", "greater than or equal to 0"),
    (
        "vq-annotated",
        "metadata.annotations",
        {"volcano.sh/hierarchy": "root/a/a/b"},
        "metadata.annotations.volcano.sh/hierarchy",
        "each once",
    ),
    (
        "vq-annotated",
        "metadata.annotations",
        {"volcano.sh/hierarchy": "root/a", "volcano.sh/hierarchy-weights": "1"},
        "metadata.annotations.volcano.sh/hierarchy",
        "a number for each part",
    ),
    ("vq-team", "spec.parent", "vq-team", "spec.parent", "its own parent"),
    ("vq-capacity", "spec.guarantee.resource.cpu", "-2", "spec.guarantee.resource.cpu", ""),
    ("vq-capacity", "spec.deserved.memory", 1.5, "spec.deserved.memory", ""),
    ("vq-capacity", "spec.deserved", {"cpu": 64}, "", "would be refused"),
    ("vq-department", "spec.dequeueStrategy", "lifo", "spec.dequeueStrategy", "Unsupported value"),
    ("vq-weighted", "spec.reclaimable", "yes", "spec.reclaimable", "of type boolean"),
    ("kq-lends", "spec.cohort", "kq-lends", "spec.cohort", "can't be a cohort and a ClusterQueue"),
    ("kq-alone", f"{CPU}.borrowingLimit", 1, f"{CPU_AT}.borrowingLimit", "must be unset without a cohort"),
    (
        "kq-lends",
        f"{FLAVOR}.resources.1.lendingLimit",
        7,
        "spec.resourceGroups[0].flavors[0].resources[1].lendingLimit",
        "must not be above nominalQuota",
    ),
    ("kq-alone", f"{CPU}.nominalQuota", None, f"{CPU_AT}.nominalQuota", "Required"),
    ("kq-alone", f"{CPU}.nominalQuota", "1.2.3", f"{CPU_AT}.nominalQuota", ""),
    ("kq-borrows", f"{CPU}.name", None, f"{CPU_AT}.name", "Required"),
    (
        "kq-turns",
        f"{CPU}.name",
        "memory",
        "spec.resourceGroups[0].flavors[0].resources",
        "those of coveredResources, in this order: cpu",
    ),
    ("kq-turns", f"{FLAVOR}.name", None, "spec.resourceGroups[0].flavors[0].name", "Required"),
    (
        "kq-flavors",
        "spec.resourceGroups.1.coveredResources",
        None,
        "spec.resourceGroups[1].coveredResources",
        "Required",
    ),
    (
        "kq-alone",
        "spec.namespaceSelector",
        {"matchLabels": {"a": 1}},
        "spec.namespaceSelector.matchLabels.a",
        "of type string",
    ),
    ("kq-alone", "spec.stopPolicy", "Stop", "spec.stopPolicy", "Unsupported value"),
    (
        "kq-turns",
        "spec.preemption.withinClusterQueue",
        "Any",
        "spec.preemption.withinClusterQueue",
        "Unsupported value",
    ),
    ("kq-reserve", f"{CPU}.lendingLimit", 1, f"{CPU_AT}.lendingLimit", "must be unset without a parent"),
    ("kq-pool", "spec.fairSharing", {"weight": "many"}, "spec.fairSharing.weight", ""),
    ("kq-mine", "spec.clusterQueue", 1, "spec.clusterQueue", "of type string"),
    ("kq-mine", "spec.stopPolicy", "Stop", "spec.stopPolicy", "Unsupported value"),
    ("kq-spot", "spec.tolerations", [{"operator": "Like"}], "spec.tolerations[0].operator", "Unsupported value"),
    ("kq-spot", "spec.nodeLabels", {"a": 1}, "spec.nodeLabels.a", "of type string"),
]

Fault = tuple[str, str, Any, str, str]
#: More of the same shapes.
MORE_FAULTS: list[Fault] = [
    ("job-pi", "spec.activeDeadlineSeconds", 0, "spec.activeDeadlineSeconds", "greater than or equal to 1"),
    ("vc-plain", "spec.ttlSecondsAfterFinished", "x", "spec.ttlSecondsAfterFinished", "of type integer"),
    ("vc-plain", "spec.tasks.0.policies", 5, "spec.tasks[0].policies", "of type array"),
    ("vc-mpi", "spec.tasks.0.replicas", "x", "spec.tasks[0].replicas", "of type integer"),
    ("pt-alone", "spec.runPolicy", 7, "spec.runPolicy", "of type object"),
    ("mpi-pi", "spec.runPolicy", {"cleanPodPolicy": "Some"}, "spec.runPolicy.cleanPodPolicy", "Unsupported value"),
    (RC, "spec.headGroupSpec.template.spec.containers", [], "spec.headGroupSpec.template.spec.containers", ""),
    (RJ, "spec.backoffLimit", -1, "spec.backoffLimit", "greater than or equal to 0"),
    (RJ, "spec.ttlSecondsAfterFinished", [], "spec.ttlSecondsAfterFinished", "of type integer"),
    ("lws-small", "spec.startupPolicy", "Never", "spec.startupPolicy", "Unsupported value"),
    (
        "pt-elastic",
        "spec.elasticPolicy.minReplicas",
        9,
        "spec.elasticPolicy.minReplicas",
        "must not be above maxReplicas, which is 3, nor above the replicas of the workers, which are 2, but is 9",
    ),
    (
        "pt-elastic",
        "spec.runPolicy",
        {"schedulingPolicy": {"minAvailable": 3}},
        "spec.runPolicy.schedulingPolicy.minAvailable",
        "must not be above the replicas of all types, which are 2, but is 3",
    ),
    (
        "pt-elastic",
        "spec.pytorchReplicaSpecs.Worker.restartPolicy",
        "Sometimes",
        "spec.pytorchReplicaSpecs.Worker.restartPolicy",
        "Unsupported value",
    ),
    (
        "vc-ordered",
        "spec.tasks.0",
        {"name": "none", "replicas": 0, "minAvailable": 2, "template": POD},
        "spec.tasks[0].minAvailable",
        "must not be above replicas, which is 0",
    ),
    (
        "js-driver",
        "spec.coordinator",
        {"replicatedJob": "driver", "jobIndex": 1},
        "spec.coordinator.jobIndex",
        "must be below the replicas of driver, which are 1, but is 1",
    ),
    (
        "js-driver",
        "spec.coordinator",
        {"replicatedJob": "driver", "podIndex": 4},
        "spec.coordinator.podIndex",
        "must be below the pods of a Job of driver, which are 1, but is 4",
    ),
    ("js-driver", "metadata.labels", {"a": 1}, "metadata.labels.a", "of type string"),
]


@pytest.mark.parametrize(("shape", "path", "value", "at", "words"), [*FAULTS, *MORE_FAULTS])
def test_what_cannot_be_converted_says_which_field_and_why(
    shape: str, path: str, value: Any, at: str, words: str
) -> None:
    found = conversion(with_field(shape, path, value))
    assert not found.objects
    assert [text for where, text in found.faults if where == at and words in text], found.faults


#: Of what isn't there nobody can say this.
_UNKNOWABLE = {
    ("spec.tasks", "spec.minAvailable"),
    ("spec.replicatedJobs", "spec.successPolicy.targetReplicatedJobs"),
    ("spec.replicatedJobs", "spec.coordinator"),
}


def _apart(one: str, other: str) -> bool:
    if (one, other) in _UNKNOWABLE:
        return False
    return not f"{one}.".startswith(f"{other}.") and not f"{other}.".startswith(f"{one}.")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(one, other, id=f"{one[0]}: {one[1]}, {other[1]}")
        for one, other in itertools.combinations([*FAULTS, *MORE_FAULTS], 2)
        if one[0] == other[0] and _apart(one[1], other[1]) and "" not in (one[3], other[3])
    ],
)
def test_all_wrong_fields_are_told_at_once(one: Fault, other: Fault) -> None:
    value = with_field(*one[:3])
    SHAPE["both"] = value
    try:
        found = conversion(with_field("both", *other[1:3]))
    finally:
        del SHAPE["both"]
    for _, _, _, at, words in (one, other):
        assert [text for where, text in found.faults if where == at and words in text], found.faults
    assert not found.objects and len(found.faults) == 2, found.faults
    lines = [found.document.line(path) for path, _ in found.faults]
    assert lines == sorted(lines)


@pytest.mark.parametrize(
    ("shape", "path", "value", "at"),
    [
        ("pt-alone", "spec.pytorchReplicaSpecs", {}, "spec.pytorchReplicaSpecs"),
        ("pt-elastic", "spec.pytorchReplicaSpecs", None, "spec.pytorchReplicaSpecs"),
        ("tf-ps", "spec.tfReplicaSpecs", {"Chef": {}}, "spec.tfReplicaSpecs.Chef"),
        ("mpi-pi", "spec.mpiReplicaSpecs.Launcher", None, "spec.mpiReplicaSpecs"),
        ("mpi-pi", "spec.mpiReplicaSpecs", None, "spec.mpiReplicaSpecs"),
        (RJ, "spec.rayClusterSpec", None, "spec.rayClusterSpec"),
        (RJ, "spec", {"clusterSelector": {"a": "b"}, "entrypoint": "python a.py"}, "spec.clusterSelector"),
    ],
)
def test_what_is_missing_as_a_whole_hides_no_other_wrong_or_unknown_field(
    shape: str, path: str, value: Any, at: str
) -> None:
    wrong = with_field(shape, path, value)
    wrong["spec"] |= {"suspnd": True, "slotsPerWorker": "x", "elasticPolicy": {"maxRestarts": "x"}, "backoffLimit": "x"}
    wrong["spec"]["successPolicy"] = "Some"
    expected = {
        "PyTorchJob": {"spec.elasticPolicy.maxRestarts"},
        "TFJob": {"spec.successPolicy"},
        "MPIJob": {"spec.slotsPerWorker"},
        "RayJob": {"spec.backoffLimit"},
    }
    found = conversion(wrong)
    assert {where for where, _ in found.faults} == {at} | expected[wrong["kind"]]
    assert "spec.suspnd" in {note.path for note in found.notes}


def test_wrong_fields_of_one_object_come_with_their_paths_and_what_is_allowed(tmp_path: Path) -> None:
    file = tmp_path / "jobset.yaml"
    value = copy.deepcopy(SHAPE["js-driver"])
    value["spec"]["startupPolicy"] = {"startupPolicyOrder": "Sometimes"}
    value["spec"]["ttlSecondsAfterFinished"] = "soon"
    value["spec"]["replicatedJobs"][0]["replicas"] = -1
    value["spec"]["replicatedJobs"][1]["template"]["spec"]["completionMode"] = "Index"
    value["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = (
        "No"
    )
    file.write_text(yaml.safe_dump(value))
    done = CliRunner().invoke(command, [str(file)])
    told = [line.split(": ", 1)[1] for line in done.stderr.splitlines() if "not converted: " in line]
    assert sorted(told) == [
        "spec.replicatedJobs[0].replicas: not converted: Invalid value: -1: should be greater than or equal to 0",
        'spec.replicatedJobs[1].template.spec.completionMode: not converted: Unsupported value: "Index": supported values: "NonIndexed", "Indexed"',
        'spec.replicatedJobs[1].template.spec.template.spec.containers[0].imagePullPolicy: not converted: Unsupported value: "No": supported values: "Always", "IfNotPresent", "Never", ""',
        'spec.startupPolicy.startupPolicyOrder: not converted: Unsupported value: "Sometimes": supported values: "AnyOrder", "InOrder"',
        'spec.ttlSecondsAfterFinished: not converted: Invalid value: "string": must be of type integer, and not "soon"',
    ]


def test_the_help_says_that_what_runs_goes_on_beside_its_tyjob() -> None:
    told = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    assert "an object that runs goes on beside its TYJob, on the same volumes. Delete it before you apply" in told
    assert "[yaml|json]" in told and "[default: yaml]" in told


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_fault_is_told_of_the_wrong_field_and_not_of_what_follows_from_it(data: st.DataObject) -> None:
    value = copy.deepcopy(SHAPE[data.draw(st.sampled_from(sorted(SHAPE)), label="shape")])
    path, at = data.draw(st.sampled_from([(path, of) for path, of in objects_in(value) if of]), label="at")
    name = data.draw(st.sampled_from(sorted(at)), label="name")
    at[name] = data.draw(st.sampled_from([[[1]], {"zz": {"zz": [1]}}]), label="value")
    (found,) = converted(documents("f.yaml", json.dumps(value).encode()))
    whole = below(path, name)
    for where, words in found.faults if isinstance(found, Conversion) else ():
        assert where == whole or where.startswith((f"{whole}.", f"{whole}[")), (whole, where, words)


@pytest.mark.parametrize("name", SHAPE)
def test_each_shape_becomes_valid_objects_without_unset_variables(name: str) -> None:
    for job in made(SHAPE[name]):
        assert (validate(job), refused_later(job), warnings(job)) == ([], [], [])


# --- no field without a word ------------------------------------------------------------------------------------

#: Fields whose names are data, and those that the API server writes.
_FREE = {"labels", "annotations", "nodeSelector", "limits", "requests", "rayStartParams", "env_vars", "status"}
_FREE |= {"nodeLabels", "matchLabels", "resource", "deserved", "capability"}


def objects_in(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """All objects in an object whose fields have fixed names, with their paths."""
    if isinstance(value, dict):
        yield path, value
        for name, below in value.items():
            if name not in _FREE and (path, name) != ("spec", "metadata"):
                yield from objects_in(below, f"{path}.{name}" if path else name)
    for number, below in enumerate(value if isinstance(value, list) else ()):
        yield from objects_in(below, f"{path}[{number}]")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_an_unknown_field_at_any_level_is_named(data: st.DataObject) -> None:
    value = copy.deepcopy(SHAPE[data.draw(st.sampled_from(sorted(SHAPE)), label="shape")])
    path, at = data.draw(st.sampled_from(list(objects_in(value))), label="at")
    letters = st.text(st.characters(codec="ascii", exclude_categories=["Cc", "Cs"]), max_size=70)
    name = "zz" + data.draw(letters, label="name")
    at[name] = data.draw(st.sampled_from([1, "text", None, {"a": 1}, [1], True]), label="value")
    (found,) = converted(documents("f.yaml", json.dumps(value).encode()))
    assert isinstance(found, Conversion)
    where = f"{path}.zz" if path else "zz"
    quoted = f'{path}."zz' if path else '"zz'
    named = [at for at, _ in found.faults] + [note.path for note in found.notes if note.kind == LOST]
    above = [of for of in named if of and (path == of or path.startswith((f"{of}.", f"{of}[")))]
    assert above or [of for of in named if of.startswith((where, quoted))], named


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_field_of_a_wrong_type_never_ends_in_a_crash(data: st.DataObject) -> None:
    value = copy.deepcopy(SHAPE[data.draw(st.sampled_from(sorted(SHAPE)), label="shape")])
    for _ in range(data.draw(st.integers(1, 4), label="wrong fields")):
        _, at = data.draw(st.sampled_from([(path, of) for path, of in objects_in(value) if of]), label="at")
        name = data.draw(st.sampled_from(sorted(at)), label="name")
        at[name] = data.draw(
            st.sampled_from([0, -1, 3, "", "text", None, {}, {"a": 1}, [], [None], [1], True, 1.5, 1 << 70])
        )
    converted(documents("f.yaml", json.dumps(value).encode()))


# --- reading ---------------------------------------------------------------------------------------------------


def test_lists_and_documents_and_other_kinds_are_taken_apart() -> None:
    listed = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [SHAPE["job-pi"], {"kind": "Deployment", "apiVersion": "apps/v1"}],
    }
    jobs = {
        "apiVersion": "batch/v1",
        "kind": "JobList",
        "items": [{"metadata": {"name": "b"}, "spec": {"template": POD}}],
    }
    text = yaml.safe_dump_all(
        [
            listed,
            None,
            jobs,
            "text",
            {"apiVersion": "batch/v2", "kind": "JobSet"},
            {"apiVersion": "kubeflow.org/v1", "kind": "JAXJob"},
        ]
    )
    found = converted(documents("f.yaml", text.encode()))
    assert [type(of) for of in found] == [Conversion, Skipped, Conversion, Conversion, Conversion, Skipped]
    reasons = [of.reason for of in found if isinstance(of, Skipped)]
    assert reasons[1:] == ["this kind isn't converted"]
    assert "a service" in reasons[0]
    faults = [fault for of in found if isinstance(of, Conversion) for fault in of.faults]
    assert faults == [
        ("", "not a Kubernetes object"),
        ("apiVersion", "must be of jobset.x-k8s.io, and not of batch"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3: a is given twice, first in line 1"),
        ("a: &x\n  b: *x\n", "f.yaml:1: an alias stands within what it refers to"),
        ("a: [\n", "not valid YAML"),
        ("a: !mine 1\n", "f.yaml:1: not valid YAML"),
        ("a: !!binary aGk=\n", "can't be in a Kubernetes object"),
        ("? [1]\n: 2\n", "f.yaml:1: the name of a field must be a text"),
        ("<<: 3\n", "<< must name a mapping"),
        ("\0", "not a text file"),
        ("a: " + "[" * 5000, "nesting depth"),
        (
            "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
            + "".join(f"{n}: &{n} [{','.join([f'*{before}'] * 10)}]\n" for before, n in zip("abcdef", "bcdefg", strict=True)),
            "more than 2000000 values",
        ),
    ],
)  # fmt: skip
def test_what_yaml_would_drop_or_cannot_read_is_an_error_with_its_line(text: str, words: str) -> None:
    with pytest.raises(Unreadable) as raised:
        list(documents("f.yaml", text.encode()))
    assert words in str(raised.value)


def test_fields_have_the_lines_where_they_stand_also_behind_anchors_and_merges() -> None:
    text = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nx: &base\n  backoffLimit: 3\n  bad: 1\nspec:\n"
        "  <<: *base\n  template: &pod\n    spec:\n      containers:\n      - {name: c, image: i,\n         what: 1}\n"
    )
    (found,) = converted(documents("f.yaml", text.encode()))
    assert isinstance(found, Conversion)
    assert {note.path: found.document.line(note.path) for note in found.notes} == {
        "x": 4,
        "spec.backoffLimit": 5,
        "spec.bad": 6,
        "spec.template.spec.containers[0].what": 13,
    }
    assert found.objects[0]["spec"]["workerSets"][0]["restart"] == {"limit": 3}


def test_texts_that_look_like_numbers_stay_texts_and_octal_modes_are_numbers() -> None:
    (found,) = documents("f.yaml", b"a: 10:30\nb: 2026-01-01\nc: 0o644\nd: 0644\ne: 1_000\n")
    assert found.value == {"a": "10:30", "b": "2026-01-01", "c": 420, "d": 420, "e": 1000}


# --- what comes of it -------------------------------------------------------------------------------------------


def test_minimums_queues_and_policies_are_carried_over() -> None:
    volcano = spec_of(with_field("vc-tensorflow", "spec.queue", "default"))
    assert (volcano["minWorkersNum"], volcano["queue"]) == (3, "default")
    assert [of["restart"] for of in volcano["workerSets"]] == [{"scope": "Job", "limit": 5}] * 2
    assert volcano["successPolicy"] == {"type": "Sets", "sets": ["worker"]}
    told = {of["name"]: of["value"] for of in volcano["workerSets"][1]["template"]["spec"]["containers"][0]["env"]}
    config = json.loads(told["TF_CONFIG"].replace("$(TYJOB_WORKER_INDEX)", "1"))
    assert config["task"] == {"type": "worker", "index": 1}
    assert config["cluster"]["ps"] == ["ps-0.vc-tensorflow.$(TYJOB_NAMESPACE).svc:2222"]
    kubeflow = spec_of(SHAPE["pt-policies"])
    assert (kubeflow["minWorkersNum"], kubeflow["restartLimit"], kubeflow["ttlSecondsAfterFinished"]) == (2, 4, 600)
    failing = spec_of(SHAPE["vc-generated-"])["workerSets"][0]
    assert (failing["restart"], failing["minCount"]) == ({"scope": "Job", "event": "PodFailed", "limit": 0}, 2)


PLAIN, SPEC, TASK_POLICIES = "vc-plain", "spec.policies", "spec.tasks[0].policies"
RESTART_POLICY = "spec.tasks[0].template.spec.restartPolicy"
IN_PLACE = {"limit": 10, "windowSeconds": 3600}


def policies(*of: tuple[str, str]) -> list[dict[str, str]]:
    return [{"event": event, "action": action} for event, action in of]


#: Policies of a Volcano Job and of its task, the restart policy of the pods; the TYJob's restart, and by its path what
#: is said of restarts beside that maxRetry isn't counted for the job.
VOLCANO_RESTARTS = [
    # evictions and failures differ
    (policies(("PodEvicted", "RestartJob"), ("PodFailed", "RestartPod")), [], "Never", {"scope": "Job", "limit": 3}, {SPEC: ["a failed pod restarts the whole job, and not only that pod"]}),
    (policies(("PodEvicted", "RestartJob"), ("PodFailed", "RestartTask")), [], "Never", {"scope": "Job", "limit": 3}, {SPEC: ["a failed pod restarts the whole job, and not only the pods of its task"]}),
    (policies(("PodEvicted", "RestartTask"), ("PodFailed", "RestartJob")), [], "Never", {"scope": "Job", "limit": 3}, {SPEC: ["an evicted pod restarts the whole job, and not only the pods of its task"]}),
    (policies(("PodEvicted", "RestartPod"), ("PodFailed", "RestartJob")), [], "Never", {"scope": "Job", "event": "PodFailed", "limit": 3}, {SPEC: ["drained or lost node restarts the whole job too"]}),
    (policies(("PodFailed", "RestartTask")), [], "Never", {"scope": "Set", "event": "PodFailed", "limit": 3}, {SPEC: ["drained or lost node restarts the pods of its task too"]}),
    (policies(("PodEvicted", "RestartJob")), [], "Never", {"scope": "Job", "limit": 0}, {SPEC: ["a failed pod fails the job at once"]}),
    (policies(("PodEvicted", "RestartTask")), [], "Never", {"scope": "Set", "limit": 0}, {}),
    (policies(("PodFailed", "RestartPod")), [], "Never", {"scope": "Worker", "limit": 3}, {}),
    (policies(("*", "RestartJob")), [], "Never", {"scope": "Job", "limit": 3}, {}),
    ([{"events": ["PodFailed", "PodEvicted"], "action": "RestartPartition"}], [], "Never", {"scope": "Set", "limit": 3}, {SPEC: ["groupSize"]}),
    # a failure ends the job
    (policies(("PodEvicted", "RestartJob"), ("PodFailed", "AbortJob")), [], "Never", {"scope": "Job", "limit": 0}, {}),
    (policies(("PodEvicted", "RestartTask"), ("PodFailed", "AbortJob")), [], "Never", {"scope": "Job", "limit": 0}, {SPEC: ["an evicted pod restarts the whole job"]}),
    (policies(("PodFailed", "TerminateJob")), [], "Never", {"scope": "Job", "event": "PodFailed", "limit": 0}, {SPEC: ["drained or lost"]}),
    # kubelets restart containers in place
    (policies(("PodFailed", "RestartJob")), [], "OnFailure", {"scope": "Job", "event": "PodFailed", **IN_PLACE}, {RESTART_POLICY: ["10 times an hour in each pod, then the job fails"], SPEC: ["drained or lost"]}),
    (policies(("PodEvicted", "RestartJob")), [], "OnFailure", {"scope": "Job", **IN_PLACE}, {RESTART_POLICY: ["then the job fails"]}),
    (policies(("PodEvicted", "RestartJob"), ("PodFailed", "RestartPod")), [], "OnFailure", {"scope": "Job", **IN_PLACE}, {RESTART_POLICY: ["then the job fails"], SPEC: ["a failed pod restarts the whole job"]}),
    (policies(("TaskFailed", "AbortJob")), [], "OnFailure", {"scope": "Job", "event": "PodFailed", "limit": 3}, {RESTART_POLICY: ["in place 3 times in each pod, not in the task together; then the job fails (restart.limit)"], SPEC: ["drained or lost"]}),
    (policies(("TaskFailed", "RestartPod")), [], "OnFailure", {"scope": "Worker", "limit": 3}, {RESTART_POLICY: ["then the pod is given up: this isn't followed by a RestartPod"]}),
    (policies(("TaskFailed", "RestartJob")), [], "Never", {"limit": 0}, {}),
    ([], [], "OnFailure", IN_PLACE, {RESTART_POLICY: ["then the pod is given up"]}),
    ([], [], None, IN_PLACE, {RESTART_POLICY: ["exit code 0", "then the pod is given up"]}),
    ([], [], "Never", {"limit": 0}, {}),
    # a policy of the task counts before one of the job with the same event, and the first of a list
    (policies(("PodEvicted", "RestartJob")), policies(("PodFailed", "RestartJob")), "Never", {"scope": "Job", "limit": 3}, {}),
    (policies(("PodFailed", "RestartJob")), policies(("PodFailed", "SyncJob")), "Never", {"limit": 0}, {}),
    (policies(("PodFailed", "RestartPod"), ("PodFailed", "AbortJob")), [], "Never", {"scope": "Worker", "limit": 3}, {}),
    (policies(("PodFailed", "RestartPod")), policies(("PodFailed", "RestartTask")), "Never", {"scope": "Set", "event": "PodFailed", "limit": 3}, {TASK_POLICIES: ["drained or lost"]}),
]  # fmt: skip


@pytest.mark.parametrize(("of_job", "of_task", "kubelet", "restart", "words"), VOLCANO_RESTARTS)
def test_what_a_policy_of_volcano_restarts_restarts_here_or_a_note_says_so(
    of_job: list[Any], of_task: list[Any], kubelet: str | None, restart: dict[str, Any], words: dict[str, list[str]]
) -> None:
    job = with_field(PLAIN, SPEC, of_job)
    job["spec"]["tasks"][0]["policies"] = of_task
    job["spec"]["tasks"][0]["template"]["spec"]["restartPolicy"] = kubelet
    (workers,) = spec_of(job)["workerSets"]
    assert workers["restart"] == restart
    assert workers["template"]["spec"]["restartPolicy"] == ("Never" if kubelet == "Never" else "OnFailure")
    said: dict[str, list[str]] = {}
    for note in conversion(job).notes:
        if note.path in (SPEC, TASK_POLICIES, RESTART_POLICY):
            said.setdefault(note.path, []).append(note.text)
    assert said.keys() == words.keys(), said
    for path, expected in words.items():
        assert len(said[path]) == len(expected), said
        assert all(any(each in text for text in said[path]) for each in expected), said
    counted = "spec.maxRetry" in {note.path for note in conversion(job).notes}
    if not of_task:
        assert counted == any(each["action"].startswith("Restart") for each in of_job)


def test_a_task_of_volcano_that_may_restart_in_place_for_ever_says_what_it_does_here() -> None:
    job = with_field(PLAIN, SPEC, policies(("TaskFailed", "AbortJob")))
    for retries, restart in ((-1, IN_PLACE), (0, {"limit": 3}), (7, {"limit": 7})):
        job["spec"]["tasks"][0]["maxRetry"] = retries
        assert spec_of(job)["workerSets"][0]["restart"] == {"scope": "Job", "event": "PodFailed"} | restart


#: Shape, path of a field, its value; and the path and words of what is said of restarts.
RESTARTS = [
    ("job-pi", "spec.backoffLimit", 0, "spec.backoffLimit", "evictions, drains and lost nodes don't count"),
    ("job-indexed", "spec.backoffLimitPerIndex", 1, "spec.backoffLimitPerIndex", "evictions, drains and lost nodes"),
    ("job-leader", "spec.backoffLimit", None, "spec.backoffLimit", "for each pod alone"),
    ("job-leader", "spec.backoffLimit", 0, "spec.backoffLimit", "is given up: the TYJob fails once the others"),
    ("job-pi", "spec.podFailurePolicy", {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}, "spec.podFailurePolicy.rules[0]", "all counted alike"),
    ("js-server", "spec.failurePolicy", {"maxRestarts": 2}, "spec.replicatedJobs[1].template.spec.template.spec.restartPolicy", "Never: each failure restarts the whole job"),
    ("js-slices", "spec.failurePolicy.maxRestarts", 2, "spec.failurePolicy.maxRestarts", "they restart the whole job too"),
    ("js-initializer", "spec.replicatedJobs.1.template.spec.parallelism", 1, "spec.replicatedJobs[1].template.spec.backoffLimit", "is given up"),
    ("lws-small", "spec.leaderWorkerTemplate.restartPolicy", "None", "spec.leaderWorkerTemplate.restartPolicy", "a leader that failed"),
    ("lws-small", "spec.leaderWorkerTemplate.restartPolicy", "RecreateGroupAfterStart", "spec.leaderWorkerTemplate.restartPolicy", "haven't started"),
    (RC, "spec.rayVersion", "2", "spec.headGroupSpec", "the head is restarted 10 times an hour"),
    (RC, "spec.headGroupSpec.template.spec.restartPolicy", "OnFailure", "spec.headGroupSpec.template.spec.restartPolicy", "not its container in place"),
    (RC, f"{GROUP}.template.spec.restartPolicy", "Always", "spec.workerGroupSpecs[0].template.spec.restartPolicy", "exit code 0 has finished"),
    (RJ, "spec.backoffLimit", 2, "spec.backoffLimit", "evicted, drained or lost"),
    ("pt-elastic", "spec.pytorchReplicaSpecs.Worker.restartPolicy", "Never", "spec.pytorchReplicaSpecs.Worker.restartPolicy", "Kubeflow fails the job"),
    ("mpi-pi", "spec.mpiReplicaSpecs.Worker.restartPolicy", "OnFailure", "spec.mpiReplicaSpecs.Worker.restartPolicy", "restarted 3 times (restartLimit)"),
    ("mpi-pi", "spec.mpiReplicaSpecs.Worker.restartPolicy", "Never", "spec.mpiReplicaSpecs.Worker.restartPolicy", "fails the job at once"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "path", "value", "at", "words"), RESTARTS)
def test_a_restart_that_differs_is_told(shape: str, path: str, value: Any, at: str, words: str) -> None:
    found = conversion(with_field(shape, path, value))
    assert not found.faults
    assert [of for of in found.notes if of.path == at and words in of.text and of.kind != TO_DO], found.notes


def test_restarts_that_a_tyjob_has_too_are_carried_over() -> None:
    jobset = spec_of(with_field("js-server", "spec.failurePolicy", {"maxRestarts": 2}))
    assert [of["restart"] for of in jobset["workerSets"]] == [{"scope": "Job", "limit": 2}] * 2
    assert {of["template"]["spec"]["restartPolicy"] for of in jobset["workerSets"]} == {"Never"}
    kept = made(with_field("lws-small", "spec.leaderWorkerTemplate.restartPolicy", "None"))[0]["spec"]
    assert kept["leader"]["template"]["spec"]["restartPolicy"] == "Always"
    one = with_field("job-pi", f"{JOB_POD}.spec.restartPolicy", "OnFailure")
    one["spec"]["backoffLimit"] = 4
    assert spec_of(one)["workerSets"][0]["restart"] == {"limit": 4}
    assert spec_of(one)["workerSets"][0]["template"]["spec"]["restartPolicy"] == "OnFailure"


def test_a_misspelt_number_of_replicas_hides_no_other_fault() -> None:
    job = with_field(PLAIN, "spec.minAvailable", 9)
    (task,) = job["spec"]["tasks"]
    del task["replicas"]
    limits = {"memory": "16gb", "nvidia.com/gpu": "1.5"}
    task |= {
        "replica": 2,
        "template": {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]}},
    }
    job["apiVersion"] = "batch.volcano.sh/v7"
    found = conversion(job).faults
    at = "spec.tasks[0].template.spec.containers[0].resources.limits"
    assert {path for path, _ in found} == {
        *("apiVersion", "spec.minAvailable", "spec.tasks[0].replica", f"{at}.memory", at)
    }, found
    assert "which are 2" in dict(found)["spec.minAvailable"]


@pytest.mark.parametrize(
    "name", ["job-pi", "vc-plain", "pt-alone", "mpi-pi", RC, "js-driver", "lws-small", "vq-team", "kq-alone", "kq-mine"]
)
def test_an_unknown_version_of_a_known_group_is_a_fault_that_names_the_known(name: str) -> None:
    known = SHAPE[name]["apiVersion"]
    group = known.rpartition("/")[0]
    found = conversion(SHAPE[name] | {"apiVersion": f"{group}/v9"})
    ((path, words),) = found.faults
    assert path == "apiVersion" and f"{group}/v9" in words and known in words and not found.objects


def keyed(name: str, *where: tuple[str, str, str]) -> dict[str, Any]:
    """A shape with labels or annotations: path of the metadata's field, key, value."""
    changed = SHAPE[name]
    for path, key, value in where:
        *above, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
        changed = copy.deepcopy(changed)
        at: Any = changed
        for part in above:
            at = at.setdefault(part, {}) if isinstance(at, dict) else at[part]
        at[last] = (at.get(last) or {}) | {key: value}
    return changed


ANNOTATIONS, TEMPLATE_0 = "metadata.annotations", "spec.tasks.0.template.metadata.annotations"
KEEPS = [
    ("vc-plain", ANNOTATIONS, "volcano.sh/preemptable", "false"),
    ("vc-plain", "metadata.labels", "volcano.sh/preemptable", "0"),
    ("vc-plain", TEMPLATE_0, "volcano.sh/preemptable", "false"),
    ("vc-plain", TEMPLATE_0, "volcano.sh/preemptable", "no truth value"),
    ("job-pi", "spec.template.metadata.labels", "volcano.sh/preemptable", "false"),
    ("job-pi", "spec.template.metadata.annotations", "yunikorn.apache.org/allow-preemption", "false"),
    ("rc-mini", ANNOTATIONS, "volcano.sh/preemptable", "false"),
    ("rc-mini", "spec.headGroupSpec.template.metadata.annotations", "volcano.sh/preemptable", "false"),
    ("pt-policies", ANNOTATIONS, "volcano.sh/preemptable", "false"),
    ("js-slices", ANNOTATIONS, "volcano.sh/preemptable", "false"),
]


@pytest.mark.parametrize(("name", "path", "key", "value"), KEEPS)
def test_pods_that_give_no_room_give_none_as_a_tyjob(name: str, path: str, key: str, value: str) -> None:
    (job,) = made(keyed(name, (path, key, value)))
    assert job["spec"]["preemptible"] is False
    assert key not in json.dumps(job)


def test_what_gives_room_or_says_nothing_is_preemptible() -> None:
    assert "preemptible" not in spec_of(SHAPE["vc-plain"])
    given = keyed("vc-plain", (ANNOTATIONS, "volcano.sh/preemptable", "true"))
    assert "preemptible" not in spec_of(given)
    assert not [note for note in conversion(given).notes if "preemptable" in note.path]


def test_one_task_that_gives_no_room_keeps_the_others_too_and_says_so() -> None:
    key, other = "volcano.sh/preemptable", "spec.tasks.1.template.metadata.annotations"
    mixed = keyed("vc-pytorch", (TEMPLATE_0, key, "true"), (other, key, "false"))
    assert spec_of(mixed)["preemptible"] is False
    said = {note.path for note in conversion(mixed).notes if "holds for the job as a whole" in note.text}
    assert said == {f"spec.tasks[{number}].template.metadata.annotations.{key}" for number in (0, 1)}
    alike = keyed("vc-pytorch", (TEMPLATE_0, key, "false"), (other, key, "false"))
    assert not [note for note in conversion(alike).notes if key in note.path]


#: Shape, field of labels or annotations, key and value; the kind of the note, and some of its words.
READ_BY_SCHEDULERS = [
    ("job-kueue", "metadata.labels", "kueue.x-k8s.io/max-exec-time-seconds", "60", CHANGED, "activeDeadlineSeconds"),
    ("job-kueue", "metadata.labels", "kueue.x-k8s.io/max-exec-time-seconds", "x", LOST, "not a number"),
    ("job-pi", "metadata.labels", "kueue.x-k8s.io/max-exec-time-seconds", "60", LOST, "no effect"),
    ("job-kueue", ANNOTATIONS, "provreq.kueue.x-k8s.io/maxRunDurationSeconds", "60", LOST, "Autoscalers"),
    ("job-pi", ANNOTATIONS, "scheduling.k8s.io/group-name", "g", LOST, "minWorkersNum"),
    ("job-pi", "spec.template.metadata.annotations", "scheduling.k8s.io/group-name", "g", LOST, "minWorkersNum"),
    ("job-pi", "spec.template.metadata.labels", "scheduling.x-k8s.io/pod-group", "g", LOST, "minWorkersNum"),
    ("job-pi", "spec.template.metadata.labels", "yunikorn.apache.org/queue", "root.a", LOST, "spec.queue"),
    ("job-pi", "spec.template.metadata.annotations", "yunikorn.apache.org/task-groups", "[]", LOST, "minCount"),
    ("vc-plain", ANNOTATIONS, "volcano.sh/cooldown-time", "600s", LOST, "minRuntimeSeconds"),
    ("vc-plain", TEMPLATE_0, "volcano.sh/revocable-zone", "*", LOST, "tolerate"),
    ("vc-plain", ANNOTATIONS, "volcano.sh/jdb-min-available", "2", LOST, "preemptible: false"),
    ("vc-plain", ANNOTATIONS, "sla-waiting-time", "1h", LOST, "priority"),
    ("vc-plain", ANNOTATIONS, "volcano.sh/task-topology-affinity", "ps,worker", LOST, "topology"),
    ("vc-plain", TEMPLATE_0, "volcano.sh/numa-topology-policy", "best-effort", LOST, "kubelet"),
    ("vc-plain", TEMPLATE_0, "volcano.sh/qos-level", "-1", LOST, "alike"),
    ("job-kueue", "metadata.labels", "kueue.x-k8s.io/pod-group-name", "g", LOST, "minCount"),
    ("job-kueue", ANNOTATIONS, "kueue.x-k8s.io/job-completions-equal-parallelism", "true", LOST, "kubectl scale"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "path", "key", "value", "kind", "words"), READ_BY_SCHEDULERS)
def test_what_schedulers_read_is_told_and_is_on_no_pod(
    name: str, path: str, key: str, value: str, kind: NoteKind, words: str
) -> None:
    found = conversion(keyed(name, (path, key, value)))
    (note,) = [note for note in found.notes if note.path.endswith(f".{key}")]
    assert note.kind == kind
    assert words in note.text
    assert f'"{key}"' not in json.dumps(found.objects)


def test_the_longest_time_that_kueue_allows_is_a_deadline_beside_the_jobs_own() -> None:
    key = "kueue.x-k8s.io/max-exec-time-seconds"
    limited = keyed("job-kueue", ("metadata.labels", key, "60"))
    assert spec_of(limited)["activeDeadlineSeconds"] == 60
    limited["spec"]["activeDeadlineSeconds"] = 30
    assert spec_of(limited)["activeDeadlineSeconds"] == 30


@pytest.mark.parametrize(
    ("group", "kind", "close"),
    [
        ("kubeflow.org/v1", "PytorchJob", "PyTorchJob"),
        ("ray.io/v1", "RayJobs", "RayJob"),
        ("batch.volcano.sh/v1alpha1", "job", "Job"),
        ("kubeflow.org/v1", "MXJob", ""),
        ("batch/v1", "CronJob", ""),
        ("ray.io/v1", "RayCronJob", ""),
    ],
)
def test_a_misspelt_kind_is_told_apart_from_one_that_is_not_converted(group: str, kind: str, close: str) -> None:
    value = {"apiVersion": group, "kind": kind, "metadata": {"name": "x"}, "spec": {}}
    (found,) = converted(documents("f.yaml", json.dumps(value).encode()))
    if close:
        assert isinstance(found, Conversion)
        assert found.faults == (("kind", f"unknown kind, did you mean {close}?"),)
    else:
        assert isinstance(found, Skipped)


def test_misspelt_replicas_of_a_group_of_ray_are_a_fault_as_those_of_a_task() -> None:
    value = next(of for of in SHAPE.values() if of["kind"] == "RayJob" and "rayClusterSpec" in of["spec"])
    job = copy.deepcopy(value)
    group = job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    group["replica"] = group.pop("replicas")
    path = "spec.rayClusterSpec.workerGroupSpecs[0].replica"
    assert conversion(job).faults == ((path, "unknown field, did you mean replicas?"),)


def test_a_priority_class_of_a_job_must_exist() -> None:
    job = with_field("vc-plain", "spec.priorityClassName", "high")
    [note] = [note for note in conversion(job).notes if note.path == "spec.priorityClassName"]
    assert 'to "use" the PriorityClass high, which must exist, in the namespace' in note.text


def test_a_misspelt_field_is_named_before_what_follows_from_it() -> None:
    job = copy.deepcopy(SHAPE["vc-plain"])
    job["spec"]["tasks"][0]["replica"] = job["spec"]["tasks"][0].pop("replicas")
    assert conversion(job).faults == (("spec.tasks[0].replica", "unknown field, did you mean replicas?"),)
    job["spec"]["tasks"][0] |= {"policies": []}
    del job["spec"]["tasks"][0]["replica"]
    assert [path for path, _ in conversion(job).faults] == ["spec.tasks"]
    job = with_field("vc-plain", "spec.minAvailable", "three")
    job["spec"]["prioritClassName"] = "high"
    found = conversion(job)
    assert [fault for fault in found.faults if "three" in fault[1]] == [
        ("spec.minAvailable", 'Invalid value: "string": must be of type integer, and not "three"')
    ]
    assert [(note.path, note.text) for note in found.notes] == [
        ("spec.prioritClassName", "unknown field, left out, did you mean priorityClassName?")
    ]
    _, _, err = run("-", text=yaml.safe_dump(job))
    assert err.index("prioritClassName") < err.index("minAvailable")


@pytest.mark.parametrize(
    ("policy", "field", "words"),
    [
        ({"event": "PodFaild", "action": "RestartJob"}, "event", "did you mean PodFailed?"),
        ({"events": ["PodEvicted", "PodFaild"], "action": "RestartJob"}, "events", "did you mean PodFailed?"),
        ({"event": "PodFailed", "action": "RestartJobs"}, "action", "did you mean RestartJob?"),
    ],
)
def test_events_and_actions_that_volcano_refuses_are_faults(policy: dict[str, Any], field: str, words: str) -> None:
    ((path, text),) = conversion(with_field("vc-plain", "spec.policies", [policy])).faults
    assert path == f"spec.policies[0].{field}"
    assert words in text


def test_a_gang_of_kuberay_starts_with_all_workers() -> None:
    plain = with_field("rc-mini", "spec.workerGroupSpecs.0.replicas", 3)
    plain["spec"]["workerGroupSpecs"][0] |= {"minReplicas": 1, "maxReplicas": 5}
    assert spec_of(plain)["workerSets"][0]["minCount"] == 1
    how = "of 3 workers, as KubeRay starts it: set minCount to 3 for all or nothing"
    assert f"starts with 1 {how}" in [note.text for note in conversion(plain).notes]
    for label in ({"ray.io/gang-scheduling-enabled": "true"}, {"kueue.x-k8s.io/queue-name": "rl"}):
        plain["metadata"]["labels"] = label
        assert spec_of(plain)["workerSets"][0]["minCount"] == 3
    assert "starts with 3 workers (minCount), as Kueue admits it" in [note.text for note in conversion(plain).notes]
    plain["spec"]["workerGroupSpecs"][0].pop("minReplicas")
    assert spec_of(plain)["workerSets"][0]["minCount"] == 3
    plain["spec"]["enableInTreeAutoscaling"] = True
    assert spec_of(plain)["workerSets"][0]["minCount"] == 0
    assert f"starts with 0 {how}" in [note.text for note in conversion(plain).notes]


RAY_STARTS: list[tuple[dict[str, Any], dict[str, str], str]] = [
    ({"limits": {"google.com/tpu": 4}}, {}, """--resources='{"TPU":4}'"""),
    ({"limits": {"aws.amazon.com/neuroncore": 2}}, {"resources": '{"acc": 1}'}, """--resources='{"acc":1,"neuron_cores":2}'"""),
    ({"limits": {"google.com/tpu": 4}}, {"resources": """'{"TPU": 8}'"""}, """--resources='{"TPU": 8}'"""),
    ({"limits": {"google.com/tpu": 4, "aws.amazon.com/neuroncore": 2}}, {}, """--resources='{"neuron_cores":2}'"""),
    ({"limits": {"google.com/tpu": 0}}, {}, ""),
    ({"limits": {"google.com/tpu": 4}}, {"resources": "no JSON"}, "--resources=no JSON"),
    ({"limits": {"nvidia.com/mig-1g.5gb": 2}}, {}, "--num-gpus=2"),
    ({"limits": {"nvidia.com/gpu": 0, "x.io/vgpu": 3}}, {}, "--num-gpus=3"),
    ({"limits": {"x.io/vgpu": 3, "amd.com/gpu": 1}}, {}, "--num-gpus=1"),
    ({"limits": {"nvidia.com/gpu": 1}}, {"num-gpus": "0"}, "--num-gpus=0"),
    ({"limits": {"cpu": "1500m", "memory": "1Gi"}}, {}, "--num-cpus=2 --memory=1073741824"),
    ({"requests": {"cpu": 3}}, {}, "--num-cpus=3"),
    ({}, {"include-dashboard": "true", "log-color": "False", "no-monitor": "true", "verbose": "false"}, "--include-dashboard=true --log-color=False --no-monitor"),
    ({}, {"metrics-export-port": "9"}, "--metrics-export-port=9"),
]  # fmt: skip


@pytest.mark.parametrize(("resources", "params", "flags"), RAY_STARTS)
def test_ray_starts_with_the_flags_that_kuberay_writes(
    resources: dict[str, Any], params: dict[str, str], flags: str
) -> None:
    cluster = with_field(RC, GROUP + ".rayStartParams", params)
    cluster["spec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["resources"] = resources
    (workers,) = spec_of(cluster)["workerSets"]
    (command,) = workers["template"]["spec"]["containers"][0]["args"]
    given = command.partition("ray start ")[2].removeprefix("--address=$(MASTER_ADDR):6379 ").removesuffix(" --block")
    usual = "" if "metrics-export-port" in params else " --metrics-export-port=8080"
    assert sorted(given.split()) == sorted(f"{flags}{usual}".split())


def test_the_queue_of_kueue_counts_and_the_other_is_said_to_be_left_out() -> None:
    both = with_field("pt-policies", "metadata.labels", {"kueue.x-k8s.io/queue-name": "nlp-lq"})
    both["spec"]["runPolicy"]["schedulingPolicy"]["queue"] = "nlp"
    assert spec_of(both)["queue"] == "nlp-lq"
    said = {note.path: (note.kind, note.text) for note in conversion(both).notes if "queue" in note.path}
    kind, words = said["spec.runPolicy.schedulingPolicy.queue"]
    assert (kind, "the queue nlp-lq of metadata.labels.kueue.x-k8s.io/queue-name counts" in words) == (LOST, True)
    assert [kind for kind, _ in said.values()].count(TO_DO) == 1


def test_the_queue_of_a_volcano_job_counts_before_that_of_a_label() -> None:
    both = with_field("vc-plain", "metadata.annotations", {"volcano.sh/queue-name": "b"})
    both["spec"]["queue"] = "a"
    assert spec_of(both)["queue"] == "a"
    (note,) = [note for note in conversion(both).notes if note.path == "metadata.annotations.volcano.sh/queue-name"]
    assert (note.kind, "the queue a of spec.queue counts" in note.text) == (LOST, True)


@pytest.mark.parametrize(("least", "available", "started"), [(1, 3, 3), (3, 2, 3), (1, 4, None)])
def test_an_elastic_job_with_a_minimum_of_its_gang_starts_with_that(
    least: int, available: int, started: int | None
) -> None:
    job = with_field("pt-elastic", "spec.runPolicy.schedulingPolicy", {"minAvailable": available})
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 4
    job["spec"]["elasticPolicy"] |= {"minReplicas": least, "maxReplicas": 4}
    spec = spec_of(job)
    (workers,) = spec["workerSets"]
    assert (spec.get("minWorkersNum"), workers.get("minCount")) == (started, None if started else 4)
    said = {note.path: note.text for note in conversion(job).notes}
    assert "minAvailable" in said["spec.elasticPolicy.minReplicas"]
    notes = [of.text for of in conversion(job).notes if of.path == "spec.runPolicy.schedulingPolicy.minAvailable"]
    assert notes[-1] == (f"minWorkersNum is {started}" if started else "all workers are needed (minCount)")
    assert (len(notes) == 2) == (available < least)


def test_an_elastic_job_says_what_becomes_of_its_minimums() -> None:
    job = with_field("pt-elastic", "spec.elasticPolicy.minReplicas", 1)
    said = {note.path: note.text for note in conversion(job).notes}
    assert "a worker set needs 1 worker (minCount)" in said["spec.elasticPolicy.minReplicas"]
    assert "spec.elasticPolicy" not in said, "without a leader, PET_NNODES says what Kubeflow's does"
    led = next(name for name, of in SHAPE.items() if "Master" in of["spec"].get("pytorchReplicaSpecs", {}))
    elastic = with_field(led, "spec.elasticPolicy", {"minReplicas": 1, "maxReplicas": 3})
    elastic["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 2
    said = {note.path: note.text for note in conversion(elastic).notes}
    assert "PET_NNODES is 2:4, one more than in Kubeflow: the leader" in said["spec.elasticPolicy"]
    assert '"value": "2:4"' in json.dumps(spec_of(elastic))
    gang = with_field(led, "spec.runPolicy", {"schedulingPolicy": {"minAvailable": 2}})
    gang["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 3
    said = {note.path: note.text for note in conversion(gang).notes}
    assert "minWorkersNum is 1: it doesn't count" in said["spec.runPolicy.schedulingPolicy.minAvailable"]
    assert spec_of(gang)["minWorkersNum"] == 1


def test_a_range_is_told_with_its_bounds_and_nothing_is_said_of_what_cannot_start() -> None:
    led = next(name for name, of in SHAPE.items() if "Master" in of["spec"].get("pytorchReplicaSpecs", {}))
    job = with_field(led, "spec.elasticPolicy", {"minReplicas": 9, "maxReplicas": 4})
    job["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": 2}}
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 3
    found = conversion(job)
    above = "must not be above maxReplicas, which is 4, nor above the replicas of the workers, which are 3, but is 9"
    assert found.faults == (("spec.elasticPolicy.minReplicas", above),)
    assert not [note.text for note in found.notes if "10" in note.text or "start together" in note.text]
    job["spec"]["runPolicy"]["schedulingPolicy"]["minAvailable"] = 5
    job["spec"]["elasticPolicy"]["minReplicas"] = 4
    assert dict(conversion(job).faults) == {
        "spec.elasticPolicy.minReplicas": "must not be above the replicas of the workers, which are 3, but is 4",
        "spec.runPolicy.schedulingPolicy.minAvailable": "must not be above the replicas of all types, which are 4, "
        "but is 5",
    }
    job["spec"]["pytorchReplicaSpecs"]["Wroker"] = job["spec"]["pytorchReplicaSpecs"].pop("Worker")
    assert [path for path, _ in conversion(job).faults] == ["spec.pytorchReplicaSpecs.Wroker"], "nobody knows the sum"


def test_a_maximum_of_torchrun_below_the_replicas_is_not_dropped_in_silence() -> None:
    job = with_field("pt-elastic", "spec.pytorchReplicaSpecs.Worker.replicas", 4)
    said = {note.path: note.text for note in conversion(job).notes}
    assert said["spec.elasticPolicy.maxReplicas"] == "4 workers, as replicas says: PET_NNODES is 1:4"


@pytest.mark.parametrize("kind", ["TFJob", "MPIJob"])
def test_a_minimum_of_a_gang_is_at_most_its_pods(kind: str) -> None:
    name = next(name for name, of in SHAPE.items() if of["kind"] == kind)
    faults = conversion(with_field(name, "spec.runPolicy", {"schedulingPolicy": {"minAvailable": 99}})).faults
    ((path, words),) = faults
    assert path.endswith("minAvailable") and "must not be above the replicas of all types, which are " in words


def test_ranges_of_ray_are_told_by_the_fields_that_are_given() -> None:
    group = "spec.workerGroupSpecs[0]"
    plain = with_field("rc-mini", "spec.workerGroupSpecs.0.replicas", 2)
    plain["spec"]["workerGroupSpecs"][0] |= {"minReplicas": 5, "maxReplicas": 4}
    assert conversion(plain).faults == (
        (f"{group}.minReplicas", "must not be above maxReplicas, which is 4, but is 5"),
    )
    plain["spec"]["workerGroupSpecs"][0]["replicas"] = 6
    assert dict(conversion(plain).faults) == {
        f"{group}.maxReplicas": "must not be below replicas, which is 6, nor below minReplicas, which is 5, but is 4"
    }
    plain["spec"]["workerGroupSpecs"][0] |= {"replicas": 2, "maxReplicas": 5}
    (workers,) = spec_of(plain)["workerSets"]
    assert (workers["counts"], workers["minCount"]) == (5, 5)
    said = {note.path: note.text for note in conversion(plain).notes}
    assert said[f"{group}.replicas"] == "5 workers, as minReplicas says: KubeRay makes no fewer either"


def test_the_deadline_of_one_job_is_said_to_be_that_of_the_whole_tyjob() -> None:
    job = copy.deepcopy(SHAPE["js-slices"])
    first = job["spec"]["replicatedJobs"][0]
    other = copy.deepcopy(first) | {"name": "other"}
    job["spec"]["replicatedJobs"].append(other)
    first["template"]["spec"]["activeDeadlineSeconds"] = 600
    other["template"]["spec"]["activeDeadlineSeconds"] = 900
    assert spec_of(job)["activeDeadlineSeconds"] == 600
    path = "spec.replicatedJobs[{}].template.spec.activeDeadlineSeconds"
    said = [[note.text for note in conversion(job).notes if note.path == path.format(number)] for number in (0, 1)]
    assert all(any("the whole TYJob fails after 600 s" in text for text in texts) for texts in said)
    assert any("the shortest" in text for text in said[1])


def test_templates_of_several_classes_have_one_order() -> None:
    job = with_field("vc-pytorch", "spec.tasks.0.template.spec.priorityClassName", "low")
    job["spec"]["tasks"][1]["template"]["spec"]["priorityClassName"] = "high"  # the master's is the first
    assert spec_of(job)["priorityClassName"] == "high"
    (note,) = [note for note in conversion(job).notes if "the order of jobs follows high" in note.text]
    assert note.path == "spec.tasks[0].template.spec.priorityClassName"


C0 = "spec.template.spec.containers.0"
NODES = [
    ("spec.template.spec.hostNetwork", True, "spec.template.spec.hostNetwork"),
    ("spec.template.spec.hostPID", True, "spec.template.spec.hostPID"),
    ("spec.template.spec.hostIPC", True, "spec.template.spec.hostIPC"),
    ("spec.template.spec.volumes", [{"name": "v", "hostPath": {"path": "/x"}}], "spec.template.spec.volumes[0].hostPath"),
    (f"{C0}.ports", [{"containerPort": 1, "hostPort": 1}], "spec.template.spec.containers[0].ports[0].hostPort"),
    (f"{C0}.securityContext", {"privileged": True}, "spec.template.spec.containers[0].securityContext.privileged"),
    (f"{C0}.securityContext", {"capabilities": {"add": ["KILL", "IPC_LOCK"]}}, "spec.template.spec.containers[0].securityContext.capabilities.add"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "field"), NODES)
def test_pods_with_a_part_of_their_node_need_a_right_of_their_user(path: str, value: Any, field: str) -> None:
    (note,) = [note for note in conversion(with_field("job-pi", path, value)).notes if "needs the right" in note.text]
    assert (note.kind, note.path) == (TO_DO, field)
    assert '"use" tyjobs/hostaccess' in note.text


def test_a_priority_class_needs_a_right_of_its_user_and_what_the_baseline_allows_needs_none() -> None:
    job = with_field("vc-plain", "spec.priorityClassName", "a")
    job["spec"]["tasks"][0]["template"]["spec"]["priorityClassName"] = "b"
    said = {note.path: note.text for note in conversion(job).notes if "needs the right" in note.text}
    assert list(said) == ["spec.priorityClassName", "spec.tasks[0].template.spec.priorityClassName"]
    assert "the PriorityClass a" in said["spec.priorityClassName"]
    harmless = with_field("job-pi", f"{C0}.securityContext", {"capabilities": {"add": ["KILL"]}})
    assert not [note for note in conversion(harmless).notes if "needs the right" in note.text]


def test_a_right_that_several_pods_need_is_told_once() -> None:
    job = with_field("lws-small", "spec.leaderWorkerTemplate.workerTemplate.spec.hostNetwork", True)
    job["spec"]["replicas"] = 3
    assert sum("hostaccess" in note.text for note in conversion(job).notes) == 1


def test_what_needs_a_right_is_what_the_policies_of_the_installation_refuse() -> None:
    policies = (SHAPES.parents[1] / "deploy/base/policies.yaml").read_text()
    allowed = policies.split("capabilities.add.exists(a, !(a in [")[1].split("]")[0]
    assert set(re.findall(r"'([A-Z_]+)'", allowed)) == BASELINE


def test_what_an_autoscaler_reads_of_pods_stays_on_them() -> None:
    key = "cluster-autoscaler.kubernetes.io/safe-to-evict"
    (workers,) = spec_of(keyed("vc-plain", (TEMPLATE_0, key, "false")))["workerSets"]
    assert workers["template"]["metadata"]["annotations"] == {key: "false"}


def test_a_jobset_keeps_its_groups_its_order_and_its_stages() -> None:
    (slices,) = spec_of(SHAPE["js-slices"])["workerSets"]
    assert (slices["counts"], slices["groupSize"], slices["minCount"]) == (2, 2, 2)
    assert slices["restart"] == {"scope": "Job", "limit": 3}
    assert slices["topology"] == {"levels": ["example.com/rack"], "mode": "Required", "within": "Group"}
    driver, workers = spec_of(SHAPE["js-driver"])["workerSets"]
    assert (driver.get("startAfter"), workers["startAfter"]) == (None, "driver")
    first, then = made(SHAPE["js-initializer"])
    assert then["spec"]["after"] == [{"name": first["metadata"]["name"]}]
    assert then["metadata"]["name"] == "js-initializer"


def test_a_server_that_others_need_runs_beside_those_and_not_before_them() -> None:
    template = {"spec": {"template": POD}}
    jobs = [
        {"name": "server", "template": template},
        {"name": "init", "template": template},
        {"name": "train", "template": template, "dependsOn": [{"name": "init", "status": "Complete"}, {"name": "server", "status": "Ready"}]},
    ]  # fmt: skip
    first, then = made(with_field("js-driver", "spec", {"replicatedJobs": jobs}))
    assert [of["name"] for of in first["spec"]["workerSets"]] == ["init"]
    assert [(of["name"], of.get("startAfter")) for of in then["spec"]["workerSets"]] == [
        ("server", None),
        ("train", "server"),
    ]


def test_each_replica_of_a_leader_worker_set_is_a_tyjob() -> None:
    jobs = made(SHAPE["lws-small"])
    assert [of["metadata"]["name"] for of in jobs] == ["lws-small-0", "lws-small-1"]
    assert [of["spec"]["workerSets"][0]["counts"] for of in jobs] == [2, 2]
    (sglang,) = made(SHAPE["lws-sglang"])
    assert "leader-0.lws-sglang:20000" in sglang["spec"]["leader"]["template"]["spec"]["containers"][0]["args"]


def test_amounts_that_a_pod_may_have_as_decimals_are_texts() -> None:
    amounts = {"limits": {"cpu": 0.5, "memory": 1e9}, "requests": {"cpu": 0.25}}
    (workers,) = spec_of(with_field("job-pi", "spec.template.spec.containers.0.resources", amounts))["workerSets"]
    resources = workers["template"]["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"cpu": "0.5", "memory": "1000000000.0"}, "requests": {"cpu": "0.25"}}


def test_a_pod_alone_finds_itself_without_a_host_name_that_nobody_serves() -> None:
    args = ["--init=tcp://pt-alone-master-0:23456"]
    (alone,) = made(with_field("pt-alone", "spec.pytorchReplicaSpecs.Master.template.spec.containers.0.args", args))
    assert alone["spec"]["leader"]["template"]["spec"]["containers"][0]["args"] == ["--init=tcp://localhost:23456"]
    lws = "spec.leaderWorkerTemplate.workerTemplate.spec.containers.0.args"
    for job in made(with_field("lws-leaders", lws, ["lws-leaders-0.lws-leaders", "lws-leaders-1.lws-leaders"])):
        assert "localhost" in job["spec"]["leader"]["template"]["spec"]["containers"][0]["args"]
    head = spec_of(SHAPE["rc-head-only"])["leader"]["template"]["spec"]["containers"][0]
    assert {"name": "FQ_RAY_IP", "value": "127.0.0.1"} in head["env"]


def test_names_fit_into_the_names_of_pods_with_every_suffix() -> None:
    long = "a-very-long-name-of-an-object-that-goes-on-and-on-for-ever"
    for shape in ("lws-small", "js-initializer"):
        names = [of["metadata"]["name"] for of in made(with_field(shape, "metadata.name", long))]
        assert len(names) == len({*names}) == 2


def test_two_objects_of_one_name_are_told_apart() -> None:
    found = converted(documents("f.yaml", json.dumps({"kind": "List", "items": [SHAPE["job-pi"]] * 2}).encode()))
    assert [bool(of.objects) for of in found if isinstance(of, Conversion)] == [True, False]
    assert isinstance(found[1], Conversion)
    assert "another TYJob named job-pi" in found[1].faults[0][1]


# --- queues ------------------------------------------------------------------------------------------------------


def queues(*values: Any) -> dict[str, dict[str, Any]]:
    """The specs of the Queues that come of some objects, by name."""
    found = converted(documents("f.yaml", json.dumps({"kind": "List", "items": [*values]}).encode()))
    assert not [of.faults for of in found if isinstance(of, Conversion) and of.faults]
    made = [of for each in found if isinstance(each, Conversion) for of in each.objects if of["kind"] == "Queue"]
    assert all(validate_queue(of) == [] for of in made)
    assert len({of["metadata"]["name"] for of in made}) == len(made)
    return {of["metadata"]["name"]: of["spec"] for of in made}


def cluster_queue(name: str, cohort: str = "", **quota: Any) -> dict[str, Any]:
    """A ClusterQueue with one resource of one flavor, in the version v1beta2."""
    quotas = [{"name": "x/gpu", **quota}]
    groups = [{"coveredResources": ["x/gpu"], "flavors": [{"name": "f", "resources": quotas}]}]
    spec = {"cohortName": cohort, "namespaceSelector": {}, "resourceGroups": groups}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def flavor(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


def cohort(name: str, parent: str = "", version: str = "v1beta2") -> dict[str, Any]:
    spec = {"parentName" if version == "v1beta2" else "parent": parent}
    return {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": "Cohort", "metadata": {"name": name}, "spec": spec}


def test_a_queue_of_volcano_keeps_its_place_its_amounts_and_its_state() -> None:
    assert queues(SHAPE["vq-capacity"])["vq-capacity"] == {
        "guarantee": {"cpu": 2, "nvidia.com/gpu": 1},
        "deserved": {"cpu": 16, "memory": "64Gi", "nvidia.com/gpu": 4},
        "capability": {"cpu": 32, "memory": "128Gi", "nvidia.com/gpu": 8},
        "reclaimable": True,
    }
    assert queues(SHAPE["vq-team"])["vq-team"] == {
        "parent": "vq-department",
        "weight": 2,
        "deserved": {"cpu": "24500m"},
    }
    assert queues(SHAPE["vq-department"])["vq-department"] == {"deserved": {"cpu": 48}}
    closed = with_field("vq-nodes", "status.state", "Closed")
    assert queues(closed)["vq-nodes"] == {"state": "Closed"}


def test_a_queue_in_volcanos_tree_brings_those_above_it_once() -> None:
    key, weights = "volcano.sh/hierarchy", "volcano.sh/hierarchy-weights"
    first = with_field("vq-annotated", "metadata.annotations", {key: "root/a/b/one", weights: "1/2/3/4"})
    other = with_field("vq-weighted", "metadata.annotations", {key: "root/a/b/other", weights: "1/2/3/5"})
    assert queues(first, other) == {
        "a": {"weight": 2},
        "b": {"parent": "a", "weight": 3},
        "vq-annotated": {"parent": "b", "weight": 4},
        "vq-weighted": {"parent": "b", "weight": 5, "reclaimable": False},
    }
    there = {"apiVersion": first["apiVersion"], "kind": "Queue", "metadata": {"name": "b"}, "spec": {"weight": 9}}
    assert queues(there, first)["b"] == {"weight": 9}
    fractions = with_field("vq-annotated", "metadata.annotations", {key: "root/a/b", weights: "1/2.4/0.2"})
    fractions["spec"] = {"parent": "root"}
    assert queues(fractions) == {"a": {"weight": 2}, "vq-annotated": {"parent": "a"}}
    loop = [
        with_field("vq-weighted", "metadata", {"name": name, "annotations": {key: f"root/{way}/{name}"}})
        for name, way in (("one", "a/b"), ("two", "b/a"))
    ]
    assert set(queues(*loop)) == {"a", "b", "one", "two"}


def test_a_limit_of_one_flavor_that_another_lacks_is_told_as_lost() -> None:
    value = cluster_queue("q", "c", nominalQuota=8, borrowingLimit=0)
    flavors = value["spec"]["resourceGroups"][0]["flavors"]
    flavors.append({"name": "other", "resources": [{"name": "x/gpu", "nominalQuota": 4}]})
    assert "capability" not in queues(value)["q"]
    found = converted(documents("f.yaml", json.dumps(value).encode()))
    [note] = [of for each in found if isinstance(each, Conversion) for of in each.notes if "borrowingLimit" in of.path]
    assert note.kind == LOST and "another flavor of the resource has no such limit" in note.text


def test_a_cluster_queue_is_limited_and_entitled_as_its_quotas_say() -> None:
    assert queues(cluster_queue("q", nominalQuota=8))["q"] == {
        "deserved": {"x/gpu": 8},
        "capability": {"x/gpu": 8},
        "preemption": {"priority": "Never"},
    }
    found = queues(cluster_queue("q", "c", nominalQuota=8, borrowingLimit=4, lendingLimit=6))
    assert found["q"] == {
        "parent": "c",
        "guarantee": {"x/gpu": 2},
        "deserved": {"x/gpu": 8},
        "preemption": {"priority": "Never", "reclaim": "Never"},
    }
    lent = queues(cluster_queue("q", "c", nominalQuota=8, borrowingLimit=4), cluster_queue("r", "c", nominalQuota=8))
    assert lent["q"]["capability"] == {"x/gpu": 12} and lent["c"]["capability"] == {"x/gpu": 16}
    assert found["c"] == {"capability": {"x/gpu": 8}, "namespaces": NO_NAMESPACE}
    assert "capability" not in queues(cluster_queue("q", "c", nominalQuota=8))["q"]
    assert queues(SHAPE["kq-flavors"])["kq-flavors"] == {
        "parent": "kq-institute",
        "guarantee": {"cpu": 8},
        "deserved": {"cpu": 12, "memory": "97656250Ki"},
        "namespaces": {"selector": SHAPE["kq-flavors"]["spec"]["namespaceSelector"]},
        "preemption": {"priority": "Never", "reclaim": "Never"},
    }


def test_who_may_use_a_cluster_queue_may_use_the_queue() -> None:
    none = with_field("kq-alone", "spec.namespaceSelector", None)
    assert queues(none)["kq-alone"]["namespaces"] == NO_NAMESPACE
    assert "state" not in queues(none)["kq-alone"]
    assert "namespaces" not in queues(SHAPE["kq-alone"])["kq-alone"]
    assert queues(with_field("kq-alone", "spec.stopPolicy", "Hold"))["kq-alone"]["state"] == "Closed"


def test_a_cohort_has_what_is_below_it_whether_an_object_stands_for_it_or_not() -> None:
    members = [cluster_queue("a", "low", nominalQuota=3), cluster_queue("b", "low", nominalQuota=4)]
    above = cluster_queue("c", "high", nominalQuota=5)
    assert queues(*members, above) | {"a": 0, "b": 0, "c": 0} == {
        "low": {"capability": {"x/gpu": 7}, "namespaces": NO_NAMESPACE},
        "high": {"capability": {"x/gpu": 5}, "namespaces": NO_NAMESPACE},
        **{name: 0 for name in "abc"},
    }
    for version in ("v1beta1", "v1beta2"):
        found = queues(*members, above, cohort("low", "high", version))
        assert found["low"] == {"parent": "high", "namespaces": NO_NAMESPACE}
        assert found["high"] == {"capability": {"x/gpu": 12}, "namespaces": NO_NAMESPACE}
    pool = cohort("low", "high") | {"kind": "Cohort"}
    quotas = {"nominalQuota": 2, "borrowingLimit": 1, "lendingLimit": 5}
    pool["spec"]["resourceGroups"] = cluster_queue("x", **quotas)["spec"]["resourceGroups"]
    assert queues(*members, pool)["low"] == {
        "parent": "high",
        "guarantee": {"x/gpu": 4},
        "deserved": {"x/gpu": 9},
        "capability": {"x/gpu": 10},
        "namespaces": NO_NAMESPACE,
    }
    loop = queues(cohort("one", "two"), cohort("two", "one"), cluster_queue("q", "one", nominalQuota=1))
    assert [loop[name].get("parent") for name in ("one", "two")] == ["two", "one"]


def test_nobody_may_submit_to_the_queue_of_a_cohort_as_nobody_may_to_a_cohort() -> None:
    """Else a team of one ClusterQueue would have what all of them have together, without the limits of its own."""
    made = queues(cluster_queue("a", "named", nominalQuota=3), cohort("there", "above"))
    labels = {"kubernetes.io/metadata.name": "team-a", "team": "a"}
    for name in ("named", "there", "above"):
        spec = queue_spec({"metadata": {"name": name}, "spec": made[name]})
        assert spec.namespaces is not None
        # Also not one of which no labels are known.
        assert not spec.namespaces.admits("team-a", labels) and not spec.namespaces.admits("team-a", {})


def test_a_job_of_a_local_queue_is_in_the_queue_of_its_cluster_queue() -> None:
    def queue_and_note(*others: Any, namespace: str | None = "n") -> tuple[Any, NoteKind, str]:
        job = with_field("job-kueue", "metadata", {"name": "j", "labels": {"kueue.x-k8s.io/queue-name": "mine"}})
        if namespace:
            job["metadata"]["namespace"] = namespace
        found = converted(
            documents("f.yaml", json.dumps({"kind": "List", "items": [job, *others, flavor("f")]}).encode())
        )
        assert isinstance(found[0], Conversion)
        (note,) = [note for note in found[0].notes if note.path.endswith("queue-name")]
        return found[0].objects[0]["spec"]["queue"], note.kind, note.text

    local = with_field("kq-mine", "metadata", {"name": "mine", "namespace": "n"})
    local["spec"]["clusterQueue"] = "all.gpus"
    queue, kind, words = queue_and_note(local, cluster_queue("all.gpus", nominalQuota=1))
    assert (queue, kind) == ("all-gpus", CHANGED)
    queue, kind, words = queue_and_note(local)
    assert (queue, kind, "arranger queue create all-gpus" in words) == ("all-gpus", TO_DO, True)
    queue, kind, words = queue_and_note()
    assert (queue, kind, "Convert its LocalQueue with it" in words) == ("mine", TO_DO, True)
    queue, kind, words = queue_and_note(local | {"metadata": {"name": "mine", "namespace": "other"}})
    assert (queue, kind, "is of the namespace other" in words) == ("mine", TO_DO, True)
    assert queue_and_note(local, namespace=None)[0] == "mine"


def test_a_job_whose_queue_is_in_the_output_needs_none_to_be_created() -> None:
    job = with_field("vc-plain", "spec.queue", "vq-team")
    (found, _) = converted(documents("f.yaml", json.dumps({"kind": "List", "items": [job, SHAPE["vq-team"]]}).encode()))
    assert isinstance(found, Conversion)
    assert found.objects[0]["spec"]["queue"] == "vq-team"
    assert not [note for note in found.notes if note.path == "spec.queue"]


def test_an_arranger_queue_and_those_of_other_systems_are_left_alone() -> None:
    for version, words in (("arranger.dev/v1", "one already"), ("sqs.services.k8s.aws/v1alpha1", "apply it as it is")):
        (found,) = converted(documents("f.yaml", json.dumps({"apiVersion": version, "kind": "Queue"}).encode()))
        assert isinstance(found, Skipped) and words in found.reason


def test_the_root_of_volcano_becomes_no_queue_and_says_what_it_had() -> None:
    root = with_field("vq-capacity", "metadata.name", "root")
    found = conversion(root)
    assert (found.objects, found.faults) == ((), ())
    assert {"metadata.name", "spec.guarantee", "spec.deserved", "spec.capability"} <= {of.path for of in found.notes}


def test_a_cohort_of_the_name_of_a_cluster_queue_is_refused() -> None:
    items = [cluster_queue("x", nominalQuota=1), cluster_queue("y", "x", nominalQuota=1)]
    found = converted(documents("f.yaml", json.dumps({"kind": "List", "items": items}).encode()))
    assert [bool(of.faults) for of in found if isinstance(of, Conversion)] == [False, True]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_wrong_fields_of_several_queues_never_end_in_a_crash(data: st.DataObject) -> None:
    names = [name for name in SHAPE if name.startswith(("kq-", "vq-"))]
    values = [copy.deepcopy(SHAPE[name]) for name in names]
    for _ in range(data.draw(st.integers(1, 6), label="wrong fields")):
        value = data.draw(st.sampled_from(values), label="shape")
        _, at = data.draw(st.sampled_from([(path, of) for path, of in objects_in(value) if of]), label="at")
        name = data.draw(st.sampled_from(sorted(at)), label="name")
        wrong = [0, -1, "", "text", "kq-lab", "kq-pool", None, {}, {"a": 1}, [], [None], True, 1.5, 1 << 70]
        at[name] = data.draw(st.sampled_from(wrong))
    converted(documents("f.yaml", json.dumps({"kind": "List", "items": values}).encode()))


def test_two_queues_of_one_name_are_told_apart() -> None:
    items = [cluster_queue("a", nominalQuota=1), cohort("a")]
    found = converted(documents("f.yaml", json.dumps({"kind": "List", "items": items}).encode()))
    assert isinstance(found[1], Conversion)
    assert "another Queue named a" in found[1].faults[0][1]


# --- the command ------------------------------------------------------------------------------------------------


def run(*arguments: str, text: str = "") -> tuple[int, str, str]:
    result = CliRunner().invoke(command, arguments, input=text, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.return_value, result.stdout, result.stderr


def test_notes_go_to_standard_error_and_tyjobs_to_standard_output(tmp_path: Path) -> None:
    status, out, err = run("-", text=yaml.safe_dump(SHAPE["job-queue"], sort_keys=False))
    assert status == 0
    assert yaml.safe_load(out)["kind"] == "TYJob"
    assert "standard input:6: spec.parallelism: changed: without completions" in err
    assert err.endswith("1 TYJob of 1 object, 3 notes (3 changed)\n")
    target = tmp_path / "out.yaml"
    assert run("-", "--to", str(target), text=yaml.safe_dump(SHAPE["job-pi"]))[:2] == (0, "")
    assert yaml.safe_load(target.read_text())["metadata"]["name"] == "job-pi"
    assert main(["convert", str(target), "--to", str(target)], prog_name="arranger") == 2


@pytest.mark.parametrize(
    ("of_job", "of_queue", "queue", "kind", "words"),
    [
        ("n", "n", "q", TO_DO, "of the ClusterQueue of this LocalQueue"),
        ("", "", "q", TO_DO, "of the ClusterQueue of this LocalQueue"),
        ("", "default", "q", CHANGED, "counts as one of the namespace default"),
        ("default", "", "q", CHANGED, "counts as one of the namespace default"),
        ("", "n", "mine", TO_DO, "is of the namespace n, and this object names none: set metadata.namespace"),
        ("m", "n", "mine", TO_DO, "is of the namespace n, and this object of m"),
        ("m", "", "mine", TO_DO, "names no namespace, and this object is of m"),
    ],
)
def test_a_local_queue_is_found_by_its_namespace_and_else_the_note_says_why_not(
    of_job: str, of_queue: str, queue: str, kind: NoteKind, words: str
) -> None:
    def named(namespace: str) -> dict[str, str]:
        return {"namespace": namespace} if namespace else {}

    job = with_field(
        "job-kueue", "metadata", {"name": "j", "labels": {"kueue.x-k8s.io/queue-name": "mine"}} | named(of_job)
    )
    local = {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "mine", **named(of_queue)},
        "spec": {"clusterQueue": "q"},
    }  # fmt: skip
    *_, found = converted(documents("f.yaml", yaml.safe_dump_all([local, job]).encode()))
    assert isinstance(found, Conversion)
    assert found.objects[0]["spec"]["queue"] == queue
    said = [(note.kind, note.text) for note in found.notes if note.path.endswith("queue-name")]
    assert [each for each, text in said if words in text] == [kind]
    assert not [text for _, text in said if "Convert its LocalQueue with it" in text]


ONES = [
    ("rc-mini", "spec.enableInTreeAutoscaling", True),
    ("pt-elastic", "spec.pytorchReplicaSpecs.Worker.replicas", 1),
    ("vc-tensorflow", "spec.tasks.0", {"name": "ps", "replicas": 1, "maxRetry": 1, "policies": [{"event": "TaskFailed", "action": "RestartJob"}], "template": POD}),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "path", "value"), ONES)
def test_one_of_something_is_told_in_the_singular(shape: str, path: str, value: Any) -> None:
    texts = [note.text for note in conversion(with_field(shape, path, value)).notes]
    assert [text for text in texts if re.search(r"\b1 (worker|time|pod)\b", text)]
    assert not [text for text in texts if re.search(r"\b1 (worker|time|pod)s", text)]


def in_flavors(
    *flavors: dict[str, Any], names: tuple[str, ...] = ("f",), pod: dict[str, Any] | None = None
) -> tuple[dict[str, Any], list[tuple[NoteKind, str]]]:
    """The pod's spec of a Job whose ClusterQueue has flavors of these names, and the notes on its queue."""
    job = with_field("job-kueue", "metadata", {"name": "j", "labels": {"kueue.x-k8s.io/queue-name": "mine"}})
    job["metadata"]["namespace"] = "n"
    job["spec"]["template"]["spec"] |= pod or {}
    local = {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "mine", "namespace": "n"},
        "spec": {"clusterQueue": "q"},
    }  # fmt: skip
    queue = cluster_queue("q", nominalQuota=8)
    [group] = queue["spec"]["resourceGroups"]
    group["flavors"] = [{**group["flavors"][0], "name": name} for name in names]
    found = converted(
        documents("f.yaml", json.dumps({"kind": "List", "items": [job, local, queue, *flavors]}).encode())
    )
    assert isinstance(found[0], Conversion) and not found[0].faults
    [made] = found[0].objects
    assert validate(made) == []
    said = [(of.kind, of.text) for of in found[0].notes if of.path.endswith("queue-name")]
    return made["spec"]["workerSets"][0]["template"]["spec"], said


TOLERATION = {"key": "spot", "operator": "Exists"}


def test_a_job_whose_queue_has_one_flavor_gets_its_node_selector_and_tolerations() -> None:
    spot = flavor("f", nodeLabels={"price": "spot"}, tolerations=[TOLERATION])
    pod, said = in_flavors(spot)
    assert (pod["nodeSelector"], pod["tolerations"]) == ({"price": "spot"}, [TOLERATION])
    assert said[-1][0] == CHANGED and "of the ResourceFlavor f" in said[-1][1]
    other = {"key": "other", "operator": "Exists"}
    pod, _ = in_flavors(spot, pod={"nodeSelector": {"zone": "a"}, "tolerations": [other, TOLERATION]})
    assert (pod["nodeSelector"], pod["tolerations"]) == ({"zone": "a", "price": "spot"}, [other, TOLERATION])
    pod, said = in_flavors(flavor("f"))
    assert "nodeSelector" not in pod and "tolerations" not in pod and len(said) == 1


def test_a_flavor_that_cannot_be_written_is_told() -> None:
    spot, fast = flavor("f", nodeLabels={"price": "spot"}), flavor("g", nodeLabels={"price": "full"})
    pod, said = in_flavors(spot, fast, names=("f", "g"))
    assert "nodeSelector" not in pod and said[-1][0] == TO_DO and "one of the flavors f, g" in said[-1][1]
    pod, said = in_flavors()
    assert "nodeSelector" not in pod and said[-1][0] == TO_DO and "ResourceFlavor f says" in said[-1][1]
    pod, said = in_flavors(spot, pod={"nodeSelector": {"price": "full"}})
    assert pod["nodeSelector"] == {"price": "full"}
    assert said[-1][0] == TO_DO and "Kueue never starts the object" in said[-1][1]
    wrong = flavor("f", nodeLabels={"price": 3}, tolerations=[{"operator": "None"}])
    assert "tolerations" not in in_flavors(wrong)[0]


def test_queues_and_jobs_are_summed_up_apart() -> None:
    text = yaml.safe_dump_all([SHAPE["kq-lends"], SHAPE["kq-mine"], SHAPE["kq-job"]])
    assert run("-", text=text)[2].endswith(
        "\n2 Queues and 1 TYJob of 3 objects, 11 notes (2 to do, 8 changed, 1 no equivalent); 1 without an equivalent\n"
    )
    assert run("-", text=yaml.safe_dump(SHAPE["vq-weighted"]))[2] == "1 Queue of 1 object, 0 notes\n"


def test_an_object_of_another_kind_is_named_and_the_others_are_converted() -> None:
    text = yaml.safe_dump_all([SHAPE["job-pi"], {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}])
    status, out, err = run("-", text=text)
    assert (status, out.count("kind: TYJob")) == (0, 1)
    assert err.endswith("; 1 of other kinds skipped\n")
    assert "Service s: skipped: apply it as it is" in err
    status, out, _ = run("-", "-o", "json", text=text)
    answer = json.loads(out)
    assert (status, len(answer["objects"]), answer["skipped"][0]["kind"]) == (0, 1, "Service")
    wrong = yaml.safe_dump({"apiVersion": "v1", "metadata": {"name": "n"}})
    status, _, err = run("-", text=f"{text}---\n{wrong}")
    assert status == 1
    assert err.endswith("\n1 TYJob of 3 objects, 1 note (1 changed); 1 not converted; 1 of other kinds skipped\n")


def test_a_shell_completes_files(monkeypatch: pytest.MonkeyPatch) -> None:
    complete = ShellComplete(cli, {}, "arranger", "_ARRANGER_COMPLETE")
    assert [of.type for of in complete.get_completions(["convert"], "tests/c")] == ["file"]


def test_a_file_name_or_a_field_that_is_hostile_reaches_no_terminal() -> None:
    value = with_field("job-pi", "spec.a\x1b[31m", 1)
    assert "\x1b" not in run("-", text=json.dumps(value))[2]


def test_the_page_shows_notes_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SHAPES.parents[1])
    page = Path("docs/convert.md").read_text()
    shown = [line for line in page.splitlines() if line.startswith("tests/convert/")]
    assert len(shown) == 3
    told = run("tests/convert/volcano.yaml")[2].splitlines()
    assert shown == [line for line in told if line in shown] and f"\n{told[-1]}\n" in page


def test_what_is_said_of_many_objects_is_said_once_and_what_is_to_be_done_first() -> None:
    several = [cluster_queue(name, "all", nominalQuota=1) for name in ("a", "b", "c", "d")]
    for of in several:
        of["spec"]["queueingStrategy"] = "StrictFIFO"
    local = with_field("kq-mine", "spec.clusterQueue", "a")
    typo = with_field("job-pi", "spec.paralelism", 3)
    typo["spec"]["completions"] = "many"
    values = [*several, cohort("all"), local, typo, SHAPE["job-pi"] | {"kind": "Pod", "apiVersion": "v1"}]
    given = json.dumps({"kind": "List", "items": values})
    *lines, total = run("-", text=given)[2].splitlines()
    words = [next(of for of in (*WEIGHTS, "skipped") if f": {of}: " in line) for line in lines]
    # A field that nobody knows may be why an object isn't converted.
    assert words[:2] == ["no equivalent", "not converted"] and "paralelism" in lines[0]
    assert words[2:] == sorted(words[2:], key=[*WEIGHTS, "skipped"].index)
    (blocks,) = [line for line in lines if "never blocks" in line]
    assert blocks.endswith(": a job that doesn't fit never blocks those behind it (4 objects: a, b, c and 1 more)")
    (kind,) = [line for line in lines if "flavors[0].name: no equivalent" in line]
    assert "(4 objects: " in kind
    answer = json.loads(run("-", "-o", "json", text=given)[1])
    numbers = [sum(of["note"] == name for of in answer["notes"]) for name in ("toDo", "changed", "noEquivalent")]
    to_do, changed, lost = numbers
    assert sum("StrictFIFO" in of["text"] or "never blocks" in of["text"] for of in answer["notes"]) == 4
    said = f"{sum(numbers)} notes ({to_do} to do, {changed} changed, {lost} no equivalent)"
    assert said in total and len(lines) < sum(numbers)


def test_notes_on_other_fields_or_with_other_words_stay_apart() -> None:
    value = with_field("kq-flavors", "spec.one", 1)
    value["spec"]["other"] = 1
    lines = run("-", text=json.dumps(value))[2].splitlines()
    assert sum("unknown field, left out" in line for line in lines) == 2
    assert next(line for line in lines if "flavors[0].name" in line).endswith("as its ResourceFlavor says (3 places)")


@pytest.mark.parametrize(("least", "told"), [(5, True), (8, True), (9, False), (None, False)])
def test_a_volcano_job_whose_quorum_may_lack_its_learner_says_what_to_set(least: int | None, told: bool) -> None:
    template = {"spec": {"containers": [{"name": "main", "image": "registry.example/main:1"}]}}
    tasks = [{"name": name, "replicas": count, "template": template} for name, count in (("learner", 1), ("actor", 8))]
    job = with_field(PLAIN, "spec.tasks", tasks)
    job["spec"]["minAvailable"] = least
    if least is None:
        del job["spec"]["minAvailable"]
    notes = {of.path: (of.kind, of.text) for of in conversion(job).notes}
    assert ("spec.tasks[0].replicas" in notes) == told and "spec.tasks[1].replicas" not in notes
    if told:
        assert notes["spec.tasks[0].replicas"] == (
            NoteKind.TO_DO,
            f"the quorum of {least} pods may be without it: if the others need it, as a learner, set minCount: 1 of "
            "worker set learner",
        )


def test_a_volcano_task_without_a_minimum_needs_all_its_replicas_beside_one_that_says_its_own() -> None:
    """Volcano's admission gives such a task its replicas as the minimum."""
    template = {"spec": {"containers": [{"name": "main", "image": "registry.example/main:1"}]}}
    tasks = [
        {"name": "master", "replicas": 1, "template": template},
        {"name": "worker", "replicas": 4, "minAvailable": 2, "template": template},
    ]
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "bert"},
        "spec": {"minAvailable": 3, "schedulerName": "volcano", "tasks": tasks},
    }
    made = yaml.safe_load(run("-", text=yaml.safe_dump(job))[1])["spec"]
    assert made["minWorkersNum"] == 3
    assert {each["name"]: each.get("minCount") for each in made["workerSets"]} == {"master": 1, "worker": 2}
