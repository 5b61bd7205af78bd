"""The servers and processes of one scenario: its own Redis, nodes, a watch as the judge, and Arranger's processes with
the roles, accounts and rights of `deploy/`."""

import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import Kubelets, Worker, eventually, kubelets
from tests.e2e.history import History
from tests.servers import REPOSITORY, RealKube, RealRedis, documents, real_redis
from tests.trial.faults import Wire

#: The processes of `deploy/`: name, roles, and the account (None: no access to the API server).
DEPLOYED: Mapping[str, tuple[tuple[str, ...], str | None]] = {
    "watcher": (("watcher",), "arranger-watcher"),
    "decider": (("controller", "scheduler", "maintenance"), None),
    "applier": (("applier",), "arranger-applier"),
    # A process for each role, for trials that disturb only one role.
    "controller": (("controller",), None),
    "scheduler": (("scheduler",), None),
    "maintenance": (("maintenance",), None),
}
NAMESPACE = "arranger-system"
RESTRICTED = "pod-security.kubernetes.io/enforce"
#: The kinds of objects in deploy/ that are applied: they give the processes their rights.
_RIGHTS = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Lab:
    """Shared by successive scenarios: an API server, a folder for logs, and the code that they run."""

    kube: RealKube
    folder: Path
    code: Path = REPOSITORY

    def clean(self) -> None:
        """Delete everything of earlier scenarios from the API server."""
        self.kube.clear()
        for namespace in self.kube.request("GET", "/api/v1/namespaces")[1]["items"]:
            name = namespace["metadata"]["name"]
            quotas = f"/api/v1/namespaces/{name}/resourcequotas"
            if self.kube.request("GET", quotas)[1]["items"]:
                self.kube.request("DELETE", quotas)


def account_kubeconfig(kube: RealKube, account: str | None, path: Path, *, server: str = "") -> Path:
    """A kubeconfig with a token of an account in deploy/. `server` is another URL of the API server, if not empty."""
    document = yaml.safe_load(kube.kubeconfig.read_text())
    token = kube.kubectl("create", "token", str(account), "--namespace", NAMESPACE, "--duration=8h").stdout.strip()
    document["users"][0]["user"] = {"token": token}
    if server:
        document["clusters"][0]["cluster"]["server"] = server
        if server.startswith("http:"):
            del document["clusters"][0]["cluster"]["certificate-authority-data"]
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    return path


def grant(kube: RealKube, code: Path) -> None:
    """Apply the accounts and rights in the `deploy/` of this code."""
    objects = documents(kube.kubectl("kustomize", str(code / "deploy")).stdout)
    rights = [item for item in objects if item["kind"] in _RIGHTS]
    kube.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(rights))


