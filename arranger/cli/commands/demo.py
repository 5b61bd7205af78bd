"""`arranger demo`: a story of two teams on embedded parts, from applied YAML to deleted pods, told as it happens.

The demo starts a private Redis, the embedded cluster with simulated GPU nodes, and two processes that each run all
workers. It applies the jobs, acts as their users, tells what happens in a line each, and shows a table until all jobs
have ended. It keeps the log in a file for the console, `explain` and all other commands. With `--keep`, the cluster
stays up for kubectl, with the console on its log.
"""

import asyncio
import contextlib
import fcntl
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
import yaml

from arranger.cli.rendering.demo_story import DemoStory, LongestWait
from arranger.cli.rendering.demo_table import JobRow, QueueRow, TableScreen
from arranger.cli.rendering.output import heading, say
from arranger.errors import ArrangerError, ClusterError, UsageError
from arranger.events.file_log import FileLog, copy_log
from arranger.events.log import Position, entries
from arranger.events.redis_log import RedisLog
from arranger.install import install_hint, python_module
from arranger.kube.cluster import PODS, QUEUES, TYJOBS, ApiError, Cluster, Object
from arranger.messages.faults import meant_text
from arranger.model.faults import Fault
from arranger.model.queue_rules import validate_queue
from arranger.model.text import counted
from arranger.model.validation import validate

if TYPE_CHECKING:
    from arranger.sandbox.redis_server import PrivateRedis

#: Annotations of TYJobs that only the demo reads.
EXPECT = "demo.arranger.dev/expect"
TERMINATE_AFTER = "demo.arranger.dev/terminate-after-seconds"
APPLY_AFTER = "demo.arranger.dev/apply-after-seconds"
FAIL_WORKER_AFTER = "demo.arranger.dev/fail-worker-after-seconds"
REFUSED = "Refused"
ENDED = ("Succeeded", "Failed", REFUSED)

PROCESSES = 2
#: How long the story takes on a quiet machine, in seconds, from the start of this command to its end.
STORY_S = 45
#: After this time the demo stops and fails, in case a job doesn't end.
LIMIT_S = 110.0
#: The maximum wait for the deletion of the last pods.
CLEAN_S = 5.0
_LOOK_S = 0.2

#: Grace periods, and the time for which jobs keep their nodes at least, are short to keep the demo short. All other
#: settings have their defaults, but for those of `_TAKEN`.
_SETTINGS = {
    "ARRANGER_INFEASIBLE_GRACE_S": "8",
    "ARRANGER_MIN_RUNTIME_S": "5",
    "ARRANGER_LEASE_S": "5",
    "ARRANGER_HTTP_PORT": "0",
}
#: Settings that the demo takes from its own environment. Others could spoil the story, or name a log or a cluster that
#: isn't the demo's.
_TAKEN = ("ARRANGER_FORECAST_EVERY_S", "ARRANGER_FORECAST_JOBS")
#: An API server adds this useless text to every refusal that has another cause.
_NOT_CHECKED = re.compile(r",? <nil>: Invalid value: null: some validation rules were not checked[^]]*")
_ADDRESS = re.compile(r"http://\S+")


