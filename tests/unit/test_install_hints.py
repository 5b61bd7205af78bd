"""`arranger` on PyPI is another project, so until there is a release, nothing may tell anybody to install that."""

import json
import re
import subprocess
import sys
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from arranger import install
from arranger.install import install_hint, python_module

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


@pytest.mark.parametrize(
    ("origins", "command"),
    [
        ((None, {"url": "file:///here", "dir_info": {"editable": True}}), "pip install -e '.[plot]'"),
        (({"url": "file:///here", "dir_info": {}},), "pip install '.[plot]'"),
        (({"url": "https://example.com/a.whl", "archive_info": {}},), "pip install '.[plot]'"),
        ((), "pip install '.[plot]'"),
    ],
)
def test_an_editable_install_stays_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origins: tuple[dict[str, object] | None, ...], command: str
) -> None:
    found = []
    for number, origin in enumerate(origins):
        folder = tmp_path / f"arranger-{number}.dist-info"
        folder.mkdir()
        if origin is not None:
            (folder / "direct_url.json").write_text(json.dumps(origin))
        found.append(PathDistribution(folder))
    monkeypatch.setattr(install, "distributions", lambda name: found)
    assert install_hint("plot") == f"{command} in the checkout"


def test_hints_on_extras_look_at_how_arranger_was_installed() -> None:
    written = {
        path.name for path in (ROOT / "arranger").rglob("*.py") if re.search(r"pip install '\.\[", path.read_text())
    }
    assert not written


def test_a_clone_in_the_working_directory_is_not_taken_for_the_package(tmp_path: Path) -> None:
    """A clone is called `arranger` too, and its commands are called from the folder that it is in."""
    (tmp_path / "arranger").mkdir()
    command = [*python_module("arranger.cli.main"), "--version"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout.startswith(b"arranger")
    # So do scripts and notebooks there: an editable installation adds the checkout to the path of imports.
    imports = [sys.executable, "-c", "from arranger.client import Client"]
    subprocess.run(imports, cwd=tmp_path, check=True)
    files = [path for path in (ROOT / "arranger").rglob("*.py") if path.name != "install.py"]
    assert not [path for path in files if '"-m", "arranger' in path.read_text()]
