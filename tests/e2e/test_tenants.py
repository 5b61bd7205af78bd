"""Who applies a TYJob needs the rights to all that its pods get: the policies of deploy/ on a real API server.

Users are impersonated, which gives requests their names, groups and rights, and none of the administrator's. Every
refusal is told by its message, which only one rule has.
"""

import copy
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.harness import arranger, eventually, fleet
from tests.servers import REPOSITORY, RealKube, RealRedis, documents

DEPLOY = REPOSITORY / "deploy"
POLICIES = DEPLOY / "base" / "policies.yaml"
RECORDING = DEPLOY / "created-by" / "policy.yaml"
EDIT, ACCOUNTS, CLASSES, HOST = (
    "arranger-tyjobs-edit", "arranger-serviceaccounts-use", "arranger-priorityclasses-use", "arranger-host-access",
)  # fmt: skip
PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
CREATED_BY, GROUPS = "arranger.dev/created-by", "arranger.dev/created-by-groups"

Body = dict[str, Any]


def template(**spec: Any) -> Body:
    return {"spec": {"containers": [{"name": "main", "image": "trainer:1"}], **spec}}


def job(name: str = "train", *, leader: Body | None = None, actors: Body | None = None, **spec: Any) -> Body:
    sets = [{"name": "actors", "counts": 2, "template": actors or template()}]
    spec = {"leader": {"name": "learner", "template": leader or template()}, "workerSets": sets, **spec}
    return {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "metadata": {"name": name}, "spec": spec}


class Tenant:
    """A user with some rights in a namespace of its own."""

    def __init__(self, kube: RealKube, *roles: str, rules: tuple[Body, ...] = (), user: str = "ann") -> None:
        self.kube = kube
        self.namespace = kube.fresh_namespace()
        self.user = user
        self._rights = 0
        self.gets(*roles, rules=rules)

    def gets(self, *roles: str, rules: tuple[Body, ...] = ()) -> None:
        """Give the user ClusterRoles of deploy/, and rules of a Role, in the namespace."""
        for role in roles:
            self._bound("ClusterRole", role)
        if rules:
            self._rights += 1
            name = {"name": f"own-{self._rights}", "namespace": self.namespace}
            group = "rbac.authorization.k8s.io/v1"
            self._create({"apiVersion": group, "kind": "Role", "metadata": name, "rules": list(rules)})
            self._bound("Role", name["name"])

    def _bound(self, kind: str, role: str) -> None:
        self._create({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": role, "namespace": self.namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": self.user}],
        })  # fmt: skip

    def _create(self, item: Body) -> None:
        self.kube.kubectl("create", "-f", "-", stdin=yaml.safe_dump(item))

    def kubectl(self, *arguments: str, stdin: Body | None = None, groups: tuple[str, ...] = ()) -> str:
        """Run kubectl as the user; returns what it says, of a refusal too."""
        flags = [f"--as={self.user}", f"--namespace={self.namespace}", *(f"--as-group={group}" for group in groups)]
        done = self.kube.kubectl(*flags, *arguments, stdin=yaml.safe_dump(stdin) if stdin else "", check=False)
        return " ".join((done.stdout + done.stderr).split())

    def tries(self, body: Body) -> str:
        """What the API server says to a job that the user would create."""
        return self.kubectl("create", "--dry-run=server", "-f", "-", stdin=body)

    def may(self, body: Body) -> bool:
        """Whether the user could create the job, once the API server knows the user's rights."""
        return bool(eventually("the rights are known", lambda: "created (server dry run)" in self.tries(body)))

    def refused(self, body: Body, *, path: str, why: str) -> None:
        said = self.tries(body)
        assert f"denied request: {path}: " in said, said
        assert why.format(namespace=self.namespace) in said, said


