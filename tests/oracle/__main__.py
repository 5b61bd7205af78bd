"""`python -m tests.oracle --clusters 2000`: which nodes kube-scheduler's filters and Arranger's accept, compared."""

import json
import sys
from collections import Counter
from pathlib import Path

import click

from tests.oracle.clusters import cluster
from tests.oracle.judging import Compared, compare, oracle, smaller
from tests.servers import oracle_binary


@click.command()
@click.option("--seed", default=0, show_default=True, help="The seed of the first cluster.")
@click.option("--clusters", default=2_000, show_default=True, help="How many clusters.")
@click.option("--keep", type=click.Path(path_type=Path), help="Write the objects of a difference, made smaller, here.")
def main(seed: int, clusters: int, keep: Path | None) -> None:
    """Compare. Exit status 1 if a cluster differs in a way that docs/scope.md doesn't justify."""
    nodes, justified, plugins, differing = 0, 0, Counter[str](), list[int]()
    with oracle(oracle_binary()) as scheduler:
        for number in range(seed, seed + clusters):
            objects = cluster(number)
            compared = compare(scheduler, objects)
            nodes += compared.nodes
            justified += compared.justified
            plugins.update(compared.plugins)
            if compared.differences:
                differing.append(number)
                _show(number, compared)
                if keep is not None:
                    keep.mkdir(parents=True, exist_ok=True)
                    (keep / f"{number}.json").write_text(json.dumps(smaller(scheduler, objects), indent=1))
    click.echo(
        f"{clusters:,} clusters, {nodes:,} nodes, {len(differing)} clusters differ; {justified} nodes as justified"
    )
    click.echo("refused by: " + ", ".join(f"{name} {count:,}" for name, count in plugins.most_common()))
    sys.exit(1 if differing else 0)


def _show(number: int, compared: Compared) -> None:
    for node, (theirs, ours) in compared.differences.items():
        click.echo(f"{number} {node}: kube-scheduler: {theirs or 'accepted'}; Arranger: {ours or 'accepted'}")


if __name__ == "__main__":
    main()
