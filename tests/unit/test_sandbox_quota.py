"""ResourceQuotas of the embedded cluster: what a quota controller does there."""

from typing import Any

import pytest

from arranger.kube.cluster import PODS, QUOTAS
from arranger.sandbox.admission import WriteOptions
from arranger.sandbox.status import ApiRefusal
from arranger.sandbox.store import Store
from arranger.sandbox.tables import table


def store_with(hard: dict[str, str], **spec: Any) -> Store:
    store = Store(now=lambda: 1_700_000_000.0)
    store.create(QUOTAS, "default", {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}, "status": {"used": {}}})
    return store


def create(store: Store, name: str, *, dry_run: bool = False, **requests: str) -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": requests}}
    body = {"metadata": {"name": name}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    store.create(PODS, "default", body, WriteOptions(dry_run=dry_run))


def status(store: Store) -> dict[str, Any]:
    found: dict[str, Any] = store.get(QUOTAS, "default", "q").object["status"]
    return found


def test_a_quota_is_counted_when_it_comes_and_with_every_pod() -> None:
    store = Store(now=lambda: 0.0)
    create(store, "before", cpu="500m")
    store.create(QUOTAS, "default", {"metadata": {"name": "q"}, "spec": {"hard": {"cpu": "2", "count/pods": 3}}})
    assert status(store) == {"hard": {"cpu": "2", "count/pods": "3"}, "used": {"cpu": "500m", "count/pods": "1"}}
    create(store, "a", cpu="1500m")
    assert status(store)["used"] == {"cpu": "2", "count/pods": "2"}
    store.patch(PODS, "default", "a", {"status": {"phase": "Succeeded"}}, subresource="status")
    assert status(store)["used"] == {"cpu": "500m", "count/pods": "2"}
    store.delete(PODS, "default", "before")
    assert status(store)["used"] == {"cpu": "0", "count/pods": "1"}


def test_a_raised_quota_takes_what_it_refused() -> None:
    store = store_with({"pods": "1"})
    create(store, "a")
    with pytest.raises(ApiRefusal, match=r"exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"):
        create(store, "b")
    store.patch(QUOTAS, "default", "q", {"spec": {"hard": {"pods": "2"}}})
    create(store, "b")
    assert status(store) == {"hard": {"pods": "2"}, "used": {"pods": "2"}}


def test_a_trial_is_judged_and_counts_for_nothing() -> None:
    store = store_with({"pods": "1"})
    create(store, "a", dry_run=True)
    assert status(store)["used"] == {"pods": "0"}
    create(store, "a")
    with pytest.raises(ApiRefusal):
        create(store, "b", dry_run=True)


def test_a_scope_by_priority_class_counts_its_pods() -> None:
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    store = store_with({"pods": "0"}, scopeSelector={"matchExpressions": [expression]})
    create(store, "plain")
    body = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "priorityClassName": "high"},
    }
    with pytest.raises(ApiRefusal):
        store.create(PODS, "default", body)


def test_what_is_no_quantity_is_refused() -> None:
    with pytest.raises(ApiRefusal) as caught:
        store_with({"pods": "many"})
    assert caught.value.code == 400 and "ResourceQuota in version" in caught.value.detail


def test_kubectl_shows_what_is_used() -> None:
    store = store_with({"pods": "3", "limits.cpu": "2"})
    stored = store.get(QUOTAS, "default", "q")
    (row,) = table(stored.kind, [stored], metadata={}, now_s=1_700_000_005.0)["rows"]
    assert row["cells"] == ["q", "pods: 0/3", "limits.cpu: 0/2", "5s"]
