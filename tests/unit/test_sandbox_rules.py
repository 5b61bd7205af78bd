"""Rules of a CRD are given only the fields that they read, and what satisfied them isn't evaluated again."""

from typing import Any

import pytest

from arranger.sandbox.rules import CelRule, Scope
from arranger.sandbox.validation import Schema

_VALUE = {"name": "a", "spec": {"leader": {"name": "l"}, "sets": [{"name": "s"}]}, "status": {"stage": "Pending"}}


@pytest.mark.parametrize(
    ("rule", "read"),
    [
        ("size(self.name) < 9", {"name": "a"}),
        ("self.spec.sets.all(s, s.name != self.name)", {"name": "a", "spec": {"sets": [{"name": "s"}]}}),
        ("has(self.spec.leader) ? self . spec . leader.name == 'l' : true", {"spec": {"leader": {"name": "l"}}}),
        ("has(self.absent) || has(self.spec.absent)", {"spec": {}}),
        ("self.spec == self.spec || self.spec.leader.name == 'l'", {"spec": _VALUE["spec"]}),
        ("self.all(name, name != 'self')", _VALUE),
        ("self['name'] == 'a'", _VALUE),
        ("[self].size() == 1", _VALUE),
        ("themself.name == 'a' || self.status.stage.matches('P')", {"status": {"stage": "Pending"}}),
    ],
)
def test_a_rule_is_given_the_fields_that_it_reads(rule: str, read: dict[str, Any]) -> None:
    assert Scope([CelRule({"rule": rule})]).read(_VALUE, None) == (read, None)


def test_the_fields_of_the_message_and_of_the_value_before_are_read_too() -> None:
    rule = CelRule({"rule": "self.name == oldSelf.name", "messageExpression": "'not ' + self.status.stage"})
    read, before = Scope([rule]).read(_VALUE, _VALUE)
    assert read == {"name": "a", "status": {"stage": "Pending"}}
    assert before == {"name": "a"}


def test_a_rule_that_asks_only_whether_there_was_a_value_before_reads_nothing_of_it() -> None:
    rule = CelRule({"rule": "oldSelf.hasValue()", "optionalOldSelf": True})
    assert Scope([rule]).read(_VALUE, _VALUE) == ({}, {})
    schema = Schema({"type": "object", "x-kubernetes-preserve-unknown-fields": True, "x-kubernetes-validations": [
        {"rule": "oldSelf.hasValue()", "optionalOldSelf": True, "message": "is new"}]})  # fmt: skip
    for _ in range(2):
        assert [error.message for error in schema.broken_rules({}, None)] == ["Invalid value: is new"]
        assert schema.broken_rules({}, {"a": 1}) == []


def test_what_was_good_after_one_value_is_evaluated_again_after_another() -> None:
    rule = {"rule": "self.name == oldSelf.name", "message": "is immutable"}
    schema = Schema({"type": "object", "x-kubernetes-validations": [rule], "properties": {"name": {"type": "string"}}})
    for _ in range(2):
        assert schema.broken_rules({"name": "a", "more": 1}, {"name": "a", "more": 2}) == []
        assert len(schema.broken_rules({"name": "a"}, {"name": "b"})) == 1
        assert schema.broken_rules({"name": "a"}, None) == []