@pytest.fixture(scope="module")
def installed(kube_server: RealKube) -> Iterator[RealKube]:
    """The policies and the roles for users of deploy/, without the policy that records who created a job."""
    kube_server.kubectl("apply", "-f", str(POLICIES), "-f", str(DEPLOY / "base" / "users.yaml"))
    nobody = Tenant(kube_server, EDIT)
    eventually("the policies are in force", lambda: "may not create the pods" in nobody.tries(job()))
    odd = job()
    odd["metadata"]["annotations"] = {CREATED_BY: "somebody"}
    eventually("that on creators too", lambda: CREATED_BY in Tenant.tries(entitled(kube_server), odd))
    yield kube_server
    kube_server.kubectl("delete", "-f", str(POLICIES), "-f", str(DEPLOY / "base" / "users.yaml"))


@pytest.fixture(scope="module")
def recording(installed: RealKube) -> Iterator[RealKube]:
    """The same with that policy. An API server takes some seconds to find the resource of TYJobs for it."""
    installed.kubectl("apply", "-f", str(RECORDING))
    ann = entitled(installed)
    eventually(
        "it is in force", lambda: CREATED_BY in ann.kubectl("create", "--dry-run=server", "-oyaml", "-f-", stdin=job())
    )
    yield installed
    installed.kubectl("delete", "-f", str(RECORDING))


def entitled(kube: RealKube, **more: Any) -> Tenant:
    """A user who may create TYJobs and pods, with any ServiceAccount."""
    tenant = Tenant(kube, EDIT, ACCOUNTS, rules=(PODS,), **more)
    eventually("its rights are known", lambda: "created" in tenant.tries(job()))
    return tenant


# --- rights ------------------------------------------------------------------------------------------------


def test_who_may_create_jobs_but_not_pods_may_apply_nothing(installed: RealKube) -> None:
    ann = Tenant(installed, EDIT, ACCOUNTS)
    eventually("the first right is known", lambda: "denied request" in ann.tries(job()))
    ann.refused(job(), path="spec", why='ann may not create the pods of this job: the right to "create" pods in the '
                'namespace {namespace} is missing')  # fmt: skip
    ann.gets(rules=(PODS,))
    assert ann.may(job())


def use(resource: str, *names: str, group: str = "") -> Body:
    return {"apiGroups": [group], "resources": [resource], "verbs": ["use"], "resourceNames": list(names)}


def test_every_service_account_needs_a_right_the_default_one_too(installed: RealKube) -> None:
    ann = Tenant(installed, EDIT, rules=(PODS,))
    missing = 'the right to "use" serviceaccounts of this name in the namespace {namespace} is missing'
    path = "spec.leader.template.spec.serviceAccountName"
    eventually("the right to pods is known", lambda: "ServiceAccount" in ann.tries(job()))
    ann.refused(job(), path=path, why="ann may not use the ServiceAccount default: " + missing)
    ann.gets(rules=(use("serviceaccounts", "default", "builder"),))
    assert ann.may(job())
    assert ann.may(job(leader=template(serviceAccountName="builder")))
    ann.refused(job(leader=template(serviceAccountName="root")), path=path, why=missing)
    # The earlier name of the field is as good.
    ann.refused(job(leader=template(serviceAccount="root")), path=path, why="the ServiceAccount root")
    of_set = "spec.workerSets[actors].template.spec.serviceAccountName"
    ann.refused(job(actors=template(serviceAccountName="root")), path=of_set, why="the ServiceAccount root")


def sets_with(field: str, names: list[str]) -> Body:
    """A job with a worker set for each name."""
    many = job()
    many["spec"]["workerSets"] = [
        {"name": f"set{at}", "counts": 1, "template": template(**{field: name})} for at, name in enumerate(names)
    ]
    return many


