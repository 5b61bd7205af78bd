"""The in-memory API's semantics, without HTTP."""

import itertools
from typing import Any

import pytest

from arranger.kube.cluster import CONFIG_MAPS, CRDS, EVENTS, NAMESPACES, NODES, PODS, TYJOBS, Object, Resource
from arranger.sandbox.admission import WriteOptions
from arranger.sandbox.garbage import DeleteOptions
from arranger.sandbox.kinds import SECRETS
from arranger.sandbox.listing import Selection
from arranger.sandbox.patching import JSON_PATCH, STRATEGIC
from arranger.sandbox.status import ApiRefusal
from arranger.sandbox.store import Store
from tests.servers import tyjob_definition

THINGS = Resource("example.dev", "v1", "things", "Thing")


def thing_crd() -> Object:
    """A small custom resource with a bit of everything in its schema."""
    spec = {
        "type": "object",
        "required": ["leader"],
        "x-kubernetes-validations": [
            {"rule": "self.sets.map(s, s.counts).sum() >= self.min", "message": "too few", "fieldPath": ".min"},
            {"rule": "self.leader == oldSelf.leader", "message": "is immutable", "reason": "FieldValueForbidden"},
        ],
        "properties": {
            "leader": {"type": "string", "maxLength": 5},
            "min": {"type": "integer", "default": 0, "minimum": 0},
            "priority": {"type": "integer", "default": 5, "maximum": 10},
            "policy": {"type": "string", "enum": ["A", "B"]},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "port": {"x-kubernetes-int-or-string": True},
            "sets": {
                "type": "array",
                "default": [],
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "counts": {"type": "integer", "default": 1}},
                },
            },
        },
    }
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.dev"},
        "spec": {
            "group": "example.dev",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [version],
        },
    }


def thing(name: str = "t", **spec: Any) -> Object:
    return {
        "apiVersion": "example.dev/v1",
        "kind": "Thing",
        "metadata": {"name": name},
        "spec": {"leader": "l", **spec},
    }


def pod(name: str, *, node: str = "", owners: list[Object] | None = None) -> Object:
    spec: Object = {"containers": [{"name": "c", "image": "i"}]}
    if node:
        spec["nodeName"] = node
    metadata: Object = {"name": name}
    if owners:
        metadata["ownerReferences"] = owners
    return {"metadata": metadata, "spec": spec}


@pytest.fixture
def store() -> Store:
    uids = itertools.count(1)
    store = Store(now=lambda: 1_800_000_000.0, new_uid=lambda: f"uid-{next(uids):05d}", history_limit=10)
    store.create(CRDS, "", thing_crd())
    return store


def refused(code: int, reason: str) -> Any:
    return pytest.raises(ApiRefusal, match=f"{code} {reason}")


def reference(owner: Object, *, blocks: bool = True) -> Object:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": blocks,
    }


def names(store: Store, resource: Resource) -> list[str]:
    return [stored.name for stored in store.page(resource, Selection()).items]


def test_every_write_gets_the_next_resource_version(store: Store) -> None:
    first = store.create(PODS, "default", pod("a")).stored
    second = store.create(CONFIG_MAPS, "default", {"metadata": {"name": "a"}}).stored
    assert second.version == first.version + 1
    assert second.object["metadata"]["resourceVersion"] == str(second.version)


def test_a_taken_name_is_already_exists_and_an_absent_namespace_not_found(store: Store) -> None:
    store.create(PODS, "default", pod("a"))
    with refused(409, "AlreadyExists"):
        store.create(PODS, "default", pod("a"))
    with refused(404, "NotFound"):
        store.create(PODS, "nowhere", pod("a"))


def test_a_write_that_changes_nothing_keeps_its_resource_version(store: Store) -> None:
    before = store.create(THINGS, "default", thing()).stored
    after = store.patch(THINGS, "default", "t", {"spec": {"priority": 5}}).stored
    assert after.version == before.version


