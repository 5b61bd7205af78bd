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


def wrong_status(patch: Mapping[str, Any]) -> list[str]:
    """What the schema of v1 says against a status; `patch` names every field and has null for one without a value."""
    schema = _status_schema()
    status = msgspec.json.decode(msgspec.json.encode({name: part for name, part in patch.items() if part is not None}))
    unknown = schema.prune(status, "status")
    return [f"{path} is unknown" for path in unknown] + [
        f"{error.field}: {error.message}"
        for error in [*schema.errors(status, "status"), *schema.broken_rules(status, None, "status")]
    ]
