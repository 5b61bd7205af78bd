"""`arranger simulate FILES`: Kubernetes objects in, the plan out; what can't be read is named with file and line."""

import io
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from arranger.cli.inputs.cluster_files import FoundObject
from arranger.cli.inputs.cluster_input import described
from arranger.cli.main import main
from arranger.model.quantity import amount
from arranger.model.validation import TYJOB
from arranger.replay.what_if.simulation import Simulation
from arranger.settings import Settings
from tests.device_objects import claim_template, device_class, slice_of
from tests.unit.queue_table import queue

Simulate = Callable[..., dict[str, Any]]


def node(name: str, *, spec: Mapping[str, Any] | None = None, labels: Mapping[str, str] | None = None, **amounts: Any):
    amounts = {"nvidia.com/gpu" if key == "gpus" else key: value for key, value in amounts.items()}
    metadata = {"name": name, "labels": dict(labels or {})}
    status = {"allocatable": {"cpu": "8", "memory": "32Gi", **amounts}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": dict(spec or {}), "status": status}


def template(**requests: Any) -> dict[str, Any]:
    requests = {"nvidia.com/gpu" if key == "gpus" else key: value for key, value in requests.items()}
    return {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]}}


def job(name: str, *, workers: int = 2, least: int | None = None, cpu: Any = "1", **spec: Any) -> dict[str, Any]:
    sets = [{"name": "actors", "counts": workers, "template": template(cpu=cpu)}] if workers else []
    return {
        "apiVersion": "arranger.dev/v1",
        "kind": "TYJob",
        "metadata": {"name": name},
        "spec": {
            "minWorkersNum": workers if least is None else least,
            "leader": {"name": "learner", "template": template(cpu=cpu)},
            "workerSets": sets,
            **spec,
        },
    }


@pytest.fixture
def simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Simulate:
    """Simulates objects from one file; answers the JSON."""

    def run(*objects: Mapping[str, Any], flags: tuple[str, ...] = (), status: int = 0) -> dict[str, Any]:
        path = tmp_path / "cluster.yaml"
        path.write_text(yaml.safe_dump_all(objects))
        assert main(["simulate", str(path), "-o", "json", *flags], prog_name="arranger") == status
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    return run


def texts(pod: Mapping[str, Any]) -> dict[str, int]:
    """The reasons of a pod without a node in words, each with its number of nodes."""
    return {reason["text"]: reason["nodes"] for reason in pod["reasons"]}


def nodes_of(pod: Mapping[str, Any]) -> int:
    return sum(texts(pod).values())


def test_a_priority_class_in_the_files_decides_who_is_first(simulate: Simulate) -> None:
    of_class = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
    jobs = (job("plain", workers=0, priority=10), job("classed", workers=0, priorityClassName="urgent"))
    plan = simulate(node("n1", cpu="1"), *jobs, {**of_class, "value": 11})
    assert {one["name"]: one["scheduleState"] for one in plan["jobs"]} == {
        "classed": "ScheduledSucceed",
        "plain": "Unscheduled",
    }
    plan = simulate(node("n1"), *jobs)
    [waits] = [one for one in plan["jobs"] if one["name"] == "classed"]
    assert (waits["scheduleState"], waits["queuePosition"]) == ("Unscheduled", 0)
    assert "waits for PriorityClass urgent, which doesn't exist" in waits["message"]


def test_queues_and_namespaces_in_the_files_decide_who_gets_nodes(simulate: Simulate) -> None:
    spaces = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"team": "rl"}}}
    spaces["metadata"]["annotations"] = {"arranger.dev/queue": "rl"}  # type: ignore[index]
    rule = {"selector": {"matchLabels": {"team": "rl"}}}
    jobs = (job("of-namespace", workers=0), job("closed", workers=0, queue="old"), job("none", workers=0, queue="no"))
    queues = (queue("rl", namespaces=rule), queue("old", state="Closed"))
    plan = simulate(node("n1"), spaces, *queues, *jobs)
    told = {one["name"]: (one["scheduleState"], one["message"]) for one in plan["jobs"]}
    assert told["of-namespace"][0] == "ScheduledSucceed"
    assert told["closed"] == ("Unscheduled", "waits for queue old, which is closed")
    assert told["none"][1].startswith("waits for queue no, which doesn't exist")
    found = {one["name"]: (one["used"], one["waiting"], one["running"], one["message"]) for one in plan["queues"]}
    assert found["rl"] == ({"cpu": "1"}, 0, 1, "") and found["old"] == ({}, 1, 0, "closed")
    plan = simulate(node("n1"), spaces, queue("rl", weight=0), jobs[0], status=1)
    assert plan["jobs"][0]["message"] == "can't use queue rl: queue rl is invalid: edit it"


def test_a_job_that_waits_for_another_gets_no_nodes_in_a_plan(simulate: Simulate) -> None:
    plan = simulate(node("n1"), job("prep", workers=0), job("train", workers=0, after=[{"name": "prep"}]))
    [waits] = [one for one in plan["jobs"] if one["name"] == "train"]
    assert (waits["scheduleState"], waits["queuePosition"]) == ("Unscheduled", 0)
    assert waits["message"] == "waits for job prep, which is Starting"


def test_the_plan_names_every_pod_and_its_node(simulate: Simulate) -> None:
    plan = simulate(node("n1"), node("n2", cpu="2"), job("train"))
    assert plan["jobs"] == [
        {
            "namespace": "default",
            "name": "train",
            "scheduleState": "ScheduledSucceed",
            "queuePosition": 1,
            "placed": [
                {"pod": "train-learner-0", "role": "leader", "workerSet": None, "index": 0, "node": "n2"},
                {"pod": "train-actors-0", "role": "worker", "workerSet": "actors", "index": 0, "node": "n2"},
                {"pod": "train-actors-1", "role": "worker", "workerSet": "actors", "index": 1, "node": "n1"},
            ],
            "unplaced": [],
            "message": "3 pods placed on 2 nodes",
            "foundRoom": 0,
            "faults": [],
            "warnings": [],
        }
    ]
    assert plan["nodes"] == [
        {
            "name": "n1",
            "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "used": {"cpu": "1", "memory": "0", "pods": "1"},
        },
        {
            "name": "n2",
            "allocatable": {"cpu": "2", "memory": "32Gi", "pods": "110"},
            "used": {"cpu": "2", "memory": "0", "pods": "2"},
        },
    ]


