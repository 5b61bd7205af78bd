"""The fields of an object as they are taken, and what is said of them.

`Fields` stands for one object of a source. Whoever carries a field over takes it by its name and type. A wrong one is
noted and counts as absent, so that the others are looked at too and all wrong fields are told at once. In the end,
`close` names each field that nobody took, at any depth, so that a field which no module knows isn't lost in silence.
"""

import copy
import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from arranger.messages.faults import fault_text
from arranger.model.checks import Check, anything, below, flag, items, keyed, one_of, record, text, whole
from arranger.model.faults import Fault, FaultKind
from arranger.model.near_names import near_names

MAX_INT32 = (1 << 31) - 1


class NoteKind(StrEnum):
    """What a note says of a field."""

    #: A TYJob has nothing like it.
    NO_EQUIVALENT = "noEquivalent"
    #: It is carried over, and means something else now.
    CHANGED = "changed"
    #: The user has to do something.
    TO_DO = "toDo"


class Note(msgspec.Struct, frozen=True):
    """What is said of one field, by its path in the source (`spec.tasks[0].policies`)."""

    kind: NoteKind
    path: str
    text: str


class ConversionProblem(Exception):
    """Why an object can't be converted: the words of each cause, by the path of its field. Whoever finds it notes it
    (`Notes.fault`), and goes on with something in its place: so the whole object is looked at."""

    def __init__(self, *causes: tuple[str, str]) -> None:
        super().__init__("; ".join(f"{path}: {words}" if path else words for path, words in causes))
        self.causes = causes


#: How an unknown field is named.
UNKNOWN = "unknown field, left out"


def wrong(faults: Iterable[Fault], value: Any = None) -> ConversionProblem:
    """Fields that the API server would refuse. Of a wrong type, it names the type alone; a scalar `value` is shown."""
    shown = f", and not {json.dumps(value)[:60]}" if isinstance(value, (str, int, float)) else ""
    return ConversionProblem(
        *(
            (
                of.field,
                fault_text(of).removeprefix(f"{of.field}: ") + (shown if of.kind == FaultKind.WRONG_TYPE else ""),
            )
            for of in faults
        )
    )


def meant(name: str, known: Iterable[str]) -> str:
    """What a misspelt name probably means, as the end of a sentence; empty if nothing is near."""
    close = near_names(name, known)
    return f", did you mean {close[0]}?" if close else ""


def misspelt(fields: "Fields", name: str, known: Iterable[str]) -> list[str]:
    """The fields of an object without the field `name` that were probably meant as it; it has the `known` ones."""
    if name in fields:
        return []
    known = [*known]
    return [one for one in fields.names() if one not in known and meant(one, known).endswith(f" {name}?")]


class Notes:
    """What was said of one object, each once."""

    def __init__(self) -> None:
        self._said: dict[Note, None] = {}
        self._faults: dict[tuple[str, str], None] = {}
        self._faulty: set[str] = set()

    def add(self, kind: NoteKind, path: str, words: str) -> None:
        self._said[Note(kind, path, words)] = None

    def all(self) -> list[Note]:
        return list(self._said)

    # --- why it can't be converted ---------------------------------------------------------------------------------

    @property
    def faults(self) -> list[tuple[str, str]]:
        """Paths of wrong fields, with words."""
        return list(self._faults)

    def fault(self, problem: ConversionProblem, *, of: Iterable[str] = ()) -> None:
        """Note why the object can't be converted. What follows from another fault isn't said: that of a field which is
        wrong itself or stands in a wrong one, or whose check is about others (`of`, their paths) of which one is."""
        if all(map(self.sound, of)):
            causes = [(path, words) for path, words in problem.causes if self.sound(path)]
            self._faults |= dict.fromkeys(causes)
            self._faulty |= {path for path, _ in causes}

    def sound(self, path: str) -> bool:
        """Whether no fault was found in a field, or in one in which it stands."""
        return path not in self._faulty and not any(path.startswith((f"{of}.", f"{of}[")) for of in self._faulty)


