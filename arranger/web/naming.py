"""The names in the API: camelCase in its JSON, as in Kubernetes, its path, a header and a media type.

The commands' JSON has the fields' own names, such as `time_ms`. A field's name consists of lower-case words and
underscores. Keys that are data, such as names of resources, nodes and queues, are never of that form: Kubernetes allows
underscores only in keys of labels and resources, and those of resources then have a domain.
"""

import re
from typing import Any

#: The header of a token that comes through the API server's proxy, which takes it out of the header `Authorization`.
PASSED_TOKEN = "X-Arranger-Authorization"
PREFIX = "/api/v1"
#: The header of an answer with the epoch of the log that it is about: another epoch is another log.
EPOCH = "X-Arranger-Epoch"
#: The type of a body with Kubernetes objects.
MANIFESTS_TYPE = "application/yaml"
#: The type of an answer of lines as the command prints them, with its own names.
LINES_TYPE = "application/x-ndjson"
#: Hosts on which nobody but this machine's users can listen and ask.
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_FIELD = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+")


def camel(name: str) -> str:
    """The API's name of a field; any other key is returned as it is."""
    if not _FIELD.fullmatch(name):
        return name
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def named(value: Any) -> Any:
    """A command's JSON with the API's names, and without `time` beside `timeMs`: it is in the server's local time."""
    if isinstance(value, dict):
        doubled = "time" in value and "time_ms" in value
        return {camel(key): named(item) for key, item in value.items() if not (doubled and key == "time")}
    if isinstance(value, (list, tuple)):
        return [named(item) for item in value]
    return value
