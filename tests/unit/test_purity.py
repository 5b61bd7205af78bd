"""The pure core stays pure: no clock, chance, environment or effects, and no order that depends on a hash seed.

import-linter holds the imports too; this test finds what it doesn't look for, inside functions and in calls.
"""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Beyond what the import contract forbids.
FORBIDDEN_MODULES = frozenset(
    {"redis", "rq", "kubernetes", "aiohttp", "requests", "urllib3", "http", "urllib", "time", "random", "secrets",
     "uuid", "os", "sys", "io", "pathlib", "tempfile", "shutil", "socket", "asyncio", "threading", "multiprocessing",
     "concurrent", "subprocess", "signal", "logging", "locale", "platform", "getpass", "gc", "weakref"}
)  # fmt: skip
CLOCK_METHODS = frozenset({"now", "today", "utcnow", "astimezone"})
FORBIDDEN_CALLS = frozenset({"hash", "id", "open", "input", "print", "eval", "exec", "globals", "vars", "__import__"})
SET_METHODS = frozenset({"union", "intersection", "difference", "symmetric_difference"})


def contract() -> dict[str, list[str]]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    return next(one for one in contracts if one["id"] == "pure-core")


def files_of(module: str) -> Iterator[Path]:
    path = ROOT / module.replace(".", "/")
    if path.is_dir():
        yield from sorted(path.rglob("*.py"))
    else:
        yield path.with_suffix(".py")


PURE_FILES = [path for module in contract()["source_modules"] for path in files_of(module)]


def impurities(tree: ast.AST) -> Iterator[str]:
    """What in a module could make two processes differ, each with its line."""
    for node in ast.walk(tree):
        found = _imported(node) or _called(node) or _iterated(node)
        if found:
            yield f"line {getattr(node, 'lineno', getattr(getattr(node, 'iter', None), 'lineno', '?'))}: {found}"


def _imported(node: ast.AST) -> str:
    names = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    bad = [name for name in names if name.partition(".")[0] in FORBIDDEN_MODULES or name == "numpy.random"]
    return f"imports {', '.join(bad)}" if bad else ""


def _called(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute) and node.attr == "random":
        return "uses chance"
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    if isinstance(function, ast.Name) and function.id in FORBIDDEN_CALLS:
        return f"calls {function.id}()"
    if isinstance(function, ast.Attribute) and function.attr in CLOCK_METHODS:
        return f"reads a clock with {function.attr}()"
    if isinstance(function, ast.Name) and function.id in ("list", "tuple", "iter", "next", "enumerate", "dict"):
        return f"takes a set in its own order with {function.id}()" if any(_is_set(one) for one in node.args) else ""
    if isinstance(function, ast.Attribute) and function.attr == "join" and any(_is_set(one) for one in node.args):
        return "joins a set in its own order"
    return ""


def _iterated(node: ast.AST) -> str:
    if isinstance(node, ast.For | ast.comprehension):
        return "iterates over a set" if _is_set(node.iter) else ""
    if isinstance(node, ast.Starred):
        return "unpacks a set" if _is_set(node.value) else ""
    return ""


def _is_set(node: ast.AST) -> bool:
    """Whether an expression is plainly a set; sets behind names are the reviewer's to find."""
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Name):
            return function.id in ("set", "frozenset")
        return isinstance(function, ast.Attribute) and function.attr in SET_METHODS
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
        return any(_is_set(side) or _is_keys(side) for side in (node.left, node.right))
    return False


def _is_keys(node: ast.AST) -> bool:
    """`mapping.keys() | other` is a set."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys"


@pytest.mark.parametrize("path", PURE_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_of_the_pure_core_is_pure(path: Path) -> None:
    assert list(impurities(ast.parse(path.read_text()))) == []


def test_the_pure_core_is_what_the_import_contract_says() -> None:
    modules = contract()["source_modules"]
    assert {"arranger.model", "arranger.projections", "arranger.scheduling", "arranger.lifecycle"} <= set(modules)
    assert all(path.exists() for path in PURE_FILES) and len(PURE_FILES) > 20
    assert set(contract()["forbidden_modules"]) <= FORBIDDEN_MODULES


@pytest.mark.parametrize(
    "code",
    [
        "import time",
        "import os.path",
        "from asyncio import sleep",
        "def f():\n    import random",
        "import redis.client",
        "from numpy.random import default_rng",
        "np.random.shuffle(x)",
        "datetime.now(UTC)",
        "datetime.datetime.utcnow()",
        "date.today()",
        "hash('a')",
        "id(x)",
        "for x in {1, 2}: pass",
        "[x for x in set(y)]",
        "{x: 1 for x in {1}}",
        "for x in frozenset(y): pass",
        "list({1, 2})",
        "tuple(set(y))",
        "next(iter({1}))",
        "', '.join({'a'})",
        "for x in a.keys() & b: pass",
        "for x in set(a) | b: pass",
        "f(*{1, 2})",
        "for x in a.union(b): pass",
        "enumerate({1})",
    ],
)
def test_the_check_finds_what_it_is_for(code: str) -> None:
    assert list(impurities(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "from datetime import UTC, datetime",
        "datetime.fromtimestamp(ms // 1000, UTC)",
        "for x in sorted({1, 2}): pass",
        "x in {1, 2}",
        "len(set(y))",
        "for x in dict.fromkeys(y): pass",
        "a.keys() | b.keys() >= {1}",
        "from arranger import x",
        "for x in a | b: pass",
    ],
)
def test_the_check_leaves_alone_what_is_pure(code: str) -> None:
    assert not list(impurities(ast.parse(code)))
