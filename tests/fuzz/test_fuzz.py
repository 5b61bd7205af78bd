"""Whatever TYJob is sent: no worker ends, no job waits for it, and it is accepted or refused by a field's name."""

import random

import pytest

from arranger.kube.cluster import TYJOBS
from arranger.messages.faults import fault_text
from arranger.model.validation import validate
from tests.fuzz.objects import HUGE_TEXT, as_stored, fuzzed
from tests.fuzz.run import LOT, drawn, lot
from tests.fuzz.world import GOOD_NAME, hold
from tests.servers import RealKube
from tests.unit.tyjob_table import tyjob, tyjob_with


@pytest.mark.parametrize("seed", range(30))
def test_a_lot_of_fuzzed_jobs_harms_nobody(seed: int) -> None:
    outcome = lot(seed)
    assert outcome.wrong == []
    assert 0 < outcome.accepted < LOT


def test_the_same_seed_draws_the_same_jobs() -> None:
    assert drawn(7) == drawn(7) != drawn(8)


def test_a_job_as_large_as_a_request_may_be_is_refused_by_the_name_of_the_field() -> None:
    jobs = [tyjob_with({path: "x" * HUGE_TEXT}) for path in ("spec/leader/name", "spec/priority", "spec/x")]
    jobs.append(tyjob_with({f"spec/{'y' * HUGE_TEXT}": 1}))
    assert hold(jobs, seed=1).wrong == []
    assert all(len(fault_text(error)) < 1_000 for job in jobs for error in validate(job))


def test_a_job_larger_than_an_api_server_stores_is_there_for_nobody() -> None:
    job = drawn(0, 1)[0]
    outcome = hold([{**job, "spec": {**job["spec"], "blob": "x" * 2_000_000}}], seed=0)
    assert outcome.wrong == [] and sum(outcome.stages.values()) == 1  # the good one


def test_ten_thousand_workers_in_one_job_delay_no_other() -> None:
    large = tyjob_with({"spec/workerSets/0/counts": 10_000, "spec/minWorkersNum": 10_000})
    partly = tyjob_with({"spec/workerSets/0/counts": 10_000})
    outcome = hold([large, partly, tyjob()], seed=1)
    assert outcome.wrong == []
    assert outcome.stages["Running"] >= 2


def test_a_worker_that_a_job_ends_and_a_job_that_waits_for_it_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test of this test: with a check that lets anything pass, the watcher can't read the job."""
    monkeypatch.setattr("arranger.kube.translate.validate", lambda job, checks: [])
    wrong = hold([tyjob_with({"spec/priority": "high"})], seed=1).wrong
    assert "watcher-tyjob ended" in wrong
    assert any(told.startswith("the good job is ") for told in wrong)


def test_a_real_api_server_gives_the_same_verdict_on_fuzzed_jobs(kube_server: RealKube) -> None:
    path = f"{TYJOBS.path('default')}?dryRun=All&fieldValidation=Strict"
    differ = []
    for number in range(1_000):
        job = as_stored(fuzzed(random.Random(f"real/{number}")))
        own = [fault_text(error) for error in validate(job)]
        code, answer = kube_server.request("POST", path, job, check=False)
        if bool(own) != (code >= 400) or code >= 500:
            differ.append(f"{number}: the own check says {own[:2]}, the server {code} {answer.get('message')!r:.500}")
    assert differ == []


def test_the_good_job_of_a_lot_has_a_name_that_no_fuzzed_one_has() -> None:
    assert GOOD_NAME not in {job["metadata"]["name"] for job in drawn(0)}
