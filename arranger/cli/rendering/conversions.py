"""What `arranger convert` shows: a line for all notes, faults and skipped objects that say the same, and the objects as
YAML or JSON."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from arranger.cli.rendering.output import yaml_document
from arranger.convert import Conversion, NoteKind, Skipped
from arranger.model.text import counted, few

_WORDS = {NoteKind.NO_EQUIVALENT: "no equivalent", NoteKind.CHANGED: "changed", NoteKind.TO_DO: "to do"}
_FAULT, _SKIPPED = "not converted", "skipped"
#: What is to be done comes first, and then what runs otherwise than before.
_WEIGHTS = (_FAULT, _WORDS[NoteKind.TO_DO], _WORDS[NoteKind.CHANGED], _WORDS[NoteKind.NO_EQUIVALENT], _SKIPPED)
#: So many objects of which the same is said are named.
_NAMED = 3


class _Said(msgspec.Struct, frozen=True):
    """One thing that is said of an object, in a `line` of its file: of the field at a `path`, or of all of it (then the
    path is empty). Those of one weight stand together."""

    of: Conversion | Skipped
    word: str
    path: str
    text: str
    weight: str

    @property
    def place(self) -> str:
        return f"{self.of.document.file}:{self.of.document.line(self.path)}"

    @property
    def alike(self) -> tuple[str, ...]:
        """The same for all that says the same: of a field at any place of its lists, or of objects of one kind."""
        return self.weight, self.word, re.sub(r"\[\d+\]", "[]", self.path) or self.of.kind, self.text


def told(found: Sequence[Conversion | Skipped]) -> Iterator[str]:
    """Everything that is to be said of the objects, what weighs most first, and a line that sums up."""
    alike: dict[tuple[str, ...], list[_Said]] = {}
    for each in found:
        for said in _said(each):
            alike.setdefault(said.alike, []).append(said)
    for same in sorted(alike.values(), key=lambda same: _WEIGHTS.index(same[0].weight)):
        yield _line(same)
    yield _sum(found)


def _said(each: Conversion | Skipped) -> Iterator[_Said]:
    if isinstance(each, Skipped):
        yield _Said(each, _SKIPPED, "", each.reason, _SKIPPED)
        return
    for note in each.notes:
        word = _WORDS[note.kind]
        # That of an object which isn't converted may be the cause: a field that nobody knows.
        yield _Said(each, word, note.path, note.text, _FAULT if each.faults else word)
    for path, words in each.faults:
        yield _Said(each, _FAULT, path, words, _FAULT)


def _line(same: Sequence[_Said]) -> str:
    """What is said, where it is said first, and of which objects if there are several."""
    first = same[0]
    objects = list({id(said.of): said.of for said in same}.values())
    more = ""
    if len(objects) > 1:
        one_kind = len({of.kind for of in objects}) == 1
        names = [of.name or "(no name)" if one_kind else _named(of) for of in objects]
        more = f" ({len(objects)} objects: {few(names, _NAMED)})"
    elif len(same) > 1:
        more = f" ({len(same)} places)"
    return f"{first.place}: {first.path or _named(first.of)}: {first.word}: {first.text}{more}"


def _sum(found: Sequence[Conversion | Skipped]) -> str:
    """How many objects came of how many, and how many notes of each kind there are."""
    tried = [each for each in found if isinstance(each, Conversion)]
    sources = sum(bool(each.objects) for each in tried)
    failed, skipped = sum(bool(each.faults) for each in tried), len(found) - len(tried)
    nothing = len(tried) - sources - failed
    more = f"; {nothing} without an equivalent" if nothing else ""
    more += f"; {failed} not converted" if failed else ""
    more += f"; {skipped} of other kinds skipped" if skipped else ""
    return f"{_made(tried)} of {counted(len(found), 'object')}, {_noted(tried)}{more}"


def _made(tried: Sequence[Conversion]) -> str:
    """How many Queues and TYJobs there are."""
    kinds = [of["kind"] for each in tried for of in each.objects]
    queues = kinds.count("Queue")
    made = [counted(queues, "Queue")] if queues else []
    if "TYJob" in kinds or not queues:
        made.append(counted(kinds.count("TYJob"), "TYJob"))
    return " and ".join(made)


def _noted(tried: Sequence[Conversion]) -> str:
    """How many notes there are, and how many of each kind."""
    notes = Counter(_WORDS[note.kind] for each in tried for note in each.notes)
    by_kind = ", ".join(f"{notes[word]} {word}" for word in _WEIGHTS if notes[word])
    return counted(notes.total(), "note") + (f" ({by_kind})" if by_kind else "")


def _named(each: Conversion | Skipped) -> str:
    return f"{each.kind} {each.name}".rstrip()


def as_json(found: Sequence[Conversion | Skipped]) -> dict[str, Any]:
    """The whole answer for programs."""
    answer: dict[str, Any] = {"objects": [], "notes": [], "faults": [], "skipped": []}
    for each in found:
        document = each.document
        of = {"file": document.file, "kind": each.kind, "name": each.name}
        if isinstance(each, Skipped):
            answer["skipped"].append(of | {"line": document.line(), "reason": each.reason})
            continue
        answer["objects"] += each.objects
        answer["notes"] += [
            of | {"line": document.line(note.path), "field": note.path, "note": note.kind, "text": note.text}
            for note in each.notes
        ]
        answer["faults"] += [
            of | {"line": document.line(path), "field": path, "text": words} for path, words in each.faults
        ]
    return answer


def as_yaml(found: Sequence[Conversion | Skipped]) -> str:
    """The objects that came of all, as documents of YAML."""
    documents = []
    for each in found:
        if isinstance(each, Conversion):
            where = f"Made of {_named(each)}, {each.document.file}:{each.document.line()}"
            documents += [yaml_document(of, where) for of in each.objects]
    return "".join(documents)