def test_reasons_count_every_node_once_for_every_pod_without_one(simulate: Simulate) -> None:
    taints = [{"key": "dedicated", "value": "infra", "effect": "NoSchedule"}]
    plan = simulate(
        node("n1"), node("n2", cpu="4"), node("n3", spec={"taints": taints}), node("n4", spec={"unschedulable": True}),
        job("elastic", workers=20, least=1), job("gang", workers=3, cpu="5", priority=4),
    )  # fmt: skip
    elastic, gang = plan["jobs"]
    assert (elastic["scheduleState"], len(elastic["placed"]), len(elastic["unplaced"])) == ("ScheduledPartly", 12, 9)
    nothing = {
        "name": "", "taint": None, "needed": 0, "free": 0, "quota": "", "words": "", "queue": "", "limit": 0, "of": "",
        "absent": False,
    }  # fmt: skip
    taint = {"key": "dedicated", "value": "infra", "effect": "NoSchedule"}
    refused = [
        {"text": "insufficient cpu (needs 1, at most 0 free)", "nodes": 2, **nothing, "kind": "Insufficient",
         "name": "cpu", "needed": 1000},
        {"text": "cordoned", "nodes": 1, **nothing, "kind": "Cordoned"},
        {"text": "taint dedicated=infra:NoSchedule not tolerated", "nodes": 1, **nothing, "kind": "Taint",
         "taint": taint},
    ]  # fmt: skip
    assert elastic["unplaced"][0] == {
        "pod": "elastic-actors-11", "role": "worker", "workerSet": "actors", "index": 11,
        "reasons": refused,
    }  # fmt: skip
    assert (gang["scheduleState"], gang["placed"]) == ("Unscheduled", [])
    assert [pod["pod"] for pod in gang["unplaced"]] == ["gang-learner-0", *(f"gang-actors-{i}" for i in range(3))]
    for one in plan["jobs"]:
        assert [nodes_of(pod) for pod in one["unplaced"]] == [4] * len(one["unplaced"])


def test_a_pod_that_fits_without_its_quorum_says_so(simulate: Simulate) -> None:
    plan = simulate(node("n1", cpu="4"), job("j", workers=4))
    leader, *workers = plan["jobs"][0]["unplaced"]
    assert texts(leader) == {"insufficient cpu (needs 1, at most 0 free)": 1}
    assert {json.dumps(worker["reasons"]) for worker in workers} == {json.dumps(leader["reasons"])}
    plan = simulate(node("n1"), job("j", workers=1) | {"metadata": {"name": "k"}}, job("big", workers=1, cpu="7"))
    assert texts(plan["jobs"][1]["unplaced"][0]) == {"insufficient cpu (needs 7, at most 1 free)": 1}
    spec = {"leader": {"name": "learner", "template": template(cpu="1")}}
    plan = simulate(node("n1"), job("j", workers=1, cpu="9", **spec))
    assert texts(plan["jobs"][0]["unplaced"][0]) == {"have room for it, but not for the whole quorum": 1}


def test_amounts_that_a_quorum_left_while_it_was_tried_are_told_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all([node("n1", cpu="4"), job("j", workers=4)]))
    assert main(["simulate", str(path)], prog_name="arranger") == 0
    out = capsys.readouterr().out
    assert "1 insufficient cpu (needs 1, at most 0 free)" in out and "0/4" in out
    assert (
        "default/j: the free amounts are those beside 4 pods of it that would fit; they hold nothing, because "
        "the quorum isn't whole\n"
    ) in out
    path.write_text(yaml.safe_dump_all([node("n1", cpu="4"), job("j", workers=4, least=1)]))
    assert main(["simulate", str(path)], prog_name="arranger") == 0
    assert "amounts free" not in capsys.readouterr().out, "its pods hold what they found"


def test_jobs_come_in_the_order_of_their_turns(simulate: Simulate) -> None:
    plan = simulate(node("n1"), job("a", priority=2), job("b", priority=9), job("c", priority=5), job("d", priority=9))
    assert [(one["name"], one["queuePosition"]) for one in plan["jobs"]] == [("b", 1), ("d", 2), ("c", 3), ("a", 4)]
    assert [one["scheduleState"] for one in plan["jobs"]] == ["ScheduledSucceed"] * 2 + ["Unscheduled"] * 2


def test_jobs_without_a_creation_time_are_as_old_as_their_place_in_the_files(simulate: Simulate) -> None:
    dated = job("dated")
    dated["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    plan = simulate(node("n1", cpu="6"), job("b"), job("a"), dated)
    assert [one["name"] for one in plan["jobs"]] == ["dated", "b", "a"]
    assert [one["scheduleState"] for one in plan["jobs"]] == ["ScheduledSucceed", "ScheduledSucceed", "Unscheduled"]


def test_a_time_is_a_text_quoted_or_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = yaml.safe_dump(job("old")).replace("name: old", "name: old\n  creationTimestamp: 2026-01-01T00:00:00Z")
    path = tmp_path / "c.yaml"
    path.write_text("---\n".join([yaml.safe_dump(job("new")), old]))
    assert main(["simulate", str(path), "-o", "json"], prog_name="arranger") == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["jobs"]] == ["old", "new"]


def test_pods_that_are_there_hold_their_room_and_ended_ones_none(simulate: Simulate) -> None:
    def pod(name: str, phase: str) -> dict[str, Any]:
        spec = {"nodeName": "n1", **template(cpu=0.5)["spec"]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec, "status": {"phase": phase}}

    plan = simulate(node("n1", cpu="1500m"), pod("there", "Running"), pod("gone", "Succeeded"), job("j", workers=0))
    assert plan["nodes"][0]["used"] == {"cpu": "1500m", "memory": "0", "pods": "2"}
    assert plan["jobs"][0]["scheduleState"] == "ScheduledSucceed"