@pytest.mark.parametrize(
    "field, resource, group",
    [("serviceAccountName", "serviceaccounts", ""), ("priorityClassName", "priorityclasses", "scheduling.k8s.io")],
)
def test_each_of_four_names_is_checked_and_more_need_the_right_to_all(
    installed: RealKube, field: str, resource: str, group: str
) -> None:
    ann = Tenant(installed, EDIT, rules=(PODS, use("serviceaccounts", "default")))
    known = ["a", "b", "c"]
    ann.gets(rules=(use(resource, *known, group=group),))
    assert ann.may(sets_with(field, known * 3))
    # The leader's account, `default`, is the first of the four accounts.
    most = 3 if resource == "serviceaccounts" else 4
    for at in range(most):
        names = known[: most - 1]
        names.insert(at, "secret")
        path = f"spec.workerSets[set{at}].template.spec.{field}"
        ann.refused(sets_with(field, names), path=path, why=" secret: the right to")
    five = ["a", "b", "c", "d", "e"]
    ann.gets(rules=(use(resource, *five, group=group),))
    eventually("the further right is known", lambda: "more than four" in ann.tries(sets_with(field, five)))
    ann.refused(sets_with(field, five), path=f"spec.workerSets[set{most}].template.spec.{field}", why=f"all {resource}")
    ann.gets({"serviceAccountName": ACCOUNTS, "priorityClassName": CLASSES}[field])
    assert ann.may(sets_with(field, five))


def test_a_priority_class_needs_a_right_for_the_job_and_for_its_pods(installed: RealKube) -> None:
    ann = entitled(installed)
    why = (
        'ann may not use the PriorityClass urgent: the right to "use" priorityclasses of this name in the namespace '
        "{namespace} is missing"
    )
    of_job, of_pods = job(priorityClassName="urgent"), job(leader=template(priorityClassName="urgent"))
    ann.refused(of_job, path="spec.priorityClassName", why=why)
    ann.refused(of_pods, path="spec.leader.template.spec.priorityClassName", why=why)
    ann.gets(CLASSES)
    assert ann.may(of_job)
    assert ann.may(of_pods)


def contained(**container: Any) -> Body:
    return {"containers": [{"name": "main", "image": "trainer:1", **container}]}


HOST_PATH = {"volumes": [{"name": "disk", "hostPath": {"path": "/"}}]}
OF_CONTAINER = "containers[main].securityContext"
REACHES_THE_NODE: dict[str, Body] = {
    "hostNetwork": {"hostNetwork": True},
    "hostPID": {"hostPID": True},
    "hostIPC": {"hostIPC": True},
    "volumes[disk].hostPath": HOST_PATH,
    "containers[main].ports: a hostPort": contained(ports=[{"containerPort": 80, "hostPort": 80}]),
    f"{OF_CONTAINER}: privileged": contained(securityContext={"privileged": True}),
    f"{OF_CONTAINER}.capabilities.add": contained(securityContext={"capabilities": {"add": ["CHOWN", "SYS_ADMIN"]}}),
    f"{OF_CONTAINER}: procMount": contained(securityContext={"procMount": "Unmasked"}) | {"hostUsers": False},
    f"{OF_CONTAINER}: hostProcess": contained(securityContext={"windowsOptions": {"hostProcess": True}})
    | {"hostNetwork": False},
    "securityContext.windowsOptions.hostProcess": {"securityContext": {"windowsOptions": {"hostProcess": True}}},
    "initContainers[first].securityContext: privileged": {
        "initContainers": [{"name": "first", "image": "trainer:1", "securityContext": {"privileged": True}}]
    },
}


def test_pods_reach_into_their_node_only_with_a_right_of_its_own(installed: RealKube) -> None:
    ann = entitled(installed)
    why = (
        'ann may not give pods access to their nodes: the right to "use" tyjobs/hostaccess in the namespace '
        "{namespace} is missing"
    )
    for field, spec in REACHES_THE_NODE.items():
        for of, body in (
            ("spec.leader", job(leader=template(**spec))), ("spec.workerSets[actors]", job(actors=template(**spec)))
        ):  # fmt: skip
            ann.refused(body, path=f"{of}.template.spec.{field}", why=why)
    ann.refused(job(**HOST_PATH), path="spec.volumes[disk].hostPath", why=why)
    harmless = contained(
        ports=[{"containerPort": 80}],
        securityContext={"privileged": False, "capabilities": {"add": ["CHOWN"], "drop": ["ALL"]}},
    )
    assert ann.may(job(leader=template(**harmless, hostNetwork=False, volumes=[{"name": "disk", "emptyDir": {}}])))
    ann.gets(HOST)
    assert ann.may(job(**HOST_PATH))
    for spec in REACHES_THE_NODE.values():
        assert "denied request" not in ann.tries(job(leader=template(**spec)))


