"""The commands in docs/debugging.md and docs/fairness.md and their output: `python -m tests.debugging_document` writes
it again.

A block that begins with ```console has commands, each after "$ ", and their output. The commands run in their own
folder, in which `tests` is the repository's, in UTC, without settings from outside. `| head -N` is the only pipe.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.servers import REPOSITORY

DOCUMENT = REPOSITORY / "docs" / "debugging.md"
FAIRNESS = REPOSITORY / "docs" / "fairness.md"

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEAD = re.compile(r"(.*) \| head -(\d+)")


def commands(text: str) -> list[str]:
    """Every command in the document, verbatim."""
    lines = (line for block in _BLOCK.findall(text) for line in block.splitlines())
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def written_again(text: str) -> str:
    """The document with the present output of its commands."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tests").symlink_to(REPOSITORY / "tests")

        def block(match: re.Match[str]) -> str:
            return "```console\n" + "\n".join(_played(match[1], folder)) + "\n```"

        return _BLOCK.sub(block, text)


def _played(block: str, folder: Path) -> Iterator[str]:
    for command in (line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")):
        yield f"$ {command}"
        cut = _HEAD.fullmatch(command)
        lines = _output(cut[1] if cut else command, folder).splitlines()
        yield from (line.rstrip() for line in (lines[: int(cut[2])] if cut else lines))


def _output(command: str, folder: Path) -> str:
    program, *words = shlex.split(command)
    assert program == "arranger", f"only arranger is run here: {command}"
    outside = ("ARRANGER_", "COLUMNS")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(outside)}
    done = subprocess.run(
        [sys.executable, "-m", "arranger.cli.main", *words],
        cwd=folder,
        env={**environment, "TZ": "UTC", "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.stdout + done.stderr


if __name__ == "__main__":
    for document in (DOCUMENT, FAIRNESS):
        document.write_text(written_again(document.read_text(encoding="utf-8")), encoding="utf-8")
