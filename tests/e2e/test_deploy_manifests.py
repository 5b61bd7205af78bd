"""deploy/ on a real API server: it is accepted, and each process works with exactly the rights given there."""

import asyncio
import contextlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from arranger.cli.main import COMMANDS
from arranger.events.kinds import OF_DEVICES, OF_VOLUMES, Watched
from arranger.kube.client import HttpCluster
from arranger.kube.cluster import RESOURCE_CLAIMS, ApiError
from arranger.kube.config import find_access
from arranger.kube.sources import SOURCES
from arranger.model.pod import GroupKind
from arranger.sandbox.nodes import NodeTemplate
from arranger.settings import Settings, load_settings
from arranger.workers.members.membership import ROLES
from tests.e2e.harness import (
    Kubelets,
    Worker,
    apply,
    await_stage,
    eventually,
    finish_leader,
    job,
    kubelets,
    pod_template,
    pods_of,
    status_of,
)
from tests.helm import NAMESPACE, Objects, of_kind, relative
from tests.pod_groups import (
    CUSTOM,
    TRAINING,
    definition,
    job_definition,
    owned,
    pod_group,
    training_definition,
    training_job,
    volcano_job,
)
from tests.provisioning import DEFINITION, condition
from tests.servers import MERGE, REPOSITORY, RealKube, RealRedis, documents
from tests.unit.queue_table import queue

DEPLOY = REPOSITORY / "deploy"
ACCOUNTS = ("arranger-watcher", "arranger-decider", "arranger-applier")
REQUEST = re.compile(r'arranger_api_requests_total\{code="(\d+)",resource="(\w+)",verb="(\w+)"\}')

REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests"
SERVICES = "/api/v1/namespaces/default/services"


def rendered(kube: RealKube, folder: Path) -> Objects:
    """The output of `kubectl kustomize` for a folder."""
    return documents(kube.kubectl("kustomize", str(folder)).stdout)


def component(folder: Path, name: str) -> Path:
    """A kustomization with nothing but a component of deploy/."""
    own = folder / name
    own.mkdir()
    parts = {"components": [relative(DEPLOY / name, own)]}
    (own / "kustomization.yaml").write_text(yaml.safe_dump(parts))
    return own


