"""`python -m tests.older_definitions` writes the patches of deploy/older-kubernetes anew, after rules have changed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.servers import CRD_FILES, REPOSITORY, definition_of

FOLDER = REPOSITORY / "deploy" / "older-kubernetes"
_COMMENT = "# Removes the rules that compare quantities; written by `python -m tests.older_definitions`.\n"


def patch_of(file: Path) -> str:
    """The JSON patch that removes from a definition the rules that API servers before 1.36 refuse."""
    operations = [{"op": "remove", "path": path} for path in _expensive(definition_of(file), "")]
    return _COMMENT + yaml.safe_dump(operations, sort_keys=False, width=1000)


def _expensive(node: Any, path: str) -> Iterator[str]:
    """The paths of the rules, the last of a list first: the numbers of the others stay."""
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        if key == "x-kubernetes-validations":
            numbers = [number for number, rule in enumerate(child) if "quantity(" in rule["rule"]]
            yield from (f"{path}/{key}/{number}" for number in reversed(numbers))
        else:
            yield from _expensive(child, f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}")


def patched() -> list[Path]:
    """The definitions that have such rules."""
    return [file for file in CRD_FILES if [*_expensive(definition_of(file), "")]]


def main() -> None:
    for file in patched():
        (FOLDER / file.name).write_text(patch_of(file))


if __name__ == "__main__":
    main()
