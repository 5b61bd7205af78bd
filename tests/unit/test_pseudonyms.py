"""A log without names: nothing of them is left in it, and every plan comes out as before."""

import dataclasses
import re
import types
import typing
from collections.abc import Iterator
from enum import Enum
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from arranger.events import kinds as k
from arranger.events.codec import encode_batch
from arranger.events.facts import (
    AddressChanged,
    AdoptedMessage,
    FailedPods,
    Faulty,
    LeaderRestarts,
    LostPods,
    NodeClosed,
    NodeLeft,
    PodEnd,
    PodsRefused,
    RestartLimit,
    Tainted,
)
from arranger.events.log import Entry
from arranger.events.log_keys import next_chain
from arranger.kube.translate import job_seen, pod_seen
from arranger.model.config import CycleConfig
from arranger.model.faults import Fault, FaultKind
from arranger.model.job import Stage
from arranger.model.node import Taint
from arranger.model.pod import PodRules, PodTerm, PodTraits, Requirement, RuntimeNeeds, SpreadRule, Toleration
from arranger.model.queue import NamespaceRule
from arranger.model.reasons import other
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.snapshot import StateImage
from arranger.projections.state import Changes, State
from arranger.replay.export.pseudonyms import _SPECIAL, LEFT_OUT, RULES, Pseudonyms, rules_of
from tests.random_worlds import Step, live_through, steps
from tests.unit.replay_worlds import crowded, verified
from tests.world import World, shape


def renamed(entries: list[Entry]) -> list[Entry]:
    names = Pseudonyms()
    for entry in entries:
        names.batch(entry.batch)
    names.begin()
    found, chain = [], ""
    for entry in entries:
        batch = names.batch(entry.batch)
        chain = next_chain(chain, encode_batch(batch))
        found.append(Entry(entry.first, entry.last, chain, batch))
    return found


def written(entries: list[Entry]) -> bytes:
    return b"\n".join(encode_batch(entry.batch) for entry in entries)


# --- plans come out as before ----------------------------------------------------------------------------------


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(steps(least=10, most=60))
def test_every_cycle_of_any_history_is_taken_again_identically(history: list[Step]) -> None:
    entries = live_through(history).entries
    report, before = verified(renamed(entries)), verified(entries)
    assert before.different == 0
    assert (report.cycles, report.identical, report.decisions) == (before.cycles, before.identical, before.decisions)


def test_a_user_stays_before_or_after_a_namespace() -> None:
    """Jobs without a user count as their namespace's."""
    history: list[Step] = [("apply", 0, 0)] * 6
    entries = live_through([*history, ("job", 0, 0), ("job", 1, 0), ("queue", 8, 0), ("round", 0, 0)]).entries
    report = verified(renamed(entries))
    assert (report.cycles, report.identical) == (1, 1)