def test_a_job_that_runs_keeps_its_pods_and_only_what_is_new_is_told(simulate: Simulate) -> None:
    running = job("j", workers=2, least=0)
    running["metadata"]["uid"] = "uid-j"
    running["status"] = {
        "stage": "Running", "scheduleState": "ScheduledPartly", "attempt": 1,
        "allocations": [{"node": "n1", "leader": True, "workers": [{"set": "actors", "indices": "0"}]}],
        "message": "an old word",
    }  # fmt: skip
    labels = {"job": "j", "role": "leader", "index": "0", "attempt": "1"}
    leader = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "j-learner-0-r1",
            "labels": {f"arranger.dev/{name}": value for name, value in labels.items()},
            "ownerReferences": [{"apiVersion": "arranger.dev/v1", "kind": "TYJob", "name": "j", "controller": True}],
        },
        "spec": {"nodeName": "n1", **template(cpu="1")["spec"]},
    }  # fmt: skip
    plan = simulate(node("n1", cpu="2"), node("n2", cpu="2"), running, leader)
    (one,) = plan["jobs"]
    assert [(pod["pod"], pod["node"]) for pod in one["placed"]] == [("j-actors-1-r1", "n2")]
    assert one["message"] == "1 pod placed on 1 node"
    assert [each["used"]["cpu"] for each in plan["nodes"]] == ["2", "1"]


def test_jobs_that_want_no_node_come_last_without_a_position(simulate: Simulate) -> None:
    done = job("a-done")
    done["status"] = {"stage": "Succeeded", "scheduleState": "ScheduledSucceed", "message": "the leader succeeded"}
    plan = simulate(node("n1"), done, job("stops", terminating=True), job("waits"))
    assert [(one["name"], one["queuePosition"]) for one in plan["jobs"]] == [("waits", 1), ("a-done", 0), ("stops", 0)]
    assert plan["jobs"][1]["message"] == "the leader succeeded"
    stops = plan["jobs"][2]
    assert stops["message"] == "it gets no nodes now"
    assert {nodes_of(pod) for pod in stops["unplaced"]} == {1}


def test_an_invalid_job_is_listed_with_what_is_wrong_and_makes_the_status_one(simulate: Simulate) -> None:
    plan = simulate(node("n1"), job("good"), job("bad", priority=99), status=1)
    good, bad = plan["jobs"]
    assert (good["scheduleState"], bad["scheduleState"]) == ("ScheduledSucceed", "Unscheduled")
    assert (bad["queuePosition"], bad["placed"], bad["unplaced"]) == (0, [], [])
    assert bad["message"] == "spec.priority: Invalid value: 99: should be less than or equal to 10"
    fault = {"field": "spec.priority", "kind": "AboveMaximum", "value": "99", "name": "", "limits": ["10"]}
    assert (bad["faults"], good["faults"]) == ([fault], [])


def test_flags_and_settings_stand_in_for_what_jobs_leave_out(simulate: Simulate, tmp_path: Path) -> None:
    cluster = [node("n1", cpu="4"), node("n2", cpu="8"), job("j", workers=1)]

    def nodes(*flags: str) -> set[str]:
        return {pod["node"] for pod in simulate(*cluster, flags=flags)["jobs"][0]["placed"]}

    assert nodes() == {"n1"}
    assert nodes("--policy", "JobAntiAffinity") == {"n1", "n2"}
    settings = tmp_path / "settings.toml"
    settings.write_text('pod_policy = "JobAntiAffinity"\n')
    assert nodes("--config", str(settings)) == {"n1", "n2"}
    assert nodes("--config", str(settings), "--policy", "BinPack") == {"n1"}
    two = [node("n1", cpu="6"), job("big", workers=3, priority=9), job("small", workers=1, priority=1)]
    order = [one["name"] for one in simulate(*two, flags=("--queue-policy", "DRF"))["jobs"]]
    assert (order, [one["name"] for one in simulate(*two)["jobs"]]) == (["small", "big"], ["big", "small"])


def test_later_cycles_hold_what_earlier_ones_placed_and_time_goes_on(simulate: Simulate, tmp_path: Path) -> None:
    cluster = [node("n1", cpu="4"), job("fits", workers=2), job("never", workers=2, cpu="5")]
    one = simulate(*cluster)
    assert [job["scheduleState"] for job in one["jobs"]] == ["ScheduledSucceed", "Unscheduled"]
    settings = tmp_path / "settings.toml"
    settings.write_text("cycle_period_s = 200\n")
    later = simulate(*cluster, flags=("--cycles", "4", "--config", str(settings)))
    assert [job["scheduleState"] for job in later["jobs"]] == ["ScheduledSucceed", "ScheduledFailed"]
    assert later["jobs"][0] == one["jobs"][0]
    assert later["nodes"] == one["nodes"]


def test_the_same_files_give_the_same_plan_in_every_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = [node("n1"), node("n2"), job("a"), job("b", workers=9, least=1)]
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    (tmp_path / "one.yaml").write_text(yaml.safe_dump_all(objects))
    (tmp_path / "list.json").write_text(json.dumps(listed))
    (tmp_path / "list.yml").write_text(yaml.safe_dump(listed))
    folder = tmp_path / "folder"
    folder.mkdir()
    for number, each in enumerate(objects):
        (folder / f"{number}.yaml").write_text("---\n" + yaml.safe_dump(each))
    (folder / "README.md").write_text("no object")
    bare = [{name: each[name] for name in each if name != "kind"} for each in objects[:2]]
    typed = {"apiVersion": "v1", "kind": "NodeList", "items": bare}
    (tmp_path / "nodes.json").write_text(json.dumps(typed))
    (tmp_path / "jobs.yaml").write_text(yaml.safe_dump_all(objects[2:]))
    plans = []
    forms = ("one.yaml", "list.json", "list.yml", "folder", "nodes.json jobs.yaml", "-", "jobs.yaml nodes.json")
    for form in forms:
        content = (tmp_path / "one.yaml").read_bytes()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        paths = [name if name == "-" else str(tmp_path / name) for name in form.split()]
        assert main(["simulate", *paths, "-o", "json"], prog_name="arranger") == 0
        plans.append(capsys.readouterr().out)
    assert len(set(plans)) == 1


