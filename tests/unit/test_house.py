"""The sizes that the house keeps: a function fits on a screen, a file and a class can be read as a whole."""

import ast
import dataclasses
import re
from pathlib import Path

import pytest

from arranger.projections import fold
from arranger.projections.jobs import JobRecord

PACKAGE = Path(__file__).parents[2] / "arranger"
FILES = sorted(PACKAGE.rglob("*.py"))

LINES_OF_A_FILE = 500
LINES_OF_A_FUNCTION = 40
#: Of a class in `workers/`.
LINES_OF_A_WORKER = 250
METHODS_OF_THE_FOLD = 25


def lines(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", FILES, ids=name)
def test_files_and_functions_are_short(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= LINES_OF_A_FILE
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    assert [f"{one.name}: {lines(one)}" for one in functions if lines(one) > LINES_OF_A_FUNCTION] == []


def test_no_class_of_the_workers_does_too_much() -> None:
    for path in sorted((PACKAGE / "workers").glob("*.py")):
        classes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]
        assert [f"{one.name}: {lines(one)}" for one in classes if lines(one) > LINES_OF_A_WORKER] == []


def test_the_classes_of_the_fold_have_few_methods() -> None:
    for kind in fold._Fold.__mro__[:-1]:
        methods = [member for member in vars(kind).values() if callable(member)]
        assert len(methods) <= METHODS_OF_THE_FOLD, kind


def test_a_jobs_record_has_twenty_fields_at_most() -> None:
    assert len(dataclasses.fields(JobRecord)) <= 20


def test_what_the_map_of_the_architecture_names_is_there() -> None:
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    table = page.partition("\n## Where things are\n")[2].partition("\n## ")[0]
    rows = [row.split("|")[1:3] for row in table.splitlines() if row.startswith("| `")]
    assert {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()} == {
        package for where, _ in rows for package in re.findall(r"^ `(\w+)/`", where)
    }
    for where, told in rows:
        folder = PACKAGE / re.findall(r"`(\w+)/`", where)[0]
        stems = {path.stem for path in folder.rglob("*")}
        named = {name for each in re.findall(r"`([\w/]+)`", told) for name in each.split("/") if name}
        assert named <= stems, f"{folder.name}: {named - stems}"


_LINKS = {f"kube/{name}.yaml": f"crds/{name}.yaml" for name in ("tyjob", "queue")} | {"cli/examples": "examples"}


def test_the_definitions_and_the_examples_of_the_package_are_links_to_the_only_ones() -> None:
    for link, target in _LINKS.items():
        assert (PACKAGE / link).is_symlink(), f"{link} should be a link, and not a second {target}"
        assert (PACKAGE / link).resolve() == PACKAGE.parent / target
