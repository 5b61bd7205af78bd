"""Queues and namespaces as they are observed, folded and kept."""

import msgspec

from arranger.events import kinds as k
from arranger.kube.cluster import WatchEvent
from arranger.kube.translate import namespace_seen, queue_seen
from arranger.model.queue import QueueSpec, QueueState
from arranger.model.validation import TYJOB
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.queues.tree import QueueProblem, QueueProblemKind
from arranger.replay.reading.describe import describe
from arranger.workers.watching.observed import Translation, projected
from tests.unit.queue_table import GPU, queue
from tests.world import World

METADATA = {"name": "rl", "uid": "uid-rl", "resourceVersion": "9"}


def world() -> World:
    made = World()
    made.queue("all", capability=((GPU, 8),))
    made.queue("rl", parent="all", weight=3)
    made.namespace("research", queue="rl", team="rl")
    return made


def test_queues_and_namespaces_are_in_the_state_and_its_snapshots() -> None:
    there = world()
    state = there.state
    assert state.queue_tree.paths == {"all": ("all",), "default": ("default",), "rl": ("rl", "all")}
    assert state.namespaces["research"].labels == (("team", "rl"),)
    validate(state)
    restored = snapshot.restore(snapshot.encode(state))
    assert snapshot.digest(restored) == snapshot.digest(state) and restored.queue_tree == state.queue_tree


def test_the_tree_follows_every_change_of_a_queue() -> None:
    there = world()
    assert there.state.queue_tree.problems == {}
    there.queue_gone("all")
    assert there.state.queue_tree.problems == {"rl": QueueProblem(QueueProblemKind.UNKNOWN_PARENT, "rl", "all")}
    there.queue("rl")
    assert there.state.queue_tree.paths == {"default": ("default",), "rl": ("rl",)}
    there.queue("rl", invalid="spec")
    assert there.state.queue_tree.problems == {"rl": QueueProblem(QueueProblemKind.INVALID, "rl")}
    validate(there.state)


def test_the_tree_is_made_only_when_a_queue_has_changed() -> None:
    there = world()
    tree = there.state.queue_tree
    there.namespace("research", queue="all")
    there.say(msgspec.structs.replace(there.state.queues["rl"], resource_version="77", status_digest="another"))
    assert there.state.queue_tree is tree and there.state.queues["rl"].status_digest == "another"


def test_the_deletion_of_an_earlier_object_of_the_name_changes_nothing() -> None:
    there = world()
    there.queue("rl", uid="second", weight=5)
    there.queue_gone("rl")
    there.namespace("research", uid="second")
    there.namespace_gone("research")
    assert there.state.queues["rl"].uid == there.state.namespaces["research"].uid == "second"
    there.queue_gone("rl", uid="second")
    there.namespace_gone("research", uid="second")
    assert "rl" not in there.state.queues and not there.state.namespaces


def test_a_superseded_watcher_changes_nothing() -> None:
    there = world()
    old = there.watch_queues()
    there.say(k.WatchClaimed(k.Watched.QUEUE, "another"))
    there.say(k.ObjectGone(k.Watched.QUEUE, old, "", "rl", "uid-rl"))
    assert "rl" in there.state.queues


def test_where_the_api_server_has_no_queues_there_is_only_default_and_nothing_waits_for_them() -> None:
    there = world()
    for kind, code in ((k.Watched.QUEUE, 404), (k.Watched.NAMESPACE, 403)):
        there.say(k.WatchRefused(kind, there.terms[kind], code))
    state = there.state
    assert state.synced and state.unwatched == {"queue": 404, "namespace": 403}
    assert not state.queues and not state.namespaces and state.queue_tree.paths == {"default": ("default",)}
    validate(state)


def test_jobs_are_looked_at_again_when_their_namespace_or_a_queue_changes() -> None:
    there = world()
    there.node("n1")
    there.job("running", namespace="research")
    there.settle()
    there.job("waiting", namespace="research", created=1)
    there.job("elsewhere", created=2)
    there.queue("rl", parent="all", weight=5)
    assert there.changes.jobs.keys() == {"uid-waiting", "uid-elsewhere"} and there.changes.schedulable
    there.namespace("research", team="vision")
    assert there.changes.jobs.keys() == {"uid-running", "uid-waiting"} and there.changes.schedulable
    before = there.state.scheduling_changes
    there.namespace("research", team="vision")
    assert not there.changes.jobs and not there.changes.schedulable and there.state.scheduling_changes == before


def test_they_are_observed_once_and_their_deletion_too() -> None:
    there = world()
    item = {**queue("rl", parent="all", weight=3), "metadata": {**METADATA, "generation": 1}}
    kind, term = k.Watched.QUEUE, there.watch_queues()

    def told(type_: str, of: dict[str, object]) -> list[k.Event]:
        return Translation(kind, term, TYJOB).news([WatchEvent(type_, of, "9", 0)], there.state)

    assert told("MODIFIED", item) == []
    closed = {**item, "spec": {"state": "Closed"}}
    changed = k.QueueSeen(term, "rl", "uid-rl", "9", 1, QueueSpec(state=QueueState.CLOSED), (), "")
    assert told("MODIFIED", closed) == [changed]
    gone = k.ObjectGone(k.Watched.QUEUE, term, "", "rl", "uid-rl")
    assert told("DELETED", item) == [gone]
    assert projected(there.state, kind, term) == [
        ("uid-all", k.ObjectGone(k.Watched.QUEUE, term, "", "all", "uid-all")),
        ("uid-rl", gone),
    ]
    term = there.watch_namespaces()
    namespace = {"metadata": {**METADATA, "name": "research", "uid": "uid-research", "labels": {"team": "rl"}}}
    namespace["metadata"]["annotations"] = {"arranger.dev/queue": "rl", "other": "x"}
    kind = k.Watched.NAMESPACE
    assert told("MODIFIED", namespace) == []
    assert projected(there.state, kind, term) == [
        ("uid-research", k.ObjectGone(k.Watched.NAMESPACE, term, "", "research", "uid-research"))
    ]


def test_a_wrong_queue_is_observed_with_its_faults() -> None:
    seen = queue_seen({**queue(weight=0), "metadata": METADATA}, 3)
    assert seen.spec is None and [fault.field for fault in seen.faults] == ["spec.weight"]
    assert describe(seen, World().state).startswith("invalid: spec.weight: Invalid value: 0")
    seen = queue_seen({"metadata": METADATA, "spec": "?", "status": {"used": {}, "waiting": 2}}, 3)
    assert seen.faults and seen.status_digest


def test_of_a_namespace_labels_and_the_annotation_are_recorded() -> None:
    annotations = {"arranger.dev/queue": "rl\nx" + "y" * 1000}
    seen = namespace_seen({"metadata": {**METADATA, "annotations": annotations}}, 3)
    assert seen.labels == () and seen.queue.startswith("rl x") and len(seen.queue) == 300
    there = world()
    assert describe(there.state.namespaces["research"], there.state) == "team=rl; queue rl"
    assert describe(there.state.queues["rl"], there.state) == "Open, below all, weight 3"
