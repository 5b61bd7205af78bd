"""What version 1 of `Waits` said in words: each phrase becomes the reason that it was made of, and no sentence is lost.

The words here are those that were written then; they are no copy of what Arranger says today, and never change.
"""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.events.codec import decode_batch
from arranger.events.earlier_sentences import shortage_of
from arranger.events.facts import ShortageFacts
from arranger.messages.shortages import shortage_text
from arranger.model.job import PlacedPods, ScheduleState
from arranger.model.node import Taint
from arranger.model.pod import ClaimLackKind, DeviceLackKind
from arranger.model.quantity import MAX_AMOUNT, amount_text
from arranger.model.quota import QuotaLack
from arranger.model.reasons import (
    FITS,
    Reason,
    ReasonCounts,
    ReasonKind,
    beyond_quota,
    insufficient,
    most_frequent_first,
    other,
)

K = ReasonKind
HOST, ZONE, REGION = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
EMPTY_CLUSTER = "; even an empty cluster of these nodes can't hold it"


def read(*phrases: str) -> ReasonCounts:
    """The reasons of a sentence about so many phrases, a node each."""
    message = f"0 of 1 pods find room together; no node for learner: {len(phrases)} nodes: {', '.join(phrases)}"
    found = shortage_of(message, tuple((one, 1) for one in phrases), group=0, infeasible=False, quota=None)
    assert not found.sentence
    return found.reasons


def reason_of(phrase: str) -> Reason:
    """The reason that a phrase was made of."""
    ((reason, count),) = read(phrase)
    assert count == 1
    return reason


# --- phrases ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phrase", "reason"),
    [
        ("not ready", Reason(K.NOT_READY)),
        ("cordoned", Reason(K.CORDONED)),
        ("node selector doesn't match", Reason(K.NODE_SELECTOR)),
        ("required node affinity doesn't match", Reason(K.NODE_AFFINITY)),
        ("refused a pod of it recently", Reason(K.REFUSED_RECENTLY)),
        ("not in the place where the quorum fits together", Reason(K.OTHER_DOMAIN)),
        ("fit", FITS),
        ("taint infra=yes:NoExecute not tolerated", Reason(K.TAINT, taint=Taint("infra", "yes", "NoExecute"))),
        ("taint a.example/b:NoSchedule not tolerated", Reason(K.TAINT, taint=Taint("a.example/b", "", "NoSchedule"))),
        ("host port 80 taken", Reason(K.HOST_PORT, "TCP", needed=80)),
        ("host port 53/UDP taken", Reason(K.HOST_PORT, "UDP", needed=53)),
        (f"no label {ZONE} (affinity)", Reason(K.NO_AFFINITY_LABEL, ZONE)),
        (f"no label {HOST} (topology spread)", Reason(K.NO_SPREAD_LABEL, HOST)),
        ("not in the same zone as the pods it must join (affinity)", Reason(K.AFFINITY, ZONE)),
        ("not on the same node as the pods it must join (affinity)", Reason(K.AFFINITY, HOST)),
        ("in the same region as pods it must avoid (anti-affinity)", Reason(K.ANTI_AFFINITY, REGION)),
        ("on the same node as pods that refuse it (anti-affinity)", Reason(K.AVOIDED, HOST)),
        ("in the same rack as pods that refuse it (anti-affinity)", Reason(K.AVOIDED, "rack")),
        ("topology spread: zone would exceed maxSkew 3", Reason(K.TOPOLOGY_SPREAD, ZONE, needed=3)),
        ("topology spread: node would exceed maxSkew 1", Reason(K.TOPOLOGY_SPREAD, HOST, needed=1)),
        ("lack cpu (need 1500m, most free 1)", insufficient("cpu", 1500, 1000)),
        ("lack nvidia.com/gpu (need 8, most free 6)", insufficient("nvidia.com/gpu", 8, 6)),
        ("lack memory (need 16Gi, most free 3.5Gi)", insufficient("memory", 16 << 30, 7 << 29)),
        ("lack pods (need 1, most free 0)", insufficient("pods", 1, 0)),
    ],
)
def test_a_phrase_becomes_the_reason_that_it_was_made_of(phrase: str, reason: Reason) -> None:
    assert reason_of(phrase) == reason


