"""Who created a TYJob: from its annotations into the log, and from there to `arranger explain`."""

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arranger.kube.creator import NAME_LIMIT, creator_of, groups_digest
from arranger.kube.translate import job_seen
from tests.unit.replay_worlds import explained
from tests.unit.test_translate import JOB
from tests.world import World

BY, GROUPS = "arranger.dev/created-by", "arranger.dev/created-by-groups"


def created(**annotations: Any) -> dict[str, Any]:
    return {**JOB, "metadata": {**JOB["metadata"], **annotations}}


def test_the_creator_and_a_hash_of_the_groups_are_observed() -> None:
    seen = job_seen(created(annotations={BY: "ann@example.com", GROUPS: "b\na"}), 5, with_status=False)
    assert seen.created_by == "ann@example.com"
    assert seen.created_by_groups == hashlib.sha256(b"a\nb").hexdigest()[:16]


@pytest.mark.parametrize("metadata", [{}, {"annotations": None}, {"annotations": {"other": "x"}}])
def test_without_the_annotations_nobody_is_known(metadata: dict[str, Any]) -> None:
    seen = job_seen(created(**metadata), 5, with_status=False)
    assert (seen.created_by, seen.created_by_groups) == ("", "")


def test_the_order_of_the_groups_does_not_matter_but_their_names_do() -> None:
    assert groups_digest("a\nb\nc") == groups_digest("c\na\nb")
    assert groups_digest("a\nb") != groups_digest("a b")
    assert groups_digest("") == ""


@given(st.none() | st.text() | st.integers(), st.none() | st.text() | st.integers())
def test_whatever_users_write_there_is_one_short_line(name: Any, groups: Any) -> None:
    by, digest = creator_of({"annotations": {BY: name, GROUPS: groups}})
    assert (by.isprintable() or not by) and len(by) <= NAME_LIMIT
    assert len(digest) in (0, 16)


def test_explain_has_the_creator() -> None:
    world = World()
    world.job("train", created_by=("ann", "0123456789abcdef"))
    standing = explained(world.entries, "train").standing
    assert (standing.created_by, standing.created_by_groups) == ("ann", "0123456789abcdef")
