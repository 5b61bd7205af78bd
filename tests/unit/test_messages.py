"""Sentences about decisions and shortages: each reason has one, facts stand in it, and no code depends on its words."""

import re
from pathlib import Path
from types import NoneType
from typing import get_args

import msgspec
import pytest
import yaml

from arranger.events import kinds as k
from arranger.events.facts import (
    FACTS,
    AdoptedMessage,
    BeyondLimit,
    FailedPods,
    LackOfNodes,
    LeaderRestarts,
    LostPods,
    NodeLeft,
    NodeTrouble,
    OthersOfGroup,
    PodEnd,
    PodsOverLimit,
    QuorumIncomplete,
    RestartLimit,
    StageFacts,
    Tainted,
)
from arranger.messages.decisions import failure_text, replaced_text, stage_text
from arranger.messages.faults import fault_text, faults_text
from arranger.messages.shortages import counts_text, kind_text, node_text, quota_text, reason_text, shortage_text
from arranger.model.faults import Fault, FaultKind
from arranger.model.job import JobSpec, Stage
from arranger.model.node import Taint
from arranger.model.pod import ContainerEnd, PodShape, Requirement
from arranger.model.quota import LimitKind, QuotaLack
from arranger.model.reasons import FITS, Reason, ReasonKind, beyond_quota, insufficient, objected, other
from arranger.model.stages import TRANSITIONS, StageReason
from tests.reasons import facts_of
from tests.values import filled
from tests.world import World, shape

ACTIVE = ("Pending", "Starting", "Running", "Rescheduling")
STAGES = Path(__file__).parents[2] / "docs" / "internals" / "stages.md"
TYJOB_CRD = Path(__file__).parents[2] / "crds" / "tyjob.yaml"


def spec() -> JobSpec:
    return World().job("ppo", workers=[("actors", 3, shape(cpu=1))]).valid_spec


def decided(reason: StageReason, facts: StageFacts | None = None) -> k.StageDecided:
    return k.StageDecided("uid", 1, 0, Stage.FAILED, reason, facts)


@pytest.mark.parametrize("reason", StageReason)
def test_every_reason_has_a_sentence_whatever_its_facts_are(reason: StageReason) -> None:
    for kind in facts_of(reason):
        said = stage_text(decided(reason, None if kind is NoneType else filled(kind)))
        assert len(said.split()) > 2, "a sentence, and not the reason alone"


def test_each_kind_of_facts_belongs_to_a_reason() -> None:
    kinds = {kind for reason in FACTS for kind in facts_of(reason)} - {NoneType}
    assert kinds == {*get_args(StageFacts)} - {AdoptedMessage}


def test_the_message_of_an_adopted_status_is_shown_as_it_was() -> None:
    for reason in (StageReason.OTHER, StageReason.LEADER_FAILED):
        assert stage_text(decided(reason, AdoptedMessage("as it was said"))) == "as it was said"


def test_replaced_workers_are_named_by_their_set_with_why_the_first_of_each_kind_ended() -> None:
    taint = Taint("gpu", "broken", "NoExecute")
    causes = (
        FailedPods(k.Slot(1, 0), 1, PodEnd("OOMKilled")),
        LostPods(k.Slot(1, 1), 3, NodeLeft("n1", Tainted(taint))),
        PodsOverLimit(k.Slot(2, 1), 1, NodeLeft("n2")),
    )
    troubles = [LostPods(k.Slot(1, 2), 1, NodeLeft("n3", of)) for of in NodeTrouble]
    assert [replaced_text((of,), spec()).partition(": lost: ")[2] for of in troubles] == [
        "actors 2 (node n3 is gone)", "actors 2 (node n3 is not ready)", "actors 2 (node n3 has no room for it)",
    ]  # fmt: skip
    assert replaced_text(causes, spec()) == (
        "workers replaced or given up: failed: actors 0 (OOMKilled); "
        "lost: actors 1 and 2 more (node n1 has the taint gpu=broken:NoExecute); given up: group 2 1 (node n2)"
    )
    assert replaced_text((), spec()) == ""
    over = (PodsOverLimit(k.Slot(1, 0), 4, PodEnd("Error")), OthersOfGroup(k.Slot(1, 4), 2))
    assert replaced_text(over, spec()) == (
        "workers given up: actors 0 and 3 more (Error); 2 other workers of actors in the same worker groups"
    )


