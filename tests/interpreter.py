"""A new interpreter, for what must come out the same in every process."""

import os
import subprocess
import sys

from tests.servers import REPOSITORY


def told_elsewhere(script: str, **environment: str) -> str:
    """What a script prints in an interpreter of its own, in the repository, with these variables set; a warning is an
    error there."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**os.environ, **environment},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
