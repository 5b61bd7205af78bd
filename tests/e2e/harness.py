"""Worker processes, simulated kubelets and jobs for the end-to-end tests: real processes, killed for real.

`Fleet` runs `arranger run` in separate processes with their logs in files, and reads each HTTP port from the log.
`Kubelets` run in a thread with their own event loop. No times are judged here: `eventually` waits long, because the
machine may be busy.
"""

import asyncio
import contextlib
import http.client
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import yaml

from arranger.cli.main import main
from arranger.kube.client import HttpCluster
from arranger.kube.config import find_access
from arranger.sandbox.embedded import EmbeddedCluster
from arranger.sandbox.kubelet import SimulatedKubelets
from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.nursery import Forked, for_interpreter, nursery
from tests.servers import CRD_FILES, MERGE, REPOSITORY, KubeServer, RealRedis, kube_assets

ROLES = ("watcher", "controller", "scheduler", "applier", "maintenance")
PATIENCE_S = 120.0
_COMMAND = [sys.executable, "-m", "arranger.cli.main"]
RUN_SECONDS = "sandbox.arranger.dev/run-seconds"
TYJOBS = "/apis/arranger.dev/v1/namespaces/default/tyjobs"
PODS = "/api/v1/namespaces/default/pods"

_Found = TypeVar("_Found")


def eventually(what: str, look: Callable[[], _Found], *, within_s: float = PATIENCE_S, every_s: float = 0.1) -> _Found:
    """The first true result of `look`. Fails with an assertion that names `what` if there is none in time."""
    deadline = time.monotonic() + within_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"still not after {within_s:.0f} s: {what}")
        time.sleep(every_s)


def arranger(*arguments: str, code: Path = REPOSITORY, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run an `arranger` command of a checkout that ends by itself, with only the given settings."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("ARRANGER_", "KUBE"))}
    return subprocess.run(
        [sys.executable, "-m", "arranger.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=code,
        env=bare | environment,
    )


def verified(target: str) -> str:
    """What `arranger verify` prints of a log; fails if a cycle differs. It runs in this process: a new one takes longer
    to start than most logs to verify, and this one is another than those that wrote the log."""
    told = io.StringIO()
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("ARRANGER_", "KUBE"))}
    with mock.patch.dict(os.environ, bare, clear=True), redirect_stdout(told), redirect_stderr(told):
        status = main(["verify", "--log", target], prog_name="arranger")
    assert status == 0, told.getvalue()
    return told.getvalue()


# --- worker processes --------------------------------------------------------------------------------------


