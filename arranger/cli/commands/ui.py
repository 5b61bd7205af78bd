"""`arranger ui`: open the console, a page on a log, in the browser."""

import sys
import webbrowser

import click

from arranger.cli.commands.serve import serve_until_stopped
from arranger.cli.inputs.log_options import log_options
from arranger.cli.rendering.output import say
from arranger.settings import Settings

_HOST = "127.0.0.1"


@click.command()
@log_options
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8470,
    show_default=True,
    metavar="N",
    help="The port to listen on; 0 takes any free one.",
)
@click.option("--no-browser", is_flag=True, help="Print the address only.")
def command(target: str | None, settings: Settings, port: int, no_browser: bool) -> None:
    r"""Open the console: the cluster at any point of the log, in the browser, until SIGTERM or Ctrl-C.

    It serves the page and the API of `arranger serve` on this machine alone, for reading only, and asks for no
    credentials. On a terminal, it opens the browser. No request leaves this machine.

    \b
      arranger ui                                  the log of the Redis in the settings
      arranger ui --log run.log                    a log file, an export, or an archive
      arranger ui --log run.log --no-browser       prints the address only
    """

    def begun(address: str) -> None:
        say(f"the console is at {address} until Ctrl-C")
        if sys.stdout.isatty() and not no_browser:
            webbrowser.open(address)

    serve_until_stopped(target, settings, host=_HOST, port=port, begun=begun)
