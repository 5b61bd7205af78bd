"""What is declared is told and used: a field of a TYJob or a Queue, and a policy."""

import re
from functools import cache

import pytest

from arranger.model.fields import Declared, declared
from arranger.model.job import JobSpec
from arranger.model.queue import QueueSpec
from arranger.model.validation import BUILT_IN_POLICIES
from tests.servers import REPOSITORY

FIELDS = [(record, of) for record in (JobSpec, QueueSpec) for of in declared(record)]


@cache
def code() -> str:
    """All modules but those that declare."""
    modules = sorted((REPOSITORY / "arranger").rglob("*.py"))
    return "".join(
        of.read_text() for of in modules if of.name not in ("job.py", "queue.py") or of.parent.name != "model"
    )


@pytest.mark.parametrize(("record", "of"), FIELDS, ids=[f"{record.__name__}.{of.name}" for record, of in FIELDS])
def test_a_field_has_its_words_and_is_read(record: type, of: Declared) -> None:
    document = "jobs" if record is JobSpec else "queues"
    text = (REPOSITORY / "docs" / f"{document}.md").read_text()
    assert re.search(rf"\b{of.name}\b", text), f"docs/{document}.md says nothing of {of.name}"
    assert re.search(rf"\.{of.attribute}\b", code()), f"nothing reads {record.__name__}.{of.attribute}"


@pytest.mark.parametrize("policy", [*BUILT_IN_POLICIES.queue, *BUILT_IN_POLICIES.pod])
def test_a_policy_has_its_words(policy: str) -> None:
    text = (REPOSITORY / "docs" / "policies.md").read_text()
    assert re.search(rf"\b{policy}\b", text), f"docs/policies.md says nothing of {policy}"