class Worker:
    """An `arranger run` process that can be killed, frozen, stopped and restarted."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        code: Path = REPOSITORY,
    ) -> None:
        """`code` is the checkout whose code it runs."""
        self.name = name
        self._code = code
        self._argv = [*_COMMAND, "run", *arguments]
        self._folder = folder
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("ARRANGER_")} | dict(environment)
        self._starts = 0
        self._process: subprocess.Popen[bytes] | Forked | None = None

    @property
    def log_path(self) -> Path:
        """The log of the present or last run."""
        return self._folder / f"{self.name}.{self._starts}.log"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process with a new log."""
        assert not self.running
        self._starts += 1
        with self.log_path.open("wb") as log:
            self._process = self._forked(log.fileno()) or subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._code,
                env=self._environment,
                start_new_session=True,
            )

    def _forked(self, output: int) -> Forked | None:
        """The process as a fork of one with the same code; None if it may differ in more than its arguments."""
        if self._code != REPOSITORY or self._argv[:3] != _COMMAND:
            return None
        if for_interpreter(self._environment) != nursery().interpreter:
            return None
        return nursery().start(self._argv[3:], environment=self._environment, folder=str(self._code), output=output)

    def kill(self) -> None:
        """Send SIGKILL, so that the process can't clean up."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self, *, within_s: float = 60.0) -> int:
        """Send SIGTERM and return the exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait(within_s=within_s)

    def wait(self, *, within_s: float = PATIENCE_S) -> int:
        """Wait until the process ends by itself, and return its exit status."""
        assert self._process is not None
        try:
            return self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} doesn't end:\n{self.log_end()}") from None

    def freeze(self) -> None:
        """Send SIGSTOP: the process keeps its resources but does nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Send SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def log(self, message: str = "") -> list[dict[str, Any]]:
        """The log lines so far, or only those with `message`. A line that isn't JSON becomes `{"text": …}`."""
        lines: list[dict[str, Any]] = []
        for raw in self.log_path.read_text(errors="replace").splitlines():
            try:
                lines.append(json.loads(raw))
            except ValueError:
                lines.append({"text": raw})
        return [line for line in lines if not message or line.get("message") == message]

    def log_end(self) -> str:
        """The end of the log, for failed assertions."""
        return self.log_path.read_text(errors="replace")[-3000:]

    def get(self, path: str) -> tuple[int, str]:
        """The HTTP status and body of a page; (0, "") if the process doesn't respond."""
        listening = self.log("listening")
        if not listening:
            return 0, ""
        address = urllib.parse.urlsplit(listening[0]["url"])
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=10)
        try:
            with contextlib.closing(connection):
                connection.request("GET", path)
                response = connection.getresponse()
                return response.status, response.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, ""

    @property
    def ready(self) -> bool:
        """Whether /readyz returns 200 now. Fails the test if the process has ended."""
        assert self.running, f"{self.name} has ended:\n{self.log_end()}"
        return self.get("/readyz")[0] == 200

    def wait_ready(self) -> None:
        try:
            eventually(f"{self.name} is ready", lambda: self.ready)
        except AssertionError as late:
            raise AssertionError(f"{late}: {self.get('/readyz')[1]}\n{self.log_end()}") from None

    def metrics(self) -> dict[str, float]:
        """The metrics: `name{labels}` → value."""
        status, text = self.get("/metrics")
        assert status == 200
        samples = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in samples}

    def close(self) -> None:
        if self.running:
            self.kill()


class Fleet:
    """Worker processes on one Redis and one API server. `SETTINGS` are the defaults of their settings."""

    #: Short enough for a takeover within a test, long enough for a busy machine. Forecasts are made in tests of them.
    SETTINGS: Mapping[str, str] = {
        "ARRANGER_LEASE_S": "4",
        "ARRANGER_MIN_RUNTIME_S": "0",
        "ARRANGER_HEARTBEAT_S": "1",
        "ARRANGER_SNAPSHOT_EVERY_S": "2",
        "ARRANGER_UPGRADE_GRACE_S": "0",
        "ARRANGER_DRAIN_S": "15",
        "ARRANGER_FORECAST_EVERY_S": "0",
    }

    def __init__(self, *, redis_url: str, kubeconfig: Path, folder: Path, **settings: object) -> None:
        self._redis_url = redis_url
        self._flags = ["--kubeconfig", str(kubeconfig), "--http-port", "0"]
        self._environment = dict(self.SETTINGS) | {
            f"ARRANGER_{name.upper()}": str(value) for name, value in settings.items()
        }
        self._folder = folder
        self.workers: dict[str, Worker] = {}

    def start(
        self,
        *groups: Sequence[str],
        wait: bool = True,
        redis_url: str = "",
        code: Path = REPOSITORY,
    ) -> list[Worker]:
        """Start one process for each group of roles, and unless `wait` is False, wait until all are ready. `redis_url`
        and `code` are theirs, if not those of the fleet and of this checkout."""
        flags = [*self._flags, "--redis", redis_url or self._redis_url]
        started = []
        for roles in groups or [()]:
            name = f"{'-'.join(roles) or 'all'}-{len(self.workers)}"
            worker = Worker(name, [*roles, *flags], folder=self._folder, environment=self._environment, code=code)
            self.workers[name] = worker
            worker.start()
            started.append(worker)
        if wait:
            for worker in started:
                worker.wait_ready()
        return started

    def of_role(self, role: str) -> list[Worker]:
        """The processes of one role, in start order."""
        return [worker for name, worker in self.workers.items() if name.startswith(role)]

    def tracebacks(self) -> list[str]:
        """Log lines that indicate a bug; no test may cause any."""
        found = []
        for path in sorted(self._folder.glob("*.log")):
            lines = path.read_text(errors="replace").splitlines()
            found += [f"{path.name}: {line[:1500]}" for line in lines if "Traceback" in line]
        return found

    def close(self) -> None:
        """Kill all running processes."""
        for worker in self.workers.values():
            worker.close()


