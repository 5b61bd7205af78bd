"""The generated part of the resource definition and the controller's own check are made from the same."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from arranger.messages.faults import fault_text
from arranger.model.pod_rules import RULES as COUNTERPARTS
from arranger.model.schema import _text, definition
from arranger.sandbox.validation import Schema
from tests import crd_fields
from tests.crd_schema import DEFINITIONS, RULES, crd_text, reduced
from tests.servers import TYJOB_CRD
from tests.tyjob_schema import wrong_status
from tests.unit.tyjob_table import GONE, SETS, tyjob_with

CRD = yaml.load(TYJOB_CRD.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
SPEC = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
FOR_STATUSES = CRD["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
OWN = json.loads(DEFINITIONS.read_text())["definitions"]


def bare(schema: Any) -> Any:
    """Without what only the API server needs: descriptions, and rules that aren't just about one text."""
    if isinstance(schema, list):
        return [bare(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: bare(part) for key, part in schema.items() if key != "description" or not isinstance(part, str)}
    if schema.get("type") != "string":
        kept.pop("x-kubernetes-validations", None)
    return kept


def resolved(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return resolved(OWN[schema["$ref"]])
    return {key: resolved(part) for key, part in schema.items()}


@pytest.mark.parametrize(
    ("generated", "name"),
    [
        (SPEC["leader"]["properties"]["template"], "PodTemplateSpec"),
        (SPEC["workerSets"]["items"]["properties"]["template"], "PodTemplateSpec"),
        (SPEC["volumes"]["items"], "Volume"),
    ],
    ids=["leader", "workers", "volumes"],
)
def test_the_controllers_own_check_is_made_from_what_the_resource_says(generated: Any, name: str) -> None:
    assert bare(generated) == resolved(OWN[name])


def ruled(schema: Any) -> Iterator[bool]:
    """Whether there is a rule in this that a pattern can't say."""
    if isinstance(schema, dict):
        rules = schema.get("x-kubernetes-validations", ())
        yield any("self.matches(" not in rule["rule"] and rule["rule"] != "self == ''" for rule in rules)
        for part in schema.values():
            yield from ruled(part)


def test_each_definition_with_rules_has_their_counterpart_in_the_controllers_own_check() -> None:
    rules = yaml.safe_load(RULES.read_text())
    assert {name for name, schema in rules.items() if any(ruled(schema))} == set(COUNTERPARTS)


@pytest.mark.parametrize("name", sorted(OWN))
def test_every_definition_can_be_checked(name: str) -> None:
    assert list(definition(name)([], "here"))


NO_ACTORS = [{**SETS[0], "counts": 0}, *SETS[1:2], {**SETS[2], "minCount": 0}]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"spec/workerSets/0/groupSize": 0}, "groupSize"),
        ({"spec/workerSets/0/groupSize": -3, "spec/minWorkersNum": 2}, "groupSize"),
        ({"spec/workerSets/0/groupSize": 0, "spec/replicas": 2}, "groupSize"),
        ({"spec/workerSets/0/groupSize": 0, "spec/workerSets/0/restart": {"scope": "Worker"}}, "groupSize"),
        ({"spec/workerSets/0/groupSize": 0, "spec/leader": GONE}, "groupSize"),
        ({"spec/workerSets/0/counts": 0, "spec/minWorkersNum": 2}, "counts"),
        ({"spec/workerSets/0/counts": 0, "spec/workerSets/0/minCount": 1}, "counts"),
        ({"spec/workerSets": NO_ACTORS, "spec/scaledSet": "replay", "spec/replicas": 0}, "counts"),
    ],
)  # fmt: skip
def test_a_number_out_of_range_breaks_no_rule_between_fields_too(changes: dict[str, Any], field: str) -> None:
    schema = Schema(CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    job = tyjob_with(changes)
    schema.default(job)
    found = schema.verdict(job, None, [])
    assert [error.field for error in found] == [f"spec.workerSets[0].{field}"], found


def messages(schema: Any, field: str = "") -> Iterator[tuple[str, str, str]]:
    """The rules of texts in a schema: field, rule and message."""
    if isinstance(schema, dict):
        if schema.get("type") == "string":
            for rule in schema.get("x-kubernetes-validations", ()):
                yield field, rule["rule"], rule["message"]
        for name, part in schema.items():
            yield from messages(part, name)


@pytest.mark.parametrize(("field", "rule", "message"), sorted(set(messages(OWN))))
def test_the_words_about_a_texts_rule_are_those_of_the_resource(field: str, rule: str, message: str) -> None:
    check = _text({"type": "string", "x-kubernetes-validations": [{"rule": rule, "message": message}]})
    assert [fault_text(fault) for fault in check("A b", f"spec.{field}")] == [
        f'spec.{field}: Invalid value: "A b": {message}'
    ]


PUBLISHED: dict[str, Any] = {
    "components": {
        "schemas": {
            "io.k8s.api.core.v1.PodTemplateSpec": {
                "description": "a template",
                "type": "object",
                "properties": {
                    "volume": {"default": {}, "allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.Volume"}]},
                    "names": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
                    "description": {"type": "string", "x-kubernetes-patch-strategy": "merge"},
                },
            },
            "io.k8s.api.core.v1.Volume": {"type": "object", "properties": {"name": {"type": "string", "default": ""}}},
            "io.k8s.api.core.v1.Node": {"type": "object"},
        }
    }
}


