"""A copy of the code with a few changes, to see how many places something takes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.servers import REPOSITORY

#: File → what is replaced there, each of which it has once.
Changes = Mapping[str, Iterable[tuple[str, str]]]

_ASIDE = shutil.ignore_patterns("__pycache__", "static", "histories", "e2e", "contract", ".hypothesis", "node_modules")


class CodeCopy:
    """The code in a directory, changed there."""

    def __init__(self, directory: Path, changes: Changes) -> None:
        self._directory = directory
        for name in ("arranger", "console", "crds", "deploy", "tests"):
            shutil.copytree(REPOSITORY / name, directory / name, ignore=_ASIDE, symlinks=True)
        (directory / "docs").mkdir()
        for name in ("pyproject.toml", "CONTRIBUTING.md", "docs/operations.md"):
            shutil.copy(REPOSITORY / name, directory / name)
        for name, replaced in changes.items():
            file = directory / name
            text = file.read_text(encoding="utf-8")
            for old, new in replaced:
                assert text.count(old) == 1, f"{name} has {text.count(old)} times {old!r}"
                text = text.replace(old, new)
            file.write_text(text, encoding="utf-8")

    def changed(self) -> list[str]:
        """The files that aren't as they are in the repository."""
        files = [file for file in self._directory.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
        names = sorted(str(file.relative_to(self._directory)) for file in files)
        return [of for of in names if (self._directory / of).read_bytes() != (REPOSITORY / of).read_bytes()]

    def run(self, *arguments: str) -> str:
        """The output of Python with these arguments there. An exit status other than 0 is an error."""
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self._directory, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": str(self._directory)},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
        return done.stdout

    def test(self, *names: str) -> str:
        """Run these unit tests there."""
        return self.run("-m", "pytest", "-vv", "-p", "no:cacheprovider", *(f"tests/unit/{name}" for name in names))
