"""The client for asyncio code."""

import asyncio
import inspect
import os
import warnings
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Self

from arranger.client import arguments
from arranger.client.answers import Answer, Refused, Value, ask, ask_lines, typed
from arranger.client.applying import change, noted
from arranger.client.jobs import Given, Job, JobEnded, JobGone, job_object, job_pod, meant, of_wrong_type
from arranger.client.views import (
    EventList,
    Explanation,
    Holdings,
    JobList,
    JobStarts,
    Overview,
    PodList,
    PreemptionList,
    QueueDetail,
    QueueList,
    WaitSums,
    WhatIf,
)
from arranger.errors import ArrangerError, UsageError
from arranger.kube.client import HttpCluster
from arranger.kube.cluster import PODS, TYJOBS, ApiError, ClusterUnavailable, Expired, Object
from arranger.kube.config import find_access, find_namespace
from arranger.model.job import MAX_WORKERS, Stage
from arranger.model.template import worker_sets
from arranger.model.text import few
from arranger.model.validation import scaled_set
from arranger.settings import SERVER_VARIABLE
from arranger.web.naming import camel
from arranger.web.remote import Remote

#: After the API server couldn't be reached, it is tried again this much later.
_AGAIN_S = 1.0
#: An edit of a list is tried so often if others edit the job at the same time.
_EDITS = 5
#: So many events are asked for at once, and fewer if these are more than an answer of the server may have.
_EVENTS = 20_000


#: The further parameters of `what_if`.
POLICIES = (
    *("queue_policy", "policy", "weights", "preemption", "backfill", "reservations", "every_job", "lasting"),
)  # fmt: skip
#: So many pods are named in an error.
_NAMED = 8
#: What became of the pods of a job that has ended.
_GONE = (
    "they went with its end: with spec.cleanPodPolicy Running, those that have ended stay, with their logs; failed "
    "ones with restartPolicy Never"
)
#: The most lines of a log that can be asked for.
_MOST_LINES = 1 << 31
_NAME = "the name of a job"


