"""Quantities in Kubernetes' notation ("500m", "16Gi", "1e3", 2) as whole numbers of a resource's unit.

cpu counts in millicores, every other resource in units (bytes for memory and storage). Fractions of a unit are
rounded up, as Kubernetes does. Reference: the API convention for `resource.Quantity`.
"""

import math
import re
from fractions import Fraction
from functools import lru_cache

#: The largest distinguished amount: a TYJob or a Queue may state no more of devices, and more cpu, memory or storage
#: counts as this. It keeps sums of a cluster within 64-bit columns.
MAX_AMOUNT = 1 << 53

CPU = "cpu"

#: The form of a quantity of 0 or more; the CRD's schema has the same pattern. Exponents have two digits at most: an API
#: server that compares 1e9999999999 with another quantity computes for minutes.
PATTERN = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$"

_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?", re.ASCII)
_BINARY = {suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
#: The suffixes for display, the largest first.
_SHOWN = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
#: So many millicores and more are shown in cores.
_IN_CORES = 10_000
#: Resources measured in bytes, besides huge pages.
_BYTES = frozenset({"memory", "ephemeral-storage", "storage"})
_MAX_DIGITS = 64
_MAX_EXPONENT = 99
_INT64 = 1 << 63
#: The API server keeps a decimal of this many digits as written.
_DIGITS_KEPT = 18
_NANO = 9


class QuantityError(ValueError):
    """The text is not a quantity."""


def amount(resource: str, quantity: object) -> int:
    """The quantity in the resource's unit (cpu: millicores), rounded up, within ±`MAX_AMOUNT`.

    Raises `QuantityError` for anything else.
    """
    scale = 3 if resource == CPU else 0
    if isinstance(quantity, str):
        return _parse(quantity, scale)
    if isinstance(quantity, bool) or not isinstance(quantity, int):
        raise QuantityError(f"{quantity!r} is not a quantity: a number as in 2, or a text as in '500m', '16Gi'")
    return _bounded(quantity * 10**scale)


def quantity(resource: str, value: int) -> str:
    """An amount as Kubernetes writes it, exactly: cpu as 2 or 1500m, bytes with the largest binary suffix that fits."""
    if resource == CPU:
        return str(value // 1000) if value % 1000 == 0 else f"{value}m"
    if value and (resource in _BYTES or resource.startswith("hugepages-")):
        for suffix, factor in reversed(_BINARY.items()):
            if value % factor == 0:
                return f"{value // factor}{suffix}"
    return str(value)


def exact(quantity: int | str) -> Fraction:
    """The quantity as the API server compares it, in units (cpu: cores). Raises `QuantityError`.

    This is its value as written, unless it has more digits than the server keeps: then it is rounded up to a billionth,
    and one with a binary suffix is at most 2^63 - 1.
    """
    text = str(quantity)
    mantissa, exponent = _scanned(text)
    written = Fraction(mantissa * 10**exponent) if exponent >= 0 else Fraction(mantissa, 10**-exponent)
    if _is_kept(text):
        return written
    rounded = Fraction(math.ceil(abs(written) * 10**_NANO), 10**_NANO)
    if text.endswith("i"):
        rounded = min(rounded, Fraction(_INT64 - 1))
    return -rounded if written < 0 else rounded


def is_integer(quantity: int | str) -> bool:
    """Whether it is written as a 64-bit whole number, as in 2 or "1k", but not "1.0" or "1000m"; the same as in CEL.

    Raises `QuantityError` for anything that is not a quantity.
    """
    mantissa, exponent = _scanned(str(quantity))
    return _is_kept(str(quantity)) and exponent >= 0 and -_INT64 <= mantissa * int(10**exponent) < _INT64


def _is_kept(text: str) -> bool:
    """Whether the API server stores it as a 64-bit number and a power of ten; `text` is a quantity."""
    found = _NUMBER.fullmatch(text)
    assert found is not None
    whole, fraction, suffix = found.group(2).lstrip("0") or "0", found.group(3) or "", found.group(4) or ""
    if suffix in _BINARY:
        power = _BINARY[suffix].bit_length() - 1
        return not fraction and len(whole) + power * 3 // 10 <= 14
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    return len(whole) + len(fraction) <= _DIGITS_KEPT and exponent - len(fraction) >= -_NANO


@lru_cache(maxsize=4096)
def _parse(text: str, scale: int) -> int:
    """The text times 10**scale, rounded up."""
    mantissa, exponent = _scanned(text)
    exponent += scale
    if exponent >= 0:
        return _bounded(mantissa * 10**exponent)
    return _bounded(-(-mantissa // 10**-exponent))


def _scanned(text: str) -> tuple[int, int]:
    """Mantissa and decimal exponent of a text. Limits on digits and exponent keep a hostile text cheap."""
    found = _NUMBER.fullmatch(text)
    if found is None or len(text) > _MAX_DIGITS:
        raise QuantityError(f"{text[:_MAX_DIGITS]!r} is not a quantity: a number as in '2', '500m', '16Gi' or '1e3'")
    sign, whole, fraction, suffix = found.group(1), found.group(2), found.group(3) or "", found.group(4) or ""
    if not whole and not fraction:
        raise QuantityError(f"{text!r} is not a quantity: it has no digits")
    factor = _BINARY.get(suffix, 1)
    exponent = 0 if suffix in _BINARY else _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    exponent = max(-_MAX_EXPONENT * 2, min(_MAX_EXPONENT, exponent)) - len(fraction)
    return int(whole + fraction) * factor * (-1 if sign == "-" else 1), exponent


def _bounded(value: int) -> int:
    return max(-MAX_AMOUNT, min(MAX_AMOUNT, value))


def amount_text(resource: str, value: int) -> str:
    """An amount for display: cpu as 1500m or 2, and from 10 cores on as 239.833, because nobody counts so many in
    thousandths; bytes with a binary suffix and at most one decimal."""
    if resource == CPU:
        return quantity(resource, value) if value < _IN_CORES else f"{value / 1000:.3f}".rstrip("0").rstrip(".")
    if _counts_bytes(resource):
        for suffix, size in _SHOWN:
            if value >= size:
                return f"{value / size:.1f}".removesuffix(".0") + suffix
    return str(value)


def rounded(resource: str, value: int) -> int:
    """The value that `amount_text` shows for an amount from 0 on: bytes to a tenth of their suffix, others exactly."""
    return amount(resource, amount_text(resource, value)) if _counts_bytes(resource) else value


def _counts_bytes(resource: str) -> bool:
    return resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")