def pod_spec(deployment: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


@pytest.fixture(scope="module")
def deployed(kube_server: RealKube) -> Objects:
    """The objects of deploy/."""
    return rendered(kube_server, DEPLOY)


@pytest.fixture(scope="module")
def installed(kube_server: RealKube, deployed: Objects) -> Iterator[Objects]:
    """Apply deploy/, and delete it at the end except for the TYJob definition and the namespace."""
    kube_server.kubectl("apply", "-k", str(DEPLOY))
    yield deployed
    leaving = [item for item in deployed if item["kind"] not in ("CustomResourceDefinition", "Namespace")]
    kube_server.kubectl("delete", "--wait=false", "-f", "-", stdin=yaml.safe_dump_all(leaving))


def account_kubeconfig(kube: RealKube, account: str, folder: Path) -> Path:
    """A kubeconfig with a token of a ServiceAccount."""
    document = yaml.safe_load(kube.kubeconfig.read_text())
    token = kube.kubectl("create", "token", account, "--namespace", NAMESPACE).stdout.strip()
    document["users"][0]["user"] = {"token": token}
    path = folder / f"{account}-kubeconfig"
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    return path


def deployed_worker(kube: RealKube, redis: RealRedis, deployment: dict[str, Any], folder: Path) -> Worker:
    """A process with a Deployment's arguments and its account's token; without access if no token is mounted."""
    spec = pod_spec(deployment)
    arguments = [*spec["containers"][0]["args"][1:], "--redis", redis.url, "--http-port", "0"]
    if spec["automountServiceAccountToken"]:
        arguments += ["--kubeconfig", str(account_kubeconfig(kube, spec["serviceAccountName"], folder))]
    environment = {"HOME": str(folder), "KUBECONFIG": "", "KUBERNETES_SERVICE_HOST": ""}
    return Worker(deployment["metadata"]["name"], arguments, folder=folder, environment=environment)


def granted(objects: Objects, account: str) -> set[tuple[str, str]]:
    """(verb, resource) of each right in an account's ClusterRoles, without those that only admission needs."""
    roles = of_kind(objects, "ClusterRole")
    rules = [rule for name in (account, f"{account}-provisioning") for rule in roles.get(name, {}).get("rules", [])]
    resources = {(verb, resource) for rule in rules for verb in rule["verbs"] for resource in rule["resources"]}
    return {(verb, resource.partition("/")[0]) for verb, resource in resources - {("update", "tyjobs/finalizers")}}


def asked(worker: Worker) -> dict[tuple[str, str], set[int]]:
    """The requests of a process to the API server: (verb, resource) → response codes."""
    found: dict[tuple[str, str], set[int]] = {}
    for sample in worker.metrics():
        match = REQUEST.fullmatch(sample)
        if match:
            found.setdefault((match[3], match[2]), set()).add(int(match[1]))
    return found


def test_jobs_run_through_with_the_rights_of_deploy_and_every_right_is_used(
    kube: RealKube, redis: RealRedis, installed: Objects, tmp_path: Path
) -> None:
    deployments = of_kind(installed, "Deployment")
    workers = {name: deployed_worker(kube, redis, item, tmp_path) for name, item in deployments.items()}
    provisioning = rendered(kube, component(tmp_path, "provisioning"))
    apply(
        kube, *map(definition, CUSTOM), job_definition(), *map(training_definition, TRAINING), DEFINITION, *provisioning
    )
    try:
        for worker in workers.values():
            worker.start()
        with kubelets(kube, NodeTemplate("n1", cpu="8"), NodeTemplate("n2", cpu="8")) as nodes:
            for worker in workers.values():
                worker.wait_ready()
            # A foreign pod has the name of one of ours: Arranger reads it, leaves it alone, and reports it.
            stranger = {"containers": [{"name": "main", "image": "stranger:1"}]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "taken-learner-0"}, "spec": stranger}
            kube.request("POST", "/api/v1/namespaces/default/pods", pod)
            apply(kube, job("free", run_s=1), job("taken", run_s=1))
            await_stage(kube, "Succeeded", "free")
            eventually("the taken name is told", lambda: "exists" in status_of(kube, "taken").get("message", ""))
            kube.request("DELETE", "/api/v1/namespaces/default/pods/taken-learner-0?gracePeriodSeconds=0")
            await_stage(kube, "Succeeded", "taken")
            # The same applies to a foreign Service.
            taken = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "served-learner"}}
            kube.request("POST", SERVICES, {**taken, "spec": {"clusterIP": "None"}})
            served = job("served")
            served["spec"]["leaderService"] = True
            served["spec"]["workerSets"][0]["rendezvous"] = {"membersFile": True}
            apply(kube, served)
            eventually("the taken name is told", lambda: "a service" in status_of(kube, "served").get("message", ""))
            kube.request("DELETE", f"{SERVICES}/served-learner")
            await_stage(kube, "Running", "served")
            # Another worker in its place is a change of the members file, however late that was first written.
            kube.kubectl("wait", "--for=create", "pod/served-actors-0", "--timeout=60s")
            kube.kubectl("delete", "pod", "served-actors-0", "--wait=false")
            applier = workers["arranger-applier"]
            eventually("the members file changes", lambda: ("patch", "configmaps") in asked(applier))
            finish_leader(kube, "served")
            await_stage(kube, "Succeeded", "served")
            apply(kube, queue("team"))
            kube.kubectl("wait", "--for=condition=Ready", "queue/team", "--timeout=60s")
            never = job("waits", workers=0)
            resources = never["spec"]["leader"]["template"]["spec"]["containers"][0]["resources"]
            resources |= {"limits": {"nvidia.com/gpu": "1"}}
            apply(kube, never)
            eventually("it is told why it waits", lambda: "gpu" in status_of(kube, "waits").get("message", ""))
            # A PodGroup of each kind that is there is observed, and those of jobs for Arranger are let in.
            apply(kube, *[pod_group("few", kind, 1) for kind in CUSTOM])
            let_in(kube, *OWNERS)
            ask_for_a_node(kube, nodes)
            show_placeholders(kube, nodes)
            # A pod of others is bound, and another one is told why it waits.
            for name, cpu in (("bound", "1"), ("large", "100")):
                spec = pod_template(cpu=cpu)["spec"] | {"schedulerName": "arranger"}
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
                kube.request("POST", "/api/v1/namespaces/default/pods", pod)
            kube.kubectl("wait", "--for=condition=Ready", "pod/bound", "--timeout=60s")
            kube.kubectl("wait", "--for=condition=PodScheduled=False", "pod/large", "--timeout=60s")
            kube.kubectl("delete", "pod", "bound", "large")
            kube.kubectl("taint", "nodes", "n1", "n2", "closed=yes:NoSchedule")
            eventually("the reason changes", lambda: "taint closed" in status_of(kube, "waits").get("message", ""))
            eventually("ended jobs' pods are cleaned up", lambda: not pods_of(kube, "free") + pods_of(kube, "taken"))
            kube.kubectl("patch", "tyj", "free", "--type=merge", "-p", '{"spec":{"ttlSecondsAfterFinished":0}}')
            eventually("an ended job goes when its time is over", lambda: "free" not in jobs_there(kube))
        events = kube.request("GET", "/api/v1/namespaces/default/events")[1]["items"]
        assert {"free", "taken"} <= {item["involvedObject"]["name"] for item in events}
        for name, worker in workers.items():
            account = pod_spec(deployments[name])["serviceAccountName"]
            requests = asked(worker)
            assert set(requests) == granted([*installed, *provisioning], account), name
            assert not any(403 in codes for codes in requests.values()), requests
            assert worker.stop() == 0
    finally:
        for worker in workers.values():
            worker.close()
        kube.kubectl("delete", "--wait=false", "-f", "-", stdin=yaml.safe_dump_all(provisioning))
        kube.kubectl("delete", "podtemplates", "--all")
        kinds = ",".join(dict.fromkeys(kind_of(one) for one in OWNERS))
        kube.kubectl("delete", kinds, "--all", "--ignore-not-found")
        kube.kubectl("delete", "podgroups.scheduling.volcano.sh", "--all", "--ignore-not-found")