@pytest.mark.parametrize(
    ("ended", "words", "text"),
    [
        (None, "Evicted", "Evicted"),
        (ContainerEnd("main", 1), "Error", "exit code 1 of container main"),
        (ContainerEnd("main", 1, reason="Error"), "Error", "exit code 1 of container main"),
        (ContainerEnd("main", 137, reason="OOMKilled"), "OOMKilled",
         "OOMKilled, exit code 137 (SIGKILL) of container main"),
        (ContainerEnd("main", 139, reason="Error", message="boom"), "Error",
         "exit code 139 (SIGSEGV) of container main: boom"),
        (ContainerEnd("main", 0, signal=15), "", "exit code 0 (SIGTERM) of container main"),
        (ContainerEnd("main", 255, reason="Error"), "Error", "exit code 255 of container main"),
        (ContainerEnd("main", 137, reason="Error"), "DisruptionTarget: DeletionByPodGC",
         "DisruptionTarget: DeletionByPodGC; exit code 137 (SIGKILL) of container main"),
    ],
)  # fmt: skip
def test_a_failure_names_exit_code_signal_reason_and_what_the_container_said(
    ended: ContainerEnd | None, words: str, text: str
) -> None:
    assert failure_text(ended, words) == text
    facts = LeaderRestarts(PodEnd(words, ended), 1, RestartLimit(3, ""), window_s=0)
    assert stage_text(decided(StageReason.LEADER_FAILED, facts)) == (f"the leader failed ({text}); restart 1 of 3")
    cause = FailedPods(k.Slot(1, 0), 1, PodEnd(words, ended))
    assert replaced_text((cause,), spec()) == f"workers replaced: failed: actors 0 ({text})"


def test_the_documents_table_of_stages_is_the_one_that_controllers_decide_by() -> None:
    rows = STAGES.read_text().partition("| from | reason |")[2].partition("\n\n")[0].splitlines()[2:]
    told: set[tuple[str, str]] = set()
    for stages, reasons, _, to in (row.strip("|").split("|") for row in rows):
        found = [*ACTIVE] if stages.strip() == "any" else [stage.strip() for stage in stages.split(",")]
        told.update((stage, reason) for stage in found for reason in re.findall(r"`(\w+)`", reasons))
        for stage, reason in ((stage, reason) for stage in found for reason in re.findall(r"`(\w+)`", reasons)):
            assert to.strip().startswith(TRANSITIONS[Stage(stage), StageReason(reason)])
    assert told == {(str(stage), str(reason)) for stage, reason in TRANSITIONS}


# --- what is wrong with a job -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FaultKind)
def test_a_kind_of_fault_has_words_whatever_is_known_of_it(kind: FaultKind) -> None:
    assert fault_text(Fault("spec.x", kind)).startswith("spec.x: ")
    assert "{" not in fault_text(Fault("spec.x", kind, "v", "n", ("1", "2")))


def test_what_a_user_wrote_is_no_template() -> None:
    fault = Fault("spec.{name}", FaultKind.NOT_THE_LIMIT, "{value}", "{limit}", ("{0}",))
    assert fault_text(fault) == "spec.{name}: Invalid value: {limit} must be equal to its limit of {0}, here {value}"


def test_faults_stand_in_one_line_with_how_many_more_there_are() -> None:
    assert faults_text(()) == ""
    missing, further = Fault("spec.leader", FaultKind.REQUIRED), Fault("", FaultKind.FURTHER, "3")
    assert faults_text((missing, further)) == "spec.leader: Required value; and 3 more"
    allowed = Fault("spec.cleanPodPolicy", FaultKind.NOT_SUPPORTED, '"x"', limits=("All", "None"))
    assert faults_text((allowed, missing)) == (
        'spec.cleanPodPolicy: Unsupported value: "x": supported values: "All", "None"; spec.leader: Required value'
    )


