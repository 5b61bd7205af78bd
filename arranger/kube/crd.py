"""The resource definitions of this release: the files in `crds/`, included in the package."""

from collections.abc import Iterator
from importlib import resources
from typing import Any

import yaml

from arranger.model.validation import BUILT_IN_POLICIES, PolicyNames


def tyjob_crd(policies: PolicyNames = BUILT_IN_POLICIES) -> str:
    """The definition of TYJobs as YAML, comments included, with these policies as the allowed names."""
    text = _text("tyjob.yaml")
    for known, names in ((BUILT_IN_POLICIES.queue, policies.queue), (BUILT_IN_POLICIES.pod, policies.pod)):
        text = _replaced(text, _enum(known), _enum(names))
    return text


def queue_crd() -> str:
    """The definition of Queues."""
    return _text("queue.yaml")


def cluster_log_crd() -> str:
    """The definition of ClusterLogs."""
    return _text("clusterlog.yaml")


def definitions(policies: PolicyNames = BUILT_IN_POLICIES) -> str:
    """All definitions, as documents of one YAML file."""
    return "---\n".join((tyjob_crd(policies), queue_crd(), cluster_log_crd()))


def older_definitions(policies: PolicyNames = BUILT_IN_POLICIES) -> str:
    """`definitions` without the rules that compare quantities.

    API servers before 1.36 take a quantity for a text of 3 MB, whatever `maxLength` says, and refuse rules that look at
    many of them as too expensive. The controller and the watcher repeat all checks.
    """
    documents = [*yaml.safe_load_all(definitions(policies))]
    for document in documents:
        for node in _objects(document):
            rules = node.get("x-kubernetes-validations")
            if rules:
                node["x-kubernetes-validations"] = [rule for rule in rules if "quantity(" not in rule["rule"]]
    return yaml.safe_dump_all(documents, sort_keys=False, width=120)


def _objects(node: Any) -> Iterator[dict[str, Any]]:
    """All objects in a JSON value."""
    if isinstance(node, dict):
        yield node
        node = [*node.values()]
    if isinstance(node, list):
        for each in node:
            yield from _objects(each)


def _text(name: str) -> str:
    return resources.files("arranger.kube").joinpath(name).read_text(encoding="utf-8")


def _replaced(text: str, known: str, new: str) -> str:
    """The text with the one place replaced that says what is known. Raises `ValueError` if there isn't just one."""
    if text.count(known) != 1:
        raise ValueError(f"the definition has {text.count(known)} lines with {known}; there must be one to replace")
    return text.replace(known, new)


def _enum(names: tuple[str, ...]) -> str:
    return f"enum: [{', '.join(names)}]"
