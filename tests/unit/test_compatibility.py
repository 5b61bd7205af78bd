"""What `arranger upgrade-check` says of definitions in a cluster and of the statuses that are stored there."""

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from arranger.kube.cluster import CRDS
from arranger.kube.compatibility import CrdVerdict, check_definitions, check_statuses, compare, problem_of
from arranger.kube.crd import definitions, older_definitions
from arranger.model.validation import BUILT_IN_POLICIES, TYJOB, PolicyNames
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.store import Store
from tests.unit.tyjob_table import tyjob_with

OURS, QUEUES, LOGS = yaml.safe_load_all(definitions())
Definition = dict[str, Any]


def altered(change: Callable[[Definition], object]) -> Definition:
    there = copy.deepcopy(OURS)
    change(there)
    return there


def fields(definition: Definition, *path: str) -> dict[str, Any]:
    """The fields of an object of the version v1."""
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in path:
        schema = schema["properties"][name]
    return schema["properties"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("change", "verdict", "lacks", "beyond"),
    [
        (lambda there: None, CrdVerdict.CURRENT, (), ()),
        (lambda there: there["spec"]["versions"].pop(), CrdVerdict.OLDER, ("version v1status",), ()),
        (lambda there: there["spec"]["versions"][1].update(served=False), CrdVerdict.OLDER, ("version v1status",), ()),
        (lambda there: fields(there, "spec").pop("after"), CrdVerdict.OLDER, ("v1: .spec.after",), ()),
        (lambda there: fields(there, "status").pop("attempt"), CrdVerdict.OLDER, ("v1: .status.attempt",), ()),
        (
            lambda there: fields(there, "status")["stage"]["enum"].remove("Rescheduling"),
            CrdVerdict.OLDER, ("v1: .status.stage = Rescheduling",), (),
        ),
        (
            lambda there: there["spec"]["versions"][0]["subresources"].pop("scale"),
            CrdVerdict.OLDER, ("v1: subresource scale",), (),
        ),
        (
            lambda there: fields(there, "spec").update(later={"type": "string"}),
            CrdVerdict.LATER, (), ("v1: .spec.later",),
        ),
        (
            lambda there: there.update(status={"storedVersions": ["v1", "v2"]}),
            CrdVerdict.BLOCKED, (), ("stored version v2",),
        ),
        (lambda there: there.update(status={"storedVersions": ["v1"]}), CrdVerdict.CURRENT, (), ()),
    ],
)  # fmt: skip
def test_a_definition_is_judged_by_what_this_version_needs(
    change: Callable[[Definition], object], verdict: CrdVerdict, lacks: tuple[str, ...], beyond: tuple[str, ...]
) -> None:
    found = compare(OURS, altered(change))
    assert (found.verdict, found.lacks, found.beyond) == (verdict, lacks, beyond)


def test_a_definition_that_is_not_there_is_missing() -> None:
    assert compare(QUEUES, None).verdict == CrdVerdict.MISSING


def test_the_definitions_for_older_servers_have_all_that_is_needed() -> None:
    older = list(yaml.safe_load_all(older_definitions()))
    assert {compare(ours, there).verdict for ours, there in zip((OURS, QUEUES, LOGS), older, strict=True)} == {
        CrdVerdict.CURRENT
    }


def test_policies_of_other_packages_have_to_be_in_the_definition() -> None:
    policies = PolicyNames(BUILT_IN_POLICIES.queue, (*BUILT_IN_POLICIES.pod, "Mine"))
    with_mine = next(yaml.safe_load_all(definitions(policies)))
    found = compare(with_mine, OURS)
    assert found.verdict == CrdVerdict.OLDER and all("Mine" in each for each in found.lacks)
    assert compare(OURS, with_mine).verdict == CrdVerdict.LATER


def test_a_cluster_is_asked_for_its_definitions_and_all_its_jobs() -> None:
    store = Store(now=lambda: 1_700_000_000.0)
    cluster = DirectCluster(store)
    verdicts = [each.verdict for each in asyncio.run(check_definitions(cluster, BUILT_IN_POLICIES))]
    assert verdicts == [CrdVerdict.MISSING] * 3
    for definition in yaml.safe_load_all(definitions()):
        store.create(CRDS, "", definition)
    verdicts = [each.verdict for each in asyncio.run(check_definitions(cluster, BUILT_IN_POLICIES))]
    assert verdicts == [CrdVerdict.CURRENT] * 3
    assert asyncio.run(check_statuses(cluster, BUILT_IN_POLICIES)).jobs == 0


RUNS = {
    "status": {"stage": "Running", "scheduleState": "ScheduledSucceed", "allocations": [{"node": "n1", "leader": True}]}
}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, ""),
        (RUNS, ""),
        ({**RUNS, "status/stage": "Hibernating"}, "its stage Hibernating isn't known"),
        ({**RUNS, "status/scheduleState": "Halfway"}, "its schedule state Halfway isn't known"),
        ({**RUNS, "status/allocations": [{"machine": "n1"}]}, "its allocations can't be read"),
        ({**RUNS, "spec/workerSets/0/counts": -1}, "its spec isn't valid for this version"),
        ({**RUNS, "spec/workerSets/0/counts": -1, "status/stage": "Failed"}, ""),
    ],
)
def test_a_job_is_named_if_this_version_would_not_take_it_over(changes: dict[str, Any], problem: str) -> None:
    found = problem_of(tyjob_with(changes), TYJOB)
    assert found.startswith(problem) if problem else found == ""