def test_a_table_tells_it_to_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump_all([node("n1", gpus=2), job("j"), job("waits", cpu="9"), {"kind": "Secret"}]))
    assert main(["simulate", str(path)], prog_name="arranger") == 0
    told = capsys.readouterr()
    lines = [line.split() for line in told.out.splitlines()]
    assert lines[0] == ["POSITION", "JOB", "SCHEDULE", "PLACED", "UNPLACED", "MESSAGE"]
    assert lines[1][:5] == ["1", "default/j", "ScheduledSucceed", "3", "0"]
    assert ["default/j-actors-1", "n1"] in lines
    assert [
        "default/waits",
        "actors",
        "2",
        "1",
        "insufficient",
        "cpu",
        "(needs",
        "9,",
        "at",
        "most",
        "8",
        "free)",
    ] in lines
    assert lines[-2] == ["n1", "3/8", "0/32Gi", "3/110", "0/2"]
    assert told.err == "" and told.out.splitlines()[-1] == (
        "not simulated: 1 Secret: a plan depends on Nodes, Pods, PodGroups, ResourceQuotas, LimitRanges, "
        "PriorityClasses, RuntimeClasses, Queues, Namespaces and TYJobs"
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("kind: Node\nmetadata: {name: n\n---\n", "c.yaml:3: not valid YAML: "),
        ("a: &x\n  - *y\n", "c.yaml:2: not valid YAML: "),
        ('{"kind": "Node",\n"metadata"}', "c.yaml:1: metadata.name is missing (every Node needs a name)"),
        ("kind: Node\n---\nkind: Node\n", "c.yaml:1: metadata.name is missing (every Node needs a name)"),
        ("kind: List\nitems:\n- kind: Pod\n  metadata: {name: 3}\n", "c.yaml:3: metadata.name is missing"),
        ("- kind: Node\n", "c.yaml:1: this is a list, not a Kubernetes object"),
        ("\n\n---\nmetadata: {name: a}\n", "c.yaml:4: kind is missing"),
        ("kind: Node\nmetadata: {name: a}\n---\nkind: Node\nmetadata: {name: a}\n", "c.yaml:4: Node a is already in"),
        ("kind: Node\nmetadata: {name: a}\nstatus: {allocatable: {cpu: x}}\n", "c.yaml:1: Node a can't be underst"),
        ("kind: Node\nmetadata: {name: a, labels: {rack: 1}}\n", "c.yaml:1: Node a: metadata.labels.rack: Invalid"),
        ("kind: LimitRange\nmetadata: {name: a}\nspec: {limits: 3}\n", "c.yaml:1: LimitRange default/a can't be und"),
        (
            "kind: LimitRange\nmetadata: {name: a}\nspec: {limits: [{type: Container, default: {cpu: four}}]}\n",
            "c.yaml:1: LimitRange default/a can't be understood: ",
        ),
        ("kind: Pod\nmetadata: {name: a}\nspec: {containers: 3}\n", "c.yaml:1: Pod default/a: spec.containers: Inv"),
        ("kind: Node\nmetadata: {name: a}\nstatus: 3\n", "c.yaml:1: Node a can't be understood: "),
        ("kind: Pod\nmetadata: {name: a, namespace: 3}\n", "c.yaml:1: metadata.namespace of Pod a must be a text"),
        ("kind: Node\nmetadata: {name: a}\nspec: &x {b: *x}\n", "c.yaml:1: Node a contains itself"),
        ('{"a": ' + "[" * 20_000, "c.yaml"),
        ("\x01", "c.yaml is not a text file with YAML or JSON"),
    ],
)  # fmt: skip
def test_what_can_not_be_read_is_one_line_with_file_and_line(
    content: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(content)
    status = main(["simulate", str(path)], prog_name="arranger")
    told = capsys.readouterr()
    assert (status, told.out) == (2, "")
    assert told.err.startswith("arranger: ")
    assert says in told.err
    assert told.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name FILEs with Nodes and TYJobs, or a trace"),
        (["nowhere.yaml"], "nowhere.yaml can't be read: No such file or directory"),
        (["x", "--trace-nodes", "a", "--trace-pods", "b"], "use either FILEs or a trace"),
        (["--trace-nodes", "a"], "a trace needs both --trace-nodes and --trace-pods"),
        (["--trace-nodes", "a", "--trace-pods", "b", "--cycles", "2"], "--cycles is for FILEs"),
        (["--trace-nodes", "a", "--trace-pods", "b", "--queue-policy", "DRF"], "--queue-policy is for FILEs"),
        (["x", "--load", "1"], "--load is for traces"),
        (["x", "--policy", "BinPack", "--policy", "Gang"], "--policy is given twice"),
        (["x", "--policy", "BestFit"], "--policy: 'BestFit' isn't installed (allowed: one of Gang, BinPack"),
        (
            ["x", "--queue-policy", "Fifo"],
            "queue_policy: 'Fifo' can't be used, from flag --queue-policy (allowed: one of",
        ),
        (["-", "-"], "standard input (-) is named twice"),
        (["x", "--cycles", "0"], "--cycles"),
    ],
)
def test_bad_usage_is_one_line(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *arguments], prog_name="arranger") == 2
    told = capsys.readouterr()
    assert says in told.err
    assert (told.out, told.err.count("\n")) == ("", 1)


def test_an_empty_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(tmp_path)], prog_name="arranger") == 2
    assert f"{tmp_path} has no file that ends in .yaml, .yml, .json" in capsys.readouterr().err


