"""The schema of TYJobs as arranger.dev/v1, for checks of statuses that are written in another version."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from arranger.sandbox.kinds import custom_kinds
from arranger.sandbox.validation import Schema
from tests.servers import tyjob_definition


@lru_cache(maxsize=1)
def _status_schema() -> Schema:
    stored = custom_kinds(tyjob_definition())[0]
    assert stored.schema is not None
    return stored.schema.properties["status"]


def wrong_status(patch: Mapping[str, Any], before: Any = None) -> tuple[list[str], dict[str, Any]]:
    """What the schema of v1 says against a status, and that status; `patch` names every field and has null for one
    without a value. Fields that are as in a right one `before` aren't checked again."""
    schema = _status_schema()
    status = msgspec.json.decode(msgspec.json.encode({name: part for name, part in patch.items() if part is not None}))
    unknown = schema.prune(status, "status")
    return [f"{path} is unknown" for path in unknown] + [
        f"{error.field}: {error.message}"
        for error in [*schema.errors(status, "status", before), *schema.broken_rules(status, None, "status")]
    ], status
