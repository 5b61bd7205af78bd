"""What a release consists of is made from the commit alone, and says what it was made from."""

import gzip
import io
import runpy
import tarfile
from pathlib import Path
from typing import Any

import pytest

import arranger
from tests.servers import REPOSITORY

TOOL: dict[str, Any] = runpy.run_path(str(REPOSITORY / "deploy" / "release.py"))


def tree(
    folder: Path, *, version: str = "0.2.0", chart: str = "0.2.0", heading: str = "## [0.2.0] - 2026-12-01"
) -> Path:
    (folder / "arranger").mkdir()
    (folder / "arranger" / "__init__.py").write_text(f'__version__ = "{version}"\n')
    (folder / "deploy" / "chart").mkdir(parents=True)
    (folder / "deploy" / "chart" / "Chart.yaml").write_text(f"version: {chart}\nappVersion: {version}\n")
    (folder / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n\n- New.\n\n## [0.1.0] - 2026-11-01\n\n- Old.\n")
    return folder


def test_notes_are_the_versions_part_of_the_changelog(tmp_path: Path) -> None:
    source = tree(tmp_path)
    assert TOOL["notes"](source, "0.2.0") == "- New.\n"
    assert TOOL["notes"](source, "0.1.0") == "- Old.\n"
    assert TOOL["notes"](source, "0x1.0") == ""
    assert not list(TOOL["problems"](source, "0.2.0"))


@pytest.mark.parametrize(
    ("changes", "version", "named"),
    [
        ({"version": "0.1.0"}, "0.2.0", ["arranger/__init__.py", "Chart.yaml: set appVersion to 0.2.0"]),
        ({"chart": "0.1.0"}, "0.2.0", ["Chart.yaml: set version to 0.2.0"]),
        ({"heading": "## [Unreleased]"}, "0.2.0", ["CHANGELOG.md"]),
        ({"heading": "## [0.2.0]"}, "0.2.0", ["CHANGELOG.md"]),
    ],
)
def test_each_place_that_names_another_version_is_named(
    tmp_path: Path, changes: dict[str, str], version: str, named: list[str]
) -> None:
    found = list(TOOL["problems"](tree(tmp_path, **changes), version))
    assert len(found) == len(named)
    assert all(part in line for part, line in zip(named, found, strict=True)), found


@pytest.mark.parametrize("version", ["1.0", "v1.0.0", "../1.0.0", "1.0.0 ", "1.0.0.dev1", ""])
def test_a_version_has_three_numbers(version: str) -> None:
    assert any("is no version" in line for line in TOOL["problems"](REPOSITORY, version))


def test_the_trees_own_version_lacks_at_most_its_part_of_the_changelog() -> None:
    assert all("CHANGELOG.md" in line for line in TOOL["problems"](REPOSITORY, arranger.__version__))


def test_an_archive_depends_on_nothing_but_its_files() -> None:
    files = [("a/two", b"2", 0o755), ("a/one", b"1", 0o644)]
    archive = TOOL["packed"](iter(files), 1_000)
    assert archive == TOOL["packed"](reversed(files), 1_000)
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(archive))) as found:
        assert [(one.name, one.mode, one.mtime, one.uid, one.uname) for one in found] == [
            ("a/one", 0o644, 1_000, 0, ""), ("a/two", 0o755, 1_000, 0, ""),
        ]  # fmt: skip


def test_the_provenance_names_the_commit_and_every_artefact() -> None:
    statement = TOOL["provenance"]("c" * 40, "0.2.0", {"a.whl": "1" * 64}, {"deploy/build.lock": "2" * 64}, 1_000)
    assert statement["subject"] == [{"name": "a.whl", "digest": {"sha256": "1" * 64}}]
    built = statement["predicate"]["buildDefinition"]
    assert built["resolvedDependencies"][0]["digest"] == {"gitCommit": "c" * 40}
    assert built["resolvedDependencies"][1]["uri"] == "file:deploy/build.lock"
