"""`arranger crd`: print the TYJob resource definition that this version works with."""

import click

from arranger.kube.crd import tyjob_crd
from arranger.plugins import inventory


@click.command()
def command() -> None:
    """Print the TYJob resource definition: arranger crd | kubectl apply -f -

    What jobQueuePolicy and basicPolicy may be is what is installed here, other packages' policies included: print and
    apply it again after one was added (see arranger policies).
    """
    click.echo(tyjob_crd(inventory().names), nl=False)