def test_a_change_of_the_templates_is_checked_and_what_ends_or_scales_a_job_is_not(installed: RealKube) -> None:
    ann = entitled(installed)
    ann.kubectl("create", "-f", "-", stdin=job())
    bob = copy.copy(ann)
    bob.user = "bob"
    bob.gets(rules=({"apiGroups": ["arranger.dev"], "resources": ["tyjobs", "tyjobs/scale"], "verbs": ["*"]},))
    eventually("bob's right is known", lambda: "patched" in bob.kubectl("label", "tyj", "train", "seen=yes") or
               "labeled" in bob.kubectl("label", "tyj", "train", "seen=yes", "--overwrite"))  # fmt: skip
    changed = '{"spec": {"leader": {"template": {"spec": {"hostNetwork": true}}}}}'
    merge = ("patch", "tyj", "train", "--type=merge", "-p")
    assert "ann may not give pods access to their nodes" in ann.kubectl(*merge, changed)
    assert "bob may not create the pods of this job" in bob.kubectl(*merge, changed)
    assert "bob may not create the pods" in bob.kubectl(*merge, '{"spec": {"priorityClassName": "urgent"}}')
    assert "bob may not create the pods" in bob.kubectl(*merge, '{"spec": {"volumes": [{"name": "x"}]}}')
    assert "scaled" in bob.kubectl("scale", "tyj", "train", "--replicas=1")
    assert "patched" in bob.kubectl(*merge, '{"spec": {"suspend": true}}')
    assert "patched" in bob.kubectl(*merge, '{"spec": {"terminating": true}}')
    assert "deleted" in bob.kubectl("delete", "tyj", "train")


def test_the_largest_job_costs_less_than_an_expression_may(installed: RealKube) -> None:
    ann = entitled(installed)
    containers = [
        {"name": f"c{at}", "image": "i", "ports": [{"containerPort": 80}] * 2,
         "securityContext": {"privileged": False, "capabilities": {"add": ["CHOWN", "KILL"]}}} for at in range(8)
    ]  # fmt: skip
    large = job(leader={"spec": {"containers": containers}})
    large["spec"]["workerSets"] = [
        {"name": f"set{at}", "counts": 1, "template": {"spec": {"containers": containers}}} for at in range(64)
    ]
    assert ann.may(large)


# --- who created a job -------------------------------------------------------------------------------------


def signed(**annotations: str) -> Body:
    named = job()
    named["metadata"]["annotations"] = {f"arranger.dev/{name.replace('_', '-')}": v for name, v in annotations.items()}
    return named


def test_without_the_policy_that_records_creators_nobody_can_write_another_name(installed: RealKube) -> None:
    ann = entitled(installed)
    by = f"metadata.annotations[{CREATED_BY}]"
    ann.refused(signed(created_by="bob"), path=by, why="must be ann, who creates the job, or absent")
    ann.refused(signed(created_by_groups="kings"), path=f"metadata.annotations[{GROUPS}]", why="the groups of ann")
    assert ann.may(signed(created_by="ann", created_by_groups="system:authenticated"))
    ann.kubectl("create", "-f", "-", stdin=signed(created_by="ann"))
    for version in ("tyjobs.v1.arranger.dev", "tyjobs.v1status.arranger.dev"):
        for change in (f"{CREATED_BY}=bob", f"{CREATED_BY}-", f"{GROUPS}=kings"):
            said = ann.kubectl("annotate", "--overwrite", version, "train", change)
            assert "say who created the job, and can't be changed" in said


def annotations_of(tenant: Tenant) -> dict[str, str]:
    path = f"/apis/arranger.dev/v1/namespaces/{tenant.namespace}/tyjobs/train"
    found: dict[str, str] = tenant.kube.request("GET", path)[1]["metadata"].get("annotations", {})
    return {name: text for name, text in found.items() if name in (CREATED_BY, GROUPS)}