@click.command()
@click.option("--nodes", type=click.IntRange(1, 1000), default=4, show_default=True, help="Simulated nodes.")
@click.option("--gpus", type=click.IntRange(0, 64), default=8, show_default=True, help="GPUs of each node.")
@click.option(
    "--jobs",
    type=click.Path(exists=True, path_type=Path),
    metavar="DIR",
    help="Folder (or file) of TYJobs, and Queues, to run. [default: the story; with --keep, none]",
)
@click.option("--keep", is_flag=True, help="Keep the cluster up for kubectl until Ctrl-C.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the log (and that of the previous demo), the kubeconfig and the workers' output. "
    "[default: in the user's state folder]",
)
def command(nodes: int, gpus: int, jobs: Path | None, keep: bool, folder: Path | None) -> int:
    """Run a story of two teams on an embedded cluster, told as it happens, in less than a minute.

    A gang waits for all of its nodes, a team takes room back that another one borrowed, a worker fails while its job
    runs on, and a job is refused nodes that nobody has. Lines with ">" tell it; the others are the jobs' statuses, in a
    table on a terminal. The log is kept, and the demo ends with five commands that read it.

    The exit status is 0 if every job with the annotation demo.arranger.dev/expect ended as this annotation says. A job
    that doesn't fit an empty cluster fails after 8 seconds here, and nodes that a job took may be taken from it after 5
    seconds, to keep the demo short. In production the settings infeasible_grace_s and min_runtime_s decide these times.

    \b
      arranger demo                          the story, on 4 nodes of 8 GPUs
      arranger demo --jobs examples          single jobs, one for each thing that a TYJob can do
      arranger demo --keep                   an empty cluster; prints the kubeconfig and the console's address
      arranger demo --jobs my-jobs/ --nodes 16
      arranger demo --jobs examples/teams    three teams with queues, one of which borrows
    """  # noqa: D301 - the \b is for click, and must be that character
    try:
        from arranger.sandbox import redis_server  # noqa: F401 - reports a missing package early
    except ImportError as missing:
        raise UsageError(
            f"the demo needs {missing.name}, which isn't installed", hint=install_hint("sandbox")
        ) from missing
    is_story = jobs is None and not keep
    path = _examples() / "story" if is_story else jobs
    manifests = _manifests(path) if path is not None else []
    with _alone_in((folder or _state_folder()).absolute()) as chosen:
        demo = _Demo(manifests, is_story=is_story, nodes=nodes, gpus=gpus, keep=keep, folder=chosen)
        return asyncio.run(demo.run())


def environment(of: Mapping[str, str]) -> dict[str, str]:
    """What the workers get of the demo's own environment."""
    return {name: value for name, value in of.items() if name in _TAKEN or not name.startswith("ARRANGER_")}