# --- volumes ------------------------------------------------------------------------------------------------------

ZONE = "topology.kubernetes.io/zone"
FAST = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "disks.test",
    "volumeBindingMode": "WaitForFirstConsumer",
    "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}],
}


def claim(name: str, **spec: Any) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def volume(name: str, zone: str, **spec: Any) -> dict[str, Any]:
    spec = {"csi": {"driver": "disks.test", "volumeHandle": name}, **spec}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": {ZONE: zone}},
        "spec": spec,
    }


def csi_node(name: str, count: int) -> dict[str, Any]:
    spec = {"drivers": [{"name": "disks.test", "nodeID": name, "allocatable": {"count": count}}]}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name}, "spec": spec}


def reading(name: str, of: str) -> dict[str, Any]:
    """A TYJob of one pod that names a claim."""
    found = job(name, workers=0)
    found["spec"]["leader"]["template"]["spec"]["volumes"] = [
        {"name": "data", "persistentVolumeClaim": {"claimName": of}}
    ]
    return found


def outcomes(answer: Mapping[str, Any]) -> dict[str, str]:
    """Job → the node of its pod, or why there is none."""
    return {
        one["name"]: one["placed"][0]["node"] if one["placed"] else one["unplaced"][0]["reasons"][0]["text"]
        for one in answer["jobs"]
    }


NODES_IN_ZONES = (node("a", labels={ZONE: "a"}), node("b", labels={ZONE: "b"}), node("c", labels={ZONE: "c"}))
WITH_VOLUMES = ("--volumes", "true")


def test_claims_volumes_and_classes_in_files_decide_on_nodes(simulate: Simulate) -> None:
    objects = (
        *NODES_IN_ZONES, FAST,
        claim("bound", volumeName="pv-c"), volume("pv-c", "c"),
        claim("kept"), volume("pv-a", "a", claimRef={"namespace": "default", "name": "kept"}),
        claim("new"), claim("other", storageClassName="slow"), claim("lost", volumeName="gone"),
        *(reading(of, of) for of in ("bound", "kept", "new", "other", "lost", "missing")),
    )  # fmt: skip
    assert outcomes(simulate(*objects, flags=WITH_VOLUMES)) == {
        "bound": "c",
        "kept": "a",
        "new": "b",
        "other": "StorageClass slow of claim other doesn't exist",
        "lost": "volume gone of claim lost doesn't exist",
        "missing": "claim missing doesn't exist: create it",
    }


def test_limits_of_csi_nodes_and_pods_in_the_files_count(simulate: Simulate) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "nodeName": "b", "containers": [{"name": "c"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "used"}}]}}  # fmt: skip
    objects = (
        node("b", labels={ZONE: "b"}), csi_node("b", 2), FAST, pod, claim("used", volumeName="pv"), volume("pv", "b"),
        claim("first"), claim("second"), reading("first", "first"), reading("second", "second"),
    )  # fmt: skip
    found = outcomes(simulate(*objects, flags=WITH_VOLUMES))
    assert found == {"first": "b", "second": "attaches no more volumes of disks.test (at most 2)"}


def test_objects_as_a_server_has_them_are_used_as_they_are(simulate: Simulate) -> None:
    """A claim that a server shows as Pending isn't bound by the command, whatever names it."""
    pending = claim("kept", storageClassName="fast") | {"status": {"phase": "Pending"}}
    objects = (
        *NODES_IN_ZONES, FAST, pending, volume("pv-a", "a", claimRef={"name": "kept"}), reading("kept", "kept"),
    )  # fmt: skip
    assert outcomes(simulate(*objects, flags=WITH_VOLUMES)) == {"kept": "b"}


def test_without_the_setting_claims_are_ignored_and_that_is_told(
    simulate: Simulate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = (*NODES_IN_ZONES, claim("bound", volumeName="pv-c"), volume("pv-c", "c"), reading("bound", "bound"))
    assert outcomes(simulate(*objects)) == {"bound": "a"}
    assert main(["simulate", str(tmp_path / "cluster.yaml")], prog_name="arranger") == 0
    told = capsys.readouterr().out
    assert "not simulated: 1 PersistentVolumeClaim (bound), 1 PersistentVolume (pv-c): " in told
    assert told.endswith("(arranger simulate --volumes true)\n")


def test_a_malformed_volume_is_an_error_that_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all([NODES_IN_ZONES[0], {**volume("pv", "a"), "spec": {"claimRef": "data"}}]))
    assert main(["simulate", str(path), *WITH_VOLUMES], prog_name="arranger") == 2
    assert "can't be understood" in capsys.readouterr().err


# --- devices ------------------------------------------------------------------------------------------------------


def with_gpus(name: str, workers: int, of: str = "gpu") -> dict[str, Any]:
    """A TYJob each worker of which has a claim from a template."""
    found = job(name, workers=workers)
    entry = {"name": "gpu", "resourceClaimTemplateName": of}
    found["spec"]["workerSets"][0]["template"]["spec"]["resourceClaims"] = [entry]
    return found