def test_fields_that_an_edit_must_not_change_share_one_sentence() -> None:
    said = faults_text([Fault(field, FaultKind.IMMUTABLE) for field in ("spec.leader", "spec.workerSets")])
    assert said.startswith("spec.leader, spec.workerSets: can't be changed once the job has started or ended: delete ")
    [told] = {
        rule["message"]
        for version in yaml.safe_load(TYJOB_CRD.read_text())["spec"]["versions"]
        for rule in version["schema"]["openAPIV3Schema"].get("x-kubernetes-validations", ())
        if "has started" in rule["message"]
    }
    assert said == f"spec.leader, spec.workerSets: {told}", "kubectl apply says the same"


# --- why pods have no nodes -------------------------------------------------------------------------------------

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
K = ReasonKind

#: A reason of each kind, in words: counted over nodes, of one node, and without its numbers.
WORDS = [
    (Reason(K.NOT_READY), "not ready"),
    (Reason(K.CORDONED), "cordoned"),
    (Reason(K.TAINT, taint=Taint("infra", "yes", "NoExecute")), "taint infra=yes:NoExecute not tolerated"),
    (Reason(K.TAINT, taint=Taint("infra", "", "NoSchedule")), "taint infra:NoSchedule not tolerated"),
    (Reason(K.NODE_SELECTOR), "node selector doesn't match"),
    (Reason(K.NODE_AFFINITY), "required node affinity doesn't match"),
    (Reason(K.CLAIM_MISSING, "data"), "claim data doesn't exist: create it"),
    (Reason(K.CLAIM_DELETING, "data"), "claim data is being deleted"),
    (Reason(K.CLAIM_LOST, "data", of="pv"), "claim data has lost its volume pv"),
    (Reason(K.CLAIM_UNBOUND, "data"), "claim data has no volume yet, and its binding doesn't wait for a pod"),
    (Reason(K.CLAIM_BINDING, "data", of="pv"), "claim data is being bound to volume pv"),
    (Reason(K.CLAIM_IN_USE, "data"), "claim data is in use by another pod (ReadWriteOncePod)"),
    (Reason(K.VOLUME_MISSING, "data", of="pv"), "volume pv of claim data doesn't exist"),
    (Reason(K.CLASS_MISSING, "data", of="fast"), "StorageClass fast of claim data doesn't exist"),
    (Reason(K.NO_PROVISIONER, "data", of="fast"), "StorageClass fast of claim data has no provisioner"),
    (Reason(K.VOLUME_AFFINITY, "data"), "not reached by the volume of claim data (its node affinity)"),
    (Reason(K.VOLUME_ZONE, "data"), "not in the zone of the volume of claim data"),
    (Reason(K.CLASS_TOPOLOGY, "data"), "the volume of claim data can't be made there"),
    (Reason(K.VOLUME_LIMIT, "csi", needed=2), "attaches no more volumes of csi (at most 2)"),
    (Reason(K.RESOURCE_CLAIM_MISSING, "gpu"), "resource claim gpu doesn't exist: create it"),
    (Reason(K.RESOURCE_CLAIM_NOT_MADE, "gpu"), "resource claim gpu hasn't been made from its template yet"),
    (Reason(K.RESOURCE_CLAIM_DELETING, "gpu"), "resource claim gpu is being deleted"),
    (
        Reason(K.RESOURCE_CLAIM_BEYOND, "gpu", of="constraints"),
        "resource claim gpu asks for more than Arranger allocates (constraints)",
    ),
    (
        Reason(K.DEVICE_CLASS_MISSING, "gpu", of="big"),
        "DeviceClass big of resource claim gpu doesn't exist",
    ),
    (
        Reason(K.DEVICES_UNKNOWN, "gpu", of="resourceslices"),
        "the devices for resource claim gpu are unknown: the API server doesn't show resourceslices",
    ),
    (
        Reason(K.CLAIM_TEMPLATE_MISSING, "gpu", of="big"),
        "ResourceClaimTemplate big for resource claim gpu doesn't exist: create it",
    ),
    (Reason(K.DEVICES_OFF, "gpu"), "resource claim gpu gets no devices: the setting devices is off"),
    (Reason(K.DEVICES_ELSEWHERE, "gpu"), "not reached by the devices of resource claim gpu"),
    (
        Reason(K.INSUFFICIENT_DEVICES, "gpu", needed=2, of="big"),
        "insufficient devices for resource claim gpu (needs 2 of big)",
    ),
    (Reason(K.REFUSED_RECENTLY), "refused one of its pods recently"),
    (Reason(K.FAILED_THERE), "a worker of the set failed there repeatedly"),
    (Reason(K.HOST_PORT, "TCP", needed=80), "host port 80 taken"),
    (Reason(K.HOST_PORT, "UDP", needed=53), "host port 53/UDP taken"),
    (Reason(K.NO_AFFINITY_LABEL, ZONE), f"no label {ZONE} (affinity)"),
    (Reason(K.AFFINITY, ZONE), "not in the same zone as the pods it must join (affinity)"),
    (Reason(K.AFFINITY, HOST), "not on the same node as the pods it must join (affinity)"),
    (Reason(K.ANTI_AFFINITY, ZONE), "in the same zone as pods it must avoid (anti-affinity)"),
    (Reason(K.ANTI_AFFINITY, HOST), "on the same node as pods it must avoid (anti-affinity)"),
    (Reason(K.ANTI_AFFINITY, "rack"), "in the same rack as pods it must avoid (anti-affinity)"),
    (Reason(K.AVOIDED, ZONE), "in the same zone as pods that refuse it (anti-affinity)"),
    (Reason(K.AVOIDED, HOST), "on the same node as pods that refuse it (anti-affinity)"),
    (Reason(K.NO_SPREAD_LABEL, ZONE), f"no label {ZONE} (topology spread)"),
    (Reason(K.TOPOLOGY_SPREAD, ZONE, needed=2), "topology spread: zone would exceed maxSkew 2"),
    (Reason(K.TOPOLOGY_SPREAD, HOST, needed=1), "topology spread: node would exceed maxSkew 1"),
    (objected("Frozen", "its namespace is frozen", permit=False), "refused by Frozen: its namespace is frozen"),
    (objected("Approval", "it isn't approved", permit=True), "held back by Approval: it isn't approved"),
    (Reason(K.RESERVED), "reserved for a job ahead of it"),
    (Reason(K.OTHER_DOMAIN), "not in the domain where the quorum fits"),
    (Reason(K.REST_OF_QUORUM), "kept for the rest of the quorum"),
    (Reason(K.NO_TOPOLOGY_LABEL, "x.io/rack"), "no label x.io/rack (topology)"),
    (Reason(K.OTHER_TOPOLOGY, "x.io/rack"), "not in the rack of the pods that it belongs to"),
    (FITS, "fits"),
    (other("under maintenance"), "under maintenance"),
]
AMOUNTS = [
    (insufficient("nvidia.com/gpu", 8, 6), "nvidia.com/gpu", "needs 8", "6 free"),
    (insufficient("cpu", 1500, 1000), "cpu", "needs 1500m", "1 free"),
    (insufficient("memory", 16 << 30, 7 << 29), "memory", "needs 16Gi", "3.5Gi free"),
]


