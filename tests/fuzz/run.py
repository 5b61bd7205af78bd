"""Many fuzzed TYJobs, in this process or in a pool of them: what came of each lot.

A lot is a number of jobs drawn from one seed. Each is given to the controller's own check, to the embedded cluster's
schema, and with all others of its lot to the workers.
"""

import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from arranger.kube.cluster import CRDS, TYJOBS
from arranger.kube.manifests import pod_manifest
from arranger.messages.faults import fault_text, faults_text
from arranger.model.tyjob import job_spec
from arranger.model.validation import validate
from arranger.sandbox.admission import WriteOptions
from arranger.sandbox.status import ApiRefusal
from arranger.sandbox.store import Store
from tests.fuzz.objects import as_stored, fuzzed
from tests.fuzz.world import hold
from tests.servers import tyjob_definition
from tests.simulation.run import pool
from tests.unit.tyjob_table import Object

#: Jobs of one lot: they share a log and a cluster.
LOT = 100


class Lot(msgspec.Struct):
    """What came of one lot: what is wrong, how many jobs the own check accepted, and in which stages all ended."""

    seed: int
    wrong: list[str]
    accepted: int
    stages: Counter[str]


def drawn(seed: int, count: int = LOT) -> list[Object]:
    """The jobs of a lot, always the same for one seed."""
    return [fuzzed(random.Random(f"{seed}/{number}")) for number in range(count)]


def lot(seed: int, count: int = LOT) -> Lot:
    """One lot. Whatever raises is told as wrong, with what it was about."""
    jobs = drawn(seed, count)
    wrong: list[str] = []
    accepted = 0
    for number, job in enumerate(jobs):
        try:
            told, good = _judged(job)
            accepted += good
        except Exception as problem:
            told = f"raised {problem!r}"
        if told:
            wrong.append(f"job {number} of lot {seed}: {told}")
    outcome = hold(jobs, seed=seed)
    return Lot(seed, wrong + [f"lot {seed}: {told}" for told in outcome.wrong], accepted, outcome.stages)


def _judged(job: Object) -> tuple[str, bool]:
    """What is wrong with how one job is judged, and whether it is accepted."""
    errors = validate(job)
    unnamed = [fault_text(error) for error in errors if not error.field]
    if unnamed:
        return f"refused without a field: {unnamed[0][:300]}", False
    if not errors:
        first = 0 if job_spec(job).has_leader else 1
        body = pod_manifest(_as_served(job), group=first, index=0, attempt=0, node="n", leader_address=None)
        msgspec.json.encode(body)
    stored = as_stored(job)
    own, embedded = errors if stored is job else validate(stored), embedded_refusal(stored)
    if bool(own) != bool(embedded):
        return f"the own check says {faults_text(own[:2])}, the embedded cluster {embedded!r}", False
    return "", not errors


def _as_served(job: Object) -> Object:
    return {**job, "metadata": {**job["metadata"], "namespace": "default", "uid": "uid"}}


@cache
def _embedded() -> Store:
    store = Store(now=lambda: 1_700_000_000.0)
    store.create(CRDS, "", tyjob_definition())
    return store


def embedded_refusal(job: Object) -> str:
    """What the embedded cluster says to the job at `kubectl apply`; empty when it takes it."""
    body: Any = msgspec.json.decode(msgspec.json.encode(job))
    try:
        _embedded().create(TYJOBS, "default", body, WriteOptions(dry_run=True, strictness="Strict"))
    except ApiRefusal as refusal:
        return refusal.detail[:600]
    return ""


def lots(seeds: range, *, processes: int) -> Iterator[Lot]:
    """What came of many lots, in the order of their seeds."""
    with pool(processes) as executor:
        yield from executor.map(lot, seeds, chunksize=4)
