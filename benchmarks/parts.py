"""The parts that benchmarks run on: a real Redis, an API server, and Arranger's own processes, each separate."""

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import aiohttp

from arranger.kube.client import HttpCluster
from arranger.kube.cluster import NODES, TYJOBS, Object
from arranger.kube.config import Access, find_access
from arranger.sandbox.embedded import EmbeddedCluster
from tests.servers import CRD_FILES, free_port, real_kube

_READY_S = 60.0
_END_S = 60.0


class ApiServer:
    """An API server with TYJobs, as a benchmark's own client sees it."""

    def __init__(self, kubeconfig: Path, *pids: int) -> None:
        self.kubeconfig = kubeconfig
        #: The processes of a real server: the API server and its etcd.
        self.pids = pids
        self.access: Access = find_access(kubeconfig)
        self.cluster = HttpCluster(self.access)

    @contextlib.asynccontextmanager
    async def session(self, connections: int) -> AsyncIterator[aiohttp.ClientSession]:
        """Bare aiohttp with our credentials: what the product is compared with, and what reads watches cheaply."""
        credentials = await self.access.current()
        ssl = credentials.tls if credentials.tls is not None else True
        async with aiohttp.ClientSession(
            base_url=credentials.server + ("" if credentials.server.endswith("/") else "/"),
            connector=aiohttp.TCPConnector(limit=connections, ssl=ssl),
            headers={"Authorization": credentials.authorization or "", "Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(total=None, sock_read=60),
            read_bufsize=1 << 20,
        ) as session:
            yield session


@contextlib.asynccontextmanager
async def api_server(*flags: str, real: bool) -> AsyncIterator[ApiServer]:
    """A real kube-apiserver, with further flags, and its etcd, or the embedded cluster. Raises `ServersUnavailable`."""
    async with contextlib.AsyncExitStack() as stack:
        if real:
            kube = stack.enter_context(real_kube(*flags))
            kube.install_crd()
            server = ApiServer(kube.kubeconfig, kube.api.pid, kube.etcd.pid)
        else:
            folder = Path(stack.enter_context(scratch_folder()))
            embedded = await stack.enter_async_context(EmbeddedCluster(crds=CRD_FILES))
            server = ApiServer(embedded.kubeconfig(folder / "kubeconfig"))
        stack.push_async_callback(server.cluster.close)
        yield server


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """A temporary folder, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="arranger-bench-") as folder:
        yield folder


async def add_nodes(cluster: HttpCluster, count: int, *, gpus: int = 0) -> list[str]:
    """Ready nodes of 64 cores, 256 GiB and 110 pods, registered directly: there are no kubelets."""
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "500Gi"}
    if gpus:
        allocatable["nvidia.com/gpu"] = str(gpus)
    names = [f"node-{number:04}" for number in range(count)]
    for name in names:
        await cluster.create(NODES, None, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"allocatable": allocatable, "capacity": allocatable, "conditions": [ready]}
        await cluster.patch(NODES, None, name, {"status": status}, subresource="status")
        await cluster.patch(NODES, None, name, {"spec": {"taints": None}})
    return names


def tyjob(name: str, workers: int, *, gpus: int = 0) -> Object:
    """A job of one leader and `workers` workers that starts only as a whole; each of its pods asks for these GPUs."""
    requests = {"cpu": "100m", "memory": "256Mi"}
    resources: dict[str, dict[str, str]] = {"requests": requests}
    if gpus:
        requests["nvidia.com/gpu"] = str(gpus)
        resources["limits"] = {"nvidia.com/gpu": str(gpus)}
    container = {
        "name": "main",
        "image": "registry.example/rl:1",
        "command": ["python", "-m", "train"],
        "env": [{"name": "MODE", "value": "benchmark"}],
        "resources": resources,
    }
    template = {"spec": {"containers": [container]}}
    return {
        "apiVersion": TYJOBS.api_version,
        "kind": TYJOBS.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "minWorkersNum": workers,
            "leader": {"name": "learner", "template": template},
            "workerSets": [{"name": "actors", "counts": workers, "template": template}],
        },
    }


def cpu_s(*pids: int) -> float:
    """Processor time that these processes have used."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class WorkerProcess:
    """A running `arranger run`."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, output: Path) -> None:
        self.process = process
        self._port = port
        self._output = output

    @property
    def pid(self) -> int:
        """Its process ID."""
        return self.process.pid

    def cpu_s(self) -> float:
        """Processor time that it has used."""
        return cpu_s(self.pid)

    def memory_mb(self, field: str = "VmRSS") -> float:
        """Resident memory in MB (10⁶ bytes); `VmHWM` is the most that it ever was."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024 / 1e6
        raise ProcessLookupError(self.pid)

    def said(self) -> str:
        """The end of its output."""
        return self._output.read_text(errors="replace")[-2000:]

    async def ready(self) -> None:
        """Wait until it says that it is connected and caught up."""
        async with asyncio.timeout(_READY_S), aiohttp.ClientSession() as session:
            while True:
                if self.process.returncode is not None:
                    raise RuntimeError(f"a worker ended while starting: {self.said()}")
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"http://127.0.0.1:{self._port}/readyz") as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def workers(
    mix: Sequence[Sequence[str]],
    *,
    redis_url: str,
    kubeconfig: Path | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
    program: Sequence[str] = ("-m", "arranger.cli.main", "run"),
) -> AsyncIterator[list[WorkerProcess]]:
    """One `arranger run` (or another `program` for Python) for each list of arguments; terminated afterwards.

    `settings` are ARRANGER_ variables.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ARRANGER_")}
    environ |= {"ARRANGER_REDIS_URL": redis_url, "ARRANGER_LOG_FORMAT": "json", **settings}
    if kubeconfig is not None:
        environ["ARRANGER_KUBECONFIG"] = str(kubeconfig)
    started: list[WorkerProcess] = []
    with scratch_folder() as folder:
        try:
            for number, roles in enumerate(mix):
                port = free_port()
                path = Path(folder) / f"worker-{number}.log"
                with path.open("wb") as output:
                    process = await asyncio.create_subprocess_exec(
                        *(sys.executable, *program, *roles),
                        env=environ | {"ARRANGER_HTTP_PORT": str(port)},
                        stdin=asyncio.subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                    )
                started.append(WorkerProcess(process, port, path))
            yield started
        finally:
            for worker in started:
                with contextlib.suppress(ProcessLookupError):
                    worker.process.terminate()
            for worker in started:
                await _ended(worker)


async def _ended(worker: WorkerProcess) -> None:
    """Wait until it has ended; one that doesn't is killed, and that is an error, as is an end with another status."""
    try:
        async with asyncio.timeout(_END_S):
            await worker.process.wait()
    except TimeoutError as late:
        worker.process.kill()
        await worker.process.wait()
        raise RuntimeError(f"a worker didn't end within {_END_S:.0f} s of SIGTERM") from late
    if worker.process.returncode:
        raise RuntimeError(f"a worker ended with status {worker.process.returncode}: {worker.said()}")
