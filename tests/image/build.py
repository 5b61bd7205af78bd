"""Makes the base and the image, and runs commands in containers of it."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from packaging.markers import Marker

from tests.servers import REPOSITORY

TOOLS = ("buildah", "mmdebstrap")
BASE = "localhost/arranger-base"
IMAGE = "localhost/arranger-tested"
_BASE_PACKAGES = "python3,python3-venv,ca-certificates"
_LOCKS = ("requirements.lock", "build-requirements.lock")


class CantBuild(Exception):
    """A tool is missing or failed; the text has its output."""


def run(*command: str, folder: Path = REPOSITORY) -> str:
    """The output of a command. Raises `CantBuild`."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-15:])
        raise CantBuild(f"`{' '.join(command[:6])} …` failed:\n{said}")
    return done.stdout


class Images:
    """Buildah with its images and containers in `folder`."""

    def __init__(self, folder: Path) -> None:
        missing = [name for name in TOOLS if not shutil.which(name)]
        if missing:
            raise CantBuild(f"no {' and no '.join(missing)} on the PATH; Debian has packages of these names")
        self._folder = folder
        self._buildah = ["buildah", "--root", str(folder / "root"), "--runroot", str(folder / "runroot")]

    def command(self, *arguments: str) -> str:
        """The output of buildah. Raises `CantBuild`."""
        return run(*self._buildah, *arguments)

    def make_base(self, suite: str) -> None:
        """An image of a Debian release with Python, from its packages."""
        archive = self._folder / "base.tar"
        run("mmdebstrap", "--quiet", "--variant=minbase", f"--include={_BASE_PACKAGES}", suite, str(archive))
        container = self.command("from", "scratch").strip()
        self.command("add", container, str(archive), "/")
        self.command("commit", "--quiet", "--rm", container, BASE)
        archive.unlink()

    def build(self) -> None:
        """The image of deploy/Dockerfile. The packages are fetched before, so that the build needs no network."""
        container = self.command("from", "--pull-never", BASE).strip()
        asked = "import platform; print(platform.python_version())"
        version = self.command("run", "--isolation", "chroot", container, "--", "python3", "-c", asked).strip()
        self.command("rm", container)
        wheels = self._folder / "wheels"
        for name in _LOCKS:
            self._fetch(REPOSITORY / "deploy" / name, version, wheels)
        settings = self._folder / "pip.conf"
        settings.write_text("[global]\nno-index = true\nfind-links = /wheels\n")
        volumes = [f"--volume={wheels}:/wheels:ro", f"--volume={settings}:/etc/pip.conf:ro"]
        base = ["--pull-never", f"--build-arg=BASE={BASE}"]
        file = str(REPOSITORY / "deploy" / "Dockerfile")
        self.command("bud", "--isolation=chroot", *base, *volumes, "-f", file, "-t", IMAGE, str(REPOSITORY))

    def _fetch(self, lock: Path, version: str, wheels: Path) -> None:
        """The wheels of a lock file for this version of Python, which needn't be the one that runs here."""
        wanted = self._folder / lock.name
        wanted.write_text("\n".join(chosen(lock.read_text(encoding="utf-8"), version)))
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        only = ["--require-hashes", "--only-binary=:all:", "--python-version", version]
        run(*pip, *only, "--dest", str(wheels), "-r", str(wanted))

    def container(self) -> str:
        """A container of the image, not yet running anything."""
        return self.command("from", "--pull-never", IMAGE).strip()

    def folder_of(self, container: str) -> Path:
        """The root file system of a container."""
        return Path(self.command("mount", container).strip())

    def argv(self, container: str, *command: str, mounts: Sequence[str] = (), **environment: str) -> list[str]:
        """What runs a command in a container as the image's user, on this machine's network."""
        options = [f"--volume={mount}" for mount in mounts]
        options += [f"--env={name}={value}" for name, value in environment.items()]
        return [*self._buildah, "run", "--isolation=chroot", *options, container, "--", *command]

    def close(self) -> None:
        """Remove the containers, and unmount what buildah leaves mounted, so that the folder can be deleted."""
        self.command("rm", "--all")
        below = [path for path in _mounts() if path.startswith(f"{self._folder}/")]
        for path in sorted(below, reverse=True):
            run("umount", path)

    def settings(self) -> dict[str, object]:
        """User, entry point and command of the image."""
        found: dict[str, object] = json.loads(self.command("inspect", "--type=image", IMAGE))["OCIv1"]["config"]
        return found


def _mounts() -> list[str]:
    """The mount points of this machine."""
    return [line.split(" ")[1] for line in Path("/proc/self/mounts").read_text().splitlines()]


def chosen(lock: str, version: str) -> list[str]:
    """The entries of a lock file for a version of Python, without their conditions."""
    python = {"python_full_version": version, "python_version": ".".join(version.split(".")[:2])}
    found = []
    for entry in re.split(r"\n(?=\S)", lock):
        name, _, hashes = entry.partition(" \\\n")
        pin, _, condition = name.partition(" ; ")
        if not condition or Marker(condition).evaluate(python):
            found.append(f"{pin} \\\n{hashes}" if hashes else entry)
    return found


def without_shells(root: Path) -> list[str]:
    """Remove every shell below the root file system; returns the names."""
    found = [root / "usr" / "bin" / name for name in ("sh", "dash", "bash", "rbash")]
    present = [path for path in found if os.path.lexists(path)]
    for path in present:
        path.unlink()
    return [path.name for path in present]