#: The owners of PodGroups that are read: jobs whose operators make no pods before their group was let in.
OWNERS = [
    volcano_job("lets", "arranger"),
    *[training_job(f"lets-{of.kind.lower()}", "arranger", of) for of in TRAINING],
]


def kind_of(owner: dict[str, Any]) -> str:
    return f"{owner['kind'].lower()}s.{owner['apiVersion'].partition('/')[0]}"


def let_in(kube: RealKube, *owners: dict[str, Any]) -> None:
    """The PodGroup of each job whose scheduler is Arranger gets the phase in which its operator makes its pods."""
    apply(kube, *owners)
    for owner in owners:
        name = owner["metadata"]["name"]
        of_job = json.loads(kube.kubectl("get", kind_of(owner), name, "-o", "json").stdout)
        apply(kube, owned(pod_group(name, GroupKind.VOLCANO, 2), of_job))
    for owner in owners:
        which = f"podgroups.scheduling.volcano.sh/{owner['metadata']['name']}"
        kube.kubectl("wait", "--for=jsonpath={.status.phase}=Inqueue", which, "--timeout=60s")


def ask_for_a_node(kube: RealKube, nodes: Kubelets) -> None:
    """A job of a queue that says so asks an autoscaler for its only node, runs there, and takes the request back."""
    apply(kube, {**queue("cloud"), "spec": {"provisioning": "Request"}})
    asks = job("asks", workers=0, run_s=0.5)
    asks["spec"] |= {"queue": "cloud"}
    asks["spec"]["leader"]["template"]["spec"]["nodeSelector"] = {"pool": "cloud"}
    apply(kube, asks)
    kube.kubectl("wait", "--for=create", "podtemplate", "-l", "arranger.dev/request=1", "--timeout=60s")
    (request,) = kube.request("GET", REQUESTS)[1]["items"]
    name = request["metadata"]["name"]
    kube.request("PATCH", f"{REQUESTS}/{name}/status", condition("Provisioned"), content_type=MERGE)
    eventually("the answer is told", lambda: "has provided nodes" in status_of(kube, "asks").get("message", ""))
    nodes.add(NodeTemplate("n3", cpu="8", labels={"pool": "cloud"}))
    (pod,) = eventually("it has its pod", lambda: pods_of(kube, "asks"))
    assert pod["metadata"]["annotations"]["autoscaling.x-k8s.io/consume-provisioning-request"] == name
    await_stage(kube, "Succeeded", "asks")
    eventually("the request is taken back", lambda: not kube.request("GET", REQUESTS)[1]["items"])
    kube.kubectl("delete", "queue", "cloud")  # other tests have this API server too


