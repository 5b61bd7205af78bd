"""`arranger crd`: print the TYJob resource definition that this version works with."""

import click

from arranger.kube.crd import tyjob_crd
from arranger.plugins import inventory


@click.command()
def command() -> None:
    """Print the TYJob resource definition: arranger crd | kubectl apply -f -

    The definition allows the policies that are installed here as jobQueuePolicy and basicPolicy, including those of
    other packages. Print and apply it again after you add one (see arranger policies).
    """
    click.echo(tyjob_crd(inventory().names), nl=False)
