"""`arranger demo`: the main job on embedded parts, from the applied YAML to the cleaned-up pods, watched live.

It starts a private Redis, the embedded cluster with simulated GPU nodes, and two processes that each run all workers;
applies the jobs; acts as their user; and shows a table until all have ended. The log is kept in a file, so that what
was just seen can be explained and replayed.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from importlib import resources
from pathlib import Path
from typing import Any

import click
import yaml

from arranger.cli.demo_table import JobRow, Screen
from arranger.errors import ArrangerError, ClusterError, UsageError
from arranger.kube.cluster import TYJOBS, ApiError, Cluster, Object
from arranger.kube.crd import tyjob_crd
from arranger.plugins import inventory

#: What the demo reads from a TYJob; nothing else does.
EXPECT = "demo.arranger.dev/expect"
TERMINATE_AFTER = "demo.arranger.dev/terminate-after-seconds"
REFUSED = "Refused"
ENDED = ("Succeeded", "Failed", REFUSED)

PROCESSES = 2
#: Beyond this the demo gives up: a job that can't end is a failed demo, not an endless one.
LIMIT_S = 110.0
_LOOK_S = 0.2

#: Short graces, so that a demo needs no patience; everything else is as in production.
_SETTINGS = {"ARRANGER_INFEASIBLE_GRACE_S": "8", "ARRANGER_LEASE_S": "5", "ARRANGER_HTTP_PORT": "0"}


@click.command()
@click.option("--nodes", type=click.IntRange(1, 1000), default=4, show_default=True, help="Simulated nodes.")
@click.option("--gpus", type=click.IntRange(0, 64), default=8, show_default=True, help="GPUs of each node.")
@click.option(
    "--jobs",
    type=click.Path(exists=True, path_type=Path),
    metavar="DIR",
    help="Folder (or file) of TYJobs to run instead of the examples.",
)
@click.option("--keep", is_flag=True, help="Stay up afterwards, for kubectl; Ctrl-C ends it.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the log, the kubeconfig and the workers' output are kept. [default: in the user's state folder]",
)
def command(nodes: int, gpus: int, jobs: Path | None, keep: bool, folder: Path | None) -> int:
    r"""Run the example jobs on an embedded cluster and watch them.

    Exit status 0 if every job ended as its annotation demo.arranger.dev/expect says (or has none).

    \b
      arranger demo                          the examples, on 4 nodes of 8 GPUs
      arranger demo --keep                   and stay up: it prints the kubeconfig to use with kubectl
      arranger demo --jobs my-jobs/ --nodes 16
    """
    try:
        from arranger.sandbox import redis_server  # noqa: F401 - says early what is missing
    except ImportError as missing:
        raise UsageError(
            f"the demo needs {missing.name}, which isn't installed", hint="pip install 'arranger[sandbox]'"
        ) from missing
    manifests = _manifests(jobs or _examples())
    place = folder or _state_folder()
    place.mkdir(parents=True, exist_ok=True)
    return asyncio.run(_Demo(manifests, nodes=nodes, gpus=gpus, keep=keep, folder=place).run())


class _Demo:
    """One run of the demo."""

    def __init__(self, manifests: list[Object], *, nodes: int, gpus: int, keep: bool, folder: Path) -> None:
        self._manifests = manifests
        self._nodes = nodes
        self._gpus = gpus
        self._keep = keep
        self._folder = folder
        self._log = folder / "log"
        self._rows: dict[str, JobRow] = {}
        self._terminated: set[str] = set()
        self._stop = asyncio.Event()
        self._began_s = time.monotonic()

    async def run(self) -> int:
        """Start everything, watch until all jobs have ended, sum up, stop everything."""
        from arranger.events.file_log import copy_log
        from arranger.events.redis_log import RedisLog
        from arranger.sandbox.embedded import EmbeddedCluster
        from arranger.sandbox.kubelet import NodeTemplate
        from arranger.sandbox.redis_server import private_redis

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        templates = [
            NodeTemplate(f"node-{i + 1:0{len(str(self._nodes))}}", cpu="64", memory="256Gi", gpus=self._gpus)
            for i in range(self._nodes)
        ]
        async with (
            private_redis() as redis_url,
            EmbeddedCluster(crds=[self._crd()], nodes=templates) as cluster,
            self._workers(redis_url, cluster.kubeconfig(self._folder / "kubeconfig")) as processes,
        ):
            await self._until_ready(processes)
            await self._apply(cluster.direct)
            await self._watch(cluster.direct, processes)
            if self._keep and not self._stop.is_set():
                self._say_how_to_use()
                await self._watch_on(cluster.direct, processes)
            log = RedisLog(redis_url, "default")
            await log.open()
            end = await copy_log(log, self._log)
            await log.close()
        return self._sum_up(end.offset)

    def _crd(self) -> Path:
        """The resource definition with the policies installed here, in a file."""
        path = self._folder / "tyjob.yaml"
        path.write_text(tyjob_crd(inventory().names), encoding="utf-8")
        return path

    # --- the parts -----------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _workers(self, redis_url: str, kubeconfig: Path) -> AsyncIterator[list[asyncio.subprocess.Process]]:
        """Two processes, each with all five roles, as they would run in production."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("ARRANGER_")}
        environ |= _SETTINGS | {"ARRANGER_REDIS_URL": redis_url, "ARRANGER_KUBECONFIG": str(kubeconfig)}
        processes: list[asyncio.subprocess.Process] = []
        try:
            for number in range(PROCESSES):
                with (self._folder / f"workers-{number + 1}.log").open("wb") as output:
                    processes.append(
                        await asyncio.create_subprocess_exec(
                            sys.executable, "-m", "arranger.cli.main", "run",
                            env=environ, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
                        )
                    )  # fmt: skip
            yield processes
        finally:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
            for process in processes:
                await process.wait()

    async def _until_ready(self, processes: list[asyncio.subprocess.Process]) -> None:
        """Until every process has said that its watches, its log and its projection stand."""
        needed = ("check passes", '"api"')
        while not self._stop.is_set():
            self._check_alive(processes)
            texts = [(self._folder / f"workers-{i + 1}.log").read_text() for i in range(len(processes))]
            ready = all(any(all(word in line for word in needed) for line in text.splitlines()) for text in texts)
            if ready:
                click.echo(
                    f"up after {time.monotonic() - self._began_s:.1f} s: {self._nodes} nodes of {self._gpus} GPUs, "
                    f"{len(processes)} processes with all workers each"
                )
                return
            await asyncio.sleep(0.05)

    def _check_alive(self, processes: list[asyncio.subprocess.Process]) -> None:
        for number, process in enumerate(processes):
            if process.returncode is not None:
                path = self._folder / f"workers-{number + 1}.log"
                lines = path.read_text().splitlines()[-1:]
                raise ArrangerError(
                    f"a worker process ended with status {process.returncode}: {' '.join(lines)}", hint=f"see {path}"
                )

    # --- the user ------------------------------------------------------------------------------------------

    async def _apply(self, cluster: Cluster) -> None:
        """What kubectl apply would do; a refusal is shown, as kubectl shows it."""
        for manifest in self._manifests:
            name = manifest["metadata"]["name"]
            row = JobRow(name, expected=(manifest["metadata"].get("annotations") or {}).get(EXPECT, ""))
            self._rows[name] = row
            namespace = manifest["metadata"].get("namespace", "default")
            try:
                await cluster.create(TYJOBS, namespace, manifest)
            except ApiError as refused:
                row.stage, row.message = REFUSED, refused.detail

    async def _act(self, cluster: Cluster, job: Object, row: JobRow) -> None:
        """End a job whose annotation asks for it, as its user would with kubectl patch."""
        after = (job["metadata"].get("annotations") or {}).get(TERMINATE_AFTER)
        if after is None or row.stage != "Running" or row.name in self._terminated:
            return
        row.running_s += _LOOK_S
        if row.running_s >= float(after):
            self._terminated.add(row.name)
            namespace = job["metadata"]["namespace"]
            await cluster.patch(TYJOBS, namespace, row.name, {"spec": {"terminating": True}})

    # --- watching ------------------------------------------------------------------------------------------

    async def _watch(self, cluster: Cluster, processes: list[asyncio.subprocess.Process]) -> None:
        """Show the table until every job has ended, or the time is up."""
        deadline_s = time.monotonic() + LIMIT_S
        with Screen(self._rows, gpus=self._nodes * self._gpus) as screen:
            while not self._stop.is_set() and time.monotonic() < deadline_s:
                await self._look(cluster, processes)
                screen.show()
                if all(row.stage in ENDED for row in self._rows.values()):
                    return
                await asyncio.sleep(_LOOK_S)

    async def _watch_on(self, cluster: Cluster, processes: list[asyncio.subprocess.Process]) -> None:
        while not self._stop.is_set():
            await self._look(cluster, processes)
            await asyncio.sleep(_LOOK_S)

    async def _look(self, cluster: Cluster, processes: list[asyncio.subprocess.Process]) -> None:
        self._check_alive(processes)
        async for page in cluster.listing(TYJOBS):
            for job in page.items:
                name = job["metadata"]["name"]
                row = self._rows.setdefault(name, JobRow(name))
                row.update(job)
                with contextlib.suppress(ClusterError):
                    await self._act(cluster, job, row)

    # --- words ---------------------------------------------------------------------------------------------

    def _say_how_to_use(self) -> None:
        click.echo(
            f"\nstays up until Ctrl-C; in another terminal:\n\n"
            f"  export KUBECONFIG={self._folder / 'kubeconfig'}\n"
            f"  kubectl get tyj -w\n"
            f"  kubectl apply -f examples/1-quickstart.yaml\n"
        )

    def _sum_up(self, events: int) -> int:
        """The end: who ended how, and how to go on from here."""
        rows = list(self._rows.values())
        wrong = [row for row in rows if row.expected and row.stage != row.expected]
        counts = ", ".join(
            f"{sum(row.stage == stage for row in rows)} {stage}" for stage in dict.fromkeys(row.stage for row in rows)
        )
        click.echo(f"\n{len(rows)} jobs: {counts}; {events} events in {time.monotonic() - self._began_s:.0f} s")
        for row in wrong:
            click.echo(f"  {row.name} ended {row.stage or 'without a stage'}, expected {row.expected}: {row.message}")
        self._say_what_next(rows, events)
        return 1 if wrong else 0

    def _say_what_next(self, rows: list[JobRow], events: int) -> None:
        program = sys.argv[0] if os.sep in sys.argv[0] else "arranger"
        with contextlib.suppress(ValueError):
            program = str(Path(program).relative_to(Path.cwd()))
        waited = max(rows, key=lambda row: row.waited_s)
        log = f"--log {self._log}"
        lines = (
            (f"{program} explain {waited.name} {log}", "why it waited, and why its pods are where they are"),
            (f"{program} replay --at {max(1, events // 2)} {log}", "the cluster as it was at that point of the log"),
            (f"{program} events --job {waited.name} {log}", "every event and decision about one job"),
            (f"{program} verify {log}", "take every scheduling cycle again and compare"),
        )
        click.echo("\nthe log is kept; ask it:\n")
        for line, why in lines:
            click.echo(f"  {line}\n      {why}")


def _manifests(path: Path) -> list[Object]:
    """Every TYJob in a file or a folder, in the order of the file names. Raises `UsageError`."""
    files = sorted(p for p in path.iterdir() if p.suffix in (".yaml", ".yml", ".json")) if path.is_dir() else [path]
    found: list[Object] = []
    for file in files:
        try:
            documents: list[Any] = list(yaml.safe_load_all(file.read_text()))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
            raise UsageError(f"--jobs: {file} can't be read: {' '.join(str(problem).split())}") from problem
        for document in documents:
            if isinstance(document, dict) and document.get("kind") == TYJOBS.kind:
                if not isinstance((document.get("metadata") or {}).get("name"), str):
                    raise UsageError(f"--jobs: a TYJob in {file} has no metadata.name")
                found.append(document)
    if not found:
        raise UsageError(f"--jobs: no TYJob in {path}", hint="give a folder with YAML files, such as examples/")
    return found


def _examples() -> Path:
    return Path(str(resources.files("arranger.cli") / "examples"))


def _state_folder() -> Path:
    """Where programs keep what is worth keeping for a while (XDG base directories); the next demo replaces it."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "arranger" / "demo"