@pytest.mark.parametrize(("reason", "words"), WORDS)
def test_a_reason_without_amounts_is_put_alike_for_one_node_and_for_many(reason: Reason, words: str) -> None:
    assert (node_text(reason), reason_text(reason), kind_text(reason)) == (words, words, words)


@pytest.mark.parametrize(("reason", "resource", "needs", "free"), AMOUNTS)
def test_what_is_insufficient_is_told_with_what_is_free_on_the_node_or_at_most_on_any(
    reason: Reason, resource: str, needs: str, free: str
) -> None:
    assert node_text(reason) == f"insufficient {resource} ({needs}, {free})"
    assert reason_text(reason) == f"insufficient {resource} ({needs}, at most {free})"
    assert kind_text(reason) == f"insufficient {resource}"


@pytest.mark.parametrize(
    ("resource", "needed", "left", "words"),
    [
        ("requests.cpu", 4000, 2500, "too little requests.cpu (needs 4, 2500m left)"),
        ("limits.memory", 3 << 30, 1 << 29, "too little limits.memory (needs 3Gi, 512Mi left)"),
        ("pods", 3, -1, "too little pods (needs 3, 0 left)"),
    ],
)
def test_a_quota_is_told_with_what_it_lacks_in_the_resources_unit(
    resource: str, needed: int, left: int, words: str
) -> None:
    lack = QuotaLack("few", resource, needed, left, 1 << 40)
    reason = beyond_quota(lack)
    assert quota_text(lack) == node_text(reason) == reason_text(reason) == f"quota few has {words}"
    assert kind_text(reason) == f"quota few has too little {resource}"


