"""Who created a TYJob, as the API server recorded it in annotations (the policies `arranger-created-by` of `deploy/`).

The field managers in `managedFields` aren't used for this: clients choose these names, so they prove nothing. The log
keeps a hash of the groups and not their names, which tell more about a person than anybody needs to read there.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from arranger.model.names import CREATED_BY_ANNOTATION, CREATED_BY_GROUPS_ANNOTATION
from arranger.model.text import first_line

#: Limit of a user's name in the log, in characters.
NAME_LIMIT = 253


def creator_of(metadata: Mapping[str, Any]) -> tuple[str, str]:
    """The name of the user who created the object, and `groups_digest` of that user's groups; "" for what isn't known.

    Never raises, whatever the annotations contain: without the policies, anybody can write them.
    """
    annotations = metadata.get("annotations")
    if not annotations:
        return "", ""
    return first_line(_text(annotations, CREATED_BY_ANNOTATION), NAME_LIMIT), groups_digest(
        _text(annotations, CREATED_BY_GROUPS_ANNOTATION)
    )


def groups_digest(groups: str) -> str:
    """A short identifier of a user's groups, which come a line each and in any order; "" for none.

    It is the first 16 hexadecimal digits of the SHA-256 of the sorted names, joined by line ends.
    """
    if not groups:
        return ""
    names = "\n".join(sorted(groups.split("\n")))
    return hashlib.sha256(names.encode(errors="replace")).hexdigest()[:16]


def _text(annotations: Mapping[str, Any], name: str) -> str:
    value = annotations.get(name)
    return value if isinstance(value, str) else ""
