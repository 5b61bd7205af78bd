"""The same inputs lead to the same decisions, whatever the log's format and the house look like."""

import difflib

import pytest

from tests.decisions import FILE, decisions


@pytest.mark.slow
def test_a_busy_hour_has_the_decisions_that_were_recorded() -> None:
    before, now = FILE.read_text().splitlines(), list(decisions())
    assert len(before) > 500
    changed = [*difflib.unified_diff(before, now, "recorded", "now", n=0, lineterm="")]
    assert not changed, "\n".join(changed[:40])