@contextlib.contextmanager
def fleet(
    *, redis_url: str, kube: KubeServer, folder: Path, verify: bool = True, **settings: object
) -> Iterator[Fleet]:
    """A fleet that leaves nothing behind. At the end, its processes must have logged no bug, and if `verify`, its log
    must pass `arranger verify`. Some tests leave no log, or one that needs policies that aren't installed."""
    workers = Fleet(redis_url=redis_url, kubeconfig=kube.kubeconfig, folder=folder, **settings)
    try:
        yield workers
        assert workers.tracebacks() == []
    finally:
        workers.close()
    if verify:
        verified(redis_url)


# --- things that run on their own event loop ---------------------------------------------------------------


class LoopThread:
    """An event loop in a thread, for asyncio code in synchronous tests."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, _Found]) -> _Found:
        """Run a coroutine on the loop and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Kubelets:
    """Simulated nodes on an API server."""

    def __init__(self, kubeconfig: Path, nodes: Sequence[NodeTemplate], *, stop_s: float = 0.2) -> None:
        self._thread = LoopThread()
        self._cluster = HttpCluster(find_access(kubeconfig))
        self._kubelets = SimulatedKubelets(self._cluster, nodes=nodes, stop_s=stop_s)
        self._thread.call(self._kubelets.start())

    def add(self, node: NodeTemplate) -> None:
        self._thread.call(self._kubelets.add(node))

    def set_ready(self, name: str, *, ready: bool) -> None:
        """Report a node as ready or not ready."""
        self._thread.call(self._kubelets.set_ready(name, ready))

    def close(self) -> None:
        """Stop the kubelets; nodes and pods stay."""
        self._thread.call(self._kubelets.stop())
        self._thread.call(self._cluster.close())
        self._thread.close()


@contextlib.contextmanager
def kubelets(kube: KubeServer, *nodes: NodeTemplate, stop_s: float = 0.2) -> Iterator[Kubelets]:
    """Simulated nodes for the duration of a test. Their pods take `stop_s` to stop."""
    running = Kubelets(kube.kubeconfig, nodes, stop_s=stop_s)
    try:
        yield running
    finally:
        running.close()


class EmbeddedKube(KubeServer):
    """The embedded cluster in a thread, with the same interface as the real one."""

    def __init__(self, folder: Path, *, crds: Sequence[Path] = CRD_FILES) -> None:
        self.home = folder
        self._thread = LoopThread()
        self._cluster = EmbeddedCluster(crds=crds)
        self._thread.call(self._cluster.__aenter__())
        self.kubeconfig = self._cluster.kubeconfig(folder / "embedded-kubeconfig")
        self.token = self._cluster.token

    def connect(self) -> http.client.HTTPConnection:
        address = urllib.parse.urlsplit(self._cluster.url)
        return http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)

    def close(self) -> None:
        self._thread.call(self._cluster.__aexit__(None, None, None))
        self._thread.close()


def kubectl_process(kube: KubeServer, *arguments: str) -> "subprocess.Popen[str]":
    """A kubectl that doesn't end by itself, such as `get -w`, with its output in a pipe."""
    argv = [str(kube_assets() / "kubectl"), f"--kubeconfig={kube.kubeconfig}", *arguments]
    environment = {**os.environ, "HOME": str(kube.kubeconfig.parent)}
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


# --- jobs --------------------------------------------------------------------------------------------------


def pod_template(*, cpu: str = "1", run_s: float | None = None, **annotations: object) -> dict[str, Any]:
    """A pod with one container that runs for `run_s` seconds, or endlessly if None. `fail="…"` etc. are annotations."""
    notes = {f"sandbox.arranger.dev/{name.replace('_', '-')}": str(value) for name, value in annotations.items()}
    if run_s is not None:
        notes[RUN_SECONDS] = str(run_s)
    containers = [{"name": "main", "image": "trainer:1", "resources": {"requests": {"cpu": cpu}}}]
    metadata = {"metadata": {"annotations": notes}} if notes else {}
    return {**metadata, "spec": {"containers": containers}}


