"""Policies, filters, group checks and permits of other installed packages, found by Python entry points.

A package lists them in its metadata, in the groups of entry points below. Each entry names an instance of the group's
class (`QueuePolicy`, `PodPolicy`, `Filter`, `GroupCheck` or `Permit`), or a subclass whose constructor takes no
arguments. An unusable plugin is an error that names its package and stops the program before it decides anything: a
scheduler that silently left a policy out would place jobs differently.

Every process of a cluster should have the same plugins. A cycle records the names and versions of all that were
installed where it ran, so `arranger verify` can detect a missing one.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NoReturn

from arranger import __version__
from arranger.errors import UsageError
from arranger.model.validation import PolicyNames
from arranger.scheduling import (
    BUILT_IN,
    Filter,
    GroupCheck,
    Permit,
    PodPolicy,
    Policies,
    Policy,
    QueuePolicy,
    policies_with,
)

#: By group of entry points: the kind of the plugin for display, and its required class.
GROUPS: dict[str, tuple[str, type[Policy]]] = {
    "arranger.queue_policies": ("queue", QueuePolicy),
    "arranger.pod_policies": ("pod", PodPolicy),
    "arranger.filters": ("filter", Filter),
    "arranger.group_checks": ("group check", GroupCheck),
    "arranger.permits": ("permit", Permit),
}

_NOUNS = {"queue": "queue policy", "pod": "pod policy"}

#: Names are used in YAML and in messages: letters, digits, '.' and '-', a letter first.
_NAME = re.compile(r"[A-Za-z][-.A-Za-z0-9]{0,62}")
#: Words that YAML doesn't parse as text.
_NOT_TEXT = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


@dataclass(frozen=True)
class Source:
    """One policy, filter, group check or permit, and the package that provides it."""

    kind: str
    policy: Policy
    package: str
    package_version: str


@dataclass(frozen=True)
class Installed:
    """All that cycles can use. `sources` are in the order of `GROUPS`, the built-in ones first."""

    policies: Policies
    sources: tuple[Source, ...]

    @property
    def names(self) -> PolicyNames:
        return PolicyNames(tuple(self.policies.queue), tuple(self.policies.pod))


@lru_cache(maxsize=1)
def inventory() -> Installed:
    """The policies of this interpreter, looked up once. Raises `UsageError` for an unusable plugin."""
    found = [point for group in GROUPS for point in entry_points(group=group)]
    return inventory_of(found)


def installed() -> Policies:
    """The policies and filters of this interpreter. Raises as `inventory` does."""
    return inventory().policies


def inventory_of(points: Iterable[EntryPoint]) -> Installed:
    """The built-in ones and those of these entry points, in an order that doesn't depend on that of `points`."""
    sources = list(_built_in())
    by_name = {source.policy.name: source for source in sources}
    added: list[Source] = []
    for point in sorted(points, key=lambda point: (point.group, _package(point), point.name)):
        source = _source(point)
        other = by_name.get(source.policy.name)
        if other is not None:
            _refuse(
                point,
                f"the name {source.policy.name} is that of a {_NOUNS.get(other.kind, other.kind)} of {other.package}",
            )
        by_name[source.policy.name] = source
        added.append(source)
    added.sort(key=lambda source: source.policy.name)

    def of(kind: type[Policy]) -> list[Any]:
        return [source.policy for source in added if isinstance(source.policy, kind)]

    order = [kind for kind, _ in GROUPS.values()]
    return Installed(
        policies_with(of(QueuePolicy), of(PodPolicy), of(Filter), checks=of(GroupCheck), permits=of(Permit)),
        tuple(sorted([*sources, *added], key=lambda source: order.index(source.kind))),
    )


def _built_in() -> Iterator[Source]:
    for kind, ones in (
        ("queue", BUILT_IN.queue.values()),
        ("pod", BUILT_IN.pod.values()),
        ("filter", BUILT_IN.filters),
    ):
        for one in ones:
            yield Source(kind, one, "arranger", __version__)


def _source(point: EntryPoint) -> Source:
    """The object of an entry point, loaded and checked."""
    kind, expected = GROUPS[point.group]
    try:
        loaded = point.load()
        one = loaded() if isinstance(loaded, type) and issubclass(loaded, expected) else loaded
    except Exception as problem:  # foreign code may raise anything
        _refuse(point, f"{type(problem).__name__}: {problem}", problem)
    if not isinstance(one, expected):
        _refuse(
            point, f"{point.value} is no {expected.__name__} (arranger.scheduling), neither a class nor an instance"
        )
    name, version = getattr(one, "name", None), getattr(one, "version", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.lower() in _NOT_TEXT:
        _refuse(point, f"its name is {name!r}; allowed: up to 63 letters, digits, '.' and '-', a letter first")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        _refuse(point, f"its version is {version!r}; allowed: a whole number from 1 on")
    distribution = point.dist
    return Source(kind, one, _package(point), distribution.version if distribution is not None else "")


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown package"


def _refuse(point: EntryPoint, why: str, cause: Exception | None = None) -> NoReturn:
    package = _package(point)
    raise UsageError(
        f"package {package}: entry point {point.name!r} of {point.group} can't be used: {why}",
        hint=f"mend or uninstall {package}",
    ) from cause
