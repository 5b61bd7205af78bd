"""Whether this version can work with a cluster's definitions of TYJobs and Queues, and read the stored statuses.

A definition is compared by what this version writes and reads: versions, subresources, fields and allowed values. What
a definition has beyond that isn't this version's, and harms nothing. Rules aren't compared: this version repeats every
check of a spec, and older API servers have fewer rules.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import islice
from typing import Any

import msgspec
import yaml

from arranger.events.kinds import JobSeen
from arranger.kube.cluster import CRDS, TYJOBS, ApiError, Cluster, Object, Watchable
from arranger.kube.crd import definitions
from arranger.kube.translate import job_seen
from arranger.messages.faults import faults_text
from arranger.model.checks import Check
from arranger.model.job import ENDED, ScheduleState, Stage
from arranger.model.validation import PolicyNames, tyjob_checks

#: How many fields and jobs an answer names.
_NAMED = 10

_STAGES = frozenset(map(str, Stage))
_SCHEDULE_STATES = frozenset(map(str, ScheduleState))


class CrdVerdict(StrEnum):
    """How the definition in a cluster compares with this version's."""

    CURRENT = "current"
    #: It lacks something: the API server drops or refuses what this version writes there.
    OLDER = "older"
    #: It has all of this version's, and more.
    LATER = "later"
    MISSING = "missing"
    #: It is being deleted, and finalizers keep it: its objects are deleted, and new ones go with it.
    DELETED = "deleted"
    #: Objects are stored in a version that this version's definition lacks, so the API server would refuse it.
    BLOCKED = "blocked"


class Definition(msgspec.Struct, frozen=True):
    """One definition: its name, the verdict, and what it lacks or has beyond this version's, the first ten of each."""

    name: str
    verdict: CrdVerdict
    lacks: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()


class JobProblem(msgspec.Struct, frozen=True):
    """A TYJob that this version would not take over as it is."""

    namespace: str
    name: str
    problem: str


class Statuses(msgspec.Struct, frozen=True):
    """The stored TYJobs: how many were read, how many can't be taken over as they are, and the first ten of those."""

    jobs: int
    unreadable: int
    problems: tuple[JobProblem, ...]


async def check_definitions(cluster: Cluster, policies: PolicyNames) -> tuple[Definition, ...]:
    """Compare this version's definitions, with these policies, with those in a cluster. Raises `ClusterError`."""
    found = []
    for ours in yaml.safe_load_all(definitions(policies)):
        try:
            theirs = await cluster.get(CRDS, None, ours["metadata"]["name"])
        except ApiError as problem:
            if problem.code != 404:
                raise
            theirs = None
        found.append(compare(ours, theirs))
    return tuple(found)


def compare(ours: Object, theirs: Object | None) -> Definition:
    """Compare this version's definition with one in a cluster; None is one that isn't there."""
    name = ours["metadata"]["name"]
    if theirs is None:
        return Definition(name, CrdVerdict.MISSING)
    if theirs["metadata"].get("deletionTimestamp"):
        kept_by = theirs["metadata"].get("finalizers") or ()
        return Definition(name, CrdVerdict.DELETED, beyond=tuple(f"finalizer {each}" for each in kept_by))
    versions = {version["name"] for version in ours["spec"]["versions"]}
    stored = [each for each in (theirs.get("status") or {}).get("storedVersions") or () if each not in versions]
    if stored:
        return Definition(name, CrdVerdict.BLOCKED, beyond=tuple(f"stored version {each}" for each in stored))
    lacks = tuple(islice(_lacking(ours, theirs), _NAMED))
    beyond = tuple(islice(_lacking(theirs, ours), _NAMED))
    verdict = CrdVerdict.OLDER if lacks else CrdVerdict.LATER if beyond else CrdVerdict.CURRENT
    return Definition(name, verdict, lacks, beyond)


def _lacking(expected: Object, given: Object) -> Iterator[str]:
    """What one definition has and the other lacks."""
    served = {version["name"]: version for version in given["spec"]["versions"] if version.get("served")}
    needed = [version for version in expected["spec"]["versions"] if version.get("served")]
    yield from (f"version {version['name']}" for version in needed if version["name"] not in served)
    for version in needed:
        name = version["name"]
        there = served.get(name)
        if there is None:
            continue
        for each in version.get("subresources") or ():
            if each not in (there.get("subresources") or ()):
                yield f"{name}: subresource {each}"
        yield from _fields(version["schema"]["openAPIV3Schema"], there["schema"]["openAPIV3Schema"], f"{name}: ")


def _fields(expected: Mapping[str, Any], given: Mapping[str, Any], path: str) -> Iterator[str]:
    """The fields, and the values of a field, that a schema has and the other lacks."""
    for value in expected.get("enum") or ():
        if given.get("enum") and value not in given["enum"]:
            yield f"{path} = {value}"
    if isinstance(expected.get("items"), dict) and isinstance(given.get("items"), dict):
        yield from _fields(expected["items"], given["items"], f"{path}[]")
    more, more_given = expected.get("additionalProperties"), given.get("additionalProperties")
    if isinstance(more, dict) and isinstance(more_given, dict):
        yield from _fields(more, more_given, f"{path}{{}}")
    properties = given.get("properties") or {}
    for name, schema in (expected.get("properties") or {}).items():
        if name in properties:
            yield from _fields(schema, properties[name], f"{path}.{name}")
        elif not given.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{path}.{name}"


async def check_statuses(cluster: Watchable, policies: PolicyNames) -> Statuses:
    """Read every TYJob as a new epoch would, with these policies installed. Raises `ClusterError`."""
    jobs, found, checks = 0, list[JobProblem](), tyjob_checks(policies)
    async for page in cluster.listing(TYJOBS):
        for job in page.items:
            jobs += 1
            if problem := problem_of(job, checks):
                found.append(JobProblem(job["metadata"].get("namespace", ""), job["metadata"]["name"], problem))
    return Statuses(jobs, len(found), tuple(found[:_NAMED]))


def problem_of(job: Object, checks: Check) -> str:
    """Why this version would not take over a job as it is; "" if it would."""
    status = job.get("status") or {}
    stage = status.get("stage")
    if stage and stage not in _STAGES:
        return f"its stage {stage} isn't known: in a new epoch it would start again"
    if stage in ENDED:
        return ""
    seen: JobSeen = job_seen(job, 1, with_status=True, checks=checks)
    if seen.faults:
        return f"its spec isn't valid for this version, so it would fail: {faults_text(seen.faults)}"
    state = status.get("scheduleState")
    if state and state not in _SCHEDULE_STATES:
        return f"its schedule state {state} isn't known"
    if status.get("allocations") and (seen.status is None or not seen.status.allocations):
        return "its allocations can't be read: in a new epoch its pods would lose their nodes"
    return ""