def test_only_a_changed_spec_counts_as_a_generation(store: Store) -> None:
    store.create(THINGS, "default", thing())
    store.patch(THINGS, "default", "t", {"status": {"stage": "Running"}}, subresource="status")
    labelled = store.patch(THINGS, "default", "t", {"metadata": {"labels": {"a": "b"}}}).stored
    assert labelled.object["metadata"]["generation"] == 1
    changed = store.patch(THINGS, "default", "t", {"spec": {"priority": 3}}).stored
    assert changed.object["metadata"]["generation"] == 2


def test_spec_and_status_are_written_apart(store: Store) -> None:
    created = store.create(THINGS, "default", {**thing(), "status": {"stage": "X"}}).stored
    assert "status" not in created.object
    body = {"spec": {"priority": 1}, "status": {"stage": "X"}}
    status = store.patch(THINGS, "default", "t", body, subresource="status").stored.object
    assert (status["spec"]["priority"], status["status"]) == (5, {"stage": "X"})
    spec = store.patch(THINGS, "default", "t", {"spec": {"priority": 1}, "status": {"stage": "Y"}}).stored.object
    assert (spec["spec"]["priority"], spec["status"]) == (1, {"stage": "X"})


def test_a_write_based_on_an_old_version_conflicts(store: Store) -> None:
    old = store.create(THINGS, "default", thing()).stored.object
    store.patch(THINGS, "default", "t", {"spec": {"priority": 1}})
    with refused(409, "Conflict"):
        store.update(THINGS, "default", "t", {**old, "spec": {"leader": "l", "priority": 2}})
    with refused(409, "Conflict"):
        store.patch(THINGS, "default", "t", {"metadata": {"resourceVersion": "1"}})


def test_a_stored_object_never_changes_under_a_patch(store: Store) -> None:
    before = store.create(THINGS, "default", thing(sets=[{"name": "a"}])).stored
    store.patch(
        THINGS, "default", "t", [{"op": "add", "path": "/spec/sets/-", "value": {"name": "b"}}], media_type=JSON_PATCH
    )
    assert [each["name"] for each in before.object["spec"]["sets"]] == ["a"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"priority": 11},
            "spec.priority: Invalid value: 11: spec.priority in body should be less than or equal to 10",
        ),
        ({"policy": "C"}, 'spec.policy: Unsupported value: "C": supported values: "A", "B"'),
        ({"leader": None}, "spec.leader: Required value"),
        ({"leader": "longer"}, "spec.leader: Too long: may not be more than 5 bytes"),
        (
            {"priority": "x"},
            'spec.priority: Invalid value: "string": spec.priority in body must be of type integer: "string"',
        ),
        ({"min": 3}, "spec.min: Invalid value: too few"),
        ({"sets": [{"name": "a"}, {"name": "a"}]}, 'spec.sets[1]: Duplicate value: {"name":"a"}'),
        ({"port": 1.5}, "spec.port: Invalid value"),
    ],
)
def test_an_invalid_custom_resource_is_refused_in_kubernetes_words(store: Store, spec: Object, message: str) -> None:
    with pytest.raises(ApiRefusal) as refusal:
        store.create(THINGS, "default", thing(**spec))
    assert refusal.value.code == 422
    assert message in refusal.value.detail


def test_unknown_fields_are_pruned_with_a_warning_or_refused_when_strict(store: Store) -> None:
    answer = store.create(THINGS, "default", thing(foo=1, free={"any": 1}))
    assert answer.warnings == ('unknown field "spec.foo"',)
    assert "foo" not in answer.stored.object["spec"]
    assert answer.stored.object["spec"]["free"] == {"any": 1}
    with pytest.raises(ApiRefusal, match=r'strict decoding error: unknown field "spec\.foo"'):
        store.create(THINGS, "default", thing("u", foo=1), WriteOptions(strictness="Strict"))


def test_defaults_reach_into_lists(store: Store) -> None:
    stored = store.create(THINGS, "default", thing(sets=[{"name": "a"}])).stored
    assert stored.object["spec"]["sets"] == [{"name": "a", "counts": 1}]
    assert stored.object["spec"]["priority"] == 5


def test_a_transition_rule_holds_on_updates_only(store: Store) -> None:
    store.create(THINGS, "default", thing())
    with pytest.raises(ApiRefusal, match="spec: Forbidden: is immutable"):
        store.patch(THINGS, "default", "t", {"spec": {"leader": "m"}})


