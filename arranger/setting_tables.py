"""Settings that are tables, such as `preemption`: their texts in variables and flags."""

from typing import Any, Literal

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
