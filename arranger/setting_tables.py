"""What a setting is for its readers (`Setting`), and the texts of those that are tables or lists."""

from typing import Any, Literal

import msgspec

#: The value of `Setting.policies` for filters.
FILTERS = "filters"

#: The scheduler that runs in every cluster, for whose pods Arranger therefore never decides.
KUBE_SCHEDULER = "default-scheduler"

#: The ways in which room may be taken back, and whether each may.
Modes = dict[Literal["surplus", "priority", "reclaim"], Literal["Allowed", "Never"]]
PREEMPTION: Modes = {"surplus": "Allowed", "priority": "Allowed", "reclaim": "Allowed"}


def table_of(name: str, raw: str) -> Any:
    """The table that the text of a setting stands for; the text itself for settings that aren't tables.

    Raises `ValueError` for a text that is no table.
    """
    if name == "preemption" and "=" not in raw:
        return dict.fromkeys(PREEMPTION, raw)
    if name not in ("preemption", "weights"):
        return raw
    pairs = [_pair(pair) for pair in raw.split(",") if pair.strip()]
    return {key: int(value) for key, value in pairs} if name == "weights" else dict(pairs)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(text)
    return key.strip(), value.strip()


def names_in(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def check_schedulers(text: str) -> None:
    """Raise `ValueError` for schedulers of which one is there twice, or is kube-scheduler."""
    names = names_in(text)
    if len(set(names)) < len(names) or KUBE_SCHEDULER in names:
        raise ValueError(text)


class Setting(msgspec.Struct, frozen=True):
    """One setting for documentation: its name in each source, its default, and what is allowed.

    `policies` is "queue" or "pod" if the value names a policy, and "filters" if it names filters with commas between
    them: then the choices are the installed ones.
    """

    name: str
    description: str
    env: str
    flag: str
    default: Any
    text: str
    fixed: tuple[str, ...] = ()
    policies: str = ""

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed values; empty if there are too many. Raises `UsageError` for a broken plugin."""
        if not self.policies:
            return self.fixed
        from arranger.plugins import inventory  # imports all of the scheduler, which most commands don't need

        found = inventory()
        if self.policies == FILTERS:
            return tuple(of.name for of in found.policies.filters)
        names: tuple[str, ...] = getattr(found.names, self.policies)
        return names

    @property
    def allowed(self) -> str:
        if not self.choices:
            return self.text
        names = ", ".join(self.choices)
        return f"any of {names}, with commas between them" if self.policies == FILTERS else f"one of {names}"

    def check_names(self, value: Any) -> None:
        """Raise `ValueError` if the value names a policy or a filter that isn't installed, or names one twice."""
        if not self.policies:
            return
        names = names_in(value) if self.policies == FILTERS else (value,)
        if len(set(names)) < len(names) or (names and not set(names) <= set(self.choices)):
            raise ValueError(value)
