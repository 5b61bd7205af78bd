"""`make release` in a clone: two builds that are the same, and parts that install."""

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import arranger
from tests.conftest import _required
from tests.helm import CHART, Helm
from tests.servers import REPOSITORY

VERSION = arranger.__version__


def git(clone: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=Test", "-c", "user.email=test@example.org", *arguments]
    return subprocess.run(command, cwd=clone, check=True, capture_output=True, text=True).stdout.strip()


def make(clone: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "deploy/release.py", VERSION]
    return subprocess.run(command, cwd=clone, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone whose changelog has a part for the version."""
    clone = tmp_path_factory.mktemp("release") / "clone"
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(clone)], check=True)
    log = clone / "CHANGELOG.md"
    heading = f"## [{VERSION}] - 2026-12-01"
    log.write_text(log.read_text().replace("## [Unreleased]", heading))
    assert heading in log.read_text()
    return clone


def test_a_release_is_made_twice_and_its_parts_install(clone: Path, tmp_path: Path) -> None:
    refused = make(clone)
    assert refused.returncode == 1
    assert "aren't committed" in refused.stderr
    assert "M CHANGELOG.md" in refused.stderr

    git(clone, "commit", "--quiet", "--all", "--message=release")
    made = make(clone)
    assert made.returncode == 0, made.stderr
    found = clone / "build" / "release" / VERSION
    sums = dict(reversed(line.split("  ")) for line in (found / "SHA256SUMS").read_text().splitlines())
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in found.iterdir()}
    assert sums == {name: digest for name, digest in files.items() if name != "SHA256SUMS"}

    statement = json.loads((found / f"arranger-{VERSION}.intoto.json").read_text())
    subjects = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
    assert subjects == {name: digest for name, digest in sums.items() if not name.endswith(".intoto.json")}
    materials = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert materials[0]["digest"]["gitCommit"] == git(clone, "rev-parse", "HEAD")

    # The wheel is whole: the console's page, the definitions and the command's name are in it.
    with zipfile.ZipFile(found / f"arranger-{VERSION}-py3-none-any.whl") as wheel:
        names = set(wheel.namelist())
    assert {"arranger/web/static/console.js", "arranger/kube/tyjob.yaml", "arranger/py.typed"} <= names

    with _required():
        helm = Helm(tmp_path)
    packed = helm.rendered(chart=found / f"arranger-chart-{VERSION}.tgz")
    assert packed
    assert packed == helm.rendered(chart=clone / CHART.relative_to(REPOSITORY))
