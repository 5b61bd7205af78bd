"""How this Arranger was installed: what its other processes run, and hints on what to install besides."""

import json
import sys
from importlib.metadata import distributions


def python_module(name: str) -> tuple[str, ...]:
    """The command that runs a module of this Arranger in a process of its own. Without `-P`, a folder `arranger` in
    the working directory, such as a clone of the project, would be taken for the package."""
    return (sys.executable, "-P", "-m", name)


def install_hint(extra: str) -> str:
    """The command that adds an extra. Of an editable install it makes another one: a plain install would replace
    it, and no later change of the checkout would show."""
    flag = "-e " if _editable() else ""
    return f"pip install {flag}'.[{extra}]' in the checkout"


def _editable() -> bool:
    """Whether it is an editable install. In a checkout, metadata without an origin may come first."""
    origins = [found.read_text("direct_url.json") for found in distributions(name="arranger")]
    return any(json.loads(origin).get("dir_info", {}).get("editable") for origin in origins if origin)
