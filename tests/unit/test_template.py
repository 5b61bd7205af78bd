"""Effective requests and shapes of pod templates."""

from typing import Any

import pytest

from arranger.model.job import MAX_GRACE_S
from arranger.model.pod import (
    HostPort,
    PodRules,
    PodShape,
    PodTerm,
    Preference,
    Requirement,
    SpreadRule,
    Toleration,
)
from arranger.model.quantity import MAX_AMOUNT
from arranger.model.template import Held, effective_requests, grace_of, pod_shape


def asks(*, limits: dict[str, Any] | None = None, sidecar: bool = False, **requests: Any) -> dict[str, Any]:
    """A container with these requests."""
    container: dict[str, Any] = {"name": "c", "image": "i", "resources": {"requests": requests}}
    if limits is not None:
        container["resources"]["limits"] = limits
    if sidecar:
        container["restartPolicy"] = "Always"
    return container


def requests(*containers: dict[str, Any], init: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, int]:
    return dict(effective_requests({"containers": list(containers), "initContainers": init, **more}))


def test_containers_add_up() -> None:
    assert requests(asks(cpu="1", memory="1Gi"), asks(cpu="500m")) == {"cpu": 1500, "memory": 1 << 30}


def test_a_limit_stands_in_for_a_missing_request() -> None:
    container = asks(cpu="1", limits={"cpu": "4", "memory": "1Gi", "nvidia.com/gpu": 2})
    assert requests(container) == {"cpu": 1000, "memory": 1 << 30, "nvidia.com/gpu": 2}


def test_an_init_container_counts_only_as_far_as_it_needs_more() -> None:
    found = requests(asks(cpu="1", memory="2Gi"), init=[asks(cpu="3", memory="1Gi"), asks(cpu="2")])
    assert found == {"cpu": 3000, "memory": 2 << 30}


def test_sidecars_add_to_the_containers() -> None:
    assert requests(asks(cpu="1"), init=[asks(cpu="200m", sidecar=True)]) == {"cpu": 1200}


def test_an_init_container_needs_room_beside_the_sidecars_started_before_it() -> None:
    before = [asks(cpu="500m", sidecar=True), asks(cpu="2")]
    after = [asks(cpu="2"), asks(cpu="500m", sidecar=True)]
    assert requests(asks(cpu="1"), init=before) == {"cpu": 2500}
    assert requests(asks(cpu="1"), init=after) == {"cpu": 2000}


def test_pod_level_requests_replace_the_sum_and_overhead_comes_on_top() -> None:
    found = requests(
        asks(cpu="1", memory="1Gi", **{"nvidia.com/gpu": 1}),
        resources={"requests": {"cpu": "4", "nvidia.com/gpu": 9}},
        overhead={"cpu": "250m", "memory": "1"},
    )
    assert found == {"cpu": 4250, "memory": (1 << 30) + 1, "nvidia.com/gpu": 1}


def test_a_pod_level_limit_stands_in_only_for_what_nobody_requests() -> None:
    limits = {"cpu": "8", "memory": "8Gi"}
    assert requests(asks(memory="1Gi"), resources={"limits": limits}) == {"cpu": 8000, "memory": 1 << 30}


def test_a_container_that_still_holds_more_than_it_asks_for_counts_with_that() -> None:
    spec = {"containers": [asks(cpu="1", memory="1Gi")]}
    held = Held({"c": [{"cpu": "3"}, {"cpu": "2", "memory": "512Mi"}], "other": [{"cpu": "9"}]})
    assert dict(effective_requests(spec, held)) == {"cpu": 3000, "memory": 1 << 30}


def test_a_refused_resize_counts_with_what_the_pod_holds_alone() -> None:
    """A pod of 1 cpu on a node of 4 is asked to become 10, which its kubelet calls infeasible."""
    spec = {"containers": [asks(cpu="10")], "initContainers": [asks(cpu="3") | {"name": "i"}]}
    there = {"c": [{"cpu": "1"}], "i": [{"cpu": "9"}]}
    assert dict(effective_requests(spec, Held(there))) == {"cpu": 10_000}
    assert dict(effective_requests(spec, Held(there, infeasible=True))) == {"cpu": 3000}, "init containers can't be"
    whole = spec | {"resources": {"requests": {"cpu": "12"}}}
    assert dict(effective_requests(whole, Held(there, [{"cpu": "2"}], infeasible=True))) == {"cpu": 2000}
    assert dict(effective_requests(whole, Held(there, [{"cpu": "2"}]))) == {"cpu": 12_000}


def test_nothing_asked_is_nothing_listed() -> None:
    assert requests(asks(cpu="0", memory=0), {"name": "c", "image": "i"}) == {}


def test_requests_are_sorted_and_pods_are_not_among_them() -> None:
    found = effective_requests({"containers": [asks(**{"x.io/b": 1, "a": 1, "pods": 3})]})
    assert found == (("a", 1), ("x.io/b", 1))


def test_a_sum_stays_within_the_largest_amount() -> None:
    assert requests(asks(memory="1E"), asks(memory="1E")) == {"memory": MAX_AMOUNT}


def test_equal_templates_have_equal_shapes() -> None:
    one = {"containers": [asks(cpu="1")], "nodeSelector": {"a": "1", "b": "2"}}
    other = {"containers": [asks(cpu="1000m")], "nodeSelector": {"b": "2", "a": "1"}, "tolerations": None}
    assert pod_shape(one) == pod_shape(other) == PodShape((("cpu", 1000),), (("a", "1"), ("b", "2")))


