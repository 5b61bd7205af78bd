"""`arranger` on PyPI is another project, so until there is a release, nothing may tell anybody to install that."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: All that people read and copy commands from.
_READ = ("arranger", "docs", "deploy", "examples", "benchmarks", "console/src", "README.md", "CHANGELOG.md", "Makefile")
_TEXTS = {".py", ".md", ".ipynb", ".yaml", ".ts", ".tsx", ".js", ".html", ".txt", ".sh", ""}


def test_no_hint_installs_the_project_of_others_that_pypi_has_under_this_name() -> None:
    paths = [path for name in _READ for path in (ROOT / name, *(ROOT / name).rglob("*")) if path.is_file()]
    assert len(paths) > 500
    wrong = re.compile(r"\barranger\[|(pip|pipx|uv|uvx)( \w+)* ['\"]?arranger\b")
    assert not [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in paths
        if path.suffix in _TEXTS
        for found in [wrong.search(path.read_text())]
        if found
    ]
