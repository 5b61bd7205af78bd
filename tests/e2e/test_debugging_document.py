"""The output in docs/debugging.md and docs/fairness.md is current: each command is run again on the committed logs of
real runs."""

import re
from pathlib import Path

import pytest

from tests.debugging_document import DOCUMENT, FAIRNESS, commands, written_again
from tests.servers import REPOSITORY

TEXT = DOCUMENT.read_text(encoding="utf-8")


def _steady(text: str) -> list[str]:
    """The text without sizes and digests, which depend on libraries and on the layout of snapshots."""
    return re.sub(r"[\d,]+ bytes|digest [0-9a-f]{32}", "…", text).splitlines()


@pytest.mark.parametrize("document", [DOCUMENT, FAIRNESS], ids=["debugging", "fairness"])
def test_every_command_prints_what_the_document_says(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert _steady(written_again(text)) == _steady(text), "python -m tests.debugging_document writes it again"


def test_each_kind_of_room_is_shown() -> None:
    text = FAIRNESS.read_text(encoding="utf-8")
    words = [command.split()[1] for command in commands(text)]
    assert {"waits", "preemptions", "what-if", "explain"} <= set(words)
    assert all(f"({kind})" in text for kind in ("Surplus", "Priority", "Reclaim", "Guest"))


def test_the_walkthrough_has_every_step() -> None:
    words = [command.split()[1] for command in commands(TEXT)]
    assert {"replay", "events", "explain", "bisect", "what-if", "export", "import", "verify"} <= set(words)


def test_the_document_is_found_from_those_that_are_read_first() -> None:
    for path, link in (("README.md", "docs/debugging.md"), ("docs/operations.md", "debugging.md")):
        assert f"({link})" in (REPOSITORY / path).read_text(encoding="utf-8")