def test_the_api_server_writes_who_created_a_job_and_nobody_can_change_it(recording: RealKube) -> None:
    ann = entitled(recording)
    forged = signed(created_by="bob", created_by_groups="kings", other="stays")
    assert "created" in ann.kubectl("create", "-f", "-", stdin=forged, groups=("researchers",))
    mine = {CREATED_BY: "ann", GROUPS: "researchers\nsystem:authenticated"}
    assert annotations_of(ann) == mine
    for change in (f"{CREATED_BY}=bob", f"{CREATED_BY}-", f"{GROUPS}=kings", "other=changed"):
        ann.kubectl("annotate", "--overwrite", "tyj", "train", change)
        assert annotations_of(ann) == mine
    # The version for statuses is no way round it.
    ann.kubectl("annotate", "--overwrite", "tyjobs.v1status.arranger.dev", "train", f"{CREATED_BY}=bob", "told=yes")
    assert annotations_of(ann) == mine
    assert "replaced" in ann.kubectl("replace", "-f", "-", stdin=job())
    assert annotations_of(ann) == mine
    # Another user's change makes no other creator.
    recording.kubectl("-n", ann.namespace, "label", "tyj", "train", "seen=yes")
    assert annotations_of(ann) == mine


def test_the_log_and_explain_tell_who_created_a_job(
    recording: RealKube, kube: RealKube, redis: RealRedis, tmp_path: Path
) -> None:
    ann = entitled(recording)
    ann.kubectl("create", "-f", "-", stdin=job(), groups=("b", "a"))
    digest = hashlib.sha256(b"a\nb\nsystem:authenticated").hexdigest()[:16]
    name = f"{ann.namespace}/train"
    with fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as workers:
        workers.start()
        told = eventually("the job is seen", lambda: arranger("explain", name, "--log", redis.url).stdout)
        assert "created   by ann" in told
        answer = json.loads(arranger("explain", name, "-o", "json", "--log", redis.url).stdout)
        assert answer["standing"]["created_by_groups"] == digest


# --- limits of a namespace ---------------------------------------------------------------------------------


def restarting(**restart: int) -> Body:
    of = job()
    of["spec"]["leader"]["restart"] = restart
    return of


def test_a_namespace_limits_the_restarts_that_its_users_may_ask_for(installed: RealKube) -> None:
    ann = entitled(installed)
    assert ann.may(job(restartLimit=1000000))
    ann.kubectl("create", "-f", "-", stdin=job("before", restartLimit=7))
    installed.kubectl("annotate", "namespace", ann.namespace, "arranger.dev/max-restarts=5")
    most = "must be at most 5, as the annotation arranger.dev/max-restarts of the namespace {namespace} says, but is "
    eventually("the annotation is known", lambda: "denied" in ann.tries(job(restartLimit=6)))
    ann.refused(job(restartLimit=6), path="spec.restartLimit", why=most + "6")
    assert ann.may(job(restartLimit=5))
    ann.refused(restarting(limit=7), path="spec.leader.restart.limit", why=most + "7")
    of_set = job()
    of_set["spec"]["workerSets"][0]["restart"] = {"limit": 8}
    ann.refused(of_set, path="spec.workerSets[actors].restart.limit", why=most + "8")
    ann.refused(restarting(windowSeconds=1), path="spec.leader.restart.windowSeconds", why="must not be set")
    # A job from before stays as it is, but its limit can't be raised.
    merge = ("patch", "tyj", "before", "--type=merge", "-p")
    assert "patched" in ann.kubectl(*merge, '{"spec": {"suspend": true}}')
    assert "must be at most 5" in ann.kubectl(*merge, '{"spec": {"restartLimit": 8}}')
    installed.kubectl("annotate", "--overwrite", "namespace", ann.namespace, "arranger.dev/max-restarts=few")
    eventually("the new one is known", lambda: "must be a whole number" in ann.tries(job()))
    assert "cannot" in ann.kubectl("annotate", "namespace", ann.namespace, "arranger.dev/max-restarts-")


# --- variables that pods won't have ----------------------------------------------------------------------------------