def test_a_dry_run_stores_nothing(store: Store) -> None:
    version = store.version
    store.create(THINGS, "default", thing(), WriteOptions(dry_run=True))
    assert store.version == version
    assert names(store, THINGS) == []


def test_strategic_merge_merges_lists_by_their_keys(store: Store) -> None:
    store.create(PODS, "default", pod("a"))
    for kind in ("Ready", "PodScheduled"):
        body = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
        store.patch(PODS, "default", "a", body, media_type=STRATEGIC, subresource="status")
    conditions = store.get(PODS, "default", "a").object["status"]["conditions"]
    assert [each["type"] for each in conditions] == ["Ready", "PodScheduled"]


def test_a_pod_without_containers_or_with_a_bad_quantity_is_refused(store: Store) -> None:
    with pytest.raises(ApiRefusal, match=r"spec.containers: Required value"):
        store.create(PODS, "default", {"metadata": {"name": "a"}, "spec": {}})
    with refused(400, "BadRequest"):
        bad = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "lots"}}}
        store.create(PODS, "default", {"metadata": {"name": "a"}, "spec": {"containers": [bad]}})


def test_a_pod_on_a_node_waits_for_its_kubelet_and_any_other_goes_at_once(store: Store) -> None:
    store.create(PODS, "default", pod("waiting"))
    store.create(PODS, "default", pod("running", node="n"))
    assert store.delete(PODS, "default", "waiting").removed
    answer = store.delete(PODS, "default", "running")
    assert not answer.removed
    assert answer.stored.object["metadata"]["deletionGracePeriodSeconds"] == 30
    assert store.delete(PODS, "default", "running", DeleteOptions(grace_s=0)).removed


def test_a_deletion_meant_for_another_object_conflicts(store: Store) -> None:
    store.create(PODS, "default", pod("a"))
    with refused(409, "Conflict"):
        store.delete(PODS, "default", "a", DeleteOptions(uid="other"))
    with refused(409, "Conflict"):
        store.delete(PODS, "default", "a", DeleteOptions(resource_version="1"))


def test_a_finalizer_keeps_an_object_until_it_is_taken_off(store: Store) -> None:
    body = thing()
    body["metadata"]["finalizers"] = ["example.dev/wait"]
    store.create(THINGS, "default", body)
    assert not store.delete(THINGS, "default", "t").removed
    with pytest.raises(ApiRefusal, match="no new finalizers"):
        store.patch(THINGS, "default", "t", {"metadata": {"finalizers": ["example.dev/wait", "x.y/z"]}})
    assert store.patch(THINGS, "default", "t", {"metadata": {"finalizers": None}}).removed
    assert names(store, THINGS) == []


def test_dependents_go_with_their_owner_and_late_ones_too(store: Store) -> None:
    owner = store.create(THINGS, "default", thing()).stored.object
    store.create(PODS, "default", pod("a", owners=[reference(owner)]))
    store.create(PODS, "default", pod("stranger"))
    store.delete(THINGS, "default", "t")
    assert names(store, PODS) == ["stranger"]
    store.create(PODS, "default", pod("late", owners=[reference(owner)]))
    assert names(store, PODS) == ["stranger"]


def test_a_dependent_of_two_owners_outlives_the_first(store: Store) -> None:
    owners = [store.create(THINGS, "default", thing(name)).stored.object for name in ("t", "u")]
    store.create(PODS, "default", pod("a", owners=[reference(owner) for owner in owners]))
    store.delete(THINGS, "default", "t")
    kept = store.get(PODS, "default", "a").object["metadata"]["ownerReferences"]
    assert [each["name"] for each in kept] == ["u"]


def test_orphaned_dependents_stay_without_their_owner(store: Store) -> None:
    owner = store.create(THINGS, "default", thing()).stored.object
    store.create(PODS, "default", pod("a", owners=[reference(owner)]))
    store.delete(THINGS, "default", "t", DeleteOptions(propagation="Orphan"))
    assert "ownerReferences" not in store.get(PODS, "default", "a").object["metadata"]


