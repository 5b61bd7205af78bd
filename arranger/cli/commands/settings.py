"""`arranger settings`: list every setting with its names, its value and the source of the value."""

import os
from typing import Any

import click

from arranger.cli.inputs.flags import setting_flags, value_text
from arranger.cli.rendering.output import output_option, print_json_lines, print_table, print_text
from arranger.settings import SETTINGS, load, shown


@click.command()
@setting_flags()
@output_option
def command(flags: dict[str, Any], output: str) -> None:
    """Show every setting: its value, the source of the value, and its name in file, environment and flags.

    These are the settings that a process started here would have, by this shell's environment and files. Those of
    running processes may be others.

    The TOML file (--config or ARRANGER_CONFIG) overrides defaults, environment variables override the file, and flags
    override environment variables. A password in the Redis URL is not shown. The output also lists the meaning of each
    setting and its allowed values.
    """
    loaded = load(flags, os.environ)
    rows = [
        {
            "name": name,
            "value": shown(name, getattr(loaded.settings, name)),
            "origin": loaded.origins[name],
            "default": setting.default,
            "variable": setting.env,
            "flag": setting.flag,
            "allowed": setting.allowed,
            "meaning": setting.description,
        }
        for name, setting in SETTINGS.items()
    ]
    if output == "json":
        print_json_lines(rows)
        return
    columns = ("name", "value", "origin", "default", "flag", "variable", "meaning")
    for row in rows:
        # Only a changed setting shows its default, so that it stands out.
        row["default"] = "" if row["origin"] == "default" else row["default"]
        row["meaning"] += f". Allowed: {row['allowed']}" if row["allowed"] != "text" else ""
    print_table(columns, [[value_text(row[column]) for column in columns] for row in rows])
    print_text("These are the settings of a process started here. Processes of a cluster may have others.")
