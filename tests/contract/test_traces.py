"""How a job started reaches a real OTLP receiver as one trace, from the log alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from arranger.cli.main import main
from arranger.clock import SystemClock
from arranger.events.log import StoredSnapshot
from arranger.feeds.following import Following
from arranger.feeds.starts import PODS_MOST, Starts, StartSpan
from arranger.feeds.traces import OtlpExport, Traces
from arranger.install import install_hint
from arranger.model.job import Stage
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State
from arranger.workers.flow.cancelling import end
from tests.memory_log import MemoryHome, MemoryLog
from tests.world import World, shape

SPANS = ("start", "observe the TYJob", "wait for nodes", "create the pod", "start the pod", "decide that it runs")


class Collector:
    """An OTLP receiver over HTTP. `spans` has (service, span) in the order of arrival."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any]] = []
        self.statuses: list[int] = []
        self.path = ""

    async def handle(self, request: web.BaseRequest) -> web.Response:
        self.path = request.path
        status = self.statuses.pop(0) if self.statuses else 200
        if status == 200:
            for of in ExportTraceServiceRequest.FromString(await request.read()).resource_spans:
                service = next(each.value.string_value for each in of.resource.attributes if each.key == "service.name")
                self.spans += [(service, span) for scope in of.scope_spans for span in scope.spans]
        return web.Response(status=status)


