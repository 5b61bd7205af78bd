"""The pods that are created for a job."""

import copy
from typing import Any

import pytest

from arranger.kube.manifests import pod_manifest
from arranger.kube.rendezvous import job_service, leader_service, members_map
from arranger.kube.translate import pod_seen
from arranger.model.pod import PodOwner
from arranger.model.template import pod_shape
from tests.unit.tyjob_table import LEADER, template, tyjob_with

JOB = tyjob_with(
    {
        "metadata": {"name": "train", "namespace": "team", "uid": "ju"},
        "spec/workerSets": [
            {"name": "actors", "counts": 4, "template": template(cpu="1")},
            {"name": "evaluators", "template": template(cpu="2")},
        ],
    }
)

SETS = (
    '[{"name":"actors","count":4,"minCount":0,"groupSize":1,"firstRank":1},'
    '{"name":"evaluators","count":1,"minCount":0,"groupSize":1,"firstRank":5}]'
)


def pod(
    changes: dict[str, Any] | None = None,
    *,
    group: int = 1,
    index: int = 3,
    attempt: int = 0,
    address: str | None = "10.0.0.1",
) -> dict[str, Any]:
    job = tyjob_with(changes or {}, base=JOB)
    return pod_manifest(job, group=group, index=index, attempt=attempt, node="n1", leader_address=address)


def environment(manifest: dict[str, Any], container: int = 0) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in manifest["spec"]["containers"][container]["env"]}


