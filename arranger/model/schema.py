"""Checks built from a schema: that of pods, as the API server publishes it, for the controller's own check.

`python -m tests.crd_schema` writes `pod_template.json`, together with the corresponding part of `crds/tyjob.yaml`.
`pod_rules` has the rules that the schema doesn't express.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from arranger.model.checks import Check, Faults, both, flag, items, keyed, one_of, record, text, whole
from arranger.model.faults import FaultKind
from arranger.model.fields import DNS_LABEL
from arranger.model.pod_rules import QUANTITY, RULES, quantity

Schema = Mapping[str, Any]

#: The range of a number of this format.
_RANGES = {"int32": (-(1 << 31), (1 << 31) - 1), "int64": (-(1 << 63), (1 << 63) - 1)}
#: The supported rules of texts → what must match, and the fault otherwise.
_RULES = {
    f"self.matches('^{DNS_LABEL.pattern}$')": (DNS_LABEL, FaultKind.NO_DNS_LABEL),
    "self == ''": (re.compile(""), FaultKind.MUST_BE_EMPTY),
}


@cache
def definitions() -> Mapping[str, Schema]:
    content = resources.files("arranger.model").joinpath("pod_template.json").read_bytes()
    definitions: Mapping[str, Schema] = msgspec.json.decode(content)["definitions"]
    return definitions


@cache
def definition(name: str) -> Check:
    """The check of a core/v1 type by its name in the API server, as far as pod templates need it: `PodSpec`."""
    if name == QUANTITY:
        return quantity
    fields = _made(definitions()[name])
    return both(fields, RULES[name]) if name in RULES else fields


def _made(schema: Schema) -> Check:
    if "$ref" in schema:
        return definition(schema["$ref"])
    if schema.get("x-kubernetes-int-or-string"):
        return _number_or_name(schema)
    if schema["type"] == "object":
        return _object(schema)
    if schema["type"] == "array":
        return items(
            _made(schema["items"]),
            least=schema.get("minItems", 0),
            most=schema.get("maxItems"),
            keys=schema.get("x-kubernetes-list-map-keys") or (),
            unique=schema.get("x-kubernetes-list-type") == "set",
        )
    if schema["type"] == "integer":
        low, high = _RANGES[schema["format"]]
        return whole(schema.get("minimum", low), schema.get("maximum", high))
    return flag if schema["type"] == "boolean" else _text(schema)


def _object(schema: Schema) -> Check:
    if "properties" not in schema:
        return keyed(_made(schema["additionalProperties"]), most=schema.get("maxProperties"))
    return record(
        {name: _made(part) for name, part in schema["properties"].items()},
        required=schema.get("required") or (),
        closed=True,
        least=schema.get("minProperties", 0),
        most=schema.get("maxProperties"),
    )


def _text(schema: Schema) -> Check:
    if "enum" in schema:
        return one_of(*schema["enum"])
    pattern = schema.get("pattern", "")
    form, fault = re.compile(pattern, re.ASCII) if pattern else None, FaultKind.WRONG_FORM
    for rule in schema.get("x-kubernetes-validations") or ():
        form, fault = _RULES[rule["rule"]]
        if fault == FaultKind.MUST_BE_EMPTY:
            return text(form=form, fault=fault)
    return text(least=schema.get("minLength", 0), most=schema.get("maxLength"), form=form, fault=fault)


def _number_or_name(schema: Schema) -> Check:
    number = whole(schema["minimum"], schema["maximum"])
    name = text(least=schema["minLength"], most=schema["maxLength"])

    def check(value: Any, path: str) -> Faults:
        if isinstance(value, str):
            yield from name(value, path)
        else:
            yield from number(value, path)

    return check
