"""The rules by which an export replaces names of pods to place and of their groups."""

from collections.abc import Callable
from typing import Any, Protocol

from arranger.events import kinds as k
from arranger.model import pod as p


class GroupNames(Protocol):
    """What replaces names (`Pseudonyms`)."""

    def name(self, sort: str, name: str) -> str: ...
    def queue(self, name: str) -> str: ...
    def key(self, key: str) -> str: ...


Rule = Callable[[Any, Any], Any]


def _keep(_: GroupNames, value: Any) -> Any:
    return value


def _named(sort: str) -> Rule:
    return lambda names, value: names.name(sort, value)


def _queue(names: GroupNames, name: str) -> str:
    return names.queue(name)


def tasks(names: GroupNames, of: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """How many pods tasks need, by the names of the tasks."""
    return tuple(sorted((names.name("set", task), least) for task, least in of))


def rules(word: Rule, left_out: Rule) -> dict[type[Any], dict[str, Rule]]:
    """As `pseudonyms.RULES`, by the rules for words and for other texts."""

    def each_left_out(names: GroupNames, texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(left_out(names, text) for text in texts)

    of_group = {"name": _named("group"), "namespace": _named("namespace"), "uid": _keep, "group_kind": _keep}
    more = {"resource_version": _keep, "phase": word, "status_digest": _keep, "owner": left_out, "owner_kind": left_out}
    return {
        k.PodGroupSeen: {**of_group, **more},
        p.GroupAsked: {"name": _named("group"), "kind": _keep},
        p.PodGroupFacts: {
            "queue": _queue,
            "priority_class": _named("priorityclass"),
            "topology": lambda names, key: names.key(key),
            "tasks": tasks,
            "min_resources": _keep,
        },
        p.PodToPlace: {
            "gates": each_left_out,
            "claims": each_left_out,
            "queue": _queue,
            "user": _named("namespace"),
            "task": _named("set"),
        },
    }
