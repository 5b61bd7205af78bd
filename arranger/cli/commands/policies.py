"""`arranger policies`: list the installed policies and filters with their packages, and the settings they use."""

import inspect
from typing import Any

import click

from arranger.cli.inputs.flags import value_text, with_settings
from arranger.cli.rendering.output import heading, output_option, print_json, print_table
from arranger.plugins import Source, inventory
from arranger.settings import Settings


@click.command()
@with_settings("queue_policy", "pod_policy", "weights")
@output_option
def command(settings: Settings, output: str) -> None:
    r"""List the installed queue policies, pod policies, filters, group checks and permits, and the settings that they
    use.

    A TYJob names its policies in spec.schedulerPolicy: jobQueuePolicy (queue) and basicPolicy (pod). All others always
    apply. Each scheduling cycle records the names and versions of all of them.

    \b
    A package adds its own through entry points. Each is a class without constructor arguments, or an instance:
      [project.entry-points."arranger.queue_policies"]    a subclass of QueuePolicy
      [project.entry-points."arranger.pod_policies"]      a subclass of PodPolicy
      [project.entry-points."arranger.filters"]           a subclass of Filter
      [project.entry-points."arranger.group_checks"]      a subclass of GroupCheck
      [project.entry-points."arranger.permits"]           a subclass of Permit
    """
    defaults = {"queue": settings.queue_policy, "pod": settings.pod_policy}
    rows = [_row(source, defaults.get(source.kind, "")) for source in inventory().sources]
    present = {name: getattr(settings, name) for name in ("queue_policy", "pod_policy", "weights")}
    if output == "json":
        print_json({"policies": rows, "settings": present})
        return
    columns = ("kind", "name", "version", "default", "package", "meaning")
    cells = [
        {**row, "default": "*" if row["default"] else "", "package": f"{row['package']} {row['packageVersion']}"}
        for row in rows
    ]
    print_table(columns, [[row[column] for column in columns] for row in cells], right=("version",))
    heading(", ".join(f"{name} {value_text(value)}" for name, value in present.items()))


def _row(source: Source, default: str) -> dict[str, Any]:
    one = source.policy
    return {
        "kind": source.kind,
        "name": one.name,
        "version": one.version,
        "default": one.name == default,
        "package": source.package,
        "packageVersion": source.package_version,
        "meaning": _first_sentence(inspect.cleandoc(type(one).__doc__ or "")),
    }


def _first_sentence(text: str) -> str:
    """The first sentence of a docstring on one line, without its full stop."""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].removesuffix(".")
