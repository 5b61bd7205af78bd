"""The options for another configuration: `--queue-policy`, `--policy`, `--weights`, `--preemption`, `--backfill`,
`--reservations` and `--config`."""

import functools
import os
from collections.abc import Callable
from typing import Any

import click
import msgspec

from arranger.cli.inputs.flags import completing, setting_flags
from arranger.cli.inputs.log_options import target_options
from arranger.replay.what_if.overrides import Overrides
from arranger.settings import SETTINGS, Loaded, load

#: Setting → its flag here, if that differs from the flag of `arranger run`.
_CALLED = {"pod_policy": "--policy"}

#: Setting that decides a plan → the field of a cycle's configuration that it becomes. `backfill` becomes several.
_DECIDING = {
    "queue_policy": "queue_policy",
    "pod_policy": "pod_policy",
    "weights": "weights",
    "infeasible_grace_s": "infeasible_grace_ms",
    "scheduled_failed": "scheduled_failed",
    "refused_node_s": "refusal_avoid_ms",
    "search_steps": "search_steps",
    "preemption": "preemption",
    "preemption_bound_s": "room_bound_ms",
    "min_runtime_s": "min_runtime_ms",
    "reservations": "reservations",
    "reservation_refresh_s": "reservation_refresh_ms",
    "runtime_quantiles": "learned_runtimes",
    "filter_order": "filter_order",
    "qos_order": "qos_order",
}


#: The settings that have their own options here.
_FLAGS = ("queue_policy", "pod_policy", "weights", "preemption", "backfill", "reservations")

#: What `--preemption` accepts beside the texts of the setting → such a text.
_SWITCH = {"on": "Allowed", "off": "Never"}


def with_switch(flags: dict[str, Any]) -> dict[str, Any]:
    """The flags with `--preemption On` or `Off` as the setting has it."""
    given = flags.get("preemption")
    return {**flags, "preemption": _SWITCH.get(given.lower(), given)} if isinstance(given, str) else flags


def other_configuration(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of `log_options` and those for another configuration. The command gets `target`,
    `settings` and `other`, the `Overrides` from the file and the flags. Environment variables override nothing."""

    @functools.wraps(command)
    def wrapped(*args: Any, flags: dict[str, Any], every_job: bool, **kwargs: Any) -> Any:
        flags |= with_switch({name: kwargs.pop(name) for name in _FLAGS})
        loaded = load(flags, os.environ, called=_CALLED)
        other = _overrides(loaded, from_file=flags["config"] is not None)
        if every_job:
            if other.queue_policy is None and other.pod_policy is None:
                raise click.UsageError("--every-job needs --queue-policy or --policy")
            other = msgspec.structs.replace(other, every_job=True)
        return command(*args, settings=loaded.settings, other=other, **kwargs)

    decorated: Callable[..., Any] = click.option(
        "--every-job", is_flag=True, help="Apply --queue-policy and --policy also to jobs that name their own."
    )(wrapped)
    for flag, name, metavar, text in (
        ("--reservations", "reservations", "N", "How many of the first jobs that lack room get a reservation."),
        ("--backfill", "backfill", "Guests|Known|Off", "Who may use reserved room; Off: no reservations."),
        (
            "--preemption",
            "preemption",
            "On|Off|KIND=MODE,…",
            "How room is taken back: surplus, priority, reclaim; Never or Allowed.",
        ),
        (
            "--weights",
            "weights",
            "NAME=N,…",
            "Other weights of resources in node scores: cpu=1,accelerators=5.",
        ),
        ("--policy", "pod_policy", "NAME", "Another pod policy, for jobs that name none."),
        ("--queue-policy", "queue_policy", "NAME", "Another queue policy, for jobs that name none."),
    ):
        completed = completing(functools.partial(choices, name))
        decorated = click.option(flag, name, metavar=metavar, help=text, shell_complete=completed)(decorated)
    config = "TOML file; only its settings that decide a plan are used. All other settings stay as recorded."
    return target_options(setting_flags("cluster", "archive_url", config_help=config)(decorated))


def choices(name: str) -> tuple[str, ...]:
    """The values of an option here among which to choose."""
    return ("On", "Off") if name == "preemption" else tuple(SETTINGS[name].choices)


def _overrides(loaded: Loaded, *, from_file: bool) -> Overrides:
    config, sources = loaded.settings.cycle_config(), ("flag ", "file ") if from_file else ("flag ",)
    given = [field for name, field in _DECIDING.items() if loaded.origins[name].startswith(sources)]
    backfill = loaded.settings.backfill if loaded.origins["backfill"].startswith(sources) else None
    return Overrides(**{field: getattr(config, field) for field in given}, backfill=backfill)