def test_devices_classes_and_templates_in_files_decide_on_nodes(
    simulate: Simulate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = (
        *NODES_IN_ZONES, slice_of("b", "gpu-0", "gpu-1"), device_class(), claim_template("gpu"),
        with_gpus("first", 2), with_gpus("second", 1), with_gpus("third", 1, "none"),
    )  # fmt: skip
    found = {one["name"]: one for one in simulate(*objects, flags=("--devices", "true"))["jobs"]}
    assert [pod["node"] for pod in found["first"]["placed"]][1:] == ["b", "b"]
    assert "insufficient devices for resource claim gpu (needs 1 of gpu)" in found["second"]["message"]
    assert "ResourceClaimTemplate none for resource claim gpu doesn't exist" in found["third"]["message"]
    assert all("the setting devices is off" in one["message"] for one in simulate(*objects)["jobs"])
    assert main(["simulate", str(tmp_path / "cluster.yaml")], prog_name="arranger") == 0
    assert "(arranger simulate --devices true)" in capsys.readouterr().out


# --- who gives room -----------------------------------------------------------------------------------------------


def running(name: str, cpu: str, on: str, *, pods: bool, **spec: Any) -> list[dict[str, Any]]:
    """A job that has run for long, all on one node, with its pods or without: then only its status says so."""
    made = job(name, cpu=cpu, **spec)
    created = "2026-01-01T00:00:00Z"
    made["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": created}
    workers = made["spec"]["workerSets"]
    count = workers[0]["counts"] if workers else 0
    sets = [{"set": "actors", "indices": f"0-{count - 1}" if count > 1 else "0"}] if count else []
    made["status"] = {
        "stage": "Running", "scheduleState": "ScheduledSucceed", "attempt": 0,
        "allocations": [{"node": on, "leader": True, "workers": sets}],
    }  # fmt: skip
    owner = {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "name": name, "controller": True}
    slots = [("learner-0", {"role": "leader", "index": "0"})]
    slots += [(f"actors-{n}", {"role": "worker", "worker-set": "actors", "index": str(n)}) for n in range(count)]
    return [made] + [
        {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": f"{name}-{slot}", "creationTimestamp": created, "ownerReferences": [owner],
                "labels": {f"arranger.dev/{key}": of for key, of in {"job": name, "attempt": "0", **labels}.items()},
            },
            "spec": {"nodeName": on, **template(cpu=cpu)["spec"]},
            "status": {"phase": "Running", "startTime": created, "conditions": [{"type": "Ready", "status": "True"}]},
        }
        for slot, labels in (slots if pods else ())
    ]  # fmt: skip


@pytest.mark.parametrize("pods", [True, False])
@pytest.mark.parametrize("cycles", ["1", "3"])
def test_who_gives_room_to_whom_is_told_and_nodes_hold_no_more_than_they_have(
    simulate: Simulate, pods: bool, cycles: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    low = running("low", "2", "n1", pods=pods, priority=1)
    stays = running("stays", "1", "n2", pods=pods, priority=9)
    high = job("high", workers=0, cpu="6500m", priority=5)
    cluster = [node("n1", cpu="7"), node("n2", cpu="3"), *low, *stays, high]
    plan = simulate(*cluster, flags=("--cycles", cycles))
    [given] = plan["preempted"]
    assert (given["namespace"], given["name"], given["kind"]) == ("default", "low", "Priority")
    assert given["to"] == {"namespace": "default", "name": "high"} and given["lostGpuSeconds"] == 0
    assert [(of["pod"], of["role"], of["node"]) for of in given["pods"]] == [
        ("low-learner-0", "leader", "n1"), ("low-actors-0", "worker", "n1"), ("low-actors-1", "worker", "n1"),
    ]  # fmt: skip
    assert {one["name"]: one["used"]["cpu"] for one in plan["nodes"]} == {"n1": "6500m", "n2": "3"}
    found = {one["name"]: one for one in plan["jobs"]}
    assert len(found["low"]["unplaced"]) == 3
    assert cycles != "1" or found["low"]["message"].startswith("preempted for job high")
    main(["simulate", str(tmp_path / "cluster.yaml")], prog_name="arranger")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["default/low", "default/high", "priority", "3", "n1", "0", "GPU", "seconds", "of", "work"] in lines


def test_who_gave_room_and_finds_other_room_later_is_placed_there(simulate: Simulate) -> None:
    """The room that is left is too small for the first job, but enough for the one that gives room to it."""
    low = running("low", "1", "n1", pods=True, priority=1)
    cluster = [node("n1", cpu="4"), node("n2", cpu="3"), *low, job("high", workers=0, cpu="4", priority=5)]
    plan = simulate(*cluster, flags=("--cycles", "3"))
    assert [of["name"] for of in plan["preempted"]] == ["low"]
    assert {one["name"]: one["used"]["cpu"] for one in plan["nodes"]} == {"n1": "4", "n2": "3"}
    [again] = [one for one in plan["jobs"] if one["name"] == "low"]
    assert {of["node"] for of in again["placed"]} == {"n2"} and len(again["placed"]) == 3


def test_without_preemption_nobody_gives_room(simulate: Simulate) -> None:
    plan = simulate(node("n1", cpu="4"), *running("low", "1", "n1", pods=True), job("more", workers=0, cpu="4"))
    assert plan["preempted"] == []


_SIZE = st.integers(1, 4)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(_SIZE, st.integers(0, 2), st.booleans(), st.integers(1, 3)), max_size=8),
    st.lists(st.tuples(_SIZE, st.integers(0, 4), st.integers(1, 9)), min_size=1, max_size=4),
    st.integers(1, 3),
)
@example(runs=[(1, 0, False, 1), (1, 0, False, 1), (2, 2, False, 3)], asks=[(2, 1, 2), (3, 4, 4)], cycles=2)
def test_no_node_ever_holds_more_than_it_has_whoever_gives_room(
    runs: list[tuple[int, int, bool, int]], asks: list[tuple[int, int, int]], cycles: int
) -> None:
    free, objects = dict.fromkeys(("n1", "n2", "n3"), 8), [node(name) for name in ("n1", "n2", "n3")]
    for number, (cpu, workers, pods, priority) in enumerate(runs):
        on = max(free, key=lambda name: free[name])
        if free[on] >= cpu * (1 + workers):
            free[on] -= cpu * (1 + workers)
            objects += running(f"r{number}", str(cpu), on, pods=pods, workers=workers, priority=priority)
    for number, (cpu, workers, priority) in enumerate(asks):
        objects.append(job(f"a{number}", cpu=str(cpu), workers=workers, priority=priority))
    found = [FoundObject(of["kind"], of["apiVersion"].rpartition("/")[0], of, f"{at}") for at, of in enumerate(objects)]
    cluster = described(found, TYJOB, now_ms=1_790_000_000_000)
    simulation = Simulation(cluster.observations, Settings().cycle_config(), time_ms=cluster.time_ms)
    told = 0
    for _ in range(cycles):
        simulation.cycle()
        outcome = simulation.outcome()
        for of in outcome.nodes:
            assert amount("cpu", of.used["cpu"]) <= amount("cpu", of.allocatable["cpu"])
        # In a later cycle the taker may give it to others: to one of higher priority that has just given its own.
        for given_room in outcome.preempted[told:]:
            [taker] = [one for one in outcome.jobs if one.name == given_room.to.name]
            assert taker.placed and given_room.pods
        told = len(outcome.preempted)
        simulation.time_ms += 1000