def test_a_quota_that_an_empty_namespace_could_not_meet_is_told_with_its_limit() -> None:
    assert quota_text(QuotaLack("few", "requests.cpu", 4000, 1000, 2000)) == (
        "quota few has too little requests.cpu (needs 4, 1 left); even an empty namespace can't hold it (hard 2)"
    )


def test_every_kind_of_reason_has_its_words() -> None:
    told = {reason.kind for reason, *_ in (*WORDS, *AMOUNTS)}
    told |= {beyond_quota(QuotaLack("q", "pods", 1, 0, 1, limit=limit)).kind for limit in LimitKind}
    assert told == set(ReasonKind)


@pytest.mark.parametrize(
    ("limit", "queue", "words"),
    [
        (LimitKind.CAPABILITY, "rl", "queue rl has too little cpu (needs 4, 1 left of its capability 8)"),
        (LimitKind.GUARANTEES, "rl", "{} (needs 4, 1 left of the capability 8 of queue rl)"),
        (LimitKind.GUARANTEES, "", "{} (needs 4, 1 left of the 8 that the nodes offer)"),
        (LimitKind.MAX_RUNNING, "rl", "queue rl has as many jobs with nodes as its maxRunning (8000)"),
        (
            LimitKind.MIN_RESOURCES,
            "",
            "all nodes together have less cpu free than the minResources of its group (needs 4, 1 free)",
        ),
        (
            LimitKind.NON_PREEMPTIBLE,
            "rl",
            "queue rl has too little cpu for jobs that can't be preempted (needs 4, 1 left of its deserved 8: its "
            "nonPreemptible is WithinDeserved)",
        ),
        (LimitKind.MAX_WAITING, "rl", "queue rl has as many earlier waiting jobs as its maxWaiting (8000)"),
    ],
)
def test_a_limit_of_a_queue_is_told_with_the_queue_and_the_limit(limit: LimitKind, queue: str, words: str) -> None:
    lack = QuotaLack("", "cpu", 4000, 1000, 8000, queue, limit)
    assert quota_text(lack) == words.format("the guarantees of other queues leave too little cpu")


@pytest.mark.parametrize("kind", ReasonKind)
def test_a_kind_of_reason_has_words_whatever_is_known_of_it(kind: ReasonKind) -> None:
    of = Reason(kind)
    for text in (node_text(of), reason_text(of), kind_text(of)):
        assert text or kind == ReasonKind.OTHER  # which is all another package's words


