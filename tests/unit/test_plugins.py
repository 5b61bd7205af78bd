"""Policies and filters of other packages: found, used, named in the record, listed; and what is wrong with bad ones."""

import itertools
import json
import subprocess
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from arranger.errors import UsageError
from arranger.kube.crd import definitions
from arranger.model.config import CycleConfig
from arranger.model.validation import BUILT_IN_POLICIES
from arranger.plugins import inventory, inventory_of
from arranger.scheduling import GroupCheck, Hold, Permit, QuorumAsked
from arranger.scheduling.cycle import VERSIONS
from arranger.scheduling.filters.nodes import NodeReady
from arranger.scheduling.policies.binpack import BinPack
from arranger.scheduling.queues.policies import Priority
from arranger.scheduling.queues.registry import BUILT_IN
from tests.commands import to_file
from tests.example_package import install_example, run
from tests.servers import documents
from tests.world import World, shape

pytestmark = pytest.mark.slow


@dataclass
class Package:
    """An installed package, as far as an entry point tells of it."""

    name: str
    version: str = "1.0"


class First(Priority):
    """Mine. And more."""

    name, version = "First", 4


class Second(BinPack):
    name, version = "Second", 1


class Third(NodeReady):
    name, version = "Third", 1


class Fourth(GroupCheck):
    name, version = "Fourth", 1

    def refuses(self, asked: QuorumAsked) -> str:
        return ""


class Fifth(Permit):
    name, version = "Fifth", 2

    def holds(self, asked: QuorumAsked) -> Hold | None:
        return None


class AlsoFirst(BinPack):
    name, version = "First", 1


class Twin(BinPack):
    """Of the name of one that comes with Arranger."""

    name = "BinPack"


class Nameless(NodeReady):
    name = ""


class Spaced(NodeReady):
    name = "my filter"


class Truth(NodeReady):
    name = "Yes"


class Unversioned(NodeReady):
    name, version = "Unversioned", "1.0"  # type: ignore[assignment]


class Demanding(BinPack):
    name, version = "Demanding", 1

    def __init__(self, weight: int) -> None:
        self.weight = weight


INSTANCE = Second()
NEITHER = 42


def point(kind: str, what: str, *, package: str = "theirs", module: str = __name__) -> EntryPoint:
    found = EntryPoint(name=what.lower(), value=f"{module}:{what}", group=f"arranger.{kind}")
    vars(found)["dist"] = Package(package)
    return found


GOOD = [
    point("queue_policies", "First"),
    point("pod_policies", "INSTANCE", package="another"),
    point("filters", "Third"),
    point("group_checks", "Fourth"),
    point("permits", "Fifth"),
]


def test_without_other_packages_there_is_what_comes_with_arranger() -> None:
    nothing = inventory_of([])
    assert nothing.policies.versions() == BUILT_IN.versions() == VERSIONS
    assert {source.package for source in nothing.sources} == {"arranger"}


def test_classes_and_instances_are_found_after_the_built_in_ones() -> None:
    found = inventory_of(GOOD)
    assert found.names.queue == ("Priority", "DRF", "First")
    assert found.names.pod == (*BUILT_IN_POLICIES.pod, "Second")
    assert found.policies.pod["Second"] is INSTANCE
    assert [one.name for one in found.policies.filters] == [*(one.name for one in BUILT_IN.filters), "Third"]
    assert [(s.kind, s.policy.name, s.package) for s in found.sources if s.package != "arranger"] == [
        ("queue", "First", "theirs"), ("pod", "Second", "another"), ("filter", "Third", "theirs"),
        ("group check", "Fourth", "theirs"), ("permit", "Fifth", "theirs"),
    ]  # fmt: skip
    assert [one.name for one in (*found.policies.checks, *found.policies.permits)] == ["Fourth", "Fifth"]


def test_the_order_in_which_packages_are_found_changes_nothing() -> None:
    orders = [inventory_of(order) for order in itertools.permutations(GOOD)]
    assert len({tuple(source.policy.name for source in one.sources) for one in orders}) == 1
    assert len({tuple(one.name for one in of.policies.filters) for of in orders}) == 1


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (point("filters", "Nowhere"), "AttributeError: "),
        (point("filters", "X", module="no.such.module"), "ModuleNotFoundError: No module named 'no'"),
        (point("filters", "Second"), "is no Filter (arranger.scheduling), neither a class nor an instance"),
        (point("permits", "Fourth"), "is no Permit (arranger.scheduling)"),
        (point("queue_policies", "NEITHER"), "is no QueuePolicy (arranger.scheduling)"),
        (point("pod_policies", "Demanding"), "TypeError: "),
        (point("filters", "Nameless"), "its name is ''; allowed: up to 63 letters, digits, '.' and '-', a letter"),
        (point("filters", "Spaced"), "its name is 'my filter'; allowed"),
        (point("filters", "Truth"), "its name is 'Yes'; allowed"),
        (point("filters", "Unversioned"), "its version is '1.0'; allowed: a whole number from 1 on"),
        (point("pod_policies", "Twin"), "the name BinPack is that of a pod policy of arranger"),
    ],
)  # fmt: skip
def test_a_plugin_that_can_not_be_used_stops_the_program_and_names_its_package(bad: EntryPoint, says: str) -> None:
    with pytest.raises(UsageError) as error:
        inventory_of([bad, *GOOD])
    told = str(error.value)
    package = bad.dist.name if bad.dist is not None else ""
    assert told.startswith(f"package {package}: entry point {bad.name!r} of {bad.group} can't be used: ")
    assert says in told
    assert told.endswith(f"(mend or uninstall {package})")