def test_a_worker_belongs_to_its_job_and_its_node() -> None:
    manifest = pod()
    assert manifest["apiVersion"] == "v1"
    assert manifest["kind"] == "Pod"
    assert manifest["metadata"]["name"] == "train-actors-3"
    assert manifest["metadata"]["namespace"] == "team"
    assert manifest["spec"]["nodeName"] == "n1"
    assert manifest["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "arranger.dev/v1",
            "kind": "TYJob",
            "name": "train",
            "uid": "ju",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


@pytest.mark.parametrize(("group", "index", "attempt"), [(0, 0, 0), (0, 0, 2), (1, 3, 0), (2, 0, 1)])
def test_what_is_created_is_seen_at_the_same_place_with_the_same_requests(group: int, index: int, attempt: int) -> None:
    seen = pod_seen(pod(group=group, index=index, attempt=attempt), 1)
    name = ("learner", "actors", "evaluators")[group]
    assert seen.owner == PodOwner("ju", attempt, name, group == 0, index)
    part = JOB["spec"]["leader"] if group == 0 else JOB["spec"]["workerSets"][group - 1]
    assert seen.requests == pod_shape(part["template"]["spec"]).requests


def test_a_worker_is_told_who_it_is_and_where_the_leader_is() -> None:
    assert environment(pod()) == {
        "TYJOB_NAME": "train",
        "TYJOB_NAMESPACE": "team",
        "TYJOB_ATTEMPT": "0",
        "TYJOB_ROLE": "worker",
        "TYJOB_WORKER_SET": "actors",
        "TYJOB_WORKER_INDEX": "3",
        "TYJOB_WORKER_COUNT": "4",
        "TYJOB_GROUP_INDEX": "3",
        "TYJOB_GROUP_RANK": "0",
        "TYJOB_GROUP_SIZE": "1",
        "TYJOB_RANK": "4",
        "TYJOB_WORLD_SIZE": "6",
        "TYJOB_SETS": SETS,
        "TYJOB_GPUS": "0",
        "TYJOB_LEADER_ADDRESS": "10.0.0.1",
    }


def test_a_leader_is_told_of_all_workers_and_no_leader() -> None:
    assert environment(pod(group=0, index=0, address=None)) == {
        "TYJOB_NAME": "train",
        "TYJOB_NAMESPACE": "team",
        "TYJOB_ATTEMPT": "0",
        "TYJOB_ROLE": "leader",
        "TYJOB_WORKER_SET": "",
        "TYJOB_WORKER_INDEX": "0",
        "TYJOB_WORKER_COUNT": "5",
        "TYJOB_GROUP_INDEX": "0",
        "TYJOB_GROUP_RANK": "0",
        "TYJOB_GROUP_SIZE": "1",
        "TYJOB_RANK": "0",
        "TYJOB_WORLD_SIZE": "6",
        "TYJOB_SETS": SETS,
        "TYJOB_GPUS": "0",
    }


def test_ranks_count_the_leader_and_then_the_sets_in_their_order() -> None:
    slots = [(0, 0), *((1, index) for index in range(4)), (2, 0)]
    told = [environment(pod(group=group, index=index, attempt=3)) for group, index in slots]
    assert [int(each["TYJOB_RANK"]) for each in told] == list(range(6))
    assert {each["TYJOB_WORLD_SIZE"] for each in told} == {"6"}
    assert {each["TYJOB_ATTEMPT"] for each in told} == {"3"}


def test_a_pod_is_told_how_many_gpus_it_gets_in_all() -> None:
    resources = {"limits": {"nvidia.com/gpu": 2, "amd.com/gpu": "1", "cpu": "4"}}
    containers = [{"name": name, "image": "i", "resources": resources} for name in "ab"]
    assert environment(pod({f"{LEADER}/containers": containers}, group=0, index=0))["TYJOB_GPUS"] == "6"


def test_every_container_is_told_first_and_a_templates_own_variable_is_left_to_it() -> None:
    own = [{"name": "TYJOB_ROLE", "value": "boss"}, {"name": "URL", "value": "tcp://$(TYJOB_NAME)"}]
    manifest = pod(
        {
            f"{LEADER}/containers": [{"name": "a", "image": "i", "env": own}, {"name": "b", "image": "i", "env": None}],
            f"{LEADER}/initContainers": [{"name": "c", "image": "i"}],
        },
        group=0,
        index=0,
    )
    told = [entry["name"] for entry in manifest["spec"]["containers"][0]["env"]]
    assert told.count("TYJOB_ROLE") == 1
    assert told.index("TYJOB_NAME") < told.index("URL")
    assert environment(manifest)["TYJOB_ROLE"] == "boss"
    assert environment(manifest, 1)["TYJOB_ROLE"] == "leader"
    assert manifest["spec"]["initContainers"][0]["env"][0] == {"name": "TYJOB_NAME", "value": "train"}


@pytest.mark.parametrize(("said", "expected"), [(None, "OnFailure"), ("Never", "Never"), ("Always", "Always")])
def test_a_template_without_a_restart_policy_gets_on_failure(said: str | None, expected: str) -> None:
    manifest = pod({f"{LEADER}/restartPolicy": said}, group=0, index=0)
    assert manifest["spec"]["restartPolicy"] == expected


def test_a_shared_volume_steps_back_behind_the_templates_own() -> None:
    own = {"name": "data", "emptyDir": {}}
    shared = [{"name": "data", "hostPath": {"path": "/d"}}, {"name": "code", "emptyDir": {}}]
    manifest = pod({f"{LEADER}/volumes": [own], "spec/volumes": shared}, group=0, index=0)
    assert manifest["spec"]["volumes"] == [own, shared[1]]


def test_a_job_without_volumes_adds_none() -> None:
    assert "volumes" not in pod()["spec"]


def test_the_templates_labels_annotations_and_other_fields_are_kept() -> None:
    manifest = pod(
        {
            "spec/leader/template/metadata": {"labels": {"app": "rl"}, "annotations": {"a": "b"}, "name": "mine"},
            f"{LEADER}/tolerations": [{"operator": "Exists"}],
            f"{LEADER}/hostNetwork": True,
        },
        group=0,
        index=0,
    )
    assert manifest["metadata"]["labels"]["app"] == "rl"
    assert manifest["metadata"]["labels"]["arranger.dev/role"] == "leader"
    assert manifest["metadata"]["annotations"] == {"a": "b"}
    assert manifest["metadata"]["name"] == "train-learner-0"
    assert manifest["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert manifest["spec"]["hostNetwork"] is True


def test_the_job_itself_is_not_touched() -> None:
    job = copy.deepcopy(JOB)
    pod_manifest(job, group=1, index=0, attempt=0, node="n1", leader_address="a")
    assert job == JOB


def test_a_leaders_service_finds_the_leader_of_any_attempt_and_goes_with_the_job() -> None:
    job = tyjob_with({"spec/leaderService": True}, base=JOB)
    service = leader_service(job["metadata"], "learner")
    leader = pod_manifest(job, group=0, index=0, attempt=3, node="n1", leader_address=None)
    worker = pod_manifest(job, group=1, index=0, attempt=3, node="n1", leader_address="10.0.0.1")
    selector = service["spec"]["selector"].items()
    assert selector <= leader["metadata"]["labels"].items()
    assert not selector <= worker["metadata"]["labels"].items()
    assert service["metadata"]["name"] == "train-learner"
    assert service["metadata"]["ownerReferences"] == leader["metadata"]["ownerReferences"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"]


def test_workers_are_told_the_name_of_the_leaders_service_in_place_of_its_address() -> None:
    told = {"name": "TYJOB_LEADER_ADDRESS", "value": "train-learner.team.svc"}
    worker = pod_manifest(
        tyjob_with({"spec/leaderService": True}, base=JOB),
        group=1,
        index=0,
        attempt=0,
        node="n1",
        leader_address="10.0.0.1",
    )
    assert told in worker["spec"]["containers"][0]["env"]


def rendezvous(**by_set: dict[str, Any]) -> dict[str, Any]:
    """The changes that give worker sets of `JOB` a rendezvous."""
    sets = [
        {**of, "rendezvous": by_set[of["name"]]} if of["name"] in by_set else of for of in JOB["spec"]["workerSets"]
    ]
    return {"spec/workerSets": sets}


def found_by(changes: dict[str, Any], group: int, index: int = 0) -> dict[str, str]:
    told = environment(pod(changes, group=group, index=index))
    return {name: told[name] for name in ("MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK") if name in told}


def test_a_set_finds_its_first_worker_under_a_name_that_stays() -> None:
    changes = rendezvous(actors={"port": 1234})
    address = {"MASTER_ADDR": "actors-0.train.team.svc", "MASTER_PORT": "1234", "NNODES": "4"}
    assert [found_by(changes, 1, index) for index in (0, 3)] == [
        {**address, "NODE_RANK": "0"},
        {**address, "NODE_RANK": "3"},
    ]
    assert found_by(changes, 0) == {}
    assert found_by(changes, 2) == {}


def test_a_job_finds_its_leader_and_counts_the_sets_that_say_so() -> None:
    changes = rendezvous(actors={"scope": "Job"}, evaluators={"scope": "Job"})
    slots = [(0, 0), *((1, index) for index in range(4)), (2, 0)]
    found = [found_by(changes, *slot) for slot in slots]
    assert [int(each.pop("NODE_RANK")) for each in found] == list(range(6))
    assert found == [{"MASTER_ADDR": "learner-0.train.team.svc", "MASTER_PORT": "29500", "NNODES": "6"}] * 6
    alone = rendezvous(evaluators={"scope": "Job"}, actors={"scope": "Set"})
    assert [found_by(alone, group)["NNODES"] for group in (0, 1, 2)] == ["2", "4", "2"]
    assert found_by(alone, 2)["NODE_RANK"] == "1"


def test_a_scaled_set_is_counted_by_its_replicas() -> None:
    changes = {**rendezvous(actors={"scope": "Job"}, evaluators={"scope": "Job"}), "spec/replicas": 2}
    assert found_by(changes, 2)["NNODES"] == "4"
    assert found_by(changes, 2)["NODE_RANK"] == "3"
    of_set = {**rendezvous(actors={}), "spec/replicas": 2}
    assert found_by(of_set, 1)["NNODES"] == "2"


def test_every_pod_of_a_job_with_a_rendezvous_has_a_name_in_each_attempt_under_the_jobs_service() -> None:
    changes = rendezvous(evaluators={})
    for group, index, name in ((0, 0, "learner-0"), (1, 3, "actors-3"), (2, 0, "evaluators-0")):
        for attempt in (0, 5):
            manifest = pod(changes, group=group, index=index, attempt=attempt)
            service = job_service(JOB["metadata"])
            assert (manifest["spec"]["hostname"], manifest["spec"]["subdomain"]) == (name, service["metadata"]["name"])
            assert service["spec"]["selector"].items() <= manifest["metadata"]["labels"].items()
    assert service["spec"] | {"clusterIP": "None", "publishNotReadyAddresses": True} == service["spec"]
    assert service["metadata"]["ownerReferences"] == manifest["metadata"]["ownerReferences"]
    assert "hostname" not in pod()["spec"]


def test_a_variable_of_the_template_is_the_templates_also_for_a_rendezvous() -> None:
    own = {"name": "MASTER_PORT", "value": "1"}
    sets = rendezvous(actors={})["spec/workerSets"]
    changed = tyjob_with({"spec/workerSets": sets}, base=JOB)
    changed["spec"]["workerSets"][0]["template"]["spec"]["containers"][0]["env"] = [own]
    told = pod_manifest(changed, group=1, index=0, attempt=0, node="n1", leader_address=None)
    assert [each for each in told["spec"]["containers"][0]["env"] if each["name"] == "MASTER_PORT"] == [own]


def test_the_members_file_is_mounted_where_it_is_asked_for() -> None:
    changes = rendezvous(actors={"membersFile": True}, evaluators={"scope": "Job"})
    manifest = pod(changes)
    volume = {"name": "arranger-members", "configMap": {"name": "train-members"}}
    mount = {"name": "arranger-members", "mountPath": "/etc/arranger", "readOnly": True}
    assert manifest["spec"]["volumes"] == [volume]
    assert manifest["spec"]["containers"][0]["volumeMounts"] == [mount]
    assert environment(manifest)["TYJOB_MEMBERS_FILE"] == "/etc/arranger/members.json"
    assert members_map(JOB["metadata"], "{}")["metadata"]["name"] == "train-members"
    for group in (0, 2):
        assert "volumes" not in pod(changes, group=group, index=0)["spec"]
    of_job = rendezvous(actors={"scope": "Job", "membersFile": True})
    assert pod(of_job, group=0, index=0)["spec"]["volumes"] == [volume]


def test_what_a_template_mounts_in_place_of_the_members_file_is_left_to_it() -> None:
    mounts = [{"name": "own", "mountPath": "/etc/arranger/"}]
    own = [{"name": "own", "emptyDir": {}}]
    changes = {
        **rendezvous(actors={"scope": "Job", "membersFile": True}),
        f"{LEADER}/volumes": own,
        f"{LEADER}/containers": [{"name": "a", "image": "i", "volumeMounts": mounts}, {"name": "b", "image": "i"}],
        f"{LEADER}/initContainers": [{"name": "c", "image": "i"}],
    }
    manifest = pod(changes, group=0, index=0)
    assert manifest["spec"]["containers"][0]["volumeMounts"] == mounts
    assert manifest["spec"]["containers"][1]["volumeMounts"][0]["mountPath"] == "/etc/arranger"
    assert manifest["spec"]["initContainers"][0]["volumeMounts"][0]["mountPath"] == "/etc/arranger"
