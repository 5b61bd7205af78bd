"""Quantities: Kubernetes' notation, whole numbers of a unit, rounded up."""

from decimal import ROUND_CEILING, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from arranger.model.quantity import MAX_AMOUNT, QuantityError, amount, amount_text, quantity

SUFFIXES = ["n", "u", "m", "", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi", "e3", "E-2", "e+1"]


@pytest.mark.parametrize(
    ("resource", "quantity", "expected"),
    [
        ("cpu", "2", 2000),
        ("cpu", 2, 2000),
        ("cpu", "500m", 500),
        ("cpu", "0.1", 100),
        ("cpu", ".5", 500),
        ("cpu", "2.", 2000),
        ("cpu", "1u", 1),
        ("cpu", "100u", 1),
        ("cpu", "1500u", 2),
        ("cpu", "1k", 1_000_000),
        ("memory", "16Gi", 17_179_869_184),
        ("memory", "1.5Gi", 1_610_612_736),
        ("memory", "128974848", 128_974_848),
        ("memory", "129e6", 129_000_000),
        ("memory", "129M", 129_000_000),
        ("memory", "128974848000m", 128_974_848),
        ("memory", "1E", MAX_AMOUNT),
        ("memory", "1E3", 1000),
        ("memory", "1500m", 2),
        ("nvidia.com/gpu", "8", 8),
        ("nvidia.com/gpu", 8, 8),
        ("ephemeral-storage", "+1Ti", 1 << 40),
        ("cpu", "-1", -1000),
        ("cpu", "-1500u", -1),
        ("cpu", "0", 0),
        ("cpu", "0n", 0),
    ],
)
def test_a_quantity_counts_in_its_resources_unit(resource: str, quantity: object, expected: int) -> None:
    assert amount(resource, quantity) == expected


NO_QUANTITIES = ["", ".", "m", "two", "1 Gi", " 1", "1\n", "4GB", "1K", "1ki", "1e", "1e1.5", "--1", "1,5", "٣", "0x10"]


@pytest.mark.parametrize("quantity", [*NO_QUANTITIES, "Gi", "+", "1e3Gi", "1" * 65, None, True, 0.5, [], {}], ids=repr)
def test_what_is_no_quantity_is_refused(quantity: object) -> None:
    with pytest.raises(QuantityError, match="not a quantity"):
        amount("cpu", quantity)


@given(
    st.decimals(min_value=0, max_value=10**6, allow_nan=False, allow_infinity=False, places=4),
    st.sampled_from(SUFFIXES),
    st.sampled_from(["cpu", "memory"]),
)
def test_every_quantity_is_what_the_client_library_parses_rounded_up_to_the_unit(
    number: Decimal, suffix: str, resource: str
) -> None:
    scale = 1000 if resource == "cpu" else 1
    exact = parse_quantity(f"{number}{suffix}") * scale
    expected = min(int(exact.to_integral_value(rounding=ROUND_CEILING)), MAX_AMOUNT)
    assert amount(resource, f"{number}{suffix}") == expected


@pytest.mark.parametrize("quantity", ["1e999999999", "9" * 64, "1Ei", 10**300])
def test_a_huge_quantity_counts_as_the_largest(quantity: object) -> None:
    assert amount("memory", quantity) == MAX_AMOUNT


def test_a_tiny_quantity_still_counts() -> None:
    assert amount("memory", "1e-999999999") == 1


@given(st.sampled_from(["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu"]), st.integers(0, MAX_AMOUNT))
def test_an_amount_is_written_so_that_it_is_read_back_exactly(resource: str, value: int) -> None:
    assert amount(resource, quantity(resource, value)) == value


@pytest.mark.parametrize(
    ("resource", "value", "text"),
    [
        ("cpu", 0, "0"),
        ("cpu", 1500, "1500m"),
        ("cpu", 64_000, "64"),
        ("memory", 0, "0"),
        ("memory", 1000, "1000"),
        ("memory", 1536 << 20, "1536Mi"),
        ("memory", 1 << 40, "1Ti"),
        ("hugepages-2Mi", 4 << 20, "4Mi"),
        ("nvidia.com/gpu", 1024, "1024"),
        ("pods", 110, "110"),
    ],
)
def test_an_amount_is_written_as_kubernetes_writes_it(resource: str, value: int, text: str) -> None:
    assert quantity(resource, value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(250, "250m"), (9_500, "9500m"), (10_000, "10"), (10_001, "10.001"), (239_833, "239.833"), (15_890, "15.89")],
)
def test_many_processors_are_shown_in_cores_exactly(value: int, text: str) -> None:
    assert amount_text("cpu", value) == text and amount("cpu", text) == value