class AsyncClient:
    """TYJobs of one namespace, and what the log says of all that the user may see.

    Methods on TYJobs use the Kubernetes API with the user's rights, and raise `ApiError` or `ClusterUnavailable`.
    Methods that ask about the log need `server`, and raise `Refused`, or `LogUnavailable` without an answer.

    Make and use a client in one event loop, and close it there: `async with AsyncClient(...) as client`, or `close()`.
    One that is dropped with open connections closes them, and warns of it (`ResourceWarning`).
    """

    _cluster: HttpCluster | None = None
    _remote: Remote | None = None
    _closed = False

    def __init__(
        self, *, server: str = "", namespace: str = "", kubeconfig: str | Path | None = None, context: str = ""
    ) -> None:
        """`server` is the address of `arranger serve`, or "cluster" for the one in the cluster. Unless it is given, it
        is that of the variable ARRANGER_SERVER, which the commands read too. `kubeconfig`, `context` and `namespace`
        are those that kubectl would use, unless they are given. A server that asks for a token gets the kubeconfig's,
        if it is reached by TLS or is on this machine."""
        self._server = server or os.environ.get(SERVER_VARIABLE, "")
        self._find_namespace = partial(find_namespace, kubeconfig, context or None)
        self._given_namespace = namespace
        # Not a method: with a reference back from its parts, a client that is dropped would stay for a while.
        self._access = cache(partial(find_access, kubeconfig, context or None))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Closing it again does nothing."""
        cluster, remote = self._cluster, self._remote
        self._cluster = self._remote = None
        self._closed = True
        try:
            if cluster is not None:
                await cluster.close()
        finally:
            if remote is not None:
                await remote.close()

    def __del__(self) -> None:
        dropped = [part for part in (self._cluster, self._remote) if part is not None]
        if dropped:
            remedy = "use `async with AsyncClient(...) as client`, or `await client.close()`"
            warnings.warn(f"unclosed AsyncClient: {remedy}", ResourceWarning, stacklevel=2, source=self)
        for part in dropped:
            part.drop()

    @cached_property
    def namespace(self) -> str:
        """The namespace of jobs whose name or object has none: as given, or as for kubectl that of the kubeconfig's
        context, or in a pod that of its service account; else `default`."""
        return self._given_namespace or self._find_namespace()

    # --- TYJobs ----------------------------------------------------------------------------------------------------

    async def submit(self, job: Given) -> Job:
        """Create a TYJob from an object, YAML text or the path of a YAML file, in the client's namespace unless it
        names one. Raises `ApiError` with the faulty fields if the API server refuses it, an unknown field among them,
        and `UsageError` if it is no TYJob."""
        body = self._object(job)
        try:
            with _naming_meant(body):
                return Job(await self._kube().create(TYJOBS, body["metadata"]["namespace"], body))
        except ApiError as refused:
            if refused.reason != "AlreadyExists":
                raise
            hint = "apply changes it to what is given"
            raise ApiError(refused.code, refused.reason, f"{refused.detail} ({hint})") from refused

    async def apply(self, job: Given) -> Job:
        """Create a TYJob, or change the one of its name to what is given, as `kubectl apply` does: fields that were
        applied before and aren't given now are removed, and lists are replaced. Takes and raises what `submit` does,
        and `UsageError` for other `counts` that would have no effect, because the job was scaled (`spec.replicas`).
        Nothing is changed if any field is refused."""
        body = self._object(job)
        metadata = body["metadata"]
        if not metadata.get("name"):
            raise UsageError("metadata.name is missing", hint="submit takes metadata.generateName")
        namespace, name = metadata["namespace"], metadata["name"]
        for _ in range(_EDITS):
            try:
                with _naming_meant(body):
                    return await self._applied(namespace, name, body)
            except ApiError as refused:  # 409: somebody created or edited it meanwhile
                if refused.code != 409:
                    raise
        raise _edited(name)

    async def _applied(self, namespace: str, name: str, body: Object) -> Job:
        try:
            now = await self._kube().get(TYJOBS, namespace, name)
        except ApiError as refused:
            if refused.code != 404:
                raise
            return Job(await self._kube().create(TYJOBS, namespace, noted(body)))
        patch = change(now, body)
        return Job(await self._kube().patch(TYJOBS, namespace, name, patch) if patch else now)

    async def job(self, name: str) -> Job:
        """The TYJob of this name, with or without the client's namespace before it."""
        return Job(await self._kube().get(TYJOBS, self.namespace, self._own(name)))

    async def jobs(self) -> JobList:
        """All TYJobs of the namespace, by name."""
        found = [Job(item) async for page in self._kube().listing(TYJOBS) for item in page.items]
        return JobList(sorted(found, key=lambda job: job.name))

    async def wait(self, name: str, *stages: Stage | str, timeout_s: float | None = None) -> Job:
        """The job as soon as it is in one of the stages; by default, as soon as it has ended.

        Raises `JobEnded` if it ends in another stage, `JobGone` if it is deleted, and `TimeoutError` with what it waits
        for after `timeout_s` seconds (None: never; 0: the job as it is now decides). It watches the job, and goes on if
        the API server is away.
        """
        awaited = {arguments.stage(name) for name in stages}
        return await self.wait_until(
            name, lambda job: job.stage in awaited if awaited else job.ended, timeout_s=timeout_s, ended=bool(awaited)
        )

    async def wait_until(
        self, name: str, holds: Callable[[Job], bool], *, timeout_s: float | None = None, ended: bool = True
    ) -> Job:
        """The job as soon as `holds` is true of it. Raises as `wait` does; with `ended=False` it doesn't raise
        `JobEnded`, and goes on waiting."""
        arguments.function("holds", holds, "Job")
        timeout_s = arguments.seconds("timeout_s", timeout_s)
        contact = _Contact()
        try:
            if timeout_s is not None and timeout_s <= 0:
                contact.last = await self.job(name)
                if _decides(contact.last, holds, ended=ended):
                    return contact.last
                raise TimeoutError
            async with asyncio.timeout(timeout_s), aclosing(self._changes(name, contact)) as seen:
                async for job in seen:
                    if _decides(job, holds, ended=ended):
                        return job
        except TimeoutError:
            raise TimeoutError(contact.told(name, timeout_s)) from None
        raise JobGone(f"{self.namespace}/{self._own(name)} was deleted")

    async def changes(self, name: str) -> AsyncGenerator[Job, None]:
        """The job as it is now, and after each change, until it is deleted. Another job of its name isn't the same."""
        async with aclosing(self._changes(name, _Contact())) as seen:
            async for job in seen:
                yield job

    async def _changes(self, name: str, contact: "_Contact") -> AsyncGenerator[Job, None]:
        uid = ""
        while True:
            try:
                job = await self.job(name)
                if uid not in ("", job.uid):
                    return
                uid = job.uid
                yield contact.heard(job)
                async for changed in self._watched(job):
                    yield contact.heard(changed)
            except Expired:
                continue
            except ClusterUnavailable as problem:
                contact.problem = problem
                await asyncio.sleep(_AGAIN_S)
            except ApiError as refused:
                if refused.code == 404 and uid:
                    return
                raise

    async def _watched(self, job: Job) -> AsyncGenerator[Job, None]:
        """The changes of a job after this one, until the watch ends or the job is deleted."""
        version = job.object["metadata"]["resourceVersion"]
        async with aclosing(self._kube().watch(TYJOBS, version)) as batches:
            async for changes in batches:
                for change in changes:
                    if change.type != "BOOKMARK" and change.object["metadata"]["uid"] == job.uid:
                        if change.type == "DELETED":
                            return
                        yield Job(change.object)

    async def pods(self, name: str) -> PodList:
        """The pods of a job, the leader's first."""
        uid = (await self.job(name)).uid
        found = [
            job_pod(item)
            async for page in self._kube().listing(PODS)
            for item in page.items
            if any(owner["uid"] == uid for owner in item["metadata"].get("ownerReferences") or ())
        ]
        return PodList(sorted(found, key=lambda pod: (pod.worker_set, pod.index, pod.name)))

    async def logs(self, name: str, *, pod: str = "", container: str = "", tail: int | None = None) -> str:
        """The log of a pod of the job, or its last `tail` lines: the leader's, or the first worker's, unless `pod`
        names one. If the API server refuses it, the `ApiError` names the pods and the command that reads them."""
        tail = None if tail is None else arguments.whole_number("tail", tail, 0, _MOST_LINES)
        for argument, value in (("pod", pod), ("container", container)):
            arguments.text(argument, value)
        pods = [of.name for of in await self.pods(name)]
        if not pods:
            job = await self.job(name)
            hint = _GONE if job.ended else job.message or "wait for it to start"
            raise ArrangerError(f"{name} has no pods: it is {job.stage}", hint=hint)
        if pod and pod not in pods:
            raise UsageError(f"{name} has no pod {pod!r}", hint=f"its pods are {few(pods, _NAMED)}")
        asked = pod or pods[0]
        try:
            return await self._kube().log(self.namespace, asked, container=container, tail=tail)
        except ApiError as refused:
            command = f"kubectl logs --namespace={self.namespace} {asked}"
            hint = f"{command}, where you may read logs; the job's pods are {few(pods, _NAMED)}"
            raise ApiError(refused.code, refused.reason, f"{refused.detail} ({hint})") from refused

    async def scale(self, name: str, count: int, *, worker_set: str = "") -> Job:
        """Set the number of workers (of worker groups, where the set has these) of the set of this name, or of the one
        that `kubectl scale` changes: of that one as `kubectl scale` does, by `spec.replicas`. Raises `UsageError` if
        there is no such set and for what is no number of workers, and `ApiError` for one that the job doesn't allow."""
        count = arguments.whole_number("count", count, 0, MAX_WORKERS)
        arguments.text("worker_set", worker_set)
        for _ in range(_EDITS):
            job = await self.job(name)
            spec: Object = job.object["spec"]
            number = _set_number(spec, worker_set)
            if number == scaled_set(spec):
                scale = {"spec": {"replicas": count}}
                await self._kube().patch(TYJOBS, self.namespace, self._own(name), scale, subresource="scale")
                return await self.job(name)
            sets = list(worker_sets(spec))
            sets[number] = {**sets[number], "counts": count}
            version = job.object["metadata"]["resourceVersion"]
            try:
                return await self._edit(name, {"workerSets": sets}, version=version)
            except ApiError as refused:
                if refused.code != 409:
                    raise
        raise _edited(name)

    async def suspend(self, name: str) -> Job:
        """Suspend a job: its pods are deleted, and its room is given back."""
        return await self._edit(name, {"suspend": True})

    async def resume(self, name: str) -> Job:
        """Resume a suspended job."""
        return await self._edit(name, {"suspend": False})

    async def delete(self, name: str) -> None:
        """Delete a job, and with it its pods."""
        await self._kube().delete(TYJOBS, self.namespace, self._own(name))

    async def _edit(self, name: str, spec: Object, *, version: str = "") -> Job:
        metadata = {"metadata": {"resourceVersion": version}} if version else {}
        return Job(await self._kube().patch(TYJOBS, self.namespace, self._own(name), {**metadata, "spec": spec}))

    # --- the log ---------------------------------------------------------------------------------------------------

    async def explain(self, job: str, *, at: int | str | None = None, pod: str = "", node: str = "") -> Explanation:
        """Why a job waits, or why its pods are where they are, at a point of the log (an offset or a time)."""
        asked = {"job": self._whole(job), "at": at, "pod": pod or None, "node": node or None}
        return typed((await self.ask("explain", **asked)), Explanation)

    async def overview(self, *, at: int | str | None = None) -> Overview:
        """The jobs in queue order, and the nodes with their use, at a point of the log."""
        return typed((await self.ask("replay", at=at)), Overview)

    async def queues(self, *, at: int | str | None = None) -> QueueList:
        """All queues with their use, at a point of the log."""
        return typed((await self.ask("queue", at=at)), QueueList)

    async def queue(self, name: str, *, at: int | str | None = None) -> QueueDetail:
        """One queue, who holds its room and which jobs wait in it, at a point of the log."""
        return typed((await self.ask("queue", name=name, at=at)), QueueDetail)

    async def top(self, *, by: str = "queue", at: int | str | None = None) -> Holdings:
        """Who holds GPUs, the largest holders first: by queue, namespace, user or job."""
        return typed((await self.ask("top", by=by, at=at)), Holdings)

    async def waits(
        self,
        *,
        by: str = "queue",
        held_by: str = "queue",
        first: int | str | None = None,
        last: int | str | None = None,
    ) -> WaitSums:
        """What jobs waited for, by queue, user, namespace, day or job, and who held the room (by queue, user or job),
        from one point of the log to another."""
        span: dict[str, Value] = {"from": first, "to": last}
        return typed((await self.ask("waits", by=by, heldBy=held_by, **span)), WaitSums)

    async def preemptions(
        self, *, first: int | str | None = None, last: int | str | None = None, within: str | None = None
    ) -> PreemptionList:
        """Who gave room to whom from one point of the log to another, what it cost, and whether it was needless: the
        room became free by itself `within` a time ("10m")."""
        span: dict[str, Value] = {"from": first, "to": last}
        return typed((await self.ask("preemptions", within=within, **span)), PreemptionList)

    async def what_if(
        self,
        /,
        *,
        at: int | str | None = None,
        job: str = "",
        priority: int | None = None,
        queue: str | None = None,
        gpus: int | None = None,
        without: str | Sequence[str] = (),
        with_node: str | Sequence[str] = (),
        without_node: str | Sequence[str] = (),
        without_queue: str | Sequence[str] = (),
        until: str | None = None,
        **policies: Value,
    ) -> WhatIf:
        """A past cycle as it was and with changes: one job with another priority, queue or number of GPUs, and without
        some jobs, nodes or queues (a name, or several). `policies` are those of `POLICIES`, such as
        `queue_policy="DRF"`. Raises `UsageError` for any other name."""
        policies = {_policy(name): value for name, value in policies.items()}
        edits = {"priority": priority, "queue": queue, "gpus": gpus}
        given = [name for name, value in edits.items() if value is not None]
        if bool(job) != bool(given):
            said = f"{', '.join(given)}: of which job?" if given else f"what is otherwise of {job!r}?"
            hint = "job= goes with priority=, queue= or gpus=; without= leaves jobs out"
            raise UsageError(f"what_if: {said}", hint=hint)
        changed: dict[str, Value] = {"changedJob": self._whole(job) if job else None, "priority": priority}
        changed |= {
            "queue": queue,
            "gpus": gpus,
            "until": until,
            "without": [self._whole(of) for of in _several(without)],
        }
        changed |= {"withNode": _several(with_node), "withoutNode": _several(without_node)}
        changed |= {"withoutQueue": _several(without_queue)}
        return typed((await self.ask("what-if", at=at, **changed, **policies)), WhatIf)

    async def forecast(
        self, *jobs: str, at: int | str | None = None, until: str = "", first: int | None = None
    ) -> JobStarts:
        """When each waiting job, or each of these, would start. `until` is how far to look ahead ("6h"), and `first`
        how many waiting jobs are looked at, in the order of the queue (1000 unless given)."""
        whole = [self._whole(job) for job in jobs]
        return typed(await self.ask("forecast", job=whole or None, at=at, until=until or None, first=first), JobStarts)

    async def ask(self, /, question: str, **parameters: Value) -> Any:
        """The answer to any question of the API as JSON, with its parameters by their names there."""
        return (await self._answer(question, parameters)).content

    async def events(
        self, *, job: str = "", kinds: str | Sequence[str] = (), first: int | str | None = None, last: int | None = None
    ) -> EventList:
        """The events of the log from `first` (an offset or a time) to the offset `last`, of these only those about one
        job or of some kinds: each as `arranger events -o json` prints it. One answer has at most 32 MiB; from an offset
        on, any number of events is asked for in parts."""
        given: dict[str, Value] = {"job": self._whole(job) if job else None, "kind": _several(kinds) or None}
        if not isinstance(first, int):
            return EventList(await self._lines("events", {**given, "from": first, "to": last}))
        if last is None:
            last = (await self._answer("queue", {})).offset  # the present end of the log
        found, many = EventList(), _EVENTS
        while last is None or first <= last:
            to = last if last is None else min(first + many - 1, last)
            try:
                found += await self._lines("events", {**given, "from": first, "to": to})
            except Refused as refused:
                if to is None or to == first or refused.reason != "RequestEntityTooLarge":
                    raise
                many = (to - first + 1) // 2
                continue
            if to is None:
                break
            first = to + 1
        return found

    # --- connections -----------------------------------------------------------------------------------------------

    def _whole(self, job: str) -> str:
        """The name with its namespace."""
        arguments.text(_NAME, job, empty=False)
        return job if "/" in job else f"{self.namespace}/{job}"

    def _own(self, name: str) -> str:
        """The name without the client's namespace. Raises `UsageError` for a name in another one."""
        namespace, _, own = arguments.text(_NAME, name, empty=False).rpartition("/")
        if namespace not in ("", self.namespace):
            hint = f"make one with namespace={namespace!r}"
            raise UsageError(f"{name} is in another namespace than this client, {self.namespace}", hint=hint)
        return own

    def _object(self, given: Given) -> Object:
        """The TYJob to send. Raises `UsageError` if it names another namespace than the client was given."""
        body = job_object(given, self.namespace)
        named = body["metadata"]["namespace"]
        if self._given_namespace and named != self._given_namespace:
            hint = "leave one of them out"
            raise UsageError(
                f"metadata.namespace is {named!r}, and the client's namespace {self._given_namespace!r}", hint=hint
            )
        return body

    def _kube(self) -> HttpCluster:
        self._check_open()
        if self._cluster is None:
            self._cluster = HttpCluster(self._access(), namespace=self.namespace, strict=True)
        return self._cluster

    async def _answer(self, question: str, parameters: Mapping[str, Value]) -> Answer:
        return await ask(self._opened(), question, parameters)

    async def _lines(self, question: str, parameters: Mapping[str, Value]) -> list[dict[str, Any]]:
        return await ask_lines(self._opened(), question, parameters)

    def _check_open(self) -> None:
        if self._closed:
            raise closed()

    def _opened(self) -> Remote:
        self._check_open()
        if self._remote is None:
            if not self._server:
                hint = f'give server=, the address of `arranger serve`, or "cluster", or set {SERVER_VARIABLE}'
                raise UsageError("no server to ask", hint=hint)
            self._remote = Remote(self._server, self._access)
        return self._remote


