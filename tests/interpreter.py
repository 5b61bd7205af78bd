"""A new interpreter, for results that must be the same in every process."""

import os
import subprocess
import sys

from tests.servers import REPOSITORY


def told_elsewhere(script: str, **environment: str) -> str:
    """The output of a script in a new interpreter, in the repository, with these variables set; warnings are errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**os.environ, **environment},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
