"""The own check of a Queue, and its spec in the log."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arranger.messages.faults import fault_text
from arranger.model.pod import Requirement
from arranger.model.provisioning import Provisioning
from arranger.model.queue import (
    DEFAULT_SPEC,
    NamespaceRule,
    NonPreemptible,
    Preemption,
    PreemptionMode,
    QueueSpec,
    QueueState,
    ScheduledFailed,
)
from arranger.model.queue_rules import queue_spec, validate_queue
from tests.servers import QUEUE_CRD, definition_of
from tests.unit.queue_table import BAD, EVERY_FIELD, GOOD, GPU, queue
from tests.unit.test_crd_schema import OWN, bare, resolved
from tests.unit.test_tyjob_validation import ANY_JSON, paths_of
from tests.unit.tyjob_table import Bad, Good

SCHEMA = definition_of(QUEUE_CRD)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
SPEC = SCHEMA["properties"]["spec"]["properties"]


@pytest.mark.parametrize("good", GOOD, ids=lambda row: row.case)
def test_a_good_queue_is_accepted(good: Good) -> None:
    assert validate_queue(good.tyjob) == []
    queue_spec(good.tyjob)


@pytest.mark.parametrize("bad", BAD, ids=lambda row: row.case)
def test_a_bad_queue_is_refused_naming_the_field(bad: Bad) -> None:
    faults = validate_queue(bad.tyjob)
    assert [fault.field for fault in faults] == [bad.field]
    assert bad.says in fault_text(faults[0])


RICH = queue(**EVERY_FIELD)
PLACES = [path for path in paths_of(RICH) if path]


@given(st.sampled_from(PLACES), ANY_JSON)
def test_whatever_stands_anywhere_in_a_queue_the_check_answers_and_what_it_passes_can_be_read(
    place: tuple[Any, ...], junk: Any
) -> None:
    changed = copy.deepcopy(RICH)
    target: Any = changed
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = junk
    if not validate_queue(changed):
        queue_spec(changed)


@given(ANY_JSON)
def test_the_check_answers_for_any_json(junk: Any) -> None:
    assert validate_queue(junk)


def test_a_queue_without_fields_has_the_defaults() -> None:
    spec = queue_spec(queue())
    assert spec == DEFAULT_SPEC == QueueSpec()
    assert (spec.weight, spec.reclaimable, spec.state, spec.min_runtime_s) == (1, True, QueueState.OPEN, None)
    assert queue_spec(queue(**dict.fromkeys(EVERY_FIELD))) == DEFAULT_SPEC


def test_amounts_are_in_the_units_of_the_house() -> None:
    spec = queue_spec(RICH)
    assert spec.guarantee == (("cpu", 2000), (GPU, 4))
    assert spec.capability == (
        ("cpu", 2500), ("ephemeral-storage", 10**9), ("hugepages-2Mi", 4 << 20), ("memory", 3 << 29), (GPU, 8),
    )  # fmt: skip
    assert queue_spec(queue(capability={GPU: 0})).capability == ((GPU, 0),)


def test_every_field_is_read() -> None:
    never = PreemptionMode.NEVER
    selector = (Requirement("team", "In", ("rl",)), Requirement("a", "Exists", ()))
    spec = queue_spec(RICH)
    assert spec == QueueSpec(
        "all", 65535, spec.guarantee, spec.deserved, spec.capability, False, NamespaceRule((), selector), -5, 0,
        1_000_000, "DRF", True, 600, Preemption(never, PreemptionMode.ALLOWED, never), QueueState.CLOSED,
        ScheduledFailed.NEVER, Provisioning.REQUEST, NonPreemptible.WITHIN_DESERVED,
    )  # fmt: skip
    differing = [name for name in spec.__struct_fields__ if getattr(spec, name) == getattr(DEFAULT_SPEC, name)]
    assert differing == []


@pytest.mark.parametrize(
    ("rule", "admitted"),
    [
        ({"names": ["rl"]}, True),
        ({"names": ["other"]}, False),
        ({"selector": {}}, True),
        ({"selector": {"matchLabels": {"team": "rl"}}}, True),
        ({"selector": {"matchLabels": {"team": "vision"}}}, False),
        ({"selector": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["rl"]}]}}, False),
        ({"selector": {"matchExpressions": [{"key": "new", "operator": "DoesNotExist"}]}}, True),
    ],
    ids=str,
)
def test_namespaces_are_admitted_by_name_or_by_their_labels(rule: Any, admitted: bool) -> None:
    found = queue_spec(queue(namespaces=rule)).namespaces
    assert found is not None and found.admits("rl", {"team": "rl"}) is admitted


def test_the_definition_has_what_the_check_knows_and_no_default_but_that_which_a_column_shows() -> None:
    assert sorted(SPEC) == sorted(EVERY_FIELD)
    assert str(bare(SCHEMA)).count("'default': ") == 1 and SPEC["weight"]["default"] == DEFAULT_SPEC.weight
    assert bare(SPEC["namespaces"]["properties"]["selector"]) == resolved(OWN["LabelSelector"])
    described = [*SPEC.values(), *SCHEMA["properties"]["status"]["properties"].values()]
    assert all(each.get("description") for each in described)
