"""Arranger with every sentence of its renderer rewritten, so that code which parses or compares sentences fails.

`python -m tests.rewritten verify …` runs a command in this way.
"""

import importlib
import pkgutil
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import arranger
from arranger import messages


def rewrite() -> dict[str, int]:
    """Make every public function of the renderer reverse its sentence, wherever it was imported. Returns function name
    → number of replacements."""
    for found in pkgutil.walk_packages(arranger.__path__, "arranger."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    words = {
        value: _backwards(value) for name in _renderers() for value in vars(sys.modules[name]).values() if _says(value)
    }
    replaced = dict.fromkeys((of.__name__ for of in words), 0)
    for module in [module for name, module in sys.modules.items() if name.partition(".")[0] == "arranger"]:
        for name, value in list(vars(module).items()):
            if isinstance(value, FunctionType) and value in words:
                setattr(module, name, words[value])
                replaced[value.__name__] += 1
    return replaced


def _renderers() -> list[str]:
    return [found.name for found in pkgutil.walk_packages(messages.__path__, "arranger.messages.")]


def _says(value: Any) -> bool:
    public = isinstance(value, FunctionType) and not value.__name__.startswith("_")
    return public and value.__module__.startswith("arranger.messages") and value.__annotations__.get("return") is str


def _backwards(said: Callable[..., str]) -> Callable[..., str]:
    return lambda *facts, **named: said(*facts, **named)[::-1]


if __name__ == "__main__":
    from arranger.cli.main import main

    rewrite()
    sys.exit(main(sys.argv[1:], prog_name="arranger"))