def test_foreground_deletion_waits_for_the_dependents(store: Store) -> None:
    owner = store.create(THINGS, "default", thing()).stored.object
    store.create(PODS, "default", pod("a", node="n", owners=[reference(owner)]))
    store.delete(THINGS, "default", "t", DeleteOptions(propagation="Foreground"))
    assert names(store, THINGS) == ["t"]
    store.delete(PODS, "default", "a", DeleteOptions(grace_s=0))
    assert names(store, THINGS) == []


def test_a_foreground_deletion_ends_when_all_its_dependents_go_at_once(store: Store) -> None:
    owner = store.create(THINGS, "default", thing()).stored.object
    for name in ("a", "b"):
        store.create(PODS, "default", pod(name, owners=[reference(owner)]))
    store.delete(THINGS, "default", "t", DeleteOptions(propagation="Foreground"))
    assert names(store, THINGS) == names(store, PODS) == []


def test_a_dependent_created_during_a_foreground_deletion_goes_with_the_others(store: Store) -> None:
    owner = store.create(THINGS, "default", thing()).stored.object
    store.create(PODS, "default", pod("a", node="n", owners=[reference(owner)]))
    store.delete(THINGS, "default", "t", DeleteOptions(propagation="Foreground"))
    store.create(PODS, "default", pod("late", owners=[reference(owner)]))
    store.delete(PODS, "default", "a", DeleteOptions(grace_s=0))
    assert names(store, THINGS) == names(store, PODS) == []


def test_a_namespace_takes_what_is_in_it_along(store: Store) -> None:
    store.create(NAMESPACES, "", {"metadata": {"name": "x"}})
    store.create(PODS, "x", pod("a", node="n"))
    store.create(CONFIG_MAPS, "x", {"metadata": {"name": "c"}})
    store.delete(NAMESPACES, "", "x")
    with refused(403, "Forbidden"):
        store.create(PODS, "x", pod("b"))
    store.delete(PODS, "x", "a", DeleteOptions(grace_s=0))
    assert "x" not in names(store, NAMESPACES)
    assert names(store, CONFIG_MAPS) == []


def test_pages_of_one_listing_show_one_moment(store: Store) -> None:
    for number in range(5):
        store.create(PODS, "default", pod(f"p{number}"))
    first = store.page(PODS, Selection(), limit=2)
    store.delete(PODS, "default", "p3")
    store.create(PODS, "default", pod("p9"))
    rest = store.page(PODS, Selection(), limit=10, continuation=first.continuation)
    assert [each.name for each in first.items + rest.items] == ["p0", "p1", "p2", "p3", "p4"]
    assert rest.version == first.version
    store.compact()
    with refused(410, "Expired"):
        store.page(PODS, Selection(), continuation=first.continuation)


def test_selectors_choose_by_labels_and_fields(store: Store) -> None:
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "2"}), ("c", {})):
        body = pod(name, node="n" if name == "b" else "")
        body["metadata"]["labels"] = labels
        store.create(PODS, "default", body)

    def chosen(**selection: str) -> list[str]:
        return [each.name for each in store.page(PODS, Selection(plural="pods", **selection)).items]

    assert chosen(labels="x in (1, 2)") == ["a", "b"]
    assert chosen(labels="x notin (1)") == ["b", "c"]
    assert chosen(labels="!x") == ["c"]
    assert chosen(labels="x,x!=1") == ["b"]
    assert chosen(fields="spec.nodeName=n") == ["b"]
    assert chosen(fields="metadata.name!=a,status.phase=Pending") == ["b", "c"]
    with pytest.raises(ApiRefusal, match=r"field label not supported: spec\.hostname"):
        chosen(fields="spec.hostname=n")


def test_a_watch_resumes_where_a_listing_ended(store: Store) -> None:
    store.create(PODS, "default", pod("a"))
    listed = store.page(PODS, Selection()).version
    woken: list[int] = []
    watch = store.watch(PODS, Selection(), str(listed), lambda: woken.append(1))
    store.create(PODS, "default", pod("b"))
    store.create(NODES, "", {"metadata": {"name": "n"}})
    store.delete(PODS, "default", "a")
    seen = [(event.type, event.stored.name) for event in watch.take()]
    assert seen == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert woken
    assert watch.take() == []


