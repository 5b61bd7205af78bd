"""Valid names of objects, labels and resources; the wording is the real server's."""

import re
from collections.abc import Iterator

from arranger.sandbox.status import FieldError
from arranger.sandbox.validation import wrong

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
DNS_LABEL = re.compile(_LABEL)
DNS_SUBDOMAIN = re.compile(_SUBDOMAIN)
QUALIFIED = re.compile(_QUALIFIED)

LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
QUALIFIED_TEXT = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'({_QUALIFIED})?')"
)


def name_errors(name: str, path: str, *, label: bool = False) -> Iterator[FieldError]:
    """The errors in a name: it must be a DNS subdomain of 253 characters, or a DNS label of 63."""
    limit, pattern, text = (63, DNS_LABEL, LABEL_TEXT) if label else (253, DNS_SUBDOMAIN, SUBDOMAIN_TEXT)
    if len(name) > limit:
        yield wrong(path, name, f"must be no more than {limit} characters")
    if not pattern.fullmatch(name):
        yield wrong(path, name, text)


def label_errors(labels: dict[str, str]) -> Iterator[FieldError]:
    for key, value in labels.items():
        if not QUALIFIED.fullmatch(key.rpartition("/")[2]):
            yield wrong("metadata.labels", key, f"name part {QUALIFIED_TEXT}")
        if value and not QUALIFIED.fullmatch(value):
            yield wrong("metadata.labels", value, _VALUE_TEXT)
        if len(value) > 63:
            yield wrong("metadata.labels", value, "must be no more than 63 characters")
