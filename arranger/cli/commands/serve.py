"""`arranger serve`: answer the questions of the reading commands over HTTP."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import click

from arranger.cli.inputs.log_options import log_options
from arranger.cli.inputs.other_readers import log_of
from arranger.cli.rendering.output import say
from arranger.errors import UsageError
from arranger.install import python_module
from arranger.logs import configure_logging
from arranger.settings import Settings
from arranger.web.moment_process import MomentProcess
from arranger.web.naming import LOOPBACK

if TYPE_CHECKING:
    from arranger.events.file_log import Copyable
    from arranger.events.log import Log
    from arranger.web.certificate import Certificate
    from arranger.web.rights import Gate
    from arranger.web.server import ApiServer

#: How long what opens a page has the processors for itself, in seconds.
_OPENING_S = 1.0


@click.command()
@log_options
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8470,
    show_default=True,
    metavar="N",
    help="The port to listen on; 0 takes any free one.",
)
@click.option(
    "--access",
    type=click.Choice(["open", "cluster"], case_sensitive=False),
    default="open",
    show_default=True,
    help="open: whoever reaches the server sees everything. cluster: the rights of the bearer token decide.",
)
@click.option(
    "--tls-cert-file", metavar="FILE", help="PEM file with the certificate, to serve HTTPS; read again when it changes."
)
@click.option("--tls-private-key-file", metavar="FILE", help="PEM file with the private key of the certificate.")
def command(
    target: str | None,
    settings: Settings,
    *,
    host: str,
    port: int,
    access: str,
    tls_cert_file: str | None,
    tls_private_key_file: str | None,
) -> None:
    r"""Answer the questions of the reading commands over HTTP, as JSON, until SIGTERM or Ctrl-C.

    The server only reads. It listens on this machine alone and asks for no credentials, except with --access cluster:
    then it asks the API server of the kubeconfig, or of its pod, who sent a token and what that user may see. It
    follows the log once, however many clients look at the present. It answers every other question in a
    process of its own, with limits on time, memory and size. /api/openapi.json describes all questions.

    \b
      arranger serve --log run.log                                   a log file
      curl -s localhost:8470/api/v1/replay | jq '.jobs[].stage'      the present
      curl -s 'localhost:8470/api/v1/explain?job=train&at=1234'      a job, after the event at offset 1234
      curl -N localhost:8470/api/v1/live                             new events as they come
    """
    if access == "open" and host not in LOOPBACK:
        raise UsageError(
            f"--host: {host} can be reached from other machines, and this server asks nobody who they are",
            hint=f"allowed: {', '.join(sorted(LOOPBACK))}; with --access cluster, any address",
        )

    tls = _certificate(tls_cert_file, tls_private_key_file)

    def begun(address: str) -> None:
        say(f"{address} is the console, and {address}api/openapi.json describes the API; Ctrl-C ends it")

    serve_until_stopped(target, settings, host=host, port=port, ask_cluster=access == "cluster", begun=begun, tls=tls)


def _certificate(chain: str | None, key: str | None) -> "Certificate | None":
    """The certificate in the files, if they are named."""
    if not chain and not key:
        return None
    if not chain or not key:
        missing = "--tls-private-key-file" if chain else "--tls-cert-file"
        raise UsageError(f"{missing} is missing: HTTPS needs a certificate and its private key", hint="give both files")
    from arranger.clock import SystemClock
    from arranger.web.certificate import Certificate

    return Certificate(chain, key, SystemClock())


def serve_until_stopped(
    target: str | None,
    settings: Settings,
    *,
    host: str,
    port: int,
    begun: Callable[[str], object],
    ask_cluster: bool = False,
    tls: "Certificate | None" = None,
) -> None:
    """Serve a log until SIGTERM or Ctrl-C; `begun` gets the address once it is served. Raises `ArrangerError`."""
    configure_logging(settings.log_level, settings.log_format)
    asyncio.run(_serve(target, settings, (host, port), begun, ask_cluster=ask_cluster, tls=tls))


async def _serve(
    target: str | None,
    settings: Settings,
    address: tuple[str, int],
    begun: Callable[[str], object],
    *,
    ask_cluster: bool,
    tls: "Certificate | None",
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    environment, path = log_of(target, settings)
    moments = MomentProcess(python_module("arranger.cli.moments"), environment, log=path)
    explaining = MomentProcess(python_module("arranger.cli.explaining"), environment, log=path)
    await moments.start()  # first of all: it reads the log while the server is imported and starts
    try:
        from arranger.cli.inputs.reading import opened

        async with (
            opened(target, settings) as log,
            opened(target, settings) as copied,
            _gate(settings, ask_cluster=ask_cluster) as gate,
        ):
            processes = moments, explaining
            server = _server(log, copied, (environment, path), address, gate=gate, processes=processes, tls=tls)
            await server.start()
            warming = asyncio.create_task(_warmed(*processes))
            host = f"[{address[0]}]" if ":" in address[0] else address[0]
            begun(f"{'https' if tls else 'http'}://{host}:{server.port}/")
            sys.stdout.flush()
            try:
                await stopped.wait()
            finally:
                warming.cancel()
                await server.stop()
    finally:
        await moments.stop()
        await explaining.stop()


async def _warmed(moments: MomentProcess, explaining: MomentProcess) -> None:
    """Start the process that explains, once what a page needs to open has had the processors."""
    await moments.warmed()
    await asyncio.sleep(_OPENING_S)
    await explaining.start()


def _server(
    log: "Log",
    copied: "Copyable",
    named: tuple[dict[str, str], str],
    address: tuple[str, int],
    *,
    gate: "Gate",
    processes: tuple[MomentProcess, MomentProcess],
    tls: "Certificate | None",
) -> "ApiServer":
    """The server of a log, whose copies come from the other reader, and whose name other processes get. `processes`
    answer the console's questions and explain."""
    from arranger.web.asking import Asker
    from arranger.web.log_copies import LogCopies
    from arranger.web.news import News
    from arranger.web.server import ApiServer

    (environment, path), (host, port), (moments, explaining) = named, address, processes
    news = News(log, after=moments.warmed, pause_s=_OPENING_S)
    asker = Asker(python_module("arranger.cli.answering"), environment, log=path)
    copies = LogCopies(copied, news)
    context = tls.context if tls is not None else None
    return ApiServer(
        news, asker, host=host, port=port, gate=gate, moments=moments, explaining=explaining, copies=copies, tls=context
    )


@asynccontextmanager
async def _gate(settings: Settings, *, ask_cluster: bool) -> AsyncIterator["Gate"]:
    from arranger.web.rights import ClusterGate, OpenGate

    if not ask_cluster:
        yield OpenGate()
        return
    from arranger.clock import SystemClock
    from arranger.kube.client import HttpCluster
    from arranger.kube.config import find_access

    cluster = HttpCluster(find_access(settings.kubeconfig or None, settings.context or None))
    try:
        yield ClusterGate(cluster, SystemClock())
    finally:
        await cluster.close()
