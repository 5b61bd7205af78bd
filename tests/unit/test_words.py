"""Words that were retired stay out of names in `arranger/`. They may have another meaning in texts."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]
PACKAGE = HOUSE / "arranger"

#: The words of a name: at underscores, and where a capital begins one.
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")


#: Word → what to use instead. One with a capital is the name of a class.
RETIRED = {
    "told ms": "time ms",
    "PlaceKey": "SlotKey",
    "Place": "Slot",
    "place of": "slot of",
    "places": "slots of a job, positions in the queue, domains of a topology",
    "wanted": "desired",
    "archiver": "archive writer",
    "shelf": "blob store",
    "shelves": "blob stores",
    "stretch": "segment",
    "stretches": "segments",
    "JoinedLog": "TieredLog",
    "witness": "cycle observer",
    "Ask": "PlacementRequest",
    "roster": "node index, job index",
    "Attempt": "PlacementTry",
    "rival": "alternative",
    "closeup": "refinement",
    "prospect": "hypothetical job",
    "course": "utilisation",
    "lives": "job histories",
    "fate": "pod history",
    "fates": "pod histories",
    "surroundings": "cluster context",
    "spell": "interval",
    "spells": "intervals",
    "stint": "interval",
    "stints": "intervals",
    "hopeless": "infeasible",
    "bereaved": "lost its nodes",
    "namesake": "of the same name",
    "namesakes": "jobs by name",
    "anew": "again",
    "FindsRoom": "QuorumFits",
}


@cache
def words_of(name: str) -> list[str]:
    """The words of a name in small letters: `SlotKey` and `slot_key` have the same."""
    return [word.lower() for word in _WORDS.findall(name)]


def uses(name: str, word: str) -> bool:
    """Whether a name uses a retired word. One with a capital (`Ask`) is the name of a class, and as a verb it may stay;
    one of several words stands in a row."""
    if word[0].isupper():
        return name.strip("_") == word
    sought, given = words_of(word), words_of(name)
    return any(given[at : at + len(sought)] == sought for at in range(len(given) - len(sought) + 1))


def names_in(source: str) -> Iterator[tuple[int, str]]:
    """Every name that a module gives or uses, with its line."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name
            case ast.arg() | ast.keyword() if node.arg is not None:
                yield node.lineno, node.arg
            case ast.Attribute():
                yield node.lineno, node.attr
            case ast.Name():
                yield node.lineno, node.id
            case ast.alias():
                yield node.lineno, (node.asname or node.name).rpartition(".")[2]


def test_what_to_use_instead_is_not_retired_itself() -> None:
    assert not [(word, use) for word in RETIRED for use in RETIRED.values() if use in RETIRED and word != use]


@pytest.mark.parametrize(
    ("name", "word", "found"),
    [
        ("_place_of", "place of", True),
        ("placeOf", "place of", True),
        ("place_often", "place of", False),
        ("told_ms", "told ms", True),
        ("told", "told ms", False),
        ("_Ask", "Ask", True),
        ("ask", "Ask", False),
        ("FolderShelf", "shelf", True),
        ("arrivals", "rival", False),
    ],
)
def test_names_are_compared_by_whole_words(name: str, word: str, found: bool) -> None:
    assert uses(name, word) == found


@cache
def retired_in(name: str) -> list[str]:
    """The retired words that a name uses."""
    return [word for word in RETIRED if uses(name, word)]


def test_no_name_uses_a_retired_word() -> None:
    found = [
        f"{path.relative_to(HOUSE)}:{line}: {name} (use: {RETIRED[word]})"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, name in [(0, path.parent.name), (0, path.stem), *names_in(path.read_text())]
        for word in retired_in(name)
    ]
    assert not found, "\n".join(found)
