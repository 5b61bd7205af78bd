"""docs/security.md names the accounts, roles and users that deploy/ has, and no others."""

import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.servers import REPOSITORY

TEXT = (REPOSITORY / "docs" / "security.md").read_text(encoding="utf-8")
DEPLOY = REPOSITORY / "deploy"


def told(head: str) -> list[tuple[list[str], str]]:
    """The rows of the table whose head begins with this: the names in the first cell, and the last cell."""
    table = TEXT.partition(f"| {head} |")[2].partition("\n\n")[0]
    cells = [row.strip("| ").split(" | ") for row in table.splitlines()[2:]]
    return [(re.findall(r"`([^`]+)`", row[0]), row[-1]) for row in cells]


def deployed(*folders: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects in these folders of deploy/, each with its folder."""
    for folder in folders:
        for path in sorted((DEPLOY / folder).glob("*.yaml")):
            yield from (
                (folder, one) for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if isinstance(one, dict)
            )


FOLDERS = tuple(sorted(path.parent.name for path in DEPLOY.glob("*/kustomization.yaml")))


def named(kind: str, *folders: str) -> set[str]:
    return {one["metadata"]["name"] for _, one in deployed(*folders) if one["kind"] == kind}


def test_every_account_of_arranger_is_told() -> None:
    accounts = {name for names, _ in told("account") for name in names}
    assert accounts == named("ServiceAccount", *FOLDERS)


def rules_of(role: str) -> list[dict[str, Any]]:
    roles = [one for _, one in deployed("base") if one["kind"] == "ClusterRole"]
    [found] = [one for one in roles if one["metadata"]["name"] == role]
    rules: list[dict[str, Any]] = found["rules"]
    return rules


def test_every_right_to_change_something_is_told_and_no_other() -> None:
    texts = {names[0]: text for names, text in told("account")}
    for account in ("arranger-watcher", "arranger-applier"):
        found = {
            resource: tuple(sorted(changing))
            for rule in rules_of(account)
            for resource in rule["resources"]
            if (changing := set(rule["verbs"]) - {"get", "list", "watch"})
        }
        rights = re.findall(
            r"`([a-z/]+)`: ((?:create|update|patch|delete)(?:, (?:create|update|patch|delete))*)", texts[account]
        )
        assert {resource: tuple(sorted(verbs.split(", "))) for resource, verbs in rights} == found, account
        assert len(rights) == len(found)
    without = {account for account, text in texts.items() if text.startswith("nothing")}
    bound = {
        subject["name"]: one["roleRef"]["name"]
        for _, one in deployed(*FOLDERS)
        if one["kind"] == "ClusterRoleBinding"
        for subject in one["subjects"]
        if subject["name"] in without
    }
    assert (
        bound == {"arranger-console": "system:auth-delegator"}
        and "`system:auth-delegator`" in texts["arranger-console"]
    )


def test_no_right_of_arranger_changes_or_makes_a_tyjob_or_a_queue() -> None:
    for account in ("arranger-watcher", "arranger-applier"):
        for rule in rules_of(account):
            if {"tyjobs", "queues"} & set(rule["resources"]):
                assert set(rule["verbs"]) <= {"get", "list", "watch", "delete"}
                assert "delete" not in rule["verbs"] or rule["resources"] == ["tyjobs"]


def test_every_role_for_people_is_told_with_who_has_it() -> None:
    roles = {names[0]: has for names, has in told("ClusterRole")}
    found = {one["metadata"]["name"]: one for _, one in deployed("base") if one["kind"] == "ClusterRole"}
    assert set(roles) == set(found) - named("ServiceAccount", "base")
    for name, has in roles.items():
        label = "rbac.authorization.k8s.io/aggregate-to-"
        given = [key.removeprefix(label) for key in found[name]["metadata"].get("labels", {}) if key.startswith(label)]
        assert re.findall(r"`(\w+)`", has) == given, name
        assert given or has == "nobody until you bind it"


def test_every_user_of_redis_is_told() -> None:
    rules = (DEPLOY / "redis-users" / "users.acl").read_text(encoding="utf-8")
    assert sorted(name for names, _ in told("Redis user") for name in names) == sorted(
        re.findall(r"^user (\S+)", rules, re.MULTILINE)
    )


def test_the_components_that_add_rights_are_told_and_none_is_on_secrets() -> None:
    ways = {"base", "console", "one-namespace"}  # rights of all installs, of the console, and instead of those of all
    adding = {folder for folder, one in deployed(*FOLDERS) if one["kind"] == "ClusterRole"} - ways
    assert re.findall(r"`([\w-]+)`", TEXT.partition("The components ")[2].partition(" add")[0]) == sorted(adding)
    rules = [rule for _, one in deployed(*FOLDERS) for rule in one.get("rules") or () if "resources" in rule]
    resources = {resource for rule in rules for resource in rule["resources"]}
    assert "pods" in resources and not {"secrets", "*"} & resources


def test_the_open_pages_are_those_that_processes_serve() -> None:
    code = (REPOSITORY / "arranger" / "workers" / "health" / "http.py").read_text(encoding="utf-8")
    [pages] = [names for names, _ in told("where") if "/metrics" in names]
    assert {"/", *pages} == set(re.findall(r'add_get\("([^"]+)"', code))