def test_a_node_selector_is_named_where_it_is_known() -> None:
    unselected = Reason(K.NODE_SELECTOR)
    said = "node selector doesn't match (zone=b)"
    in_b = PodShape((), (("zone", "b"),))
    assert reason_text(unselected, in_b) == node_text(unselected, in_b) == said
    assert reason_text(Reason(K.CORDONED), in_b) == "cordoned"
    assert counts_text(((unselected, 2), (Reason(K.CORDONED), 1)), in_b) == f"0 of 3 nodes fit: 2 {said}, 1 cordoned"


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ([["zone In a b"]], "zone In a,b"),
        ([["zone In a", "gpu Exists"], ["pool NotIn x"]], "zone In a and gpu Exists, or pool NotIn x"),
        ([["zone NotIn a b c d e"]], "zone NotIn a,b,c and 2 more"),
        ([[f"k{n} Exists"] for n in range(6)], "k0 Exists, or k1 Exists, or k2 Exists, or 3 more"),
    ],
)
def test_a_required_node_affinity_is_named_where_it_is_known(terms: list[list[str]], said: str) -> None:
    split = [[one.split() for one in term] for term in terms]
    required = tuple(tuple(Requirement(key, what, tuple(values)) for key, what, *values in term) for term in split)
    text = node_text(Reason(K.NODE_AFFINITY), PodShape((), required_terms=required))
    assert text == f"required node affinity doesn't match ({said})"
    assert node_text(Reason(K.NODE_AFFINITY), PodShape((), required_terms=())) == "required node affinity doesn't match"


def test_nodes_are_counted_by_reason_and_those_that_fit_are_not_among_the_reasons() -> None:
    assert counts_text(()) == "there are no nodes"
    assert counts_text(((FITS, 3),)) == "3 of 3 nodes fit"
    counts = ((insufficient("cpu", 1000, 0), 4), (FITS, 2), (Reason(K.CORDONED), 1))
    assert counts_text(counts) == "2 of 7 nodes fit: 4 insufficient cpu (needs 1, at most 0 free), 1 cordoned"


def test_a_shortage_says_how_many_pods_fit_of_which_set_the_next_is_and_what_keeps_it_off_the_nodes() -> None:
    facts = LackOfNodes(2, 3, ((insufficient("nvidia.com/gpu", 8, 0), 4),), group="actors")
    lack = "0 of 4 nodes fit: 4 insufficient nvidia.com/gpu (needs 8, at most 0 free)"
    assert shortage_text(facts) == f"2 of 3 required pods fit; beside them, actors: {lack}"
    further = LackOfNodes(1, 2, ((Reason(K.CORDONED), 1),), further=True, group="actors")
    assert (
        shortage_text(further) == "1 of 2 further pods of actors fit; beside it, actors: 0 of 1 nodes fit: 1 cordoned"
    )
    never = LackOfNodes(0, 1, group="learner", infeasible=True)
    assert shortage_text(never) == (
        "even an empty cluster of these nodes can't hold it: 0 of 1 required pods fit; learner: there are no nodes"
    )


def test_a_shortage_of_quota_looks_at_no_node_and_names_no_set() -> None:
    lack = QuotaLack("few", "pods", 3, 1, 5)
    facts = BeyondLimit(0, 3, ((beyond_quota(lack), 1),), quota=lack)
    assert shortage_text(facts) == "0 of 3 required pods fit; quota few has too little pods (needs 3, 1 left)"


def test_a_decision_for_want_of_nodes_says_what_the_shortage_is() -> None:
    short = LackOfNodes(0, 2, ((Reason(K.CORDONED), 1),), group="learner")
    said = "0 of 2 required pods fit; learner: 0 of 1 nodes fit: 1 cordoned"
    assert stage_text(decided(StageReason.UNSCHEDULABLE, short)) == said
    never = msgspec.structs.replace(short, infeasible=True)
    assert stage_text(decided(StageReason.UNSCHEDULABLE, never)) == (
        f"even an empty cluster of these nodes can't hold it: {said}; "
        "it has been so for the whole grace period (setting infeasible_grace_s)"
    )
    incomplete = QuorumIncomplete(300, short)
    assert stage_text(decided(StageReason.QUORUM_INCOMPLETE, incomplete)) == (
        f"its quorum wasn't complete for 300 s ({said}); it gives its nodes up"
    )