amounts = st.integers(0, MAX_AMOUNT) | st.integers(0, 60).flatmap(
    lambda bits: st.integers(0, min(1 << bits, MAX_AMOUNT))
)


@given(st.sampled_from(("memory", "ephemeral-storage", "hugepages-2Mi", "cpu", "nvidia.com/gpu")), amounts, amounts)
def test_an_amount_is_read_out_of_a_phrase_as_a_filter_says_it_today(resource: str, need: int, most: int) -> None:
    phrase = f"lack {resource} (need {amount_text(resource, need)}, most free {amount_text(resource, most)})"
    assert reason_of(phrase) == insufficient(resource, need, most)


@pytest.mark.parametrize(
    "phrase",
    [
        "under maintenance",
        "no licence for product (need 1, most free 0)",
        "lack of trust",
        "lack cpu (need plenty, most free 0)",
        "lack cpu (need 1, most free 0) today",
        "lacks cpu (need 1, free 0)",
        "Cordoned",
        "cordoned by us",
        "host port http taken",
        "in the same zone as my friends",
        "taint it",
        "",
    ],
)
def test_a_phrase_that_is_not_known_is_kept_as_another_packages_words(phrase: str) -> None:
    assert reason_of(phrase) == other(phrase)


@given(st.text(max_size=60))
def test_whatever_a_phrase_is_it_is_kept_as_it_was_or_known(phrase: str) -> None:
    found = reason_of(phrase)
    assert found == other(phrase) or found.kind != ReasonKind.OTHER


# --- sentences --------------------------------------------------------------------------------------------------


def _topology(key: str) -> str:
    return "node" if key == HOST else key.rpartition("/")[2]


def _within(key: str) -> str:
    return f"{'on' if key == HOST else 'in'} the same {_topology(key)} as"


def _lack(of: Reason) -> str:
    return f"lack {of.name} (need {amount_text(of.name, of.needed)}, most free {amount_text(of.name, of.free)})"


def _taint(of: Reason) -> str:
    assert of.taint is not None
    value = f"={of.taint.value}" if of.taint.value else ""
    return f"taint {of.taint.key}{value}:{of.taint.effect} not tolerated"


#: How version 1 put each kind of reason.
PHRASES: dict[ReasonKind, Callable[[Reason], str]] = {
    K.NOT_READY: lambda _: "not ready",
    K.CORDONED: lambda _: "cordoned",
    K.TAINT: _taint,
    K.NODE_SELECTOR: lambda _: "node selector doesn't match",
    K.NODE_AFFINITY: lambda _: "required node affinity doesn't match",
    K.REFUSED_RECENTLY: lambda _: "refused a pod of it recently",
    K.HOST_PORT: lambda of: f"host port {of.needed}{'' if of.name == 'TCP' else f'/{of.name}'} taken",
    K.NO_AFFINITY_LABEL: lambda of: f"no label {of.name} (affinity)",
    K.AFFINITY: lambda of: f"not {_within(of.name)} the pods it must join (affinity)",
    K.ANTI_AFFINITY: lambda of: f"{_within(of.name)} pods it must avoid (anti-affinity)",
    K.AVOIDED: lambda of: f"{_within(of.name)} pods that refuse it (anti-affinity)",
    K.NO_SPREAD_LABEL: lambda of: f"no label {of.name} (topology spread)",
    K.TOPOLOGY_SPREAD: lambda of: f"topology spread: {_topology(of.name)} would exceed maxSkew {of.needed}",
    K.INSUFFICIENT: _lack,
    K.OTHER_DOMAIN: lambda _: "not in the place where the quorum fits together",
    K.FITS: lambda _: "fit",
    K.OTHER: lambda of: of.words,
}