def secretive() -> World:
    """A cluster in which everything has a telling name, and reasons with names in them are given."""
    world = World()
    for number in (3, 1, 2):
        name = f"secret-node-{number}"
        labels = {"secret.example/rack": "secret-rack-9", "topology.kubernetes.io/zone": "secret-zone"}
        world.node(name, cpu=4, gpus=2, labels={**labels, "kubernetes.io/hostname": name})
    world.node("secret-node-9", cpu=64, gpus=8, taints=[Taint("secret-taint", "secret-value", "NoSchedule")])
    world.node("secret-node-8", cpu=64, gpus=8, cordoned=True)
    world.namespace("secret-space", queue="secret-queue", **{"secret-key": "secret-value"})
    world.namespace("secret-team", **{"kubernetes.io/metadata.name": "secret-team"})
    world.queue(
        "a-secret-queue", parent="secret-queue", uid="uid-secret-a", namespaces=NamespaceRule(("secret-space",))
    )
    world.limit_range("secret-limits", namespace="secret-space")
    world.runtime_class("secret-runtime", RuntimeNeeds(node_selector=(("secret-key", "secret-value"),)))
    selector = (Requirement("secret-key", "In", ("secret-value",)),)
    world.queue("secret-queue", parent="default", namespaces=NamespaceRule(selector=selector))
    world.pod("secret-pod-1", "secret-node-2", cpu=1, namespace="secret-space", reason="Evicted")
    world.say(
        k.PodSeen(world.terms[k.Watched.POD], "secret-space", "secret-pod-2", "uid-2", "7", "secret-node-1", "Failed",
                  (), None, False, False, message="secret words", reason="secret words", waiting="ImagePullBackOff",
                  ip="192.168.77.1", traits=PodTraits((("secret-key", "secret-value"),)))
    )  # fmt: skip
    apart = PodRules(anti_affinity=(PodTerm("secret.example/rack", (Requirement("secret-key", "Exists", ()),)),))
    chosen = (Requirement("secret-key", "In", ("secret-x",)),)
    spread = PodRules(spread=(SpreadRule("secret.example/rack", 1, chosen),))
    actors = ("secret-set", 3, shape(cpu=2, gpus=1, labels={"secret-key": "secret-x"}))
    leader = shape(cpu=1, selector={"secret.example/rack": "secret-rack-9"})
    world.job("secret-job-1", leader=leader, workers=[actors], min_workers=2)
    world.job("secret-job-2", leader=shape(cpu=1, rules=apart), namespace="secret-space", created=5)
    world.job("secret-job-3", leader=shape(gpus=9), created=6)
    world.job("secret-job-4", leader=shape(cpu=1, labels={"secret-key": "secret-x"}, rules=spread), created=7)
    other = [Toleration("secret-other", "Exists", "", "")]
    world.job("secret-job-5", leader=shape(cpu=3, gpus=2, tolerations=other), created=8)
    world.job("secret-bad", invalid="spec.secret")
    for number in range(8):
        world.job(f"secret-late-{number}", leader=shape(cpu=1, gpus=1), workers=1, min_workers=1, created=10 + number)
        world.cycle()
        world.control()
        world.apply()
        world.pass_time(12)
    job = world.state.jobs["uid-secret-job-1"]
    for uid in list(job.bound.values())[1:2]:
        world.change_pod(uid, phase="Failed", message="secret words", reason="OOMKilled")
    world.say(k.EffectFailed(job.uid, 0, "create", None, 403, "Forbidden", "secret words", permanent=False))
    for _ in range(5):
        world.pass_time(12)
        world.control()
        world.cycle()
        world.apply()
    for user in ("secret-user", ""):
        done = world.job(f"secret-done-{user}", leader=shape(cpu=1), user=user, image="secret-image", priority=10,
                         namespace="secret-space", created_by=("secret-ann", "secret-digest"))  # fmt: skip
        world.settle()
        world.change_pod(done.bound[0, 0], phase="Succeeded", ready=False)
        world.settle()
    assert len(world.state.run_times) == 2
    labels = {"arranger.dev/user": "secret-user", "arranger.dev/project": "secret-project"}
    world.pod_to_place("secret-alone", of=shape(cpu=1, labels=labels))
    world.cycle()
    return world


def test_nothing_of_a_name_or_a_message_is_left_and_every_plan_is_the_same() -> None:
    entries = secretive().entries
    told = renamed(entries)
    assert b"secret" in written(entries) and b"192.168" in written(entries)
    # UIDs stay; those of this world are made of names, which a cluster's are not.
    found = re.findall(rb"[^\xa0-\xdb]{0,20}secret[\w/.-]*", re.sub(rb"uid-secret[\w-]*", b"", written(told)))
    assert not found
    assert b"192.168" not in written(told)
    before, after = verified(entries), verified(told)
    assert before.identical == before.cycles > 3
    assert after.identical == after.cycles == before.cycles, after.first_difference
    reasons = {reason for entry in told for event in entry.batch.events if isinstance(event, k.Waits)
               for reason, _ in event.shortage.reasons}  # fmt: skip
    assert LEFT_OUT not in {reason.words for reason in reasons} and len(reasons) > 3


