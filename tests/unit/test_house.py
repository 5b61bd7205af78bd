"""The rulers of the house: how many ways lead through a function, on how many modules a module depends, and which
modules import each other in a circle.

Lengths aren't measured: a file may be as long as its subject, and a limit of lines is met by cutting, not by thinking.
What is above a limit stands in `rulers.json` with its present figure. It may only fall: an entry that is too high, or
needed no more, fails as well, so the table shrinks with the code.
"""

import ast
import functools
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).parents[2] / "arranger"
FILES = sorted(PACKAGE.rglob("*.py"))

#: Branches, boolean operators, comprehensions and their conditions in one function, and one more.
COMPLEXITY = 15
#: Modules of the product that one module imports.
FAN_OUT = 20

#: The wings of scheduling. The package itself and its experiments have a face, by which others import them.
SCHEDULING = ("cluster", "filters", "policies", "queues", "placing", "search", "room")

ABOVE: dict[str, Any] = json.loads(Path(__file__).with_name("rulers.json").read_text())

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.Assert, ast.match_case)


@functools.cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions and classes within it."""
    todo = list(ast.iter_child_nodes(function))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            todo += ast.iter_child_nodes(node)


def complexity(function: ast.AST) -> int:
    ways = 1
    for node in own_nodes(function):
        if isinstance(node, ast.BoolOp):
            ways += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            ways += 1 + len(node.ifs)
        elif isinstance(node, _BRANCHES):
            ways += 1
    return ways


def functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Every function and method with its qualified name."""
    for node in ast.iter_child_nodes(tree):
        name = f"{within}{node.name}" if isinstance(node, (*_FUNCTIONS, ast.ClassDef)) else ""
        if isinstance(node, _FUNCTIONS):
            yield name, node
        yield from functions(node, f"{name}." if name else within)