@asynccontextmanager
async def collecting(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    collector = Collector()
    runner = web.ServerRunner(web.Server(collector.handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{runner.addresses[0][1]}")
    try:
        yield collector
    finally:
        await runner.cleanup()


async def append(world: World, log: MemoryLog) -> None:
    """Append what the log lacks of the world."""
    last = await log.open()
    for entry in world.entries:
        if entry.first > last.offset:
            await log.append(entry.batch, epoch=last.epoch)


@asynccontextmanager
async def tracing(home: MemoryHome) -> AsyncIterator[None]:
    """A process that exports traces, from when it has read the log up to its present end."""
    export = OtlpExport("test")
    log = MemoryLog(home)
    traces = Traces(log, export)
    following = Following(log, traces, SystemClock())
    task = asyncio.create_task(following.run())
    try:
        async with asyncio.timeout(8):
            while following.problem:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        yield
        async with asyncio.timeout(8):
            while traces._known.offset < (await log.end()).offset:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        await end([task])
        await export.close()


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def started(world: World) -> None:
    """The job `ppo` starts: observed after 2 s, placed after 5, its pods there after 6, and ready after 9."""
    world.node("n1", cpu=64)
    began_ms = world.now_ms
    world.pass_time(2)
    job = world.job("ppo", workers=2, created=began_ms)
    world.pass_time(3)
    world.cycle()
    world.pass_time(1)
    for slot, node in list(job.placements.items()):
        world.run_pod(job, slot, node, ready=False)
    world.pass_time(3)
    for uid in list(job.bound.values()):
        world.change_pod(uid, ready=True)
    world.pass_time(1)
    world.control()
    assert job.stage == Stage.RUNNING


async def test_a_start_is_one_trace_with_the_work_of_each_role(monkeypatch: pytest.MonkeyPatch) -> None:
    world, home = World(), MemoryHome()
    began_ms = world.now_ms
    await append(world, MemoryLog(home))
    async with collecting(monkeypatch) as collector:
        async with tracing(home):
            started(world)
            await append(world, MemoryLog(home))
        spans = collector.spans
    assert collector.path == "/v1/traces"
    assert len({span.trace_id for _, span in spans}) == 1
    (root,) = [span for _, span in spans if not span.parent_span_id]
    assert {span.parent_span_id for _, span in spans} == {b"", root.span_id}
    assert len({span.span_id for _, span in spans}) == len(spans) == 10
    found = {
        (service, span.name, attributes(span).get("k8s.pod.name", "")): [
            (at // 1_000_000 - began_ms) / 1000 for at in (span.start_time_unix_nano, span.end_time_unix_nano)
        ]
        for service, span in spans
    }
    pods = ("ppo-actors-0", "ppo-actors-1", "ppo-learner-0")
    assert found == {
        ("arranger-job", "start", ""): [0, 10],
        ("arranger-watcher", "observe the TYJob", ""): [0, 2],
        ("arranger-scheduler", "wait for nodes", ""): [2, 5],
        ("arranger-controller", "decide that it runs", ""): [9, 10],
        **{("arranger-applier", "create the pod", pod): [5, 6] for pod in pods},
        **{("arranger-kubelet", "start the pod", pod): [6, 9] for pod in pods},
    }
    told = attributes(root)
    assert (told["k8s.namespace.name"], told["arranger.job.name"], told["arranger.job.uid"]) == (
        "default", "ppo", "uid-ppo",
    )  # fmt: skip


async def test_a_process_that_starts_again_exports_the_rest_and_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    world, home = World(), MemoryHome()
    await append(world, MemoryLog(home))
    last = await MemoryLog(home).open()
    world.state.epoch = last.epoch
    await MemoryLog(home).put_snapshot(StoredSnapshot(last, snapshot.encode(world.state)))
    started(world)
    entries = [entry for entry in world.entries if entry.first > last.offset]
    async with collecting(monkeypatch) as collector:
        for part in (entries[:4], entries[4:7], entries[7:]):
            async with tracing(home):
                for entry in part:
                    await MemoryLog(home).append(entry.batch, epoch=last.epoch)
        assert sorted({span.name for _, span in collector.spans}) == sorted(SPANS)
        assert len({span.span_id for _, span in collector.spans}) == len(collector.spans) == 10
        async with tracing(home):
            pass
        assert len(collector.spans) == 10


async def test_a_collector_that_fails_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    world, home = World(), MemoryHome()
    await append(world, MemoryLog(home))
    async with collecting(monkeypatch) as collector:
        collector.statuses = [503]
        async with tracing(home):
            started(world)
            await append(world, MemoryLog(home))
        assert len(collector.spans) == 10  # the library tries again
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    async with tracing(home):  # nobody listens there any more
        world.job("another")
        world.settle()
        await append(world, MemoryLog(home))


def spans_of(world: World) -> list[StartSpan]:
    state, found = State(), list[StartSpan]()
    starts = Starts(state)
    for entry in world.entries:
        changes = Changes()
        apply_entry(state, entry, changes)
        found += starts.after(state, entry, changes)
    return found


def test_each_attempt_is_a_trace_of_its_own_and_one_that_never_ran_says_why() -> None:
    world = World()
    world.node("n1", cpu=64)
    job = world.job("ppo", workers=1)
    world.cycle()
    for slot, node in list(job.placements.items()):
        world.run_pod(job, slot, node, ready=False)
    world.change_pod(job.bound[(0, 0)], phase="Failed")
    world.settle()
    world.wait_for_back_offs()
    world.settle()
    roots = [span for span in spans_of(world) if span.name == "start"]
    assert [(span.attempt, span.error) for span in roots] == [(0, "LeaderFailed"), (1, "")]
    assert roots[1].begin_ms >= roots[0].end_ms


def test_a_suspended_job_has_a_trace_only_of_what_starts() -> None:
    world = World()
    world.node("n1", cpu=64)
    world.job("ppo", suspend=True)
    world.settle()
    world.pass_time(60)
    world.job("ppo", suspend=False, generation=2)
    world.settle()
    (root,) = [span for span in spans_of(world) if span.name == "start"]
    assert not root.error and root.end_ms - root.begin_ms < 60_000


def test_a_pod_that_is_ready_later_is_told_then_and_only_the_first_pods_are() -> None:
    world = World()
    world.node("n1", cpu=4000, pods=4000)
    job = world.job("ppo", workers=PODS_MOST + 50, leader=shape(cpu=1))
    world.cycle()
    for slot, node in list(job.placements.items()):
        world.run_pod(job, slot, node, ready=slot[0] == 0)
    world.control()
    assert job.stage == Stage.RUNNING
    first = spans_of(world)
    for uid in list(job.bound.values()):
        world.change_pod(uid, ready=True)
    later = spans_of(world)[len(first) :]
    assert {span.name for span in later} == {"create the pod", "start the pod"}
    assert len({span.pod for span in later}) == PODS_MOST - 1


def test_without_the_library_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "arranger.feeds.traces", None)
    assert main(["traces"], prog_name="arranger") == 2
    assert install_hint("traces") in capsys.readouterr().err