def test_a_snapshot_without_names_is_the_state_of_the_log_without_names() -> None:
    entries = secretive().entries
    names, state = Pseudonyms(), State()
    for entry in entries:
        names.batch(entry.batch)
    before = verified(entries)
    assert before.different == 0
    for entry in entries:
        apply_entry(state, entry, Changes())
    image = snapshot.image_of(snapshot.encode(state))
    names.walk(image)
    names.begin()
    folded = State()
    for entry in entries:
        batch = names.batch(entry.batch)
        apply_entry(folded, msgspec.structs.replace(entry, batch=batch), Changes())
    content = snapshot.encode_image(names.walk(image))
    assert snapshot.restore(content)
    assert b"secret" not in re.sub(rb"uid-secret[\w-]*", b"", content)
    same = snapshot.image_of(snapshot.encode(folded))
    assert snapshot.image_of(content).nodes == same.nodes
    assert snapshot.image_of(content).pods == same.pods
    assert snapshot.image_of(content).run_times == same.run_times and len(same.run_times) == 2


def test_the_order_of_names_stays() -> None:
    world = World()
    for name in ("b", "a", "n10", "n9", "z"):
        world.node(name)
    told = renamed(world.entries)
    nodes = [event.name for entry in told for event in entry.batch.events if isinstance(event, k.NodeSeen)]
    assert nodes == ["n-0002", "n-0001", "n-0003", "n-0004", "n-0005"]


def test_an_unknown_reason_of_another_package_is_left_out() -> None:
    assert exported(other("no licence for secret-product")) == other(LEFT_OUT)


def test_job_names_in_explanations_are_as_many_as_before() -> None:
    entries = crowded().entries
    assert [len(entry.batch.events) for entry in renamed(entries)] == [len(entry.batch.events) for entry in entries]


# --- what controllers say ----------------------------------------------------------------------------------------


def exported(event: Any) -> Any:
    """The event with all names in it known."""
    names = Pseudonyms()
    names.walk(event)
    names.begin()
    return names.walk(event)


def test_of_what_is_wrong_with_a_spec_only_the_kind_stays() -> None:
    fault = Fault("spec.secret", FaultKind.NOT_THE_LIMIT, "1", "secret.example/gpu", ("2",))
    facts = Faulty((fault,))
    told = exported(k.StageDecided("uid", 7, 0, Stage.FAILED, StageReason.INVALID_SPEC, facts)).facts.faults
    assert told == (Fault(LEFT_OUT, FaultKind.NOT_THE_LIMIT, LEFT_OUT, LEFT_OUT),)


def test_names_in_the_facts_of_decisions_are_replaced() -> None:
    taint = Taint("secret", "secret", "NoSchedule")
    closed = k.StageDecided(
        "uid", 7, 0, Stage.RESCHEDULING, StageReason.NODE_CLOSED, NodeClosed("secret-1", Tainted(taint))
    )
    assert exported(closed).facts == NodeClosed("n-0001", Tainted(Taint("k-0001", "v-0001", "NoSchedule")))
    moved = AddressChanged("192.168.77.1", "192.168.77.9")
    told = exported(k.StageDecided("uid", 7, 0, Stage.RESCHEDULING, StageReason.LEADER_MOVED, moved))
    assert told.facts == AddressChanged("10.0.0.1", "10.0.0.2")
    lost = k.WorkersReplaced("uid", 7, 0, (), (LostPods(k.Slot(1, 2), 4, NodeLeft("secret-1")),))
    assert exported(lost).causes == (LostPods(k.Slot(1, 2), 4, NodeLeft("n-0001")),)


@pytest.mark.parametrize(
    "words",
    ["OOMKilled", "Error", "Deleted while it ran", "DisruptionTarget: EvictionByEvictionAPI", "ErrImagePull", ""],
)
def test_why_a_pod_ended_stays_where_the_kubelet_has_a_word_for_it(words: str) -> None:
    facts = LeaderRestarts(PodEnd(words), 0, RestartLimit(3, ""), window_s=0)
    decided = k.StageDecided("uid", 7, 0, Stage.FAILED, StageReason.RESTART_LIMIT, facts)
    assert exported(decided) == decided


@pytest.mark.parametrize(
    "words",
    [
        "Secret",
        "secret) words",
        "Error (secret)",
        "secret\nwords",
        "Evictedsecret",
        "DisruptionTarget: Secret",
        "Error\n",
    ],
)
def test_other_words_in_a_decision_never_get_out(words: str) -> None:
    for kind in (PodsRefused, AdoptedMessage, PodEnd):
        told = exported(k.StageDecided("uid", 7, 0, Stage.FAILED, StageReason.POD_REFUSED, kind(words))).facts
        assert told == kind(LEFT_OUT)
    cause = FailedPods(k.Slot(1, 0), 1, PodEnd(words))
    assert exported(k.WorkersReplaced("uid", 7, 0, (), (cause,))).causes[0].why.words == LEFT_OUT


