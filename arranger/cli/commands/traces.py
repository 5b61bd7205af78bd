"""`arranger traces`: export how jobs started as OpenTelemetry traces until SIGTERM."""

import asyncio

import click

from arranger.cli.inputs.flags import with_settings
from arranger.cli.inputs.working import until_stopped
from arranger.clock import SystemClock
from arranger.errors import UsageError
from arranger.events.key_source import log_keys
from arranger.events.open_log import log_at
from arranger.feeds.following import Following
from arranger.install import install_hint
from arranger.logs import configure_logging
from arranger.metrics import Metrics
from arranger.settings import Settings
from arranger.workers.health.http import Health, HttpServer


@click.command()
@with_settings("redis_url", "cluster", "http_host", "http_port")
def command(settings: Settings) -> None:
    r"""Export how TYJobs started as OpenTelemetry traces, by OTLP over HTTP, until SIGTERM.

    A trace is one attempt of a job, from its apply until it runs, with spans for the watcher, the scheduler, the
    applier, the controller and each of its first 100 pods. They come from the log: nothing is measured in other
    processes, and nothing is appended. The library's variables say where they go. It needs the extra `traces`.

    \b
      OTEL_EXPORTER_OTLP_ENDPOINT=http://collector.example:4318 arranger traces
    """
    try:
        import arranger.feeds.traces  # noqa: F401
    except ImportError as problem:
        raise UsageError("traces need OpenTelemetry, which isn't installed", hint=install_hint("traces")) from problem
    configure_logging(settings.log_level, settings.log_format)
    asyncio.run(_run(settings))


async def _run(settings: Settings) -> None:
    from arranger.feeds.traces import OtlpExport, Traces

    clock = SystemClock()
    metrics = Metrics(clock)
    health = Health(["log"], metrics)
    log = log_at(settings.redis_url, settings.cluster, keys=log_keys(settings.log_key))
    export = OtlpExport(settings.cluster)
    following = Following(log, Traces(log, export), clock)
    server = HttpServer(health, metrics, host=settings.http_host, port=settings.http_port)
    await server.start()
    try:
        await until_stopped(following.run(), _report(following, health))
    finally:
        await server.stop()
        await log.close()
        await export.close()


async def _report(following: Following, health: Health) -> None:
    """Report once a second whether the log is read."""
    while True:
        health.set("log", not following.problem, following.problem)
        await asyncio.sleep(1.0)
