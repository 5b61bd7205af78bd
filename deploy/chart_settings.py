"""Writes the settings into the chart's schema of values, with what each of them allows: `make chart`.

Helm then refuses a value that every process would refuse at its start.
"""

import json
from pathlib import Path
from typing import Any

import msgspec

from arranger.settings import Settings

SCHEMA = Path(__file__).resolve().parent / "chart" / "values.schema.json"
#: Settings that have a value of their own in the chart, or that its other objects rely on.
ELSEWHERE = {
    *("redis_url", "log_key", "archive_url", "kubeconfig", "context", "http_host", "http_port", "namespace"),
    *("volumes", "devices"),
}
#: What a schema says of a value, beside its type. A text may be a number's, which the process reads.
_BOUNDS = ("enum", "pattern", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_ANY = ["string", "number", "boolean"]
_TYPES = {"integer": ["string", "integer"], "number": ["string", "number"]}


def allowed() -> dict[str, Any]:
    """Setting → the schema of its value."""
    (settings,) = msgspec.json.schema_components([Settings])[1].values()
    return {name: _allowed(one) for name, one in settings["properties"].items() if name not in ELSEWHERE}


def _allowed(of: dict[str, Any]) -> dict[str, Any]:
    bounds = {name: of[name] for name in _BOUNDS if name in of}
    return bounds if "enum" in bounds else {"type": _TYPES.get(of.get("type", ""), _ANY), **bounds}


def main() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    schema["properties"]["settings"]["properties"] = allowed()
    SCHEMA.write_text(json.dumps(schema, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