def show_placeholders(kube: RealKube, nodes: Kubelets) -> None:
    """A job of a queue that says so shows an autoscaler its only pod, and runs once the node is there."""
    apply(kube, {**queue("seen"), "spec": {"provisioning": "Pending"}})
    shows = job("shows", workers=0, run_s=0.5)
    shows["spec"] |= {"queue": "seen"}
    shows["spec"]["leader"]["template"]["spec"]["nodeSelector"] = {"pool": "seen"}
    apply(kube, shows)
    chosen = ("pod", "-l", "arranger.dev/holds-for")
    kube.kubectl("wait", "--for=create", *chosen, "--timeout=60s")
    kube.kubectl("wait", "--for=condition=PodScheduled=False", *chosen, "--timeout=60s")
    (name,) = kube.kubectl("get", *chosen, "-o", "name").stdout.split()
    reason = '{.status.conditions[?(@.type=="PodScheduled")].reason}'
    assert kube.kubectl("get", name, "-o", f"jsonpath={reason}").stdout == "Unschedulable"
    nodes.add(NodeTemplate("n4", cpu="8", labels={"pool": "seen"}))
    await_stage(kube, "Succeeded", "shows")
    eventually("its placeholder is gone", lambda: not kube.kubectl("get", *chosen, "-o", "name").stdout.split())
    kube.kubectl("delete", "queue", "seen")


def jobs_there(kube: RealKube) -> list[str]:
    """The names of all TYJobs."""
    return [name.partition("/")[2] for name in kube.kubectl("get", "tyj", "-o", "name").stdout.split()]


def may(kube: RealKube, account: str, verb: str, group: str, resource: str) -> bool:
    """Whether an account has a right in every namespace; `resource` may name a subresource."""
    kind, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": kind, "subresource": subresource}
    review = {"spec": {"user": f"system:serviceaccount:{NAMESPACE}:{account}", "resourceAttributes": attributes}}
    answer = kube.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)[1]
    allowed: bool = answer["status"]["allowed"]
    return allowed


def test_no_account_may_read_secrets_or_raise_its_own_rights(kube: RealKube, installed: Objects) -> None:
    account = f"--as=system:serviceaccount:{NAMESPACE}:arranger-applier"
    answers = [
        kube.kubectl("auth", "can-i", *right, "--all-namespaces", account, check=False).stdout.strip()
        for right in (["create", "pods"], ["get", "secrets"])
    ]
    assert answers == ["yes", "no"]
    never = [("*", "*", "*"), ("impersonate", "", "users"), ("escalate", "rbac.authorization.k8s.io", "clusterroles")]
    never += [(verb, "", "secrets") for verb in ("get", "list", "watch", "create", "update", "patch", "delete")]
    never += [("create", "", kind) for kind in ("serviceaccounts/token", "pods/exec", "pods/attach")]
    never += [("create", "rbac.authorization.k8s.io", kind) for kind in ("clusterroles", "clusterrolebindings")]
    never += [(verb, "arranger.dev", "tyjobs") for verb in ("create", "update", "patch")]
    never += [(verb, "", "configmaps") for verb in ("list", "watch", "update", "delete")]
    never += [("patch", "", "pods"), ("patch", "", "nodes"), ("get", "", "nodes/proxy")]
    assert [(account, *right) for account in ACCOUNTS for right in never if may(kube, account, *right)] == []
    deleting = [account for account in ACCOUNTS if may(kube, account, "delete", "arranger.dev", "tyjobs")]
    assert deleting == ["arranger-applier"]


