"""Flags for settings, generated from the settings' declarations, so that help texts and errors agree with them."""

import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from arranger.model.quantity import MAX_AMOUNT
from arranger.setting_tables import Setting
from arranger.settings import SETTINGS, load_settings

#: An amount of a resource that a pod requests.
AMOUNT_TYPE = click.IntRange(1, MAX_AMOUNT)


def setting_flags(
    *names: str, config_help: str = "TOML file with settings. [ARRANGER_CONFIG]"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command `--config` and the flags of these settings (all settings if none are named).

    The command gets the given values as one mapping, `flags`, for `load_settings`.
    """
    chosen = [SETTINGS[name] for name in names or SETTINGS]
    fields = ["config", *(setting.name for setting in chosen)]

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(*args: Any, **kwargs: Any) -> Any:
            flags = {field: kwargs.pop(field) for field in fields}
            return function(*args, flags=flags, **kwargs)

        decorated: Callable[..., Any] = command
        for setting in reversed(chosen):
            decorated = _option(setting)(decorated)
        return click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help=config_help)(decorated)

    return decorate


def with_settings(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As `setting_flags`, but the command gets the loaded `settings`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(*args: Any, flags: dict[str, Any], **kwargs: Any) -> Any:
            return function(*args, settings=load_settings(flags, os.environ), **kwargs)

        return setting_flags(*names)(command)

    return decorate


def value_text(value: object) -> str:
    """A setting's value as the text of a variable or flag."""
    if isinstance(value, dict):
        return ",".join(f"{name}={of}" for name, of in value.items())
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def completing(choices: Callable[[], Iterable[str]]) -> Callable[..., list[str]]:
    """A function for `shell_complete` that makes the choices when needed, and returns those with the typed prefix."""
    return lambda _ctx, _param, incomplete: [choice for choice in choices() if choice.startswith(incomplete)]


def _option(setting: Setting) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    default = value_text(setting.default)
    text = f"{setting.description[0].upper()}{setting.description[1:]}. [{setting.env}"
    text += f"; default: {default}]" if default else "]"
    # The settings check the raw text, so that the errors are the same for flags, variables and files.
    return click.option(
        setting.flag,
        setting.name,
        metavar="|".join(setting.fixed) or _metavar(setting),
        help=text,
        shell_complete=completing(lambda: setting.choices),
    )


def _metavar(setting: Setting) -> str:
    if setting.name.endswith("_url"):
        return "URL"
    if setting.policies:
        return "NAME"
    if isinstance(setting.default, dict):
        return "NAME=N,…" if setting.name == "weights" else "NAME=VALUE,…"
    return "N" if isinstance(setting.default, int | float) else "TEXT"
