"""Fields of manifests, each declared once, beside what the log keeps of it.

A field of a record is `Annotated` with its `ManifestField`. How it is read, checked and told, whether it may be
changed, its part of the resource definition (`python -m tests.crd_fields`) and its pseudonym follow from that.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum, StrEnum, auto
from functools import cache
from typing import Annotated, Any, NamedTuple, Protocol, get_args, get_origin, get_type_hints

import msgspec

from arranger.model.checks import Check, flag, one_of, text, whole
from arranger.model.faults import FaultKind

MAX_INT32 = (1 << 31) - 1
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class Kind(Protocol):
    """What values a field takes. `schema` is what the resource definition says, `read` makes of a valid JSON value
    what the record keeps."""

    @property
    def check(self) -> Check: ...

    @property
    def schema(self) -> Mapping[str, Any]: ...

    def read(self, value: Any) -> Any: ...


class Whole(NamedTuple):
    """A whole number."""

    least: int
    most: int = MAX_INT32

    @property
    def check(self) -> Check:
        return whole(self.least, self.most)

    @property
    def schema(self) -> Mapping[str, Any]:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}

    def read(self, value: Any) -> int:
        return int(value)


class Flag(NamedTuple):
    """True or false."""

    @property
    def check(self) -> Check:
        return flag

    @property
    def schema(self) -> Mapping[str, Any]:
        return {"type": "boolean"}

    def read(self, value: Any) -> bool:
        return value is True


class OneOf(NamedTuple):
    """One of the values of an enumeration."""

    values: type[StrEnum]

    @property
    def check(self) -> Check:
        return one_of(*(value.value for value in self.values))

    @property
    def schema(self) -> Mapping[str, Any]:
        return {"type": "string", "enum": [value.value for value in self.values]}

    def read(self, value: Any) -> StrEnum:
        return self.values(value)


class Among(NamedTuple):
    """One of some names, such as those of policies that are installed."""

    names: tuple[str, ...]

    @property
    def check(self) -> Check:
        return one_of(*self.names)

    @property
    def schema(self) -> Mapping[str, Any]:
        return {"type": "string", "enum": [*self.names]}

    def read(self, value: Any) -> str:
        return str(value)


class Text(NamedTuple):
    """A text of so many characters; `form` must match all of it."""

    most: int
    least: int = 0
    form: str = ""

    @property
    def check(self) -> Check:
        return text(least=self.least, most=self.most, form=re.compile(self.form) if self.form else None)

    @property
    def schema(self) -> Mapping[str, Any]:
        rules = {"minLength": self.least, "maxLength": self.most, "pattern": self.form}
        return {"type": "string"} | {name: value for name, value in rules.items() if value}

    def read(self, value: Any) -> str:
        return str(value)


class DnsLabel(NamedTuple):
    """A DNS label. What the definition says of its form is beside its schema."""

    most: int

    @property
    def check(self) -> Check:
        return text(most=self.most, form=DNS_LABEL, fault=FaultKind.NO_DNS_LABEL)

    @property
    def schema(self) -> Mapping[str, Any]:
        return {"type": "string", "maxLength": self.most}

    def read(self, value: Any) -> str:
        return str(value)


class ChangesUntil(Enum):
    """ChangesUntil when a field may be changed."""

    EVER = auto()
    #: The job starts, or ends before that.
    STARTED = auto()
    #: As `STARTED`, and again while the job waits to be scheduled again.
    HOLDS_NODES = auto()


class ManifestField(NamedTuple):
    """How a field stands in the spec of a manifest. `unset` is its value if the manifest has none, if that isn't the
    record's default. With `stored`, the API server writes that value into the object. `sort` is whose name it holds,
    for pseudonyms; "" for what is no name."""

    name: str
    kind: Kind
    description: str
    changes: ChangesUntil = ChangesUntil.EVER
    unset: Any = None
    stored: bool = False
    sort: str = ""


class NameOf(NamedTuple):
    """Whose name a field of a record holds that no spec of a manifest has, for pseudonyms: `sort` as there, "labels"
    for labels, "" for text without names. The field is `Annotated` with it; a tuple holds several names."""

    sort: str


class Declared(NamedTuple):
    """A record's field with what it is in a manifest. `unset` is its value if the manifest has none."""

    attribute: str
    field: ManifestField
    unset: Any

    @property
    def name(self) -> str:
        """Its name in the manifest."""
        return self.field.name


@cache
def declared(record: type[msgspec.Struct]) -> tuple[Declared, ...]:
    """The fields of a record that are declared for manifests, in its order."""
    defaults = {each.name: each.default for each in msgspec.structs.fields(record)}
    found = []
    for attribute, hint in get_type_hints(record, include_extras=True).items():
        fields = [extra for extra in get_args(hint)[1:] if isinstance(extra, ManifestField)]
        for field in fields if get_origin(hint) is Annotated else ():
            unset = defaults[attribute] if field.unset is None else field.unset
            found.append(Declared(attribute, field, None if unset is msgspec.NODEFAULT else unset))
    return tuple(found)


def checks(record: type[msgspec.Struct]) -> dict[str, Check]:
    """The check of each declared field, by its name in the manifest."""
    return checks_of(each.field for each in declared(record))


def checks_of(fields: Iterable[ManifestField]) -> dict[str, Check]:
    """The check of each of these fields, by its name in the manifest."""
    return {field.name: field.kind.check for field in fields}


def read(record: type[msgspec.Struct], spec: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a record's declared fields in a valid spec, by attribute."""
    return {
        each.attribute: each.field.kind.read(value) if (value := spec.get(each.name)) is not None else each.unset
        for each in declared(record)
    }
