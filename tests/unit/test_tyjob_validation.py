"""The controller's own check of a TYJob."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arranger.messages.faults import fault_text, faults_text
from arranger.model.faults import Fault, FaultKind
from arranger.model.job import JobSpec
from arranger.model.tyjob import job_spec, refused_change
from arranger.model.validation import validate
from arranger.replay.reading import edits
from tests.unit.tyjob_table import BAD, CHANGES, GONE, GOOD, Bad, Change, Good, template, tyjob, tyjob_with

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("good", GOOD, ids=lambda row: row.case)
def test_a_good_job_is_accepted(good: Good) -> None:
    assert validate(good.tyjob) == []
    job_spec(good.tyjob)


@pytest.mark.parametrize("bad", BAD, ids=lambda row: row.case)
def test_a_bad_job_is_refused_naming_the_field(bad: Bad) -> None:
    errors = validate(bad.tyjob)
    assert [error.field for error in errors] == [bad.field]
    assert bad.says in fault_text(errors[0])


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in entries:
        found += paths_of(part, (*path, name))
    return found


RICH = tyjob_with(
    {
        "spec/volumes": [{"name": "data"}],
        "spec/schedulerPolicy": {"basicPolicy": "Gang"},
        "spec/leader/template/metadata": {"labels": {"app": "rl"}},
        "spec/leader/template/spec/nodeSelector": {"a": "b"},
        "spec/leader/template/spec/tolerations": [{"operator": "Exists"}],
        "spec/leader/template/spec/initContainers": [{"name": "i", "image": "i"}],
        "spec/leader/template/spec/overhead": {"cpu": "1m"},
        "spec/leader/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
        },
    }
)
PLACES = [path for path in paths_of(RICH) if path]


@given(st.sampled_from(PLACES), ANY_JSON)
@settings(max_examples=600)
def test_whatever_stands_anywhere_in_a_job_the_check_answers_and_what_it_passes_can_be_read(
    place: tuple[Any, ...], junk: Any
) -> None:
    changed = copy.deepcopy(RICH)
    target: Any = changed
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = junk
    if not validate(changed):
        job_spec(changed)


@given(ANY_JSON)
def test_the_check_answers_for_any_json(junk: Any) -> None:
    assert validate(junk)


def test_every_error_of_a_job_is_told() -> None:
    job = tyjob_with({"spec/priority": 99, "spec/cleanPodPolicy": "x", "spec/workerSets/0/counts": -1})
    fields = [error.field for error in validate(job)]
    assert fields == ["spec.workerSets[0].counts", "spec.priority", "spec.cleanPodPolicy"]


def test_a_long_value_is_cut_in_the_message() -> None:
    [error] = validate(tyjob_with({"spec/cleanPodPolicy": "x" * 10_000}))
    assert len(fault_text(error)) < 200


def test_defaults_are_applied() -> None:
    job = tyjob()
    del job["spec"]["workerSets"][0]["counts"]
    spec = job_spec(job)
    assert [(group.name, group.count) for group in spec.groups] == [("learner", 1), ("actors", 1)]
    assert (spec.min_workers, spec.priority, spec.restart_limit, spec.clean_pod_policy) == (1, 5, 3, "All")
    assert (spec.queue_policy, spec.pod_policy, spec.terminating) == ("", "", False)
    assert (spec.preemptible, spec.expected_s) == (True, None)


def test_what_a_job_says_stands_against_the_defaults() -> None:
    spec = job_spec(
        tyjob_with(
            {
                "spec/minWorkersNum": 0,
                "spec/restartLimit": 0,
                "spec/priority": 1,
                "spec/terminating": True,
                "spec/cleanPodPolicy": "None",
                "spec/schedulerPolicy": {"jobQueuePolicy": "DRF", "basicPolicy": "Gang"},
                "spec/preemptible": False,
                "spec/expectedRuntimeSeconds": 7200,
            }
        )
    )
    assert (spec.min_workers, spec.restart_limit, spec.priority, spec.terminating) == (0, 0, 1, True)
    assert (spec.clean_pod_policy, spec.queue_policy, spec.pod_policy) == ("None", "DRF", "Gang")
    assert (spec.preemptible, spec.expected_s) == (False, 7200)


def test_the_image_of_a_job_is_told_by_a_digest_and_not_by_its_name() -> None:
    plain, same = job_spec(tyjob()), job_spec(tyjob_with({"spec/priority": 9, "spec/workerSets/0/counts": 7}))
    assert plain.image == same.image and len(plain.image) == 16 and "app" not in plain.image
    image = "spec/leader/template/spec/containers/0/image"
    assert job_spec(tyjob_with({image: "app:2"})).image != plain.image
    assert job_spec(tyjob_with({"spec/leader": GONE})).image != ""
    of_workers = "spec/workerSets/0/template/spec/containers/0/image"
    assert job_spec(tyjob_with({of_workers: "app:3"})).image == plain.image
    equals = [job_spec(tyjob_with({"spec/leader": GONE, of_workers: image})).image for image in ("a", "b", "a")]
    assert equals[0] == equals[2] != equals[1]


def test_an_edit_says_what_it_changed_of_these_fields() -> None:
    old, new = spec_with(), spec_with(preemptible=False, expected_s=60)
    assert edits.changed(old, new) == "preemptible true → false, expectedRuntimeSeconds unset → 60"
    assert edits.changed(spec_with(image="i1"), spec_with(image="i2")) == "other image"


def spec_with(**fields: Any) -> JobSpec:
    return msgspec.structs.replace(job_spec(tyjob()), **{"image": "", **fields})


def test_the_leader_is_group_0_and_sets_keep_their_order() -> None:
    sets = [{"name": name, "template": template(cpu=1), "counts": 2} for name in ("z", "a", "m")]
    spec = job_spec(tyjob_with({"spec/workerSets": sets}))
    assert [group.name for group in spec.groups] == ["learner", "z", "a", "m"]
    assert spec.total_workers == 6


@pytest.mark.parametrize(
    "change", [row for row in CHANGES if row.stage not in ("", "Pending")], ids=lambda row: row.case
)
def test_a_started_job_keeps_what_its_pods_were_made_from(change: Change) -> None:
    waits = change.stage == "Rescheduling"
    refused = faults_text(refused_change(job_spec(change.before), job_spec(change.after), waits=waits))
    field, _, why = refused.partition(": ")
    assert (field, bool(why)) == (change.field, bool(change.field))


def test_a_started_jobs_pods_neither_get_labels_nor_lose_them() -> None:
    labelled = tyjob_with({"spec/leader/template/metadata": {"labels": {"app": "rl"}}, "spec/priority": 3})
    old, new = job_spec(tyjob()), job_spec(labelled)
    for before, after in ((old, new), (new, old)):
        assert refused_change(before, after) == (Fault("spec.leader", FaultKind.IMMUTABLE),)
