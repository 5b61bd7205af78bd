"""Reasons as records: what one is about, which are of one kind, amounts as they are told, and one order for all."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arranger.model.node import Taint
from arranger.model.quantity import MAX_AMOUNT, amount_text, rounded
from arranger.model.quota import QuotaLack
from arranger.model.reasons import (
    FITS,
    Reason,
    ReasonKind,
    beyond_quota,
    insufficient,
    most_frequent_first,
    other,
)

ZONE = "topology.kubernetes.io/zone"
GPU = insufficient("nvidia.com/gpu", 8, 2)
QUOTA = beyond_quota(QuotaLack("team-a", "requests.cpu", 4000, 2000, 9000))
TAINT = Reason(ReasonKind.TAINT, taint=Taint("dedicated", "Infra", "NoSchedule"))


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (GPU, "Insufficient"),
        (GPU, "insufficient"),
        (GPU, "gpu"),
        (GPU, "NVIDIA.com"),
        (GPU, "insufficient GPU"),
        (GPU, "gpu insufficient"),
        (QUOTA, "Quota"),
        (QUOTA, "team-a"),
        (QUOTA, "quota cpu"),
        (QUOTA, "quota Team"),
        (QUOTA, "team requests.cpu"),
        (TAINT, "taint"),
        (TAINT, "dedicated"),
        (TAINT, "taint infra"),
        (TAINT, "dedicated infra"),
        (Reason(ReasonKind.NODE_SELECTOR), "NodeSelector"),
        (Reason(ReasonKind.NODE_SELECTOR), "node selector"),
        (Reason(ReasonKind.AVOIDED, ZONE), "zone"),
        (Reason(ReasonKind.HOST_PORT, "UDP", needed=53), "HostPort udp"),
        (other("no licence for the product"), "licence"),
        (other("no licence for the product"), "product licence"),
        (other("no licence for the product"), "other LICENCE"),
    ],
)
def test_a_reason_is_about_its_kind_and_what_it_names_whatever_the_case(reason: Reason, text: str) -> None:
    assert reason.about(text)


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (GPU, "cpu"),
        (GPU, "Quota"),
        (GPU, "insufficient cpu"),
        (GPU, "gpu cordoned"),
        (GPU, "suffic"),
        (GPU, "insufficient nvidia.com/gpu (needs 8, at most 2 free)"),
        (GPU, "needs"),
        (GPU, "8"),
        (QUOTA, "team-b"),
        (QUOTA, "Insufficient"),
        (TAINT, "taint gpu"),
        (Reason(ReasonKind.NODE_SELECTOR), "node affinity"),
        (Reason(ReasonKind.NODE_SELECTOR), "match"),
        (Reason(ReasonKind.CORDONED), "cordon"),
        (FITS, "free"),
        (other("no licence for the product"), "licence server"),
    ],
)
def test_a_reason_is_not_about_another_kind_another_name_or_the_words_of_its_sentence(
    reason: Reason, text: str
) -> None:
    assert not reason.about(text)


def test_reasons_are_equal_without_their_numbers_where_only_those_differ() -> None:
    assert GPU.numberless() == insufficient("nvidia.com/gpu", 1, 0).numberless() != GPU
    assert GPU.numberless() != insufficient("cpu", 8, 2).numberless()
    more = beyond_quota(QuotaLack("team-a", "requests.cpu", 1, 0, 9000))
    assert QUOTA.numberless() == more.numberless() != QUOTA
    assert QUOTA.numberless() != beyond_quota(QuotaLack("team-b", "requests.cpu", 4000, 2000, 9000)).numberless()


@pytest.mark.parametrize(
    "reason",
    [TAINT, FITS, other("words 8"), Reason(ReasonKind.HOST_PORT, "TCP", needed=80),
     Reason(ReasonKind.TOPOLOGY_SPREAD, ZONE, needed=2)],
)  # fmt: skip
def test_numbers_that_are_no_amounts_belong_to_the_kind(reason: Reason) -> None:
    assert reason.numberless() == reason


_BYTES = ("memory", "ephemeral-storage", "hugepages-1Gi")
amounts = st.integers(0, 53).flatmap(lambda bits: st.integers(0, min(1 << bits, MAX_AMOUNT)))


@given(st.sampled_from((*_BYTES, "cpu", "pods", "nvidia.com/gpu")), amounts)
def test_an_amount_is_rounded_as_it_is_told_once_and_for_all(resource: str, value: int) -> None:
    found = rounded(resource, value)
    assert rounded(resource, found) == found
    if resource in _BYTES:
        assert abs(found - value) <= value / 20 + 1
    else:
        assert found == value
    # 1048575 bytes are told as 1024Ki, and as what they are rounded to: 1Mi.
    assert amount_text(resource, found) == amount_text(resource, value).replace("1024Ki", "1Mi").replace(
        "1024Mi", "1Gi"
    ).replace("1024Gi", "1Ti")


def test_a_shortage_of_a_few_bytes_more_or_less_is_the_same_reason() -> None:
    gib = 1 << 30
    assert insufficient("memory", 16 * gib, 3 * gib) == insufficient("memory", 16 * gib + 9, 3 * gib - 9)
    assert insufficient("memory", 16 * gib, 3 * gib) != insufficient("memory", 16 * gib, 3 * gib + (gib >> 3))


def test_what_is_overdrawn_has_nothing_free() -> None:
    assert insufficient("cpu", 1000, -500) == insufficient("cpu", 1000, 0)
    lack = QuotaLack("q", "requests.memory", 4, -2, 9)
    assert beyond_quota(lack) == Reason(ReasonKind.QUOTA, "requests.memory", needed=4, free=0, quota="q")


reasons_drawn = st.sampled_from(
    (GPU, QUOTA, TAINT, FITS, other("a"), other("b"), Reason(ReasonKind.TAINT), Reason(ReasonKind.CORDONED),
     insufficient("cpu", 1, 0), insufficient("cpu", 2, 0), insufficient("cpu", 2, 1),
     Reason(ReasonKind.TAINT, taint=Taint("dedicated", "", "NoSchedule")))
)  # fmt: skip


@given(st.dictionaries(reasons_drawn, st.integers(1, 3)), st.randoms(use_true_random=False))
def test_counted_reasons_come_the_most_frequent_first_and_in_one_order(
    counts: dict[Reason, int], chance: Random
) -> None:
    found = most_frequent_first(counts)
    numbers = [count for _, count in found]
    assert dict(found) == counts and numbers == sorted(numbers, reverse=True)
    shuffled = list(counts.items())
    chance.shuffle(shuffled)
    assert most_frequent_first(dict(shuffled)) == found
