"""`arranger crd`: print the TYJob resource definition that this version works with."""

import click

from arranger.kube.crd import tyjob_crd


@click.command()
def command() -> None:
    """Print the TYJob resource definition: arranger crd | kubectl apply -f -"""
    click.echo(tyjob_crd(), nl=False)