# --- misspelt fields -------------------------------------------------------------------------------------------------


def test_a_misspelt_field_of_a_job_or_a_queue_is_named_with_the_nearest_one(simulate: Simulate) -> None:
    wrong = job("wrong", priorty=3)
    wrong["spec"]["workerSets"][0]["count"] = 3
    wrong["spec"]["leader"]["template"]["spec"]["containers"][0]["resource"] = {"limits": {"nvidia.com/gpu": 1}}
    plan = simulate(node("n1"), wrong, queue("q", wieght=2), status=1)
    for said in (
        "spec.priorty: unknown field, did you mean priority?",
        "spec.workerSets[0].count: unknown field, did you mean counts?",
        "spec.leader.template.spec.containers[0].resource: unknown field, did you mean resources?",
    ):
        assert said in plan["jobs"][0]["message"]
    messages = {one["name"]: one["message"] for one in plan["queues"]}
    assert messages["q"] == "spec.wieght: unknown field, did you mean weight?"
    assert "spec.zzz: unknown field, known are: " in simulate(job("far", zzz=1), status=1)["jobs"][0]["message"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({**node("n1"), "spec": {"taint": []}}, "Node n1: spec.taint: unknown field, did you mean taints?"),
        ({**node("n1"), "staus": {}}, "Node n1: staus: unknown field, did you mean status?"),
        (
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"schedulername": "arranger"}},
            "Pod default/p: spec.schedulername: unknown field, did you mean schedulerName?",
        ),
        (
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"resource": {}}]}},
            "Pod default/p: spec.containers[0].resource: unknown field, did you mean resources?",
        ),
        (
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"schedulingGates": [{"name": 1}]}},
            'Pod default/p: spec.schedulingGates[0].name: Invalid value: "integer": must be of type string',
        ),
        (
            {**node("n1"), "metadata": {"name": "n1", "labels": {"rack": 7}}},
            'Node n1: metadata.labels.rack: Invalid value: "integer": must be of type string',
        ),
        (
            {**job("j"), "metadata": {"name": "j", "lables": {}}},
            "TYJob default/j: metadata.lables: unknown field, did you mean labels?",
        ),
        (
            {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hards": {}}},
            "ResourceQuota default/q: spec.hards: unknown field, did you mean hard?",
        ),
    ],
)
def test_a_misspelt_field_of_another_object_is_an_error_with_file_and_line(
    wrong: dict[str, Any], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(wrong))
    assert main(["simulate", str(path)], prog_name="arranger") == 2
    assert capsys.readouterr().err.startswith(f"arranger: {path}:1: {says}")
    # What a server has may be of a newer version.
    path.write_text(yaml.safe_dump({**wrong, "metadata": {**wrong["metadata"], "uid": "1"}}))
    main(["simulate", str(path)], prog_name="arranger")
    assert says.partition(": ")[2] not in capsys.readouterr().err


# --- pods to place, and what is left out ----------------------------------------------------------------------------


def pod(name: str, *, cpu: str = "1", group: str = "", least: int = 0, **spec: Any) -> dict[str, Any]:
    """A pod that names Arranger, of a group that labels make or, without a minimum, of a PodGroup of Coscheduling."""
    prefix = "pod-group.scheduling.sigs.k8s.io/"
    of_labels = {f"{prefix}name": group, f"{prefix}min-available": str(least)}
    labels = of_labels if least else {"scheduling.x-k8s.io/pod-group": group} if group else {}
    made = template(cpu=cpu)["spec"]
    metadata = {"name": name, "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"schedulerName": "arranger", **made, **spec},
    }