class Fields:
    """One object of a source, by its path; absent and null fields are the same."""

    def __init__(self, value: Mapping[str, Any], path: str, notes: Notes) -> None:
        self._value = value
        self.path = path
        self.notes = notes
        self._taken: set[str] = set()
        self._records: dict[str, Fields] = {}
        self._lists: dict[str, list[Fields]] = {}
        self._below: list[Fields] = []

    def __contains__(self, name: str) -> bool:
        return self._value.get(name) is not None

    def names(self) -> list[str]:
        """The fields that are present, taken or not."""
        return [name for name in self._value if name in self]

    def taken(self, name: str) -> bool:
        """Whether somebody took a field."""
        return name in self._taken

    def at(self, name: str) -> str:
        """The path of a field."""
        return below(self.path, name)

    # --- taking fields -----------------------------------------------------------------------------------------

    def raw(self, name: str, check: Check | None = None) -> Any:
        """A copy of a field's value, of any type or one that passes `check`; None without it, or if it is wrong."""
        self._taken.add(name)
        value = self._value.get(name)
        if value is not None and check is not None and (faults := list(check(value, self.at(name)))):
            self.notes.fault(wrong(faults, value))
            return None
        return copy.deepcopy(value)

    def text(self, name: str) -> str:
        """A text; empty without it."""
        value: str | None = self.raw(name, text())
        return value or ""

    def one_of(self, name: str, *allowed: str) -> str:
        """One of some texts, the first of which is the default. An empty text counts as absent."""
        if self._value.get(name) == "":
            self._taken.add(name)
            return allowed[0]
        value: str | None = self.raw(name, one_of(*allowed))
        return value or allowed[0]

    def whole(self, name: str, *, least: int = 0, most: int = MAX_INT32) -> int | None:
        """A whole number."""
        value = self.raw(name, whole(least, most))
        return None if value is None else int(value)

    def flag(self, name: str) -> bool:
        """A truth value; False without it."""
        return self.raw(name, flag) is True

    def texts(self, name: str) -> list[str]:
        """A list of texts; empty without it."""
        return self.raw(name, items(text())) or []

    def pairs(self, name: str) -> dict[str, str]:
        """Texts by name, as labels are; empty without them."""
        return {key: value for key, value in (self.raw(name, keyed(text())) or {}).items() if value is not None}

    def record(self, name: str) -> "Fields":
        """An object, the same one each time; one without fields if it is absent."""
        self._taken.add(name)
        if name not in self._records:
            self._records[name] = self._entry(self._value.get(name), self.at(name))
        return self._records[name]

    def records(self, name: str) -> list["Fields"]:
        """A list of objects, the same ones each time."""
        if name not in self._lists:
            value = self.raw(name, items(anything)) or []
            self._lists[name] = [self._entry(each, f"{self.at(name)}[{n}]") for n, each in enumerate(value)]
        return self._lists[name]

    def _entry(self, value: Any, path: str) -> "Fields":
        """An object of this one, without fields if it is absent or none."""
        if value is not None and (faults := list(record({})(value, path))):
            self.notes.fault(wrong(faults))
            value = None
        entry = Fields(value or {}, path, self.notes)
        self._below.append(entry)
        return entry

    # --- saying something of fields -------------------------------------------------------------------------------

    def ignore(self, *names: str) -> None:
        """Take fields that have no effect."""
        self._taken.update(names)

    def lost(self, name: str, words: str) -> None:
        """Take a field, and if it is present, say that it has no equivalent."""
        self._taken.add(name)
        if name in self:
            self.say(NoteKind.NO_EQUIVALENT, name, words)

    def changed(self, name: str, words: str) -> None:
        """Say of a field that it means something else now, if it is present."""
        if name in self:
            self.say(NoteKind.CHANGED, name, words)

    def to_do(self, name: str, words: str) -> None:
        """Say of a field what its user has to do, if it is present."""
        if name in self:
            self.say(NoteKind.TO_DO, name, words)

    def say(self, kind: NoteKind, name: str, words: str) -> None:
        """Say something of a field that may be absent, or of this object itself (an empty name)."""
        self.notes.add(kind, self.at(name) if name else self.path, words)

    def sound(self, name: str) -> bool:
        """Whether a field that was taken is absent or right."""
        return self.notes.sound(self.at(name))

    def fault(self, name: str, words: str, *, of: Iterable[str] = ()) -> None:
        """Note that the object can't be converted because of this field, unless it follows from another fault, such as
        that of a field `of` (its path)."""
        self.notes.fault(self.problem(name, words), of=of)

    def problem(self, name: str, words: str) -> ConversionProblem:
        """Why the object can't be converted: this field."""
        return ConversionProblem((self.at(name) if name else self.path, words))

    def close(self) -> None:
        """Name all fields that nobody took."""
        for name in self._value:
            if name not in self._taken:
                words = UNKNOWN + meant(name, self._taken)
                self.notes.add(NoteKind.NO_EQUIVALENT, self.at(name), words)
        for entry in self._below:
            entry.close()