def test_two_packages_can_not_have_one_name() -> None:
    with pytest.raises(UsageError) as error:
        inventory_of([point("pod_policies", "AlsoFirst", package="mine"), *GOOD])
    assert str(error.value) == (
        "package theirs: entry point 'first' of arranger.queue_policies can't be used: the name First is that of a pod "
        "policy of mine (mend or uninstall theirs)"
    )


def test_a_recorded_cycle_is_taken_by_what_it_had() -> None:
    more = inventory_of(GOOD).policies
    recorded = CycleConfig(versions=BUILT_IN.versions())
    assert more.missing(recorded) == ()
    assert more.recorded(recorded).versions() == BUILT_IN.versions()
    assert list(more.recorded(recorded).filters) == list(BUILT_IN.filters)
    later = CycleConfig(queue_policy="First", pod_policy="Second", versions=more.versions())
    assert BUILT_IN.missing(later) == (("Fifth", 2), ("First", 4), ("Fourth", 1), ("Second", 1), ("Third", 1))
    assert BUILT_IN.usable(later) == CycleConfig(versions=more.versions())
    assert more.usable(later) == later


# --- the example package -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package in `tests/plugins`, installed by pip into a folder of its own."""
    return install_example(tmp_path_factory.mktemp("example"))


def arranger(*arguments: str, plugins: Path | None, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    return run("arranger.cli.main", *arguments, plugins=plugins, stdin=stdin)


def test_what_is_installed_is_listed_with_versions_packages_and_settings(example: Path) -> None:
    listed = json.loads(arranger("policies", "-o", "json", "--queue-policy", "Oldest", plugins=example).stdout)
    theirs = [one for one in listed["policies"] if one["package"] != "arranger"]
    assert theirs == [
        {"kind": "queue", "name": "Oldest", "version": 3, "default": True, "package": "arranger-example",
         "packageVersion": "1.2.0",
         "meaning": "The job that was created first, with its further pods right after its quorum"},
        {"kind": "pod", "name": "WorstFit", "version": 1, "default": False, "package": "arranger-example",
         "packageVersion": "1.2.0",
         "meaning": "The node that is emptiest afterwards, by the same utilisation as BinPack"},
        {"kind": "filter", "name": "Maintenance", "version": 2, "default": False, "package": "arranger-example",
         "packageVersion": "1.2.0", "meaning": "The node isn't labelled as under maintenance"},
        {"kind": "group check", "name": "Freeze", "version": 1, "default": False, "package": "arranger-example",
         "packageVersion": "1.2.0", "meaning": "The namespace isn't labelled as frozen"},
        {"kind": "permit", "name": "Approval", "version": 1, "default": False, "package": "arranger-example",
         "packageVersion": "1.2.0",
         "meaning": "Where the namespace's label asks for it, a TYJob has to be approved by its annotation "
                    "arranger.dev/permits"},
    ]  # fmt: skip
    weights = {"accelerators": 5, "cpu": 1, "memory": 1}
    assert listed["settings"] == {"queue_policy": "Oldest", "pod_policy": "MostAllocated", "weights": weights}
    table = arranger("policies", plugins=example).stdout
    assert "arranger-example 1.2.0" in table
    assert table.endswith("\nqueue_policy Priority, pod_policy MostAllocated, weights accelerators=5,cpu=1,memory=1\n")
    assert len(json.loads(arranger("policies", "-o", "json", plugins=None).stdout)["policies"]) == len(VERSIONS)


def test_the_resource_definition_knows_the_names(example: Path) -> None:
    def enumerations(text: str) -> dict[str, list[str]]:
        schema = documents(text)[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        policy = schema["properties"]["spec"]["properties"]["schedulerPolicy"]["properties"]
        return {name: policy[name]["enum"] for name in policy}

    assert arranger("crd", plugins=None).stdout == definitions()
    with_them = arranger("crd", plugins=example).stdout
    assert enumerations(with_them) == {
        "jobQueuePolicy": [*inventory().names.queue, "Oldest"],
        "basicPolicy": [*inventory().names.pod, "WorstFit"],
    }
    changed = [a for a, b in zip(with_them.splitlines(), definitions().splitlines(), strict=True) if a != b]
    assert len(changed) == 2


def test_settings_take_the_names_that_are_installed(example: Path) -> None:
    told = arranger("settings", "-o", "json", "--pod-policy", "WorstFit", plugins=example)
    rows = {row["name"]: row for row in map(json.loads, told.stdout.splitlines())}
    assert rows["pod_policy"]["value"] == "WorstFit"
    assert rows["queue_policy"]["allowed"] == "one of Priority, DRF, Oldest"
    refused = arranger("settings", "--pod-policy", "WorstFit", plugins=None)
    assert refused.returncode == 2
    assert refused.stderr.startswith(
        "arranger: pod_policy: 'WorstFit' can't be used, from flag --pod-policy (allowed: one"
    )
    refused = arranger("run", "scheduler", "--queue-policy", "Oldest", plugins=None)
    assert refused.returncode == 2
    assert "(allowed: one of Priority, DRF)" in refused.stderr


CLUSTER = """
kind: Node
apiVersion: v1
metadata: {name: n1, labels: {example.com/maintenance: "true"}}
status: {capacity: {cpu: 9}}
---
{kind: Node, apiVersion: v1, metadata: {name: n2}, status: {capacity: {cpu: 4}}}
---
{kind: Node, apiVersion: v1, metadata: {name: n3}, status: {capacity: {cpu: 8}}}
---
apiVersion: arranger.dev/v1
kind: TYJob
metadata: {name: j}
spec:
  schedulerPolicy: {jobQueuePolicy: Oldest, basicPolicy: WorstFit}
  minWorkersNum: 0
  leader: {name: l, template: {spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}}
  workerSets: []
"""


def test_a_job_may_name_them_where_they_are_installed(example: Path) -> None:
    told = json.loads(arranger("simulate", "-", "-o", "json", plugins=example, stdin=CLUSTER).stdout)
    assert [pod["node"] for pod in told["jobs"][0]["placed"]] == ["n3"]
    refused = arranger("simulate", "-", "-o", "json", plugins=None, stdin=CLUSTER)
    assert refused.returncode == 1
    (job,) = json.loads(refused.stdout)["jobs"]
    assert job["message"].startswith(
        'spec.schedulerPolicy.jobQueuePolicy: Unsupported value: "Oldest": supported values: "Priority", "DRF"; '
    )


def test_a_log_that_they_decided_is_verified_with_them_and_not_without(example: Path, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    written = run("tests.plugin_log", str(log), plugins=example)
    assert written.returncode == 0, written.stderr
    told: dict[str, Any] = json.loads(written.stdout)
    placed = {"late": [], "early": ["n3"], "small": ["n2", "n2"], "refused": [], "held": [], "approved": ["n3"]}
    assert told["placed"] == placed
    theirs = {"Oldest": 3, "WorstFit": 1, "Maintenance": 2, "Freeze": 1, "Approval": 1}
    assert told["versions"] == dict(VERSIONS) | theirs

    verified = arranger("verify", "--log", str(log), "-o", "json", plugins=example)
    report = json.loads(verified.stdout)
    assert (verified.returncode, report["sound"], report["identical"]) == (0, True, report["cycles"])
    without = arranger("verify", "--log", str(log), plugins=None)
    assert without.returncode == 1
    assert "with Approval 1, Freeze 1, Maintenance 2, Oldest 3, WorstFit 1; install the version of" in without.stdout

    explained = arranger("explain", "early", "--log", str(log), plugins=example)
    assert "Why early-learner-0 is on n3" in explained.stdout
    without = arranger("explain", "early", "--log", str(log), plugins=None)
    assert (without.returncode, without.stderr) == (0, "")
    assert "1 placements were decided with policy versions that aren't installed here" in without.stdout
    late = arranger("explain", "late", "--log", str(log), plugins=example).stdout
    assert "1 under maintenance" in late and "cordoned" not in late  # its filter comes before that for cordons
    late = arranger("explain", "late", "--log", str(log), plugins=None)
    assert (late.returncode, late.stderr) == (0, "")
    replayed = json.loads(arranger("replay", "--log", str(log), "-o", "json", plugins=example).stdout)
    assert [(job["name"], job["queue"]) for job in replayed["jobs"] if job["namespace"] == "default"] == [
        ("late", 1), ("early", 0), ("small", 0),
    ]  # fmt: skip
    refused = arranger("explain", "refused", "-n", "frozen", "--log", str(log), plugins=example).stdout
    assert "Why it waits: 0 of 1 required pods fit; refused by Freeze: its namespace is frozen\n" in refused
    held = arranger("explain", "held", "-n", "checked", "--log", str(log), plugins=example).stdout
    why = "1 of 1 required pods fit; held back by Approval: it isn't approved; its room is kept meanwhile"
    assert f"Why it waits: {why}\n" in held
    assert "kept waiting by a plugin of another package" in held


def test_a_log_from_before_they_were_installed_is_verified_all_the_same(example: Path, tmp_path: Path) -> None:
    world = World()
    world.node("n1", labels={"example.com/maintenance": "true"})
    world.job("j", leader=shape(cpu=1))
    world.settle()
    to_file(world.entries, tmp_path / "run.log")
    verified = arranger("verify", "--log", str(tmp_path / "run.log"), "-o", "json", plugins=example)
    assert (verified.returncode, json.loads(verified.stdout)["identical"]) == (0, 1)
