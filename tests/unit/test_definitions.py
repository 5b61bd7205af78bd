"""The definition of a resource and the controller's own check know the same: each field, each word of an enumeration,
and the least and the most of each number."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import yaml

from arranger.kube import crd
from arranger.model.checks import record
from arranger.model.faults import Fault, FaultKind
from arranger.model.queue_rules import validate_queue
from arranger.model.validation import PolicyNames, validate

#: A field, a word and a number that no definition has.
NOTHING, FAR = "no-such-thing", 1 << 60

#: What is made from Kubernetes' own schema, which `test_crd_schema.py` compares.
GENERATED = {"template", "volumes", "selector"}

Validate = Callable[[Any], list[Fault]]


def schema_of(text: str) -> dict[str, Any]:
    whole: dict[str, Any] = yaml.safe_load(text)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return whole


def paths(schema: dict[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Every part of a spec with its path; "[]" is an item of a list."""
    yield at, schema
    for name, part in schema.get("properties", {}).items():
        if name not in GENERATED and (at or name == "spec"):
            yield from paths(part, (*at, name))
    if "items" in schema:
        yield from paths(schema["items"], (*at, "[]"))


def with_value(at: Sequence[str], value: Any) -> Any:
    """An object that has only this value, at this path."""
    for name in reversed(at):
        value = [value] if name == "[]" else {name: value}
    return value


def limits(check: Validate, at: Sequence[str], value: Any, *kinds: FaultKind) -> list[tuple[str, ...]]:
    """What the check allows instead of a value at a path."""
    field = ".".join(at).replace(".[]", "[0]")
    found = [fault for fault in check(with_value(at, value)) if fault.kind in kinds]
    return [fault.limits for fault in found if fault.field in (field, f"{field}.{NOTHING}", NOTHING)]


def apart(schema: dict[str, Any], check: Validate) -> Iterator[str]:
    """In what a definition and a check differ."""
    for at, part in paths(schema):
        path = ".".join(at) or "the object"
        if "properties" in part:
            known = {name for of in limits(check, at, {NOTHING: 1}, FaultKind.UNKNOWN_FIELD) for name in of}
            for name in sorted(part["properties"].keys() ^ known):
                yield f"{path}: {name} is in the {'check' if name in known else 'definition'} alone"
        if "enum" in part:
            allowed = limits(check, at, NOTHING, FaultKind.NOT_SUPPORTED)
            if [sorted(of) for of in allowed] != [sorted(part["enum"])]:
                yield f"{path}: {part['enum']} in the definition and {allowed} in the check"
        if part.get("type") == "integer":
            for bound, value, kind in (
                ("minimum", -FAR, FaultKind.BELOW_MINIMUM),
                ("maximum", FAR, FaultKind.ABOVE_MAXIMUM),
            ):
                least = part.get(bound, (-1 if bound == "minimum" else 1) * (1 << 31) - (bound == "maximum"))
                if limits(check, at, value, kind) != [(str(least),)]:
                    yield f"{path}: {bound} {least} in the definition, {limits(check, at, value, kind)} in the check"


DEFINED = {"TYJob": (crd.tyjob_crd, validate), "Queue": (crd.queue_crd, validate_queue)}


@pytest.mark.parametrize("kind", DEFINED)
def test_the_definition_and_the_check_know_the_same(kind: str) -> None:
    text, check = DEFINED[kind]
    assert [*apart(schema_of(text()), check)] == []


def test_what_one_of_them_lacks_is_named() -> None:
    schema = schema_of(crd.tyjob_crd())
    spec = schema["properties"]["spec"]["properties"]
    del spec["after"]["items"]["properties"]["onFailure"]
    spec["newField"] = {"type": "boolean"}
    spec["cleanPodPolicy"]["enum"].append("Never")
    spec["priority"]["maximum"] = 11
    assert sorted(apart(schema, validate)) == [
        "spec.after.[]: onFailure is in the check alone",
        "spec.cleanPodPolicy: ['Running', 'All', 'None', 'Never'] in the definition and "
        "[('Running', 'All', 'None')] in the check",
        "spec.priority: maximum 11 in the definition, [('10',)] in the check",
        "spec: newField is in the definition alone",
    ]


def test_a_check_that_takes_any_field_is_noticed() -> None:
    open_ended = record({"spec": record({})})
    schema = {"properties": {"spec": {"properties": {"weight": {}}}}}
    found = [*apart(schema, lambda value: [*open_ended(value, "")])]
    assert found == ["the object: spec is in the definition alone", "spec: weight is in the definition alone"]


def test_policies_of_other_packages_get_into_the_definition() -> None:
    schema = schema_of(crd.tyjob_crd(PolicyNames(("Priority", "Mine"), ("Gang", "Other"))))
    policy = schema["properties"]["spec"]["properties"]["schedulerPolicy"]["properties"]
    assert (policy["jobQueuePolicy"]["enum"], policy["basicPolicy"]["enum"]) == (
        ["Priority", "Mine"],
        ["Gang", "Other"],
    )


@pytest.mark.parametrize("changed", ["", "x: enum: [Priority, DRF]\n"], ids=["none", "two"])
def test_a_definition_whose_policies_are_not_where_they_are_replaced_is_refused(
    monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    text = crd._text("tyjob.yaml").replace("enum: [Priority, DRF]", "enum: [Priority,  DRF]") if not changed else ""
    monkeypatch.setattr(crd, "_text", lambda _: text or changed * 2)
    with pytest.raises(ValueError, match=r"has \d lines with enum: \[Priority, DRF\]"):
        crd.tyjob_crd()
