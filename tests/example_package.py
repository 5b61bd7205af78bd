"""The package in `tests/plugins`, installed by pip into a separate folder, and Python with that on its path."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.servers import REPOSITORY


def install_example(folder: Path) -> Path:
    """Install the package below `folder` without the network; returns its location."""
    shutil.copytree(REPOSITORY / "tests" / "plugins", folder / "source")  # a build leaves files beside its source
    flags = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *flags, "--target", folder / "site", folder / "source"], check=True
    )
    return folder / "site"


def python_path(plugins: Path | None) -> str:
    """`PYTHONPATH` for a process with the plugins, or without."""
    return os.pathsep.join([str(REPOSITORY), *([str(plugins)] if plugins is not None else [])])


def run(*arguments: str, plugins: Path | None, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """`python -m …` in a new process, with the plugins on its path or not."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ARRANGER_", "PYTHON"))}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        capture_output=True,
        text=True,
        check=False,
        input=stdin,
        cwd=REPOSITORY,
        env=environment | {"PYTHONPATH": python_path(plugins)},
    )