def rights_on(kube: RealKube, kinds: Iterable[Watched], *subresources: str) -> set[tuple[str, str, str]]:
    """(Account, verb, resource) of every right on these kinds and subresources of resource claims."""
    verbs = ("get", "list", "watch", "create", "update", "patch", "delete")
    resources = [(SOURCES[kind].resource.group, SOURCES[kind].resource.plural) for kind in kinds]
    resources += [(RESOURCE_CLAIMS.group, f"{RESOURCE_CLAIMS.plural}/{of}") for of in subresources]
    asked = itertools.product(ACCOUNTS, verbs, resources)
    return {
        (account, verb, plural) for account, verb, (group, plural) in asked if may(kube, account, verb, group, plural)
    }


def may_watch(kinds: Iterable[Watched]) -> set[tuple[str, str, str]]:
    return {("arranger-watcher", verb, SOURCES[kind].resource.plural) for verb in ("list", "watch") for kind in kinds}


@contextlib.contextmanager
def given_rights(kube: RealKube, rights: str) -> Iterator[None]:
    kube.kubectl("apply", "-f", "-", stdin=rights)
    try:
        yield
    finally:
        kube.kubectl("delete", "--wait=false", "-f", "-", stdin=rights)


def test_only_the_component_for_volumes_gives_the_rights_that_its_setting_needs(
    kube: RealKube, installed: Objects
) -> None:
    assert rights_on(kube, OF_VOLUMES) == set()
    with given_rights(kube, (DEPLOY / "volumes" / "rights.yaml").read_text()):
        patches = {("arranger-applier", "patch", "persistentvolumeclaims")}
        assert rights_on(kube, OF_VOLUMES) == may_watch(OF_VOLUMES) | patches


def test_only_the_component_for_devices_gives_the_rights_that_its_setting_needs(
    kube: RealKube, installed: Objects
) -> None:
    parts, kinds = ("status", "binding", "driver"), (*OF_DEVICES, Watched.RESOURCE_CLAIM_TEMPLATE)
    assert rights_on(kube, kinds, *parts) == set()
    with given_rights(kube, (DEPLOY / "devices" / "rights.yaml").read_text()):
        applier = {("get", "deviceclasses"), ("get", "resourceclaimtemplates")}
        applier |= {(verb, "resourceclaims") for verb in ("get", "patch", "create", "delete")}
        applier |= {("patch", "resourceclaims/status"), ("patch", "resourceclaims/binding")}
        expected = may_watch(kinds) | {("arranger-applier", *right) for right in applier}
        assert rights_on(kube, kinds, *parts) == expected


def test_the_applier_and_nobody_else_may_evict_pods(kube: RealKube, installed: Objects, tmp_path: Path) -> None:
    """Only the setting `evict` needs that right."""

    async def evicted(account: str, uid: str) -> int:
        cluster = HttpCluster(find_access(account_kubeconfig(kube, account, tmp_path)))
        try:
            await cluster.evict("default", "victim", uid=uid)
        except ApiError as refused:
            return refused.code
        finally:
            await cluster.close()
        return 0

    spec = {"containers": [{"name": "main", "image": "victim:1"}], "nodeName": "n1"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "victim"}, "spec": spec}
    uid = kube.request("POST", "/api/v1/namespaces/default/pods", pod)[1]["metadata"]["uid"]
    codes = {account: asyncio.run(evicted(account, uid)) for account in ACCOUNTS}
    assert codes == {"arranger-watcher": 403, "arranger-decider": 403, "arranger-applier": 0}
    kube.request("DELETE", "/api/v1/namespaces/default/pods/victim?gracePeriodSeconds=0", check=False)