def test_only_what_a_template_refers_to_is_taken_and_only_what_a_structural_schema_may_say() -> None:
    assert reduced(PUBLISHED, {}) == {
        "PodTemplateSpec": {
            "type": "object",
            "properties": {
                "volume": {"$ref": "Volume"},
                "names": {"type": "array", "items": {"type": "string"}},
                "description": {"type": "string"},
            },
        },
        "Volume": {"type": "object", "properties": {"name": {"type": "string"}}},
    }


def test_rules_are_merged_over_what_is_published_and_a_null_takes_away() -> None:
    rules = {"PodTemplateSpec": {"required": ["volume"], "properties": {"names": None, "volume": {"type": "string"}}}}
    assert reduced(PUBLISHED, rules)["PodTemplateSpec"] == {
        "type": "object",
        "required": ["volume"],
        "properties": {"volume": {"type": "string"}, "description": {"type": "string"}},
    }


def test_a_rule_for_what_no_template_has_is_an_error() -> None:
    with pytest.raises(ValueError, match="Node"):
        reduced(PUBLISHED, {"Node": {"required": ["spec"]}})


def test_what_stands_between_the_marks_is_made_again_and_the_rest_is_kept() -> None:
    text = (
        "before: 1\nspec:\n  # Generated by `python -m tests.crd_schema`: volume is a Volume.\n  volume: old\n"
        "  # End of what is generated.\nafter: *Volume\n"
    )
    made = crd_text(text, reduced(PUBLISHED, {}))
    assert yaml.safe_load(made) == {
        "before": 1,
        "spec": {"volume": {"type": "object", "properties": {"name": {"type": "string"}}}},
        "after": {"type": "object", "properties": {"name": {"type": "string"}}},
    }
    assert crd_text(made, reduced(PUBLISHED, {})) == made


@pytest.mark.parametrize("path", crd_fields.FILES, ids=lambda path: path.name)
def test_what_follows_from_declared_fields_stands_in_the_definition(path: Path) -> None:
    assert crd_fields.crd_text(path) == path.read_text(encoding="utf-8"), "python -m tests.crd_fields writes it"


def test_the_version_for_statuses_has_every_field_of_a_spec_and_checks_none() -> None:
    assert list(FOR_STATUSES) == list(SPEC)
    assert all(schema == {"x-kubernetes-preserve-unknown-fields": True} for schema in FOR_STATUSES.values())


@pytest.mark.parametrize(
    ("status", "wrong"),
    [
        ({"stage": "Running", "attempt": 0, "message": None}, []),
        ({"stage": "Nowhere"}, ["status.stage: Unsupported value"]),
        ({"attempt": "0"}, ["status.attempt: Invalid value"]),
        ({"noSuchField": 1}, ["status.noSuchField is unknown"]),
        ({"lastFailures": [{}]}, ["status.lastFailures[0]."]),
    ],
)
def test_a_status_that_v1_would_not_take_is_found(status: dict[str, Any], wrong: list[str]) -> None:
    found, _ = wrong_status(status)
    assert len(found) >= len(wrong) and bool(found) == bool(wrong)
    assert all(text.startswith(begin) for text, begin in zip(found, wrong, strict=False))