def imported(tree: ast.AST) -> set[str]:
    """The modules of the product that a module imports; a name of a package counts as the package."""
    froms = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
    plain = {alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
    return {module for module in froms | plain if module.partition(".")[0] == "arranger"}


@functools.cache
def figures() -> tuple[dict[str, int], dict[str, int]]:
    """What is above the limits: the complexity by function, and the fan-out by module."""
    trees = {path.relative_to(PACKAGE).as_posix(): parsed(path.read_text()) for path in FILES}
    ways = {f"{at}:{name}": complexity(each) for at, tree in trees.items() for name, each in functions(tree)}
    fans = {at: len(imported(tree)) for at, tree in trees.items()}
    return (
        {name: count for name, count in sorted(ways.items()) if count > COMPLEXITY},
        {name: count for name, count in sorted(fans.items()) if count > FAN_OUT},
    )


def test_no_function_has_more_ways_through_it_than_fifteen_but_those_of_the_table() -> None:
    assert figures()[0] == ABOVE["complexity"]


def test_no_module_depends_on_more_than_twenty_others_but_those_of_the_table() -> None:
    assert figures()[1] == ABOVE["fan_out"]


def test_a_class_has_a_name_of_its_own() -> None:
    """Who reads a name, or searches for it, finds one thing. The client has the names of the answers that it shows."""
    where: dict[str, list[str]] = {}
    for path in FILES:
        at = path.relative_to(PACKAGE).as_posix()
        for node in parsed(path.read_text()).body if not at.startswith("client/") else ():
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where.setdefault(node.name, []).append(at)
    assert {name: found for name, found in where.items() if len(found) > 1} == {}


def modules(paths: Iterable[Path], root: Path) -> dict[str, ast.Module]:
    """The modules in these files by their dotted name; a package's name is that of its `__init__`."""
    found = {}
    for path in paths:
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = parsed(path.read_text())
    return found


def arrows(trees: Mapping[str, ast.AST]) -> dict[str, set[str]]:
    """Which modules each one imports: inside functions and for types alone as well. Who imports a module from its
    package doesn't import the package."""
    found: dict[str, set[str]] = {}
    for module, tree in trees.items():
        nodes = [*ast.walk(tree)]
        names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.module:
                inner = {alias: f"{node.module}.{alias}" for alias in (each.name for each in node.names)}
                names |= {name if name in trees else node.module for name in inner.values()}
        found[module] = names & trees.keys() - {module}
    return found


def circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of modules that all lead to each other."""
    reach: dict[str, set[str]] = {}
    for module in arrows:
        seen, todo = set[str](), [*arrows[module]]
        while todo:
            if (each := todo.pop()) not in seen:
                seen.add(each)
                todo += arrows[each]
        reach[module] = seen
    groups = {frozenset(other for other in reach[one] if one in reach[other]) for one in arrows if one in reach[one]}
    return sorted(map(sorted, groups))


def test_no_modules_import_each_other_in_a_circle_but_those_of_the_table() -> None:
    assert circles(arrows(modules(FILES, PACKAGE.parent))) == ABOVE["circles"]


@pytest.mark.parametrize(
    "back",
    [
        "import house.top\n",
        "from house import top\n",
        "from house.top import Top\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.top import Top\n",
        "def f():\n    from house.top import Top\n    return Top\n",
    ],
    ids=["module", "from the package", "name", "for types", "in a function"],
)
def test_a_circle_is_found_however_it_is_closed(tmp_path: Path, back: str) -> None:
    (tmp_path / "house").mkdir()
    texts = {
        "__init__": "",
        "top": "from house import middle\n",
        "middle": "from house.ground import x\n",
        "ground": back,
    }
    for name, text in texts.items():
        (tmp_path / "house" / f"{name}.py").write_text(text)
    found = circles(arrows(modules(sorted(tmp_path.rglob("*.py")), tmp_path)))
    assert found == [["house.ground", "house.middle", "house.top"]]
    (tmp_path / "house" / "ground.py").write_text("x = 1\n")
    assert circles(arrows(modules(sorted(tmp_path.rglob("*.py")), tmp_path))) == []


@pytest.mark.parametrize("package", ["scheduling", "projections", "workers", "workers/applying"])
def test_a_package_with_wings_has_nothing_beside_those_that_its_contract_names(package: str) -> None:
    contracts = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = [of for of in contracts if of["id"] == f"{Path(package).name}-wings"]
    named = [name.strip() for layer in contract["layers"] for name in re.split(r"[|:]", layer)]
    folders = [path.parent.name for path in (PACKAGE / package).glob("*/__init__.py")]
    single = [path.stem for path in (PACKAGE / package).glob("*.py") if path.stem != "__init__"]
    assert contract["exhaustive"] and sorted(named) == sorted(folders + single)


@pytest.mark.parametrize("package", ["projections", "workers", *[f"scheduling/{wing}" for wing in SCHEDULING]])
def test_a_wing_says_what_it_is_for_and_names_nothing(package: str) -> None:
    """A module of a wing is imported by its full path, so that its place is seen where it is used."""
    for path in (PACKAGE / package).rglob("__init__.py"):
        tree = parsed(path.read_text())
        assert ast.get_docstring(tree) and len(tree.body) == 1, path


def test_the_ruler_counts_each_way() -> None:
    text = "def f(a, b):\n    if a and b or a:\n        return [x for x in a if x]\n    return 1 if a else 2\n"
    ((name, function),) = functions(ast.parse(text))
    assert (name, complexity(function)) == ("f", 1 + 1 + 2 + 2 + 1)


def where_things_are() -> tuple[list[list[str]], list[list[str]]]:
    """The rows of the packages and those of the tasks, in the architecture's section of this name."""
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    section = page.partition("\n## Where things are\n")[2].partition("\n## ")[0]
    packages, _, tasks = section.partition("\n### ")
    rows = [[row.split("|")[1:3] for row in part.splitlines() if row.startswith("| ")] for part in (packages, tasks)]
    return rows[0][2:], rows[1][2:]


def test_what_the_map_of_the_architecture_names_is_there() -> None:
    packages, tasks = where_things_are()
    assert {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()} == {
        package for where, _ in packages for package in re.findall(r"`(\w+)/`", where)
    }
    for where, told in packages:
        folders = [PACKAGE / name for name in re.findall(r"`(\w+)/`", where)]
        there = {path.stem for folder in folders for path in folder.iterdir()} | {
            path.stem for path in PACKAGE.iterdir()
        }
        assert {name for name in re.findall(r"`(\w+)/?`", told)} <= there, where
    for task, where in tasks:
        named = re.findall(r"`([\w/.]+)`", task + where)
        paths = [name for name in named if "/" in name and not name.startswith("/")]
        assert paths and all((PACKAGE / path).exists() or (PACKAGE.parent / path).exists() for path in paths), task
        stems = {path.name for path in PACKAGE.rglob("*.py")}
        assert {name for name in named if name.endswith(".py") and "/" not in name} <= stems, task


@pytest.mark.parametrize("package", ["scheduling", "projections", "workers"])
def test_the_map_of_the_architecture_has_the_wings_in_their_order(package: str) -> None:
    contracts = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = [of for of in contracts if of["id"] == f"{package}-wings"]
    layers = [name.strip() for layer in contract["layers"] for name in re.split(r"[|:]", layer)]
    (told,) = [told for where, told in where_things_are()[0] if f"`{package}/`" in where]
    named = [name for name in re.findall(r"`(\w+)/?`", told) if name in layers]
    assert named == layers


_LINKS = {f"kube/{name}.yaml": f"crds/{name}.yaml" for name in ("tyjob", "queue", "clusterlog")} | {
    "cli/examples": "examples"
}


def test_the_definitions_and_the_examples_of_the_package_are_links_to_the_only_ones() -> None:
    for link, target in _LINKS.items():
        assert (PACKAGE / link).is_symlink(), f"{link} should be a link, and not a second {target}"
        assert (PACKAGE / link).resolve() == PACKAGE.parent / target