def test_the_applier_and_nobody_else_may_bind_pods(kube: RealKube, installed: Objects) -> None:
    of_groups = [("patch", "scheduling.volcano.sh", "podgroups"), ("patch", "scheduling.k8s.io", "podgroups/status")]
    for right in (("create", "", "pods/binding"), ("patch", "", "pods/status"), *of_groups):
        assert [account for account in ACCOUNTS if may(kube, account, *right)] == ["arranger-applier"]


def test_the_overlay_with_redis_is_accepted_as_well(kube: RealKube, installed: Objects) -> None:
    answer = kube.kubectl("apply", "--dry-run=server", "-k", str(DEPLOY / "with-redis")).stdout
    assert "statefulset.apps/arranger-redis created" in answer


def test_the_pods_of_deploy_meet_the_restricted_standard_of_their_namespace(kube: RealKube, installed: Objects) -> None:
    templates = of_kind(installed, "Deployment") | of_kind(rendered(kube, DEPLOY / "with-redis"), "StatefulSet")
    assert set(templates) == {*ACCOUNTS, "arranger-redis"}
    for name, item in templates.items():
        # Create the pod as its controller would: admission refuses it if it violates the standard.
        spec = dict(pod_spec(item))
        if name == "arranger-redis":
            spec["volumes"] = [{"name": "data", "emptyDir": {}}]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        kube.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All", pod)
        assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_every_role_is_deployed_once_and_may_drain_before_it_is_killed(deployed: Objects) -> None:
    deployments = of_kind(deployed, "Deployment").values()
    roles = [role for item in deployments for role in pod_spec(item)["containers"][0]["args"][1:]]
    assert sorted(roles) == sorted(ROLES)
    for item in deployments:
        # The ticks and then the tasks each get drain_s.
        assert pod_spec(item)["terminationGracePeriodSeconds"] > 2 * Settings().drain_s
        assert pod_spec(item)["enableServiceLinks"] is False


def test_the_settings_of_deploy_are_settings_and_fit_its_ports_and_probes(deployed: Objects) -> None:
    settings = load_settings({}, of_kind(deployed, "ConfigMap")["arranger-settings"]["data"])
    ports = {port["containerPort"] for item in of_kind(deployed, "Deployment").values() for port in ports_of(item)}
    assert ports == {settings.http_port}
    assert settings.http_host == "0.0.0.0"


def test_services_budgets_and_monitors_choose_the_pods_that_they_are_for(deployed: Objects) -> None:
    labels = {
        name: item["spec"]["template"]["metadata"]["labels"] for name, item in of_kind(deployed, "Deployment").items()
    }
    monitor = yaml.safe_load((DEPLOY / "podmonitor" / "podmonitor.yaml").read_text())["spec"]

    def chosen(selector: dict[str, str]) -> set[str]:
        return {name for name, held in labels.items() if selector.items() <= held.items()}

    for name, budget in of_kind(deployed, "PodDisruptionBudget").items():
        assert chosen(budget["spec"]["selector"]["matchLabels"]) == {name}
    assert chosen(of_kind(deployed, "Service")["arranger-metrics"]["spec"]["selector"]) == set(ACCOUNTS)
    assert chosen(monitor["selector"]["matchLabels"]) == set(ACCOUNTS)
    names = {port["name"] for item in of_kind(deployed, "Deployment").values() for port in ports_of(item)}
    assert {endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]} <= names


