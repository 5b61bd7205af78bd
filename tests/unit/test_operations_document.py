"""docs/operations.md tells the truth about names: metrics, labels, log lines, settings."""

import ast
import re
from collections.abc import Iterator

import prometheus_client.core
import pytest
import yaml

from arranger.clock import SystemClock
from arranger.metrics import Metrics
from arranger.settings import SETTINGS
from arranger.workers.log.identity import SYSTEM
from tests.servers import REPOSITORY

TEXT = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    """The text below a heading, up to the next one."""
    return re.split(r"^#+ ", TEXT.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its head."""
    lines = [line for line in section(heading).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


@pytest.fixture
def families() -> dict[str, list[str]]:
    """Every metric of Arranger's as it is exported, with its labels."""
    metrics = Metrics(SystemClock())
    metrics.heard("pod")
    found = {}
    for name, labels in declared(metrics):
        found[name] = labels
    return found


def declared(metrics: Metrics) -> Iterator[tuple[str, list[str]]]:
    for metric in vars(metrics).values():
        if hasattr(metric, "_labelnames"):
            counts = isinstance(metric, prometheus_client.Counter)
            yield metric._name + ("_total" if counts else ""), sorted(metric._labelnames)
    for family in metrics.registry.collect():
        if isinstance(family, prometheus_client.core.GaugeMetricFamily) and family.name.startswith("arranger_"):
            yield family.name, sorted(family.samples[0].labels)


def test_the_table_of_metrics_is_complete_and_true(families: dict[str, list[str]]) -> None:
    told = {name.strip("`"): sorted(re.findall(r"`(\w+)`", labels)) for name, labels, _ in rows("Health and metrics")}
    assert told == families


def test_log_lines_are_said_by_the_code() -> None:
    said: set[object] = set()
    for path in (REPOSITORY / "arranger").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "log_event":
                said.update(arg.value for arg in call.args if isinstance(arg, ast.Constant))
    told = {line for row in rows("What the logs say") for line in re.findall(r"`([a-z][^`]*)`", row[0])}
    assert len(told) > 20
    assert told <= said


def test_the_table_of_accounts_has_the_rights_that_are_granted() -> None:
    roles = yaml.safe_load_all((REPOSITORY / "deploy" / "base" / "rights.yaml").read_text(encoding="utf-8"))
    granted = {
        role["metadata"]["name"]: {
            (resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]
        }
        for role in roles
        if role["kind"] == "ClusterRole"
    }
    told = {}
    for account, _, rights in rows("What is installed"):
        found = re.findall(r"`([\w/]+)`: ([a-z, ]+)", rights)
        told[account.strip("`")] = {(resource, verb) for resource, verbs in found for verb in verbs.split(", ")}
    assert told == {"arranger-decider": set(), **granted}


def test_of_namespaces_only_the_one_that_tells_clusters_apart_may_be_read_alone() -> None:
    roles = list(yaml.safe_load_all((REPOSITORY / "deploy" / "base" / "rights.yaml").read_text(encoding="utf-8")))
    rules = [rule for role in roles for rule in role.get("rules", ()) if "namespaces" in rule["resources"]]
    found = [(rule.get("resourceNames"), rule["verbs"]) for rule in rules]
    assert found == [([SYSTEM], ["get"]), (None, ["list", "watch"]), ([SYSTEM], ["get"])]


def test_the_figures_of_memory_are_near_those_of_the_last_run() -> None:
    run = (REPOSITORY / "benchmarks" / "README.md").read_text(encoding="utf-8").partition("<!-- last run -->")[2]
    measured = re.findall(r"^\| (?:memory|observe) +\| .*resident.*? \| (\d+) MB ", run, re.MULTILINE)
    told = [figure for row in rows("What it needs") for figure in re.findall(r"(\d+) MB", row[2])]
    pairs = list(zip(sorted(map(int, told)), sorted(map(int, measured)), strict=True))
    assert len(pairs) == 4
    assert all(abs(figure - now) <= now / 5 for figure, now in pairs)


def test_settings_named_in_the_text_exist() -> None:
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", TEXT))
    known = {*SETTINGS, "arranger_ready"} | set(re.findall(r"`(arranger_\w+)`", TEXT))
    assert named <= known
