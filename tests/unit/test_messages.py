"""Sentences about decisions: each reason has one, facts stand in it, and no code depends on how it is put."""

import re
from pathlib import Path

import pytest

from arranger.events import kinds as k
from arranger.events.facts import NO_FACTS, EndCause, EndKind, StageFacts
from arranger.messages.decisions import replaced_text, stage_text
from arranger.model.job import JobSpec, Stage
from arranger.model.node import Taint
from arranger.model.stages import TRANSITIONS, StageReason
from tests.world import World, shape

ACTIVE = ("Pending", "Starting", "Running", "Rescheduling")
ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"


def spec() -> JobSpec:
    return World().job("ppo", workers=[("actors", 3, shape(cpu=1))]).valid_spec


def decided(reason: StageReason, facts: StageFacts = NO_FACTS) -> k.StageDecided:
    return k.StageDecided("uid", 1, 0, Stage.FAILED, reason, facts)


@pytest.mark.parametrize("reason", StageReason)
def test_every_reason_has_a_sentence(reason: StageReason) -> None:
    assert stage_text(decided(reason)) or reason == StageReason.INVALID_SPEC  # which is all another's words


def test_a_sentence_of_an_earlier_version_is_shown_as_it_was_recorded() -> None:
    assert stage_text(decided(StageReason.OTHER, StageFacts(sentence="as it was said"))) == "as it was said"
    recorded = EndCause(EndKind.LOST, k.Place(0, 0), 0, sentence="as it was said")
    assert replaced_text((recorded,), None) == "as it was said"


def test_replaced_workers_are_named_by_their_set_with_why_the_first_of_each_kind_ended() -> None:
    taint = Taint("gpu", "broken", "NoExecute")
    causes = (
        EndCause(EndKind.FAILED, k.Place(1, 0), 1, words="OOMKilled"),
        EndCause(EndKind.LOST, k.Place(1, 1), 3, node="n1", taint=taint),
        EndCause(EndKind.OVER_LIMIT, k.Place(2, 1), 1, node="n2"),
    )
    assert replaced_text(causes, spec()) == (
        "workers replaced: failed: actors 0 (OOMKilled); "
        "lost: actors 1 and 2 more (node n1 has the taint gpu=broken:NoExecute); given up: group 2 1 (node n2)"
    )
    assert replaced_text((), spec()) == ""


def test_the_documents_table_of_stages_is_the_one_that_controllers_decide_by() -> None:
    rows = ARCHITECTURE.read_text().partition("| from | reason |")[2].partition("\n\n")[0].splitlines()[2:]
    told: set[tuple[str, str]] = set()
    for stages, reasons, _, to in (row.strip("|").split("|") for row in rows):
        found = [*ACTIVE] if stages.strip() == "any" else [stage.strip() for stage in stages.split(",")]
        told.update((stage, reason) for stage in found for reason in re.findall(r"`(\w+)`", reasons))
        for stage, reason in ((stage, reason) for stage in found for reason in re.findall(r"`(\w+)`", reasons)):
            assert to.strip().startswith(TRANSITIONS[Stage(stage), StageReason(reason)])
    assert told == {(str(stage), str(reason)) for stage, reason in TRANSITIONS}