def asking(args: list[str], *, leader: list[str] | None = None, **of_set: Any) -> Body:
    """A job whose workers, and leader, have these arguments."""
    made = job()
    made["spec"]["workerSets"][0] |= of_set
    made["spec"]["workerSets"][0]["template"]["spec"]["containers"][0]["args"] = args
    made["spec"]["leader"]["template"]["spec"]["containers"][0]["args"] = leader or []
    return made


def test_a_reference_to_a_variable_that_the_pods_will_not_have_warns_at_apply(installed: RealKube) -> None:
    ann = entitled(installed)
    eventually("the warnings are in force", lambda: "Warning" in ann.tries(asking(["$(MASTER_ADDR)"])))
    said = ann.tries(asking(["--to=$(MASTER_ADDR):$(MASTER_PORT)", "$(NNODES)", "$(NODE_RANK)"]))
    for name in ("MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK"):
        assert f"spec.workerSets[actors].template.spec: $({name}) stays as it is" in said
    assert "(rendezvous sets it)" in said and "created (server dry run)" in said
    for warned in (
        asking(["$(TYJOB_MEMBERS_FILE)"], rendezvous={}),
        asking([], leader=["$(MASTER_ADDR)"], rendezvous={"scope": "Set"}),
        asking([], leader=["$(TYJOB_LEADER_ADDRESS)"]),
    ):
        assert "stays as it is" in ann.tries(warned)
    for right in (
        asking(["$(MASTER_ADDR)", "$(NODE_RANK)"], rendezvous={}),
        asking(["$(TYJOB_MEMBERS_FILE)"], rendezvous={"membersFile": True}),
        asking(["$$(MASTER_ADDR)", "$MASTER_ADDR", "$(OTHER)", "$(TYJOB_RANK)", "$(TYJOB_LEADER_ADDRESS)"]),
        asking([], leader=["$(MASTER_ADDR)"], rendezvous={"scope": "Job"}),
    ):
        assert "Warning" not in ann.tries(right)
    own = asking(["$(MASTER_ADDR)"])
    own["spec"]["workerSets"][0]["template"]["spec"]["containers"][0]["env"] = [{"name": "MASTER_ADDR", "value": "a"}]
    assert "Warning" not in ann.tries(own)
    # Long texts don't make the answer depend on a budget.
    assert "created (server dry run)" in ann.tries(asking(["x" * 100_000, "$(MASTER_ADDR)"]))


def test_the_label_of_kueue_warns_at_apply(installed: RealKube) -> None:
    ann, labels = entitled(installed), {"kueue.x-k8s.io/queue-name": "train"}
    itself = job()
    itself["metadata"]["labels"] = labels
    eventually("the warnings are in force", lambda: "Warning" in ann.tries(itself))
    said = ann.tries(itself)
    assert "metadata.labels.kueue.x-k8s.io/queue-name: Kueue starts no TYJobs" in said
    assert "created (server dry run)" in said and "webhook" not in said
    for part, where in ((lambda of: of["leader"], "leader"), (lambda of: of["workerSets"][0], "workerSets[actors]")):
        of_pods = job()
        part(of_pods["spec"])["template"]["metadata"] = {"labels": labels}
        assert f"spec.{where}.template.metadata.labels.kueue.x-k8s.io/queue-name: Kueue's webhook" in ann.tries(of_pods)
    assert "Warning" not in ann.tries(job())


def test_the_policies_of_this_folder_are_in_deploy(kube_server: RealKube, tmp_path: Path) -> None:
    rendered = documents(kube_server.kubectl("kustomize", str(DEPLOY)).stdout)
    found = {(item["kind"], item["metadata"]["name"]) for item in rendered if "AdmissionPolicy" in item["kind"]}
    policies = {(item["kind"], item["metadata"]["name"]) for item in documents(POLICIES.read_text())}
    assert found == policies and len(policies) == 10
    up = "../" * len(tmp_path.resolve().parts[1:])
    own = {"resources": [f"{up}{str(DEPLOY)[1:]}"], "components": [f"{up}{str(DEPLOY)[1:]}/created-by"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    kinds = {item["kind"] for item in documents(kube_server.kubectl("kustomize", str(tmp_path)).stdout)}
    assert {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"} <= kinds
