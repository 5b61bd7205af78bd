"""Names and labels of a job's pods, and the way back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arranger.model.names import job_name, known_labels, owner_of, pod_labels, pod_name
from arranger.model.pod import PodOwner

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True)


@given(NAMES, NAMES, st.booleans(), st.integers(0, 9999), st.integers(0, 20))
def test_a_pods_place_is_found_again(job: str, group: str, leader: bool, index: int, attempt: int) -> None:
    index = 0 if leader else index
    labels = pod_labels(job, group, leader=leader, index=index, attempt=attempt)
    found = owner_of(pod_name(job, group, index, attempt), labels, job=job, job_uid="u")
    assert found == PodOwner(job_uid="u", attempt=attempt, group_name=group, leader=leader, index=index)
    assert job_name(pod_name(job, group, index, attempt), found) == job


def test_all_pods_of_a_group_share_the_labels_that_say_neither_index_nor_attempt() -> None:
    every = pod_labels("train", "actors", leader=False, index=3, attempt=1)
    known = known_labels("train", "actors", leader=False)
    assert known.items() <= every.items() and every.keys() - known.keys() == {
        "arranger.dev/index",
        "arranger.dev/attempt",
    }


def test_names_and_labels_read_well() -> None:
    assert pod_name("train", "actors", 3, 0) == "train-actors-3"
    assert pod_name("train", "learner", 0, 2) == "train-learner-0-r2"
    assert pod_labels("train", "actors", leader=False, index=3, attempt=1) == {
        "arranger.dev/job": "train",
        "arranger.dev/role": "worker",
        "arranger.dev/worker-set": "actors",
        "arranger.dev/index": "3",
        "arranger.dev/attempt": "1",
    }
    assert "arranger.dev/worker-set" not in pod_labels("train", "learner", leader=True, index=0, attempt=0)


def test_the_longest_name_fits_into_63_characters() -> None:
    assert len(pod_name("j" * 25, "w" * 25, 9999, 99_999)) == 63


@pytest.mark.parametrize(
    ("label", "value"),
    [
        ("job", "other"),
        ("role", "boss"),
        ("role", "leader"),
        ("worker-set", "other"),
        ("worker-set", None),
        ("index", "4"),
        ("index", "03"),
        ("index", "-3"),
        ("index", "three"),
        ("index", "³"),
        ("index", None),
        ("attempt", "1"),
        ("attempt", ""),
        ("attempt", "9" * 5000),
        ("attempt", None),
    ],
)
def test_labels_that_do_not_fit_the_name_make_a_stranger(label: str, value: str | None) -> None:
    labels = pod_labels("train", "actors", leader=False, index=3, attempt=0)
    assert owner_of("train-actors-3", labels, job="train", job_uid="u") is not None
    if value is None:
        del labels[f"arranger.dev/{label}"]
    else:
        labels[f"arranger.dev/{label}"] = value
    assert owner_of("train-actors-3", labels, job="train", job_uid="u") is None


def test_a_leader_has_index_0() -> None:
    labels = pod_labels("train", "learner", leader=True, index=1, attempt=0)
    assert owner_of("train-learner-1", labels, job="train", job_uid="u") is None
