"""What `arranger convert` shows: a line for each note, fault and skipped object, and the objects as YAML or JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

from arranger.cli.rendering.output import yaml_document
from arranger.convert import Conversion, NoteKind, Skipped
from arranger.model.text import counted

_WORDS = {NoteKind.NO_EQUIVALENT: "no equivalent", NoteKind.CHANGED: "changed", NoteKind.TO_DO: "to do"}


def told(found: Sequence[Conversion | Skipped]) -> Iterator[str]:
    """Everything that is to be said of the objects, a line each, and a line that sums up."""
    for each in found:
        yield from _lines(each)
    tried = [each for each in found if isinstance(each, Conversion)]
    kinds = [of["kind"] for each in tried for of in each.objects]
    queues = kinds.count("Queue")
    made = [counted(queues, "Queue")] if queues else []
    if "TYJob" in kinds or not queues:
        made.append(counted(kinds.count("TYJob"), "TYJob"))
    sources = sum(bool(each.objects) for each in tried)
    failed, skipped = sum(bool(each.faults) for each in tried), len(found) - len(tried)
    nothing = len(tried) - sources - failed
    more = f"; {nothing} without an equivalent" if nothing else ""
    more += f"; {failed} not converted" if failed else ""
    more += f"; {skipped} of other kinds skipped" if skipped else ""
    notes = sum(len(each.notes) for each in tried)
    yield f"{' and '.join(made)} of {counted(len(found), 'object')}, {counted(notes, 'note')}{more}"


def _lines(each: Conversion | Skipped) -> Iterator[str]:
    file = each.document.file
    if isinstance(each, Skipped):
        yield f"{file}:{each.document.line()}: {_named(each)}: skipped: {each.reason}"
        return
    for note in each.notes:
        yield f"{file}:{each.document.line(note.path)}: {note.path}: {_WORDS[note.kind]}: {note.text}"
    for path, words in each.faults:
        yield f"{file}:{each.document.line(path)}: {path or _named(each)}: not converted: {words}"


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
