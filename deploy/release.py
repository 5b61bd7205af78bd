"""Makes what a release consists of, in build/release/VERSION: `python deploy/release.py VERSION`, or `make release`.

That is the source distribution, the wheel, the chart, the bill of materials, the notes, the provenance, and the sums of
all of them. Everything is made from the commit alone, never from other files of the checkout, and made twice: a release
that nobody else could make again byte for byte isn't one. The provenance is an in-toto statement with a predicate of
SLSA 1.0 that names the commit. It isn't signed here, because a signature needs the identity of a workflow.
"""

import argparse
import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parent.parent
CHART = "deploy/chart"
#: Pinned packages, and what of them a build reads.
LOCKS = ("deploy/build-requirements.lock", "console/package-lock.json")
SUMS = "SHA256SUMS"


class NotReady(Exception):
    """The tree can't be released under this version. The text has a line for each problem."""


def problems(source: Path, version: str) -> Iterator[str]:
    """What in the tree `source` names another version, or none."""
    if not re.fullmatch(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?", version):
        yield f"{version!r} is no version: it has three numbers, such as 0.1.0 or 0.2.0rc1"
    package = (source / "arranger" / "__init__.py").read_text(encoding="utf-8")
    if f'__version__ = "{version}"' not in package:
        yield f"arranger/__init__.py: set __version__ to {version}"
    chart = (source / CHART / "Chart.yaml").read_text(encoding="utf-8")
    for field in ("version", "appVersion"):
        if not re.search(rf"^{field}: {re.escape(version)}$", chart, re.MULTILINE):
            yield f"{CHART}/Chart.yaml: set {field} to {version}"
    if not notes(source, version):
        yield f"CHANGELOG.md: give the version a part of its own, under the heading `## [{version}] - YYYY-MM-DD`"


def notes(source: Path, version: str) -> str:
    """The part of the changelog about the version, without its heading; "" without one."""
    log = (source / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", log, re.MULTILINE | re.DOTALL
    )
    return found[1].strip() + "\n" if found else ""


def packed(members: Iterator[tuple[str, bytes, int]], seconds: int) -> bytes:
    """A tar, compressed by gzip, of paths with their contents and modes: of nobody, with one time for all."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, content, mode in sorted(members):
            member = tarfile.TarInfo(path)
            member.size, member.mode, member.mtime = len(content), mode, seconds
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(tar.getvalue(), mtime=seconds)


def chart_files(folder: Path, name: str) -> Iterator[tuple[str, bytes, int]]:
    """The files of a chart as its archive has them: under its name, links followed, those of .helmignore left out."""
    ignored = [line.strip() for line in (folder / ".helmignore").read_text(encoding="utf-8").splitlines()]
    for here, _, files in os.walk(folder, followlinks=True):
        for file in files:
            path = Path(here, file)
            inner = path.relative_to(folder)
            if file != ".helmignore" and not any(pattern and inner.match(pattern) for pattern in ignored):
                yield f"{name}/{inner.as_posix()}", path.read_bytes(), 0o644


def distributions(source: Path, target: Path, seconds: int) -> None:
    """The source distribution, and the wheel that is built from that, with the pinned packages alone."""
    command = [str(Path(sys.executable).with_name("uv")), "build", "--quiet", "--no-create-gitignore"]
    command += ["--build-constraints", LOCKS[0], "--require-hashes", "--out-dir", str(target), "."]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(seconds)}
    subprocess.run(command, cwd=source, check=True, env=environment, umask=0o022)
    for path in target.glob("*.tar.gz"):  # setuptools keeps the times of the build
        with tarfile.open(path) as archive:
            files = [member for member in archive if member.isfile()]
            found = [(one.name, _content(archive, one), 0o755 if one.mode & 0o100 else 0o644) for one in files]
        path.write_bytes(packed(iter(found), seconds))


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None
    return file.read()


def make(commit: str, version: str, target: Path) -> None:
    """Make all artefacts of a commit in the folder `target`. Raises `NotReady`, and `CalledProcessError`."""
    seconds = int(_git("show", "--no-patch", "--format=%ct", commit))
    with _sources(commit) as source:
        if found := list(problems(source, version)):
            raise NotReady("\n".join(found))
        distributions(source, target, seconds)
        chart = packed(chart_files(source / CHART, "arranger"), seconds)
        (target / f"arranger-chart-{version}.tgz").write_bytes(chart)
        shutil.copyfile(source / "deploy" / "sbom.cdx.json", target / f"arranger-{version}.cdx.json")
        (target / f"notes-{version}.md").write_text(notes(source, version), encoding="utf-8")
        locks = {path: _digest(source / path) for path in LOCKS}
    artefacts = {path.name: _digest(path) for path in sorted(target.iterdir())}
    statement = json.dumps(provenance(commit, version, artefacts, locks, seconds), indent=2) + "\n"
    (target / f"arranger-{version}.intoto.json").write_text(statement, encoding="utf-8")
    sums = "".join(f"{_digest(path)}  {path.name}\n" for path in sorted(target.iterdir()))
    (target / SUMS).write_text(sums, encoding="utf-8")


@contextlib.contextmanager
def _sources(commit: str) -> Iterator[Path]:
    """The files of a commit, in a folder for a time."""
    with tempfile.TemporaryDirectory(prefix="arranger-release-") as folder:
        content = subprocess.run(["git", "archive", commit], cwd=TOP, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(folder, filter="tar")
        yield Path(folder)


def provenance(
    commit: str, version: str, artefacts: dict[str, str], locks: dict[str, str], seconds: int
) -> dict[str, Any]:
    """What was made from what, as https://slsa.dev/spec/v1.0/provenance says. `artefacts` and `locks`: file → SHA-256.
    `seconds`: the time of the commit, in seconds since 1970, which is that of all files."""
    materials = [{"uri": "git+arranger", "digest": {"gitCommit": commit}}]
    materials += [{"uri": f"file:{path}", "digest": {"sha256": digest}} for path, digest in locks.items()]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in artefacts.items()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://arranger.dev/build/release/v1",
                "externalParameters": {"version": version},
                "internalParameters": {"sourceDateEpoch": seconds},
                "resolvedDependencies": materials,
            },
            "runDetails": {"builder": {"id": os.environ.get("ARRANGER_BUILDER", "https://arranger.dev/builder/local")}},
        },
    }


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=TOP, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def release(version: str) -> Path:
    """Make the release of the commit that is checked out, twice. Returns its folder. Raises `NotReady`."""
    if changed := _git("status", "--porcelain"):
        raise NotReady(f"files aren't committed, and a release is made from the commit:\n{changed}")
    commit = _git("rev-parse", "HEAD")
    with tempfile.TemporaryDirectory(prefix="arranger-release-") as folder:
        first, second = Path(folder, "first"), Path(folder, "second")
        for target in (first, second):
            target.mkdir()
            print(f"making {target.name} of two builds of {commit[:12]}", file=sys.stderr)
            make(commit, version, target)
        sums = [
            dict(reversed(line.split("  ")) for line in (one / SUMS).read_text().splitlines())
            for one in (first, second)
        ]
        if others := sorted(name for name in sums[0].keys() | sums[1].keys() if sums[0].get(name) != sums[1].get(name)):
            raise NotReady(f"two builds differ: {', '.join(others)}")
        final = TOP / "build" / "release" / version
        shutil.rmtree(final, ignore_errors=True)
        shutil.copytree(first, final)
    return final


def main() -> None:
    parser = argparse.ArgumentParser(description="Make what a release consists of, in build/release/VERSION.")
    parser.add_argument("version", metavar="VERSION", help="such as 0.1.0")
    try:
        folder = release(parser.parse_args().version)
    except NotReady as problem:
        sys.exit(f"there is no release yet:\n{problem}")
    except subprocess.CalledProcessError as failed:
        sys.exit(
            f"there is no release yet: {failed.cmd[0]} ended with status {failed.returncode}\n{failed.stderr or ''}"
        )
    print((folder / SUMS).read_text(encoding="utf-8"), end="")
    print(f"the files are in {folder.relative_to(TOP)}; both builds have these sums", file=sys.stderr)


if __name__ == "__main__":
    main()