def test_the_monitor_can_be_added_to_a_kustomization_of_ones_own(kube: RealKube, tmp_path: Path) -> None:
    # Kustomize requires relative paths.
    own = {"resources": [relative(DEPLOY, tmp_path)], "components": [relative(DEPLOY / "podmonitor", tmp_path)]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    assert "arranger" in of_kind(rendered(kube, tmp_path), "PodMonitor")


def test_the_alerts_and_the_board_can_be_added_to_a_kustomization_of_ones_own(kube: RealKube, tmp_path: Path) -> None:
    components = [relative(DEPLOY / name, tmp_path) for name in ("alerts", "board")]
    own = {"resources": [relative(DEPLOY, tmp_path)], "components": components}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    found = rendered(kube, tmp_path)
    rules = of_kind(found, "PrometheusRule")["arranger"]
    assert rules["spec"] == yaml.safe_load((DEPLOY / "alerts" / "rules.yaml").read_text())["spec"]
    board = of_kind(found, "ConfigMap")["arranger-board"]
    assert board["data"] == {"arranger.json": (DEPLOY / "board" / "arranger.json").read_text()}
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_the_webhooks_process_is_accepted_scraped_and_let_out(
    kube_server: RealKube, installed: Objects, tmp_path: Path
) -> None:
    components = [relative(DEPLOY / name, tmp_path) for name in ("webhook", "network")]
    own = {"resources": [relative(DEPLOY, tmp_path)], "components": components}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    added = [item for item in rendered(kube_server, tmp_path) if item["metadata"]["name"] == "arranger-webhook"]
    tried = kube_server.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(added))
    assert "deployment.apps/arranger-webhook created" in tried.stdout
    assert "Warning" not in tried.stderr  # the namespace's pod security standard is restricted
    deployment = of_kind(added, "Deployment")["arranger-webhook"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    metrics = of_kind(installed, "Service")["arranger-metrics"]["spec"]["selector"]
    policies = of_kind(rendered(kube_server, tmp_path), "NetworkPolicy")
    let_out = policies["arranger-to-webhook"]["spec"]["podSelector"]["matchLabels"]
    assert metrics.items() <= labels.items() and let_out.items() <= labels.items()
    assert pod_spec(deployment)["containers"][0]["args"][0] in COMMANDS


def test_each_deployment_connects_as_its_own_redis_user_with_that_component(kube: RealKube, tmp_path: Path) -> None:
    own = {"resources": [relative(DEPLOY, tmp_path)], "components": [relative(DEPLOY / "redis-users", tmp_path)]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    plain, found = rendered(kube, DEPLOY), rendered(kube, tmp_path)
    for name in ACCOUNTS:
        before, after = (
            {one["name"]: one["valueFrom"]["secretKeyRef"] for one in pod_spec(item)["containers"][0]["env"]}
            for item in (of_kind(plain, "Deployment")[name], of_kind(found, "Deployment")[name])
        )
        assert before["ARRANGER_REDIS_URL"] == {"name": "arranger-redis", "key": "url"}
        assert after == before | {"ARRANGER_REDIS_URL": {"name": "arranger-redis", "key": name.split("-")[1]}}
        assert after["ARRANGER_LOG_KEY"] == {"name": "arranger-log-key", "key": "keys", "optional": True}


def test_the_settings_patch_of_the_document_reaches_the_config_map(kube: RealKube, tmp_path: Path) -> None:
    text = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")
    (own,) = [block for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "patches:" in block]
    own = own.replace("arranger/deploy", relative(DEPLOY, tmp_path))
    (tmp_path / "kustomization.yaml").write_text(own)
    settings = load_settings({}, of_kind(rendered(kube, tmp_path), "ConfigMap")["arranger-settings"]["data"])
    assert (settings.queue_policy, settings.lost_node_s, settings.http_host) == ("DRF", 120, "0.0.0.0")


def ports_of(deployment: dict[str, Any]) -> list[dict[str, Any]]:
    ports: list[dict[str, Any]] = pod_spec(deployment)["containers"][0]["ports"]
    return ports


def test_the_definitions_can_be_applied_by_themselves(kube: RealKube) -> None:
    answer = kube.kubectl("apply", "--dry-run=server", "-f", str(REPOSITORY / "crds")).stdout
    made = re.findall(r"customresourcedefinition\S+/(\w+).arranger.dev \w+ \(server dry run\)", answer)
    assert sorted(made) == ["clusterlogs", "queues", "tyjobs"]