@contextmanager
def _naming_meant(body: Object) -> Iterator[None]:
    """Adds to the API server's refusal of unknown fields which ones were meant."""
    try:
        yield
    except ApiError as refused:
        if wrong := of_wrong_type(body):  # the rules of the definition, which read them, would be all of the message
            raise ApiError(refused.code, refused.reason, wrong) from refused
        if hint := meant(body):
            raise ApiError(refused.code, refused.reason, f"{refused.detail} ({hint})") from refused
        raise


class _Contact:
    """What waiting for a job heard of it last: the job, and a problem since then."""

    last: Job | None = None
    problem: ClusterUnavailable | None = None

    def heard(self, job: Job) -> Job:
        self.last, self.problem = job, None
        return job

    def told(self, name: str, timeout_s: float | None) -> str:
        """Why waiting ended without the job."""
        was = f"{self.last.stage}: {self.last.message}" if self.last is not None else ""
        if self.problem is not None:
            return f"the API server can't be reached: {self.problem}" + (f"; {name} was {was}" if was else "")
        return f"{name} still is {was}" if was else f"the API server gave no answer within {timeout_s:g} s"


def _decides(job: Job, holds: Callable[[Job], bool], *, ended: bool) -> bool:
    """Whether waiting is over. Raises `JobEnded`."""
    if holds(job):
        return True
    if ended and job.ended:
        raise JobEnded(job)
    return False


def _several(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else [*names]


def _policy(name: str) -> str:
    """The name of a parameter as the API has it, from its name here, or as it is there."""
    for known in POLICIES:
        if name in (known, camel(known)):
            return camel(known)
    own = inspect.signature(AsyncClient.what_if).parameters.values()
    names = [of.name for of in own if of.kind == of.KEYWORD_ONLY] + [*POLICIES]
    raise UsageError(f"what_if has no parameter {name!r}", hint=f"allowed: {', '.join(names)}")


def closed(how: str = "is closed") -> UsageError:
    """What a client says that is used after its end, or at its end."""
    return UsageError(f"this client {how}", hint="make another one")


def _edited(name: str) -> ArrangerError:
    return ArrangerError(f"{name} is edited all the time by others", hint="try again")


def _set_number(spec: Object, name: str) -> int:
    names = [of["name"] for of in worker_sets(spec)]
    number = names.index(name) if name in names else scaled_set(spec) if not name else None
    if not names:
        raise UsageError("the job has no worker sets", hint="a job of a leader alone can't be scaled")
    if number is None:
        raise UsageError(f"the job has no worker set {name!r}", hint=f"allowed: {', '.join(names) or 'none'}")
    return number