def said(facts: ShortageFacts) -> tuple[str, tuple[tuple[str, int], ...]]:
    """What version 1 recorded of these facts: its sentence, and its phrases with the numbers of nodes."""
    head = f"{facts.found} of {facts.asked} "
    head += "further pods placed" if facts.further else "pods find room together"
    if facts.quota is not None:
        lack = f"quota {facts.quota.quota} lacks {facts.quota.resource} (need {facts.quota.needed}"
        lack += f", left {max(facts.quota.left, 0)})"
        never = f"; even an empty namespace can't hold it (hard {facts.quota.hard})" if facts.quota.never else ""
        return f"{head}; {lack}{never}", ((lack, 1),)
    phrases = [(PHRASES[reason.kind](reason), count) for reason, count in facts.reasons]
    nodes = sum(count for _, count in phrases)
    counted = ", ".join(f"{count} {phrase}" for phrase, count in phrases) or "there are none"
    tail = EMPTY_CLUSTER if facts.infeasible else ""
    plural = "" if nodes == 1 else "s"
    return f"{head}; no node for {facts.group}: {nodes} node{plural}: {counted}{tail}", tuple(phrases)


names = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
keys = st.sampled_from((HOST, ZONE, REGION))
taints = st.builds(Taint, names, st.just("") | names, st.sampled_from(("NoSchedule", "NoExecute")))
reasons_drawn = st.one_of(
    st.sampled_from((K.NOT_READY, K.CORDONED, K.NODE_SELECTOR, K.NODE_AFFINITY, K.REFUSED_RECENTLY)).map(Reason),
    st.sampled_from((K.OTHER_DOMAIN, K.FITS)).map(Reason),
    taints.map(lambda taint: Reason(K.TAINT, taint=taint)),
    st.builds(lambda protocol, port: Reason(K.HOST_PORT, protocol, needed=port),
              st.sampled_from(("TCP", "UDP", "SCTP")), st.integers(1, 65_535)),
    st.builds(Reason, st.sampled_from((K.NO_AFFINITY_LABEL, K.NO_SPREAD_LABEL)), names | keys),
    st.builds(Reason, st.sampled_from((K.AFFINITY, K.ANTI_AFFINITY, K.AVOIDED)), keys),
    st.builds(lambda key, skew: Reason(K.TOPOLOGY_SPREAD, key, needed=skew), keys, st.integers(1, 99)),
    st.builds(insufficient, st.sampled_from(("cpu", "memory", "nvidia.com/gpu")), amounts, amounts),
    names.map(lambda name: other(f"says {name}, of another package")),
)  # fmt: skip
counts_drawn = st.dictionaries(reasons_drawn, st.integers(1, 3_000), max_size=6).map(most_frequent_first)
lacks = st.builds(QuotaLack, names, st.just("pods"), st.integers(1, 99), st.integers(-9, 99), st.integers(0, 99))
numbers = st.integers(0, 10_000)
shortages = st.builds(ShortageFacts, names, numbers, numbers, st.booleans(), st.booleans(), counts_drawn) | st.builds(
    lambda found, asked, further, lack: ShortageFacts(
        "", found, asked, further, reasons=((beyond_quota(lack), 1),), quota=lack
    ),
    numbers, numbers, st.booleans(), lacks,
)  # fmt: skip


@given(shortages)
def test_the_facts_of_a_sentence_are_those_that_it_was_made_of(facts: ShortageFacts) -> None:
    message, reasons = said(facts)
    assert shortage_of(message, reasons, group=3, infeasible=facts.infeasible, quota=facts.quota) == facts


def test_every_kind_of_reason_that_there_was_has_its_phrase() -> None:
    since = {
        K.REST_OF_QUORUM,
        K.FAILED_THERE,
        K.OTHER_TOPOLOGY,
        K.NO_TOPOLOGY_LABEL,
        K.CAPABILITY,
        K.GUARANTEES,
        K.MAX_RUNNING,
    }
    since |= {
        K.MAX_WAITING,
        K.MIN_RESOURCES,
        K.GROUP_CHECK,
        K.PERMIT,
        K.RESERVED,
        K.CLAIM_IN_USE,
        K.VOLUME_AFFINITY,
        K.VOLUME_ZONE,
        K.CLASS_TOPOLOGY,
        K.VOLUME_LIMIT,
        K.GROUP_CHECK,
        K.PERMIT,
        K.DEVICES_ELSEWHERE,
        K.INSUFFICIENT_DEVICES,
    }
    since |= {K(kind.value) for kind in (*ClaimLackKind, *DeviceLackKind)}
    assert PHRASES.keys() | {K.QUOTA} | since == set(ReasonKind)


