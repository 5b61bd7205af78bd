"""`arranger crd`: print the resource definitions that this version works with."""

import click

from arranger.kube.crd import definitions
from arranger.plugins import inventory


@click.command()
def command() -> None:
    """Print the definitions of TYJobs and Queues: arranger crd | kubectl apply -f -

    The definition of TYJobs allows the policies that are installed here as jobQueuePolicy and basicPolicy, including
    those of other packages. Print and apply it again after you add one (see arranger policies).
    """
    click.echo(definitions(inventory().names), nl=False)
