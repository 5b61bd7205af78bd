"""Whatever is watched may be listed and watched: the rights in deploy/ have the resource of each kind."""

from typing import Any

import pytest
import yaml

from arranger.events.kinds import Watched
from arranger.kube.cluster import Resource
from arranger.kube.sources import SOURCES
from tests.rights import FOLDER_OF, ONE_NAMESPACE, file_of, written
from tests.servers import REPOSITORY

EVERYWHERE = [kind for kind in sorted(Watched) if kind not in FOLDER_OF]


def permits(rule: dict[str, Any], resource: Resource) -> bool:
    """Whether a rule lets all objects of a resource be listed and watched."""
    whole = "resourceNames" not in rule and {"list", "watch"} <= {*rule["verbs"]}
    return whole and resource.group in rule["apiGroups"] and resource.plural in rule["resources"]


def missing(path: str, kind: Watched) -> list[str]:
    """What the watcher's roles in a file lack for a kind."""
    resource = SOURCES[kind].resource
    objects = yaml.safe_load_all((REPOSITORY / path).read_text(encoding="utf-8"))
    roles = [one for one in objects if one["kind"] in ("ClusterRole", "Role")]
    rules = [
        rule for role in roles if role["metadata"]["name"].startswith("arranger-watcher") for rule in role["rules"]
    ]
    named = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    return [] if any(permits(rule, resource) for rule in rules) else [f"{path}: no right to list and watch {named}"]


@pytest.mark.parametrize("kind", sorted(Watched))
def test_the_watcher_may_list_and_watch_every_kind(kind: Watched) -> None:
    assert missing(file_of(kind), kind) == []


@pytest.mark.parametrize("kind", [kind for kind in EVERYWHERE if SOURCES[kind].resource.namespaced])
def test_in_one_namespace_it_may_list_and_watch_every_kind_that_has_a_namespace(kind: Watched) -> None:
    assert missing(ONE_NAMESPACE, kind) == []


@pytest.mark.parametrize(("path", "text"), written().items(), ids=list(written()))
def test_what_follows_from_the_table_is_as_a_command_writes_it(path: str, text: str) -> None:
    assert (REPOSITORY / path).read_text(encoding="utf-8") == text, "python -m tests.rights writes it"


def test_a_right_that_is_missing_is_named_with_its_file() -> None:
    path = ONE_NAMESPACE
    assert missing(path, Watched.QUEUE) == [f"{path}: no right to list and watch queues.arranger.dev"]
    assert missing(path, Watched.NODE) == [f"{path}: no right to list and watch nodes"]
    assert missing(path, Watched.NAMESPACE) == [f"{path}: no right to list and watch namespaces"], "it may only get one"