def job(
    name: str, *, workers: int = 2, least: int | None = None, run_s: float | None = None, cpu: str = "1", **spec: Any
) -> dict[str, Any]:
    """A TYJob of a leader that runs for `run_s` seconds, and `workers` workers; the quorum needs `least` or all. At its
    end its pods are deleted, so that the next test finds none."""
    sets = [{"name": "actors", "counts": workers, "template": pod_template(cpu=cpu)}] if workers else []
    return {
        "apiVersion": "arranger.dev/v1",
        "kind": "TYJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "minWorkersNum": workers if least is None else least,
            "leader": {"name": "learner", "template": pod_template(cpu=cpu, run_s=run_s)},
            "workerSets": sets,
            "cleanPodPolicy": "All",
            **spec,
        },
    }


def apply(kube: KubeServer, *jobs: Mapping[str, Any]) -> None:
    """Apply some jobs with one `kubectl apply`."""
    kube.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(jobs))


def status_of(kube: KubeServer, name: str) -> dict[str, Any]:
    """A job's present status; empty if it has none."""
    found: dict[str, Any] = kube.request("GET", f"{TYJOBS}/{name}")[1].get("status") or {}
    return found


def stages(kube: KubeServer) -> dict[str, str]:
    """Job name → present stage."""
    items = kube.request("GET", TYJOBS)[1]["items"]
    return {item["metadata"]["name"]: (item.get("status") or {}).get("stage", "") for item in items}


def await_stage(kube: KubeServer, stage: str, *names: str) -> None:
    """Wait until these jobs are in this stage. Fails at once if one of them ends in another stage."""

    def look() -> bool:
        now = {name: status_of(kube, name) for name in names}
        for name, status in now.items():
            ended = status.get("stage") in ("Succeeded", "Failed") and status["stage"] != stage
            assert not ended, f"{name} is {status['stage']}: {status['message']}"
        return all(status.get("stage") == stage for status in now.values())

    try:
        eventually(f"{', '.join(names)} {stage}", look)
    except AssertionError as late:
        told = {name: (s.get("stage"), s.get("message")) for name in names for s in [status_of(kube, name)]}
        raise AssertionError(f"{late}; now {told}") from None


def pods_of(kube: KubeServer, name: str) -> list[dict[str, Any]]:
    """The present pods of a job."""
    items = kube.request("GET", f"{PODS}?labelSelector=arranger.dev/job={name}")[1]["items"]
    found: list[dict[str, Any]] = items
    return found


def finish_leader(kube: KubeServer, name: str) -> None:
    """Let a job's leader, which runs endlessly, succeed now."""
    leader = next(pod for pod in pods_of(kube, name) if pod["metadata"]["labels"]["arranger.dev/role"] == "leader")
    path = f"{PODS}/{leader['metadata']['name']}/status"
    kube.request("PATCH", path, {"status": {"phase": "Succeeded"}}, content_type=MERGE)


def finish_jobs(kube: KubeServer, *names: str) -> None:
    """Let the leaders of running jobs succeed, and wait until the jobs have succeeded and their pods are deleted."""
    for name in names:
        finish_leader(kube, name)
    await_stage(kube, "Succeeded", *names)
    eventually("all pods are cleaned", lambda: not any(pods_of(kube, name) for name in names))


class Leaders:
    """Ends each leader once its job is Running, as real leaders wait for their workers, even for late ones."""

    def __init__(self, kube: KubeServer) -> None:
        self._kube = kube
        self._told: set[str] = set()

    def all_ended(self) -> bool:
        """End the leaders of Running jobs. Returns whether every job has ended."""
        now = stages(self._kube)
        for name, stage in now.items():
            if stage == "Running" and name not in self._told:
                finish_leader(self._kube, name)
                self._told.add(name)
        return set(now.values()) <= {"Succeeded", "Failed"}


def epoch_of(redis: RealRedis) -> int:
    """The epoch of the log in a Redis; 0 if there is no log."""
    kind, _, rest = redis.command("HGET", "arranger:{default}:meta", "epoch").partition(b"\r\n")
    return int(rest) if kind != b"$-1" else 0


def end_offset(redis: RealRedis) -> int:
    """The offset of the last event in the log, from the ID of the stream's last entry."""
    reply = redis.command("XREVRANGE", "arranger:{default}:log", "+", "-", "COUNT", "1")
    return int(reply.split(b"\r\n")[3].partition(b"-")[0])
