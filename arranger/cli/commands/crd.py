"""`arranger crd`: print the resource definitions that this version works with."""

import click

from arranger.kube.crd import definitions, older_definitions
from arranger.plugins import inventory


@click.command()
@click.option(
    "--older",
    is_flag=True,
    help="The definitions for Kubernetes 1.30 to 1.35: without the rules that compare quantities, which these releases "
    "refuse. Arranger itself repeats the checks.",
)
def command(*, older: bool) -> None:
    """Print the definitions of TYJobs, Queues and ClusterLogs: arranger crd | kubectl apply -f -

    The definition of TYJobs allows the policies that are installed here as jobQueuePolicy and basicPolicy, including
    those of other packages. Print and apply it again after you add one (see arranger policies).
    """
    printed = older_definitions if older else definitions
    click.echo(printed(inventory().names), nl=False)