class _Demo:
    """One run of the demo."""

    def __init__(
        self, manifests: list[Object], *, is_story: bool, nodes: int, gpus: int, keep: bool, folder: Path
    ) -> None:
        self._manifests = manifests
        self._is_story = is_story
        self._nodes = nodes
        self._gpus = gpus
        self._keep = keep
        self._folder = folder
        self._log = folder / "log"
        self._earlier_log = folder / "log.before"
        self._kubeconfig = folder / "kubeconfig"
        self._rows: dict[str, JobRow] = {}
        self._queues: dict[str, QueueRow] = {}
        #: Rows of jobs that the user deleted.
        self._deleted: list[JobRow] = []
        #: UIDs of jobs on which the demo has acted.
        self._terminated: set[str] = set()
        self._failed: set[str] = set()
        #: What is applied later, each after so many seconds from the first.
        self._later: list[tuple[float, Object]] = []
        self._story: _Told | None = None
        #: The environment of the workers.
        self._environ: dict[str, str] = {}
        self._console_process: asyncio.subprocess.Process | None = None
        self._stop = asyncio.Event()
        self._began_s = time.monotonic()

    async def run(self) -> int:
        """Start everything, watch until all jobs have ended, stop everything, and print a summary."""
        from arranger.sandbox.direct import DirectCluster
        from arranger.sandbox.embedded import EmbeddedCluster
        from arranger.sandbox.nodes import NodeTemplate
        from arranger.sandbox.redis_server import private_redis

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        templates = [
            NodeTemplate(f"node-{i + 1:0{len(str(self._nodes))}}", cpu="64", memory="256Gi", gpus=self._gpus)
            for i in range(self._nodes)
        ]
        lasts = f" (it all takes about {STORY_S} s)" if self._is_story else ""
        say(f"starting Redis, a Kubernetes API with {counted(self._nodes, 'node')}, and {PROCESSES} processes{lasts}")
        try:
            async with (
                private_redis(kept=self._keep) as redis,
                EmbeddedCluster(crds=_crds(), nodes=templates) as cluster,
                self._workers(redis.url, cluster.kubeconfig(self._kubeconfig)) as processes,
            ):
                await self._until_ready(processes)
                try:
                    async with self._console(redis.url) as address:
                        if self._keep:
                            self._say_how_to_use(redis.url, address)
                        user = DirectCluster(cluster.store, strict=True)
                        await self._apply(user)
                        async with _story(redis.url, self._rows) as self._story:
                            await self._watch(cluster.direct, user, processes, redis, address)
                    await self._until_clean(cluster.direct)
                finally:  # also of a demo that fails
                    await self._replace_dead_redis(redis)
                    events = await self._keep_log(redis.url)
        finally:
            self._kubeconfig.unlink(missing_ok=True)
        return await self._sum_up(events)

    # --- the parts -----------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _workers(self, redis_url: str, kubeconfig: Path) -> AsyncIterator[list[asyncio.subprocess.Process]]:
        """Run two processes with all five roles each, as in production."""
        self._environ = (
            environment(os.environ)
            | _SETTINGS
            | {"ARRANGER_REDIS_URL": redis_url, "ARRANGER_KUBECONFIG": str(kubeconfig)}
        )
        processes: list[asyncio.subprocess.Process] = []
        try:
            for number in range(PROCESSES):
                self._output(number).unlink(missing_ok=True)
                processes.append(await self._worker(number))
            yield processes
        finally:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
            for process in processes:
                await process.wait()

    async def _worker(self, number: int) -> asyncio.subprocess.Process:
        from arranger.sandbox.redis_server import end_with_parent

        with self._output(number).open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *python_module("arranger.cli.main"), "run",
                env=self._environ, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, preexec_fn=end_with_parent,
            )  # fmt: skip

    async def _replace_dead(self, processes: list[asyncio.subprocess.Process]) -> None:
        """In a cluster that stays, a process that was killed is started again, so that a takeover can be tried. One
        that ends by itself ends the demo."""
        for number, process in enumerate(processes):
            if self._keep and process.returncode is not None and process.returncode < 0:
                say(
                    f"process {process.pid} was killed by signal {-process.returncode}: the other one takes over, and "
                    "a new one starts"
                )
                processes[number] = await self._worker(number)
        self._check_alive(processes)

    async def _replace_dead_redis(self, redis: "PrivateRedis") -> None:
        """In a cluster that stays, a Redis that ended is started again on its data. Else nobody would write the log."""
        if self._keep and redis.returncode is not None:
            say(f"Redis ended with status {redis.returncode}: it is started again, with all that it had")
            await redis.start()

    @contextlib.asynccontextmanager
    async def _console(self, redis_url: str) -> AsyncIterator[str]:
        """With `--keep`, run the console, and yield its address; else an empty one."""
        if not self._keep:
            yield ""
            return
        address = await self._start_console(redis_url)
        try:
            yield address
        finally:
            if self._console_process is not None:
                with contextlib.suppress(ProcessLookupError):
                    self._console_process.terminate()
                await self._console_process.wait()

    async def _start_console(self, redis_url: str, port: int = 0) -> str:
        """Run the console on this port, on any for 0; its address."""
        from arranger.sandbox.redis_server import end_with_parent

        environ = {name: value for name, value in os.environ.items() if not name.startswith("ARRANGER_")}
        with (self._folder / "console.log").open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *python_module("arranger.cli.main"), "ui", f"--port={port}", "--no-browser",
                env=environ | {"ARRANGER_REDIS_URL": redis_url}, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE, stderr=output, start_new_session=True, preexec_fn=end_with_parent,
            )  # fmt: skip
        self._console_process = process
        assert process.stdout is not None
        found = _ADDRESS.search((await process.stdout.readline()).decode())
        if found is None:
            raise ArrangerError("the console didn't start", hint=f"see {self._folder / 'console.log'}")
        return found[0]

    async def _replace_dead_console(self, address: str, redis_url: str) -> None:
        process = self._console_process
        if process is not None and process.returncode is not None:
            say(f"the console ended with status {process.returncode}: it is started again at {address}")
            await self._start_console(redis_url, urlsplit(address).port or 0)

    def _output(self, number: int) -> Path:
        return self._folder / f"workers-{number + 1}.log"

    async def _until_ready(self, processes: list[asyncio.subprocess.Process]) -> None:
        """Wait until every process reports that its watches, its log and its projection are ready."""
        while not self._stop.is_set():
            self._check_alive(processes)
            texts = [self._output(number).read_text() for number in range(len(processes))]
            if all(any('"check passes"' in x and '"api"' in x for x in text.splitlines()) for text in texts):
                say(
                    f"up after {time.monotonic() - self._began_s:.1f} s: {self._nodes} nodes of {self._gpus} GPUs, "
                    f"{len(processes)} processes with all workers each"
                )
                return
            await asyncio.sleep(0.05)

    def _check_alive(self, processes: list[asyncio.subprocess.Process]) -> None:
        for number, process in enumerate(processes):
            if process.returncode is not None:
                lines = self._output(number).read_text().splitlines()[-1:]
                raise ArrangerError(
                    f"a worker process ended with status {process.returncode}: {' '.join(lines)}",
                    hint=f"see {self._output(number)}",
                )

    async def _keep_log(self, redis_url: str) -> int:
        """Copy the log into the file and return its last offset. The log of the previous demo is kept under another
        name, and in its place until the new one is whole: a console may show it."""
        if self._log.exists():
            for outdated in self._folder.glob(f"{self._earlier_log.name}*"):
                outdated.unlink()
            for file in (self._log, *self._folder.glob(f"{self._log.name}.snapshot-*")):
                earlier = self._folder / (self._earlier_log.name + file.name.removeprefix(self._log.name))
                try:
                    os.link(file, earlier)
                except OSError:  # not every file system has links
                    file.rename(earlier)
        log = RedisLog(redis_url, "default")
        await log.open()
        end = await copy_log(log, self._log)
        await log.close()
        return end.offset

    # --- the user ------------------------------------------------------------------------------------------

    async def _apply(self, cluster: Cluster) -> None:
        """Create the queues and the jobs as `kubectl apply` would; refusals are shown as kubectl shows them."""
        for manifest in self._manifests:
            name = manifest["metadata"]["name"]
            if manifest["kind"] == QUEUES.kind:
                try:
                    await cluster.create(QUEUES, None, manifest)
                except ApiError as refused:
                    why = _why_refused(refused, validate_queue(manifest))
                    raise UsageError(f"--jobs: queue {name}: {why}") from refused
                continue
            after = (manifest["metadata"].get("annotations") or {}).get(APPLY_AFTER)
            if after is not None:
                self._later.append((float(after), manifest))
            else:
                await self._create(cluster, manifest)

    async def _create(self, cluster: Cluster, manifest: Object) -> None:
        name = manifest["metadata"]["name"]
        row = JobRow(name, expected=(manifest["metadata"].get("annotations") or {}).get(EXPECT, ""))
        self._rows[name] = row
        try:
            await cluster.create(TYJOBS, manifest["metadata"].get("namespace", "default"), manifest)
        except ApiError as refused:
            row.stage, row.message = REFUSED, _why_refused(refused, validate(manifest))

    async def _apply_later(self, cluster: Cluster, since_s: float) -> None:
        """Create the jobs whose time has come, so many seconds after the first ones."""
        due = [of for of in self._later if of[0] <= since_s]
        self._later = [of for of in self._later if of[0] > since_s]
        for _, manifest in due:
            await self._create(cluster, manifest)

    async def _act(self, cluster: Cluster, job: Object, row: JobRow) -> None:
        """Do to a job what its annotations say, some time after it began to run: what its user or bad luck would do."""
        if row.stage != "Running":
            return
        row.running_s += _LOOK_S
        notes, namespace = job["metadata"].get("annotations") or {}, job["metadata"]["namespace"]
        if row.uid not in self._terminated and row.running_s >= float(notes.get(TERMINATE_AFTER, "inf")):
            self._terminated.add(row.uid)  # as with kubectl patch
            await cluster.patch(TYJOBS, namespace, row.name, {"spec": {"terminating": True}})
        if row.uid not in self._failed and row.running_s >= float(notes.get(FAIL_WORKER_AFTER, "inf")):
            self._failed.add(row.uid)
            await _fail_worker(cluster, job)

    # --- watching ------------------------------------------------------------------------------------------

    async def _watch(
        self,
        cluster: Cluster,
        user: Cluster,
        processes: list[asyncio.subprocess.Process],
        redis: "PrivateRedis",
        console: str,
    ) -> None:
        """Show the table until every job has ended or the time is up; with `--keep`, until a signal."""
        began_s = time.monotonic()
        deadline_s = began_s + (float("inf") if self._keep else LIMIT_S)
        with TableScreen(self._rows, self._queues, gpus=self._nodes * self._gpus) as screen:
            while not self._stop.is_set() and time.monotonic() < deadline_s:
                await self._apply_later(user, time.monotonic() - began_s)
                await self._replace_dead_redis(redis)
                await self._replace_dead_console(console, redis.url)
                await self._look(cluster, processes)
                await self._tell(screen)
                screen.show()
                if not self._keep and not self._later and all(row.stage in ENDED for row in self._rows.values()):
                    return
                await asyncio.sleep(_LOOK_S)
            await self._look(cluster, processes)  # changes just before the end
            await self._tell(screen)
            screen.show()

    async def _tell(self, screen: TableScreen) -> None:
        if self._story is not None and not self._keep:
            async for time_ms, line in self._story.news():
                screen.tell(time_ms, line)

    async def _look(self, cluster: Cluster, processes: list[asyncio.subprocess.Process]) -> None:
        await self._replace_dead(processes)
        there: set[str] = set()
        async for page in cluster.listing(TYJOBS):
            for job in page.items:
                name = job["metadata"]["name"]
                there.add(name)
                row = self._rows.setdefault(name, JobRow(name))
                if row.uid not in ("", job["metadata"]["uid"]):  # deleted and created again since the last look
                    self._deleted.append(row)
                    row = self._rows[name] = JobRow(name)
                row.update(job)
                with contextlib.suppress(ClusterError, ValueError):
                    await self._act(cluster, job, row)
        for name in [name for name, row in self._rows.items() if name not in there and row.stage != REFUSED]:
            self._deleted.append(self._rows.pop(name))
        queues = [queue async for page in cluster.listing(QUEUES) for queue in page.items]
        self._queues.clear()
        self._queues.update({queue["metadata"]["name"]: QueueRow.of(queue) for queue in queues})

    async def _until_clean(self, cluster: Cluster) -> None:
        """Wait until the pods of ended jobs are deleted by their cleanPodPolicy, so that the log records it too."""
        until_s = time.monotonic() + CLEAN_S
        while not self._stop.is_set() and time.monotonic() < until_s:
            pods = [pod async for page in cluster.listing(PODS) for pod in page.items]
            if not any(pod["metadata"].get("deletionTimestamp") or _runs(pod) for pod in pods):
                await asyncio.sleep(_LOOK_S)  # until the watch has recorded it
                return
            await asyncio.sleep(_LOOK_S)

    # --- words ---------------------------------------------------------------------------------------------

    def _say_how_to_use(self, redis_url: str, console: str) -> None:
        heading(f"the console is at {console}")
        heading("the cluster stays up until Ctrl-C; in another terminal:")
        say()
        for line in (
            f"export KUBECONFIG={_shown(self._kubeconfig)}",
            f"export ARRANGER_REDIS_URL={redis_url}",
            f"kubectl apply -f {_shown(_examples() / '1-quickstart.yaml')}",
            "kubectl get tyj -w",
            f"{_program()} explain quickstart",
        ):
            say(f"  {line}")
        say()

    async def _sum_up(self, events: int) -> int:
        """Print how the jobs ended and which commands come next. Returns the exit status."""
        rows = list(self._rows.values())
        wrong = [row for row in rows if row.expected and row.stage != row.expected]
        jobs = _jobs_text([*(row.stage or "without a stage" for row in rows), *("deleted" for _ in self._deleted)])
        heading(f"{jobs}; {events} events in {time.monotonic() - self._began_s:.0f} s")
        for row in rows:
            if row.stage not in ("Succeeded", "Running"):
                say(f"  {row.name}: {row.message}")
        for row in wrong if not self._stop.is_set() else ():
            say(f"  {row.name} ended {row.stage or 'without a stage'}, expected {row.expected}")
        if rows or self._deleted:
            await self._say_what_next([*rows, *self._deleted], events)
        if self._earlier_log.exists():
            heading(f"the log of the previous demo is {_shown(self._earlier_log)}; --folder names another folder")
        if self._stop.is_set():
            return 0 if self._keep else 130
        return 1 if wrong else 0

    async def _say_what_next(self, rows: list[JobRow], events: int) -> None:
        log = f"--log {_shown(self._log)}"
        longest = sorted(rows, key=lambda row: -row.waited_s)
        waited, at, waiting = longest[0], max(1, events // 2), False
        for row in longest:  # what only comes after another job has no reason that a cycle gave
            if (found := await self._waited_at(row.uid)) is not None:
                waited, at, waiting = row, found, True
                break
        ran = next((row for row in longest if row.ran_s), None)
        life = f"its whole life{', and why its pods were where they were' if ran is not None else ''}"
        taken = self._story is not None and self._story.room_taken
        cost = (f"preemptions {log}", "what taking room back cost and gained, and whether it was needless")
        lines = (
            (
                f"ui {log}",
                "the console: the cluster and its jobs at any point of the log, in a browser; "
                f"that of the next command is event {at}",
            ),
            (
                f"explain {waited.name} --at {at} {log}",
                "why it waited then, what would have helped, and when it starts" if waiting else "how it stood then",
            ),
            cost if taken else (f"explain {(ran or waited).name} {log}", life),
            (f"queue --at {at} {log}", "what each queue used and was entitled to then")
            if self._queues
            else (f"replay --at {at} {log}", "the cluster as it was at that point of the log"),
            (f"verify {log}", "run every scheduling cycle again and compare"),
        )
        heading("the log is kept; these commands read it (--at N: as it was after event N):")
        say()
        for line, why in lines:
            say(f"  {_program()} {line}")
            say(f"      {why}")

    async def _waited_at(self, uid: str) -> int | None:
        """The point of the log as of which a job waits for the reason for which it waited longest."""
        log, wait = FileLog(self._log), LongestWait(uid)
        await log.open()
        async for entry in entries(log, await log.start()):
            wait.feed(entry)
        await log.close()
        return wait.at


class _Told:
    """The story of a log, as far as it was told."""

    def __init__(self, log: RedisLog, position: Position, rows: Mapping[str, JobRow]) -> None:
        """`rows`: those of the table beside the story."""
        self._log = log
        self._position = position
        self._story = DemoStory(lambda name: name not in rows or rows[name].whole)

    @property
    def room_taken(self) -> bool:
        """Whether a job took room back from others."""
        return self._story.room_taken

    async def news(self) -> AsyncIterator[tuple[int, str]]:
        """What happened since: times in milliseconds since 1970, and lines."""
        async for entry in entries(self._log, self._position):
            self._position = Position(self._position.epoch, entry.last, entry.chain)
            for line in self._story.feed(entry):
                yield entry.batch.time_ms, line
        for line in self._story.shown():
            yield round(time.time() * 1000), line


@contextlib.asynccontextmanager
async def _story(redis_url: str, rows: Mapping[str, JobRow]) -> AsyncIterator[_Told]:
    log = RedisLog(redis_url, "default")
    await log.open()
    try:
        yield _Told(log, await log.start(), rows)
    finally:
        await log.close()


async def _fail_worker(cluster: Cluster, job: Object) -> None:
    """Let the last pod of a job's first worker set fail, as if its program had ended with exit code 1."""
    prefix = f"{job['metadata']['name']}-{job['spec']['workerSets'][0]['name']}-"
    pods = [pod async for page in cluster.listing(PODS) for pod in page.items]
    of_set = [
        pod for pod in pods
        if pod["metadata"]["name"].startswith(prefix) and (pod.get("status") or {}).get("phase") == "Running"
    ]  # fmt: skip
    if not of_set:
        return
    pod = max(of_set, key=lambda pod: str(pod["metadata"]["name"]))
    containers = [
        {**of, "ready": False, "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
        for of in pod["status"]["containerStatuses"]
    ]
    conditions = [
        {**of, "status": "False"} if of["type"] in ("Ready", "ContainersReady") else of
        for of in pod["status"]["conditions"]
    ]
    status = {"phase": "Failed", "conditions": conditions, "containerStatuses": containers}
    metadata = pod["metadata"]
    await cluster.patch(PODS, metadata["namespace"], metadata["name"], {"status": status}, subresource="status")


def _jobs_text(stages: Sequence[str]) -> str:
    """The number of jobs in total and in each stage, in words."""
    counts = [f"{stages.count(stage)} {stage}" for stage in dict.fromkeys(stages)]
    jobs = counted(len(stages), "job")
    return f"{jobs}: {', '.join(counts)}" if counts else jobs


def _runs(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Pending", "Running")


def _program() -> str:
    """How the program was called, as a shell understands it in any working directory."""
    if sys.argv[0].endswith(".py"):  # python -m arranger.cli.main
        return f"{_shown(Path(sys.executable))} -P -m arranger.cli.main"
    return _shown(Path(sys.argv[0])) if os.sep in sys.argv[0] else "arranger"


def _shown(path: Path) -> str:
    """A path as a shell reads it in any working directory: absolute, shortened by the home directory."""
    absolute = path.absolute()
    with contextlib.suppress(ValueError):
        return f"~/{shlex.quote(str(absolute.relative_to(Path.home())))}"
    return shlex.quote(str(absolute))


def _why_refused(refused: ApiError, faults: Sequence[Fault]) -> str:
    """As kubectl shows it, with the names that misspelt fields may have meant."""
    meant = meant_text(faults)
    return _NOT_CHECKED.sub("", refused.detail) + (f" ({meant})" if meant else "")


def _manifests(path: Path) -> list[Object]:
    """Every TYJob and Queue in a file or a folder, in the order of the file names. Raises `UsageError`."""
    files = sorted(p for p in path.iterdir() if p.suffix in (".yaml", ".yml", ".json")) if path.is_dir() else [path]
    found: list[Object] = []
    for file in files:
        try:
            documents: list[Any] = list(yaml.safe_load_all(file.read_text()))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
            raise UsageError(f"--jobs: {file} can't be read: {' '.join(str(problem).split())}") from problem
        for document in documents:
            if isinstance(document, dict) and document.get("kind") in (TYJOBS.kind, QUEUES.kind):
                if not isinstance((document.get("metadata") or {}).get("name"), str):
                    raise UsageError(f"--jobs: a {document['kind']} in {file} has no metadata.name")
                found.append(document)
            elif document is not None:
                kind = document.get("kind") if isinstance(document, dict) else document
                say(f"arranger: --jobs: {file}: {kind!r} isn't created, only TYJobs and Queues are", err=True)
    if not any(document["kind"] == TYJOBS.kind for document in found):
        raise UsageError(f"--jobs: no TYJob in {path}", hint="give a folder with YAML files, such as examples/")
    return found


def _examples() -> Path:
    here = Path("examples")
    return here if (here / "1-quickstart.yaml").exists() else Path(str(resources.files("arranger.cli") / "examples"))


def _crds() -> list[Path]:
    return [
        Path(str(resources.files("arranger.kube") / name)) for name in ("tyjob.yaml", "queue.yaml", "clusterlog.yaml")
    ]


def _state_folder() -> Path:
    """The default folder (XDG base directories). It keeps the logs of the last two demos."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "arranger" / "demo"


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[Path]:
    """Lock the folder for one demo. Raises `UsageError` if another demo runs there."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as taken:
            raise UsageError(f"a demo already runs in {folder}", hint="stop it, or use --folder") from taken
        yield folder