@dataclass
class Scene:
    """One scenario's servers and processes."""

    lab: Lab
    redis: RealRedis
    history: History
    kubelets: Kubelets
    folder: Path
    settings: dict[str, object] = field(default_factory=dict)
    #: The URL of Redis, if not the direct one; the same for the API server.
    redis_url: str = ""
    api_url: str = ""
    processes: list[Worker] = field(default_factory=list)
    _kubeconfigs: dict[tuple[int, str | None, str], Path] = field(default_factory=dict)

    @property
    def kube(self) -> RealKube:
        return self.lab.kube

    # --- processes -----------------------------------------------------------------------------------------

    def start(
        self,
        *groups: str,
        wait: bool = True,
        code: Path | None = None,
        kube: RealKube | None = None,
        api_url: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> list[Worker]:
        """Start one process for each group of `DEPLOYED`, and unless `wait` is False, wait until all are ready.

        `environment` is added to the settings; `kube` and `api_url` are for processes that use another server.
        """
        started = []
        for group in groups or ("watcher", "decider", "applier"):
            roles, account = DEPLOYED[group]
            flags = ["--redis", self.redis_url or self.redis.url, "--http-port", "0"]
            if account is not None:
                config = self._kubeconfig(kube or self.kube, account, api_url or self.api_url)
                flags += ["--kubeconfig", str(config)]
            settings = {f"ARRANGER_{name.upper()}": str(value) for name, value in self.settings.items()}
            worker = Worker(
                f"{group}-{len(self.processes)}",
                [*roles, *flags],
                folder=self.folder,
                environment={"KUBECONFIG": "", "HOME": str(self.folder)}
                | ({"ARRANGER_MIN_RUNTIME_S": "0"} if (code or self.lab.code) == REPOSITORY else {})
                | settings
                | dict(environment or {}),
                code=code or self.lab.code,
            )
            self.processes.append(worker)
            worker.start()
            started.append(worker)
        if wait:
            for worker in started:
                worker.wait_ready()
        return started

    def _kubeconfig(self, kube: RealKube, account: str, server: str) -> Path:
        key = (kube.port, account, server)
        if key not in self._kubeconfigs:
            path = self.folder / f"kubeconfig-{len(self._kubeconfigs)}"
            self._kubeconfigs[key] = account_kubeconfig(kube, account, path, server=server)
        return self._kubeconfigs[key]

    @property
    def pids(self) -> list[int]:
        """The process IDs of all running processes."""
        return [worker.pid for worker in self.processes if worker.running]

    def wait_ready(self) -> None:
        """Wait until all running processes are ready."""
        for worker in self.processes:
            if worker.running:
                worker.wait_ready()

    def said(self, *words: str) -> list[str]:
        """The warnings and errors in the logs of all processes that contain one of these words."""
        found = []
        for worker in self.processes:
            for line in worker.log():
                text = json.dumps(line, ensure_ascii=False)
                loud = line.get("level", "error") in ("warning", "error", "critical")
                if loud and any(word in text.lower() for word in words):
                    found.append(f"{worker.name}: {text}")
        return found

    def tracebacks(self) -> list[str]:
        """Log lines that indicate a bug."""
        lines = [(path.name, line) for path in sorted(self.folder.glob("*.log")) for line in _lines(path)]
        return [f"{name}: {line[:600]}" for name, line in lines if "Traceback" in line]

    # --- requests ------------------------------------------------------------------------------------------

    def arranger(
        self, *arguments: str, code: Path | None = None, within_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run an `arranger` command on this scene's log."""
        return subprocess.run(
            [sys.executable, "-m", "arranger.cli.main", *arguments, "--log", self.redis.url],
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
            cwd=code or self.lab.code,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.folder)},
        )

    def status(self) -> tuple[int, str, dict[str, Any]]:
        """The exit status of `arranger status`, its text, and its JSON ({} if there is none)."""
        done = self.arranger("status", "--output", "json")
        try:
            document = json.loads(done.stdout)
        except ValueError:
            document = {}
        return done.returncode, done.stdout + done.stderr, document

    def namespace(self, name: str, **labels: str) -> str:
        """A namespace with these labels, created if it doesn't exist."""
        body = {"metadata": {"name": name, "labels": {**labels, "trial": "yes"}}}
        if self.kube.request("POST", "/api/v1/namespaces", body, check=False)[0] == 409:
            path = f"/api/v1/namespaces/{name}"
            body["metadata"]["labels"] = {RESTRICTED: None, **body["metadata"]["labels"]}  # type: ignore[dict-item]
            self.kube.request("PATCH", path, body, content_type="application/merge-patch+json")
        return name


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines()


def within(look: Callable[[], _Found], *, within_s: float, every_s: float = 0.1) -> _Found | None:
    """The first true result of `look`; None if there is none in time, because that is a figure, not a failure."""
    with contextlib.suppress(AssertionError):
        return eventually("it is so", look, within_s=within_s, every_s=every_s)
    return None


@contextlib.contextmanager
def scene(
    lab: Lab,
    *,
    nodes: Sequence[NodeTemplate],
    settings: Mapping[str, object] | None = None,
    outages: bool = False,
    slow_redis_s: float | None = None,
    history: History | None = None,
    stop_s: float = 0.2,
) -> Iterator[Scene]:
    """A scene with only nodes, which leaves no process behind. `slow_redis_s` is the delay of Redis in each
    direction. `history` is another record than the usual one. Pods take `stop_s` to stop."""
    lab.clean()
    grant(lab.kube, lab.code)
    folder = lab.folder / f"scene-{time.time_ns()}"
    folder.mkdir(parents=True)
    history = history or History(lab.kube.kubeconfig, outages=outages)
    history.start()
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(real_redis(appendonly=True))
        url = ""
        if slow_redis_s is not None:
            url = stack.enter_context(Wire(redis.port, delay_s=slow_redis_s)).redis_url
        running = stack.enter_context(kubelets(lab.kube, *nodes, stop_s=stop_s))
        found = Scene(lab, redis, history, running, folder, dict(settings or {}), redis_url=url)
        try:
            yield found
        finally:
            for worker in found.processes:
                worker.close()
            history.abandon()
    shutil.rmtree(folder, ignore_errors=True)
