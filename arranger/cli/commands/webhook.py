"""`arranger webhook`: tell a webhook of stage changes until SIGTERM."""

import asyncio
from pathlib import Path

import click

from arranger.cli.inputs.flags import with_settings
from arranger.cli.inputs.working import until_stopped
from arranger.clock import SystemClock
from arranger.errors import UsageError
from arranger.events.key_source import log_keys
from arranger.events.open_log import log_at
from arranger.events.redis_connection import connect
from arranger.events.redis_urls import SCHEMES, scheme_of
from arranger.feeds.following import Following
from arranger.feeds.outbox import Outbox
from arranger.feeds.webhook import Delivery, Filling, read_secret, url_of
from arranger.logs import configure_logging
from arranger.metrics import Metrics
from arranger.settings import Settings
from arranger.workers.health.http import Health, HttpServer


@click.command()
@click.argument("url", metavar="URL|file:PATH")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A file with a bearer token for the receiver. It is read before each request.",
)
@with_settings("redis_url", "cluster", "archive_url", "http_host", "http_port")
def command(url: str, token_file: Path | None, settings: Settings) -> None:
    r"""Tell a webhook of the stage changes of TYJobs, as CloudEvents, until SIGTERM.

    It follows the log with a cursor of its own in Redis and appends nothing to it. Each event is sent until the
    receiver accepts it with a status from 200 to 299, and the next event of the same job only then. A receiver that
    drops the IDs that it has seen gets each change once. docs/operations.md describes the events.

    \b
      arranger webhook https://receiver.example/arranger
      arranger webhook file:/etc/arranger/webhook/url --token-file /etc/arranger/webhook/token
    """
    if scheme_of(settings.redis_url) not in SCHEMES:
        raise UsageError("the webhook's cursor is in Redis, and redis_url names none")
    configure_logging(settings.log_level, settings.log_format)
    asyncio.run(_run(url_of(url), token_file, settings))


async def _run(url: str, token_file: Path | None, settings: Settings) -> None:
    clock = SystemClock()
    metrics = Metrics(clock)
    health = Health(["log", "webhook"], metrics)
    log = log_at(settings.redis_url, settings.cluster, archive=settings.archive_url, keys=log_keys(settings.log_key))
    client = connect(settings.redis_url)
    outbox = Outbox(client, settings.cluster)
    following = Following(log, Filling(outbox, cluster=settings.cluster, clock=clock, metrics=metrics), clock)
    token = (lambda: read_secret(token_file)) if token_file is not None else str
    delivery = Delivery(outbox, url, clock=clock, metrics=metrics, token=token)
    server = HttpServer(health, metrics, host=settings.http_host, port=settings.http_port)
    await server.start()
    try:
        await until_stopped(following.run(), delivery.run(), _report(following, delivery, health))
    finally:
        await server.stop()
        await log.close()
        await client.aclose()


async def _report(following: Following, delivery: Delivery, health: Health) -> None:
    """Report once a second whether the log is read, and whether the receiver accepts events."""
    while True:
        health.set("log", not following.problem, following.problem)
        health.set("webhook", not delivery.problem, delivery.problem, needed=False)
        await asyncio.sleep(1.0)