def test_a_sentence_names_its_worker_set_and_how_many_pods_there_was_room_for() -> None:
    message = "2 of 3 pods find room together; no node for actors: 4 nodes: 4 lack nvidia.com/gpu (need 8, most free 0)"
    reasons = (("lack nvidia.com/gpu (need 8, most free 0)", 4),)
    found = shortage_of(message, reasons, group=1, infeasible=False, quota=None)
    assert found == ShortageFacts("actors", 2, 3, reasons=((insufficient("nvidia.com/gpu", 8, 0), 4),))


def test_a_sentence_about_further_pods_of_a_cluster_without_nodes() -> None:
    message = f"0 of 2 further pods placed; no node for actors: 0 nodes: there are none{EMPTY_CLUSTER}"
    found = shortage_of(message, (), group=1, infeasible=True, quota=None)
    assert found == ShortageFacts("actors", 0, 2, further=True, infeasible=True)


def test_a_sentence_about_a_quota_names_no_worker_set_and_its_reason_is_what_the_quota_lacks() -> None:
    lack = QuotaLack("few", "pods", 4, 1, 2)
    phrase = "quota few lacks pods (need 4, left 1)"
    message = f"0 of 4 pods find room together; {phrase}; even an empty namespace can't hold it (hard 2)"
    found = shortage_of(message, ((phrase, 1),), group=0, infeasible=False, quota=lack)
    assert found == ShortageFacts("", 0, 4, reasons=((beyond_quota(lack), 1),), quota=lack)


def test_reasons_of_equal_numbers_come_in_todays_order() -> None:
    phrases = ("fit", "taint a:NoSchedule not tolerated", "not ready", "cordoned")
    expected = most_frequent_first({reason_of(phrase): 1 for phrase in phrases})
    assert read(*phrases) == read(*reversed(phrases)) == expected


@pytest.mark.parametrize("message", ["", "superseded", "all of its pods find room", "no node for it, sorry"])
def test_a_sentence_that_is_not_known_is_kept_and_said_as_it_was(message: str) -> None:
    found = shortage_of(message, (("cordoned", 2),), group=2, infeasible=True, quota=None)
    assert (found.sentence, found.infeasible, found.reasons) == (message, True, ((Reason(K.CORDONED), 2),))
    assert (found.found, found.asked) == (0, 0)
    assert shortage_text(found) == message or not message


# --- events -----------------------------------------------------------------------------------------------------


def decoded(event: list[object]) -> k.Event:
    """An event as an earlier version wrote it."""
    (found,) = decode_batch(msgspec.msgpack.encode(["w", 1, 0, [event]]), 1).events
    return found


def test_an_earlier_reason_to_wait_is_read_with_its_facts() -> None:
    message = (
        "0 of 2 pods find room together; no node for learner: 3 nodes: 2 lack cpu (need 2, most free 1), 1 cordoned"
    )
    reasons = [["lack cpu (need 2, most free 1)", 2], ["cordoned", 1]]
    found = decoded(["Waits.1", "uid", 7, "Unscheduled", False, 0, reasons, message])
    counted = ((insufficient("cpu", 2000, 1000), 2), (Reason(K.CORDONED), 1))
    assert found == k.Waits("uid", 7, ScheduleState.UNSCHEDULED, ShortageFacts("learner", 0, 2, reasons=counted))


def test_an_earlier_reason_of_a_quota_is_read_with_what_the_quota_lacks() -> None:
    phrase = "quota few lacks pods (need 2, left 1)"
    message = f"0 of 1 further pods placed; {phrase}"
    found = decoded(["Waits.1", "u", 7, "ScheduledPartly", False, 1, [[phrase, 1]], message, ["few", "pods", 2, 1, 5]])
    lack = QuotaLack("few", "pods", 2, 1, 5)
    facts = ShortageFacts("", 0, 1, further=True, reasons=((beyond_quota(lack), 1),), quota=lack)
    assert found == k.Waits("u", 7, ScheduleState.PARTLY, facts)


def test_an_earlier_placement_is_read_without_the_sentence_that_counted_it() -> None:
    pods = [["n1", 1, [[0, 2]]]]
    found = decoded(["Placed.1", "uid", 7, 2, "ScheduledSucceed", pods, "3 pods placed on 1 node"])
    assert found == k.Placed("uid", 7, 2, ScheduleState.SUCCEED, (PlacedPods("n1", 1, ((0, 2),)),))