def test_an_object_that_leaves_a_selection_is_deleted_for_its_watch(store: Store) -> None:
    store.create(PODS, "default", pod("a"))
    since = str(store.version)
    watch = store.watch(PODS, Selection(labels="x=1"), since, lambda: None)
    for value in ("1", "2"):
        store.patch(PODS, "default", "a", {"metadata": {"labels": {"x": value}}})
    assert [event.type for event in watch.take()] == ["ADDED", "DELETED"]


def test_a_watch_from_before_the_history_gets_410(store: Store) -> None:
    since = str(store.version)
    slow = store.watch(PODS, Selection(), since, lambda: None)
    for number in range(25):
        store.create(PODS, "default", pod(f"p{number}"))
    with refused(410, "Expired"):
        store.watch(PODS, Selection(), since, lambda: None)
    with refused(410, "Expired"):
        slow.take()


def test_a_deleted_definition_takes_its_objects_along(store: Store) -> None:
    store.create(THINGS, "default", thing())
    store.delete(CRDS, "", "things.example.dev")
    with refused(404, "NotFound"):
        store.page(THINGS, Selection())


def test_a_definition_with_a_broken_rule_is_refused(store: Store) -> None:
    crd = thing_crd()
    crd["metadata"]["name"] = "others.example.dev"
    crd["spec"]["names"] = {"plural": "others", "kind": "Other"}
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["x-kubernetes-validations"] = [{"rule": "self.spec. >"}]
    with refused(422, "Invalid"):
        store.create(CRDS, "", crd)


def test_an_object_too_large_for_etcd_is_refused(store: Store) -> None:
    with pytest.raises(ApiRefusal, match="request is too large"):
        store.create(SECRETS, "default", {"metadata": {"name": "big"}, "data": {"a": "x" * 1_600_000}})


def test_a_bound_pod_is_not_bound_again(store: Store) -> None:
    store.create(PODS, "default", pod("a"))
    store.bind("default", "a", "n1")
    with refused(409, "Conflict"):
        store.bind("default", "a", "n2")
    assert store.get(PODS, "default", "a").object["spec"]["nodeName"] == "n1"


def test_an_event_lies_where_its_object_lies(store: Store) -> None:
    body = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "a", "namespace": "other"}}
    with refused(422, "Invalid"):
        store.create(EVENTS, "default", body)


@pytest.mark.parametrize(
    "metadata",
    [{"name": 5}, {"name": "a", "labels": ["x"]}, {"name": "a", "labels": {"x": 1}}, {"name": "a", "finalizers": "x"}],
)
def test_metadata_of_wrong_types_is_a_bad_request(store: Store, metadata: Object) -> None:
    with refused(400, "BadRequest"):
        store.create(CONFIG_MAPS, "default", {"metadata": metadata})
    store.create(CONFIG_MAPS, "default", {"metadata": {"name": "a"}})
    with refused(400, "BadRequest"):
        store.patch(CONFIG_MAPS, "default", "a", {"metadata": metadata})


def test_a_patch_cannot_make_another_object_of_it(store: Store) -> None:
    store.create(CONFIG_MAPS, "default", {"metadata": {"name": "a"}})
    for metadata in ({"name": "b"}, {"namespace": "other"}, {"uid": "other"}):
        with pytest.raises(ApiRefusal):
            store.patch(CONFIG_MAPS, "default", "a", {"metadata": metadata})
    with refused(422, "Invalid"):
        store.patch(CONFIG_MAPS, "default", "a", {"kind": "Other"})
    assert names(store, CONFIG_MAPS) == ["a"]


def test_a_bad_quantity_in_a_tyjob_is_told_to_who_applies_it_and_not_on_the_servers_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store(now=lambda: 1_700_000_000.0)
    store.create(CRDS, "", tyjob_definition())
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "four"}, "limits": {"cpu": "4"}}}
    leader = {"name": "learner", "template": {"spec": {"containers": [container]}}}
    job = {
        "apiVersion": "arranger.dev/v1",
        "kind": "TYJob",
        "metadata": {"name": "j"},
        "spec": {"minWorkersNum": 0, "leader": leader, "workerSets": []},
    }
    with pytest.raises(ApiRefusal, match="requests"):
        store.create(TYJOBS, "default", job)
    assert caplog.records == []