# --- every field with text has its rule ------------------------------------------------------------------------


def _fields(kind: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    if dataclasses.is_dataclass(kind):
        return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return {name: hints[name] for name in kind.__struct_fields__}


def _parts(hint: Any) -> Iterator[type[Any]]:
    """The classes in a type, those in containers included."""
    arguments = typing.get_args(hint)
    if arguments:
        for argument in arguments:
            yield from _parts(argument)
    elif isinstance(hint, type) and hint is not types.NoneType:
        yield hint


def _reachable(kind: type[Any], found: dict[type[Any], None]) -> None:
    if kind in found:
        return
    found[kind] = None
    for hint in _fields(kind).values():
        for part in _parts(hint):
            if (issubclass(part, msgspec.Struct) or dataclasses.is_dataclass(part)) and part is not k.Batch:
                _reachable(part, found)


def test_every_field_with_text_has_a_rule_and_no_rule_is_for_nothing() -> None:
    kinds: dict[type[Any], None] = {}
    for kind in (*typing.get_args(k.Event), StateImage):
        _reachable(kind, kinds)
    lacking = [
        f"{kind.__name__}.{name}"
        for kind in kinds
        if (kind not in _SPECIAL or kind in RULES) and kind is not CycleConfig
        for name, hint in _fields(kind).items()
        if any(issubclass(part, str) and not issubclass(part, Enum) for part in _parts(hint))
        and name not in rules_of(kind)
    ]
    assert lacking == []
    idle = [f"{kind.__name__}.{name}" for kind, rules in RULES.items() for name in rules if name not in _fields(kind)]
    assert idle == []


def test_text_without_a_rule_is_refused() -> None:
    with pytest.raises(TypeError, match="no rule"):
        Pseudonyms().walk("a name")


# --- what never gets into a log --------------------------------------------------------------------------------


def test_environment_annotations_images_and_commands_never_get_into_an_event() -> None:
    secret = "s3cret-value"
    container = {
        "name": "main", "image": f"registry.example/{secret}:1", "command": [secret], "args": [secret],
        "env": [{"name": secret, "value": secret}], "envFrom": [{"secretRef": {"name": secret}}],
        "resources": {"requests": {"cpu": "1"}}, "volumeMounts": [{"name": secret, "mountPath": secret}],
    }  # fmt: skip
    meta = {"name": "x", "namespace": "default", "uid": "u", "resourceVersion": "1", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {secret: secret},
            "managedFields": [{"manager": secret}]}  # fmt: skip
    spec = {"containers": [container], "initContainers": [container], "volumes": [{"name": secret}], "nodeName": "n"}
    template = {"metadata": {"annotations": {secret: secret}}, "spec": {"containers": [container]}}
    pod = pod_seen({"metadata": meta, "spec": spec, "status": {"phase": "Running"}}, 1)
    leader = {"template": template}
    job = job_seen(
        {"metadata": meta, "spec": {"leader": leader, "workers": [{"name": "w", "template": template}]}}, 1,
        with_status=True,
    )  # fmt: skip
    assert secret.encode() not in encode_batch(k.Batch("w", 1, 1, (pod, job)))


def test_queues_keep_their_order_and_the_tree_its_form() -> None:
    state, entries = State(), renamed(secretive().entries)
    for entry in entries:
        apply_entry(state, entry, Changes())
    below, above = state.queues
    assert below < "default" < above
    assert state.queue_tree.paths[below] == (below, above, "default")
    (of_label, named) = sorted(state.namespaces.values(), key=lambda namespace: bool(namespace.queue))
    assert of_label.labels == (("kubernetes.io/metadata.name", of_label.name),) and named.queue == above
    rules = [state.queue_tree.specs[name].namespaces for name in (below, above)]
    assert [rule is not None and rule.admits(named.name, dict(named.labels)) for rule in rules] == [True, True]
    assert not any(rule is not None and rule.admits(of_label.name, dict(of_label.labels)) for rule in rules)