def group_of(name: str, least: int, version: str = "scheduling.x-k8s.io/v1alpha1") -> dict[str, Any]:
    return {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": name}, "spec": {"minMember": least}}


def placed(plan: Mapping[str, Any]) -> dict[str, list[str]]:
    """The jobs with nodes in the order of their turns, and the names of their pods that the plan placed."""
    return {one["name"]: [of["pod"] for of in one["placed"]] for one in plan["jobs"] if one["placed"]}


def test_pods_that_name_arranger_are_placed_as_in_the_cluster(simulate: Simulate) -> None:
    plan = simulate(node("n1"), pod("solo"), pod("held", schedulingGates=[{"name": "wait"}]), job("train", workers=0))
    assert placed(plan) == {"pod:solo": ["solo"], "train": ["train-learner-0"]}
    [held] = [one for one in plan["jobs"] if one["name"] == "pod:held"]
    assert held["message"] == "waits for its scheduling gates to be removed: wait"
    assert plan["nodes"][0]["used"]["cpu"] == "2"


def test_groups_of_pods_get_nodes_together_or_not_at_all(simulate: Simulate) -> None:
    fits = [pod(f"a-{number}", group="a", least=3) for number in range(3)]
    big = [pod(f"b-{number}", cpu="5", group="b", least=2) for number in range(2)]
    named = [pod(f"c-{number}", group="c") for number in range(2)]
    plan = simulate(node("n1"), *big, *fits, *named, group_of("c", 2))
    assert placed(plan) == {"group:a": ["a-0", "a-1", "a-2"], "group:c": ["c-0", "c-1"]}
    assert plan["nodes"][0]["used"]["cpu"] == "5"
    [without] = simulate(node("n1"), *named)["jobs"]
    assert without["message"].startswith("waits for PodGroup c of scheduling.x-k8s.io, which doesn't exist")


def test_podgroups_of_two_kinds_may_have_one_name(simulate: Simulate) -> None:
    of_volcano = pod("v-0")
    of_volcano["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "g"}
    groups = (group_of("g", 1), group_of("g", 1, "scheduling.volcano.sh/v1beta1"))
    plan = simulate(node("n1"), pod("c-0", group="g"), of_volcano, *groups)
    assert sorted(of["pod"] for one in plan["jobs"] for of in one["placed"]) == ["c-0", "v-0"]


def test_a_pod_by_hand_has_what_a_server_would_add_for_its_classes(simulate: Simulate) -> None:
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 9}
    kata = {
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "kata",
        "overhead": {"podFixed": {"cpu": "500m"}}, "scheduling": {"nodeSelector": {"kata": "true"}},
    }  # fmt: skip
    pods = (
        pod("late", cpu="7"),
        pod("first", cpu="7", priorityClassName="urgent"),
        pod("box", runtimeClassName="kata"),
    )
    plan = simulate(node("n1"), node("n2", labels={"kata": "true"}, cpu="2"), *pods, urgent, kata)
    assert placed(plan) == {"pod:first": ["first"], "pod:box": ["box"]}
    assert {one["name"]: one["used"]["cpu"] for one in plan["nodes"]} == {"n1": "7", "n2": "1500m"}


def limit_range(name: str = "defaults", **of_containers: Any) -> dict[str, Any]:
    spec = {"limits": [{"type": "Container", **of_containers}]}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": name}, "spec": spec}


def test_containers_have_the_requests_that_a_limit_range_gives(simulate: Simulate) -> None:
    train = job("train", workers=1)
    for of in (train["spec"]["leader"], *train["spec"]["workerSets"]):
        del of["template"]["spec"]["containers"][0]["resources"]
    alone = pod("alone")
    del alone["spec"]["containers"][0]["resources"]
    nodes = [node(name, cpu="6") for name in ("n1", "n2", "n3")]
    plan = simulate(*nodes, train, alone, limit_range(max={"cpu": "9"}, defaultRequest={"cpu": 4}))
    assert {one["name"]: one["used"]["cpu"] for one in plan["nodes"]} == {"n1": "4", "n2": "4", "n3": "4"}
    elsewhere = limit_range(defaultRequest={"cpu": "4"})
    elsewhere["metadata"]["namespace"] = "elsewhere"
    plan = simulate(*nodes, train, alone, elsewhere)
    assert {one["used"]["cpu"] for one in plan["nodes"]} == {"0"}


def test_pods_without_a_creation_time_are_as_old_as_their_place_in_the_files(simulate: Simulate) -> None:
    pods = [pod(name, cpu="8", priority=1) for name in ("b", "a")]
    assert placed(simulate(node("n1"), *pods)) == {"pod:b": ["b"]}
    assert placed(simulate(node("n1"), pods[0], job("train", workers=0, cpu="8", priority=1), pods[1])) == {
        "pod:b": ["b"]
    }
    assert placed(simulate(node("n1"), job("train", workers=0, cpu="8", priority=1), *pods)) == {
        "train": ["train-learner-0"]
    }


def test_all_that_is_left_out_is_listed_with_why(
    simulate: Simulate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, bound = pod("other", schedulerName="volcano"), pod("bound", schedulerName="volcano", nodeName="n1")
    ended = pod("ended", schedulerName="volcano") | {"status": {"phase": "Succeeded"}}
    objects = [
        node("n1"), other, bound, ended, pod("refused", priorityClassName="none"),
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "x"}},
        {"apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest", "metadata": {"name": "r"}},
        {**queue("q"), "apiVersion": "scheduling.volcano.sh/v1beta1"},
        {**job("wrong"), "apiVersion": "arranger.org/v1"}, claim("data"),
    ]  # fmt: skip
    plan = simulate(*objects)
    others = [of for of in plan["notSimulated"] if of["kind"] != "Pod"]
    assert {(of["kind"], of["group"]): (of["count"], of["names"]) for of in others} == {
        ("Deployment", "apps"): (1, ["x/d"]),
        ("ProvisioningRequest", "autoscaling.x-k8s.io"): (1, ["r"]),
        ("TYJob", "arranger.org"): (1, ["wrong"]),
        ("Queue", "scheduling.volcano.sh"): (1, ["q"]),
        ("PersistentVolumeClaim", ""): (1, ["data"]),
    }
    pods = {of["names"][0]: of["why"] for of in plan["notSimulated"] if of["kind"] == "Pod"}
    assert pods["default/other"] == "waits for scheduler volcano, and the setting scheduler_names is arranger"
    assert pods.keys() == {"default/other", "default/refused"}
    assert pods["default/refused"].startswith("an API server with these objects would refuse it: ")
    assert pods["default/refused"].endswith("no PriorityClass with name none was found")
    assert plan["nodes"][0]["used"]["pods"] == "1"
    assert main(["simulate", str(tmp_path / "cluster.yaml")], prog_name="arranger") == 0
    assert "not simulated: 1 Deployment.apps (x/d)" in capsys.readouterr().out


def test_a_job_and_a_queue_of_another_scheduler_point_to_convert(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: j}\n"
    queue = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: q}\n"
    node = "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n"
    (tmp_path / "c.yaml").write_text("---\n".join((node, job, queue)))
    main(["simulate", str(tmp_path / "c.yaml")], prog_name="arranger")
    told = capsys.readouterr().out
    assert "arranger convert makes a TYJob of a Job of batch.volcano.sh" in told
    assert "arranger convert makes a Queue of a ClusterQueue of kueue.x-k8s.io" in told


def test_with_other_scheduler_names_other_pods_are_placed(simulate: Simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARRANGER_SCHEDULER_NAMES", "volcano")
    plan = simulate(node("n1"), pod("solo"), pod("other", schedulerName="volcano"))
    assert placed(plan) == {"pod:other": ["other"]}
    assert [of["names"] for of in plan["notSimulated"]] == [["default/solo"]]