def test_tolerations_keep_what_was_left_out_apart() -> None:
    shape = pod_shape(
        {"tolerations": [{"operator": "Exists"}, {"key": "gpu", "value": "a100", "effect": "NoSchedule"}]}
    )
    assert shape.tolerations == (Toleration("", "Exists", "", ""), Toleration("gpu", "Equal", "a100", "NoSchedule"))


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def test_required_node_affinity_is_terms_of_requirements() -> None:
    terms = [
        {
            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
            "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}],
        },
        {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
        {},
    ]
    shape = pod_shape({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}})
    assert shape.required_terms == (
        (
            Requirement("zone", "In", ("a", "b")),
            Requirement("metadata.name", "NotIn", ("n1",), field=True),
        ),
        (Requirement("gpu", "Exists", ()),),
        (),
    )


@pytest.mark.parametrize("affinity", [None, {}, {"nodeAffinity": None}, {"podAffinity": {}}])
def test_no_required_node_affinity_is_none_and_not_empty(affinity: Any) -> None:
    assert pod_shape({"affinity": affinity}).required_terms is None


# --- what pods ask of each other ----------------------------------------------------------------------------------


def rules(spec: dict[str, Any], labels: tuple[tuple[str, str], ...] = (), **known: str) -> PodRules | None:
    return pod_shape(spec, labels, known=known).rules


def on_ports(*ports: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "ports": list(ports)}], **more}


def test_a_pod_that_asks_nothing_of_others_has_no_rules() -> None:
    assert rules({"containers": []}) is None
    assert rules({"affinity": {"podAffinity": {}, "podAntiAffinity": {REQUIRED: []}}}) is None
    assert rules({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}}) is None
    assert rules(on_ports({"containerPort": 80})) is None


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (on_ports({"containerPort": 80, "hostPort": 8080}), (HostPort(8080),)),
        (on_ports({"containerPort": 80, "hostPort": 0}), ()),
        (on_ports({"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"}),
         (HostPort(53, "UDP", "10.0.0.1"),)),
        (on_ports({"containerPort": 80, "hostPort": 80, "hostIP": "0.0.0.0"}), (HostPort(80),)),
        (on_ports({"containerPort": 80, "hostPort": 80}, {"containerPort": 81, "hostPort": 80}), (HostPort(80),)),
        (on_ports({"containerPort": 9}, {"containerPort": 5}, hostNetwork=True), (HostPort(5), HostPort(9))),
        ({"initContainers": [{"name": "s", "restartPolicy": "Always", "ports": [{"containerPort": 1, "hostPort": 2}]}]},
         (HostPort(2),)),
        ({"initContainers": [{"name": "i", "ports": [{"containerPort": 1, "hostPort": 2}]}]}, ()),
    ],
)  # fmt: skip
def test_host_ports_of_a_pod(spec: dict[str, Any], expected: tuple[HostPort, ...]) -> None:
    found = rules(spec)
    assert (found.host_ports if found else ()) == expected


def term(**fields: Any) -> PodTerm:
    found = rules(
        {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone", **fields}]}}}, (("app", "a"),), job="j"
    )
    assert found is not None
    return found.affinity[0]


@pytest.mark.parametrize(
    ("fields", "namespaces"),
    [
        ({}, ("",)),
        ({"namespaces": []}, ("",)),
        ({"namespaces": ["b", "a"]}, ("a", "b")),
        ({"namespaceSelector": {}}, None),
        ({"namespaceSelector": {}, "namespaces": ["a"]}, None),
        ({"namespaceSelector": {"matchLabels": {"team": "x"}}}, ()),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "k", "operator": "Exists"}]}, "namespaces": ["a"]},
            ("a",),
        ),
    ],
)
def test_namespaces_of_a_term(fields: dict[str, Any], namespaces: tuple[str, ...] | None) -> None:
    found = term(**fields)
    assert found.namespaces == namespaces and found.selected == ()
    selective = bool(fields.get("namespaceSelector"))
    assert (found.namespace_selector is not None) is selective


def test_a_missing_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert term().selector is None
    assert term(labelSelector={}).selector == ()


def test_a_selector_is_all_its_labels_and_expressions() -> None:
    selector = {"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]}
    assert term(labelSelector=selector).selector == (
        Requirement("a", "In", ("1",)), Requirement("b", "In", ("2",)), Requirement("c", "DoesNotExist", ()),
    )  # fmt: skip


def test_label_keys_stand_for_the_pods_own_values_and_are_passed_over_where_it_has_none() -> None:
    found = term(labelSelector={}, matchLabelKeys=["app", "absent"], mismatchLabelKeys=["job"])
    assert found.selector == (Requirement("app", "In", ("a",)), Requirement("job", "NotIn", ("j",)))


def test_required_anti_affinity_and_spread_are_rules_with_kubernetes_defaults() -> None:
    found = rules(
        {
            "affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "host", "labelSelector": {}}]}},
            "topologySpreadConstraints": [
                {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}},
                {"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"},
                {"topologyKey": "row", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 3,
                 "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"},
            ],
        }
    )  # fmt: skip
    assert found == PodRules(
        anti_affinity=(PodTerm("host", ()),),
        spread=(SpreadRule("zone", 2, ()), SpreadRule("row", 1, None, 3, honor_affinity=False, honor_taints=True)),
    )


def test_preferred_node_affinity_keeps_its_weights() -> None:
    preferred = [{"weight": 7, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]
    shape = pod_shape({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}})
    assert shape.preferred == (Preference(7, (Requirement("a", "Exists", ()),)),)
    assert shape.rules is None and shape.required_terms is None


@pytest.mark.parametrize(("declared", "seconds"), [(None, 30), (0, 0), (600, 600), (1 << 62, MAX_GRACE_S)])
def test_the_grace_period_of_a_template(declared: int | None, seconds: int) -> None:
    assert grace_of({"containers": [], "terminationGracePeriodSeconds": declared}) == seconds
    assert grace_of({"containers": []}) == 30
