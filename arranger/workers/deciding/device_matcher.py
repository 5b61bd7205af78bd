"""The device matcher: evaluates the selectors of devices, which are CEL expressions, before a cycle needs the results.

The results are recorded as facts, so cycles and replays evaluate nothing, and another version of the library decides
nothing differently. They follow from the log alone, so it doesn't matter which process records them.

As on an API server, `device` has `driver`, `attributes` and `capacity`, both by domain and then by name; a domain that
a device doesn't have is empty. A selector that fails for a device doesn't select it. Kubernetes' functions for
quantities and versions are there, but neither optional fields (`.?`) nor `cel.bind`, which the library doesn't know.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import cel
import cel.stdlib

from arranger.events.devices import DevicesMatched, ResourceSliceSeen, SliceMatches
from arranger.model.devices import DeviceFacts, DeviceValue
from arranger.model.quantity import exact
from arranger.projections.state import State

#: So many slices share one event.
_SLICES = 256
#: What an evaluation may raise.
_FAILURES = (ValueError, TypeError, RuntimeError, KeyError, IndexError, ArithmeticError)
#: How the library says that it doesn't know a function or a variable; any other failure is the selector's.
_UNDEFINED = "Undefined "
#: The domains that a selector names.
_DOMAIN = re.compile(r"""\b(?:attributes|capacity)\s*\[\s*(?:"([^"]*)"|'([^']*)')""")
#: Quantities and versions are texts that begin with these, which no attribute has.
_QUANTITY, _VERSION = "\0quantity ", "\0version "
_SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", re.ASCII)

# A selector that fails for a device is its author's business, and no warning for the operator.
logging.getLogger("cel").setLevel(logging.ERROR)


def matches(state: State) -> list[DevicesMatched]:
    """What isn't known yet of the devices that selectors select."""
    if not state.with_devices:
        return []
    lacking = [*state.devices.unmatched()]
    selectors = sorted({selector for _, of in lacking for selector in of})
    programs, context = {selector: _compiled(selector) for selector in selectors}, _context()
    unread = {at for at, selector in enumerate(selectors) if programs[selector] is None}
    domains = {one or other for selector in selectors for one, other in _DOMAIN.findall(selector)}
    found = []
    for some in _batches([of for of, _ in lacking]):
        slices = tuple(_of_slice(of, [programs[one] for one in selectors], context, domains, unread) for of in some)
        found.append(DevicesMatched(tuple(selectors), slices, tuple(sorted(unread))))
    return found


def _batches(slices: Sequence[ResourceSliceSeen]) -> Iterable[Sequence[ResourceSliceSeen]]:
    return (slices[at : at + _SLICES] for at in range(0, len(slices), _SLICES))


def _compiled(selector: str) -> Any:
    try:
        return cel.compile(selector)
    except _FAILURES:
        return None


def _of_slice(
    of: ResourceSliceSeen, programs: Sequence[Any], context: Any, domains: set[str], unread: set[int]
) -> SliceMatches:
    """What the selectors select in a slice. Those that need what the library doesn't have are added to `unread`."""
    selected: list[list[int]] = [[] for _ in programs]
    for at, device in enumerate(of.facts.devices):
        context.add_variable("device", _device(of.facts.driver, device, domains))
        for number, program in enumerate(programs):
            if program is None:
                continue
            try:
                if program.execute(context) is True:
                    selected[number].append(at)
            except _FAILURES as problem:
                if str(problem).startswith(_UNDEFINED):
                    unread.add(number)
    return SliceMatches(of.uid, of.resource_version, tuple(tuple(one) for one in selected))


def _device(driver: str, device: DeviceFacts, domains: Iterable[str]) -> dict[str, Any]:
    attributes: dict[str, dict[str, Any]] = {domain: {} for domain in domains}
    capacity: dict[str, dict[str, Any]] = {domain: {} for domain in domains}
    for of in device.values:
        domain, _, name = of.name.rpartition("/")
        (capacity if of.kind == "quantity" else attributes).setdefault(domain, {})[name] = _value(of)
    return {"driver": driver, "attributes": attributes, "capacity": capacity, "allowMultipleAllocations": False}


def _value(of: DeviceValue) -> Any:
    try:
        return {"quantity": _quantity, "version": _semver}.get(of.kind, lambda value: value)(of.value)
    except ValueError:
        return None  # no comparison with it holds


# --- Kubernetes' functions ---------------------------------------------------------------------------------------


def _quantity(text: Any) -> str:
    return f"{_QUANTITY}{exact(text)}"


def _semver(text: Any) -> str:
    if not isinstance(text, str) or _SEMVER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no version")
    return f"{_VERSION}{text}"


def _rank(value: Any) -> tuple[Any, ...]:
    """The order of a quantity or a version among its kind."""
    if isinstance(value, str) and value.startswith(_QUANTITY):
        return (_QUANTITY, Fraction(value.removeprefix(_QUANTITY)))
    found = _SEMVER.fullmatch(value.removeprefix(_VERSION)) if isinstance(value, str) else None
    if found is None or not value.startswith(_VERSION):
        raise ValueError(f"{value!r} is neither a quantity nor a version")
    parts = [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in (found[4] or "").split(".") if part]
    return (_VERSION, int(found[1]), int(found[2]), int(found[3]), not parts, parts)


def _compare(left: Any, right: Any) -> int:
    one, other = _rank(left), _rank(right)
    if one[0] != other[0]:
        raise ValueError("a quantity and a version can't be compared")
    return (one > other) - (one < other)


def _is(parse: Callable[[Any], str]) -> Callable[[Any], bool]:
    def test(text: Any) -> bool:
        try:
            return bool(parse(text))
        except ValueError:
            return False

    return test


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "quantity": _quantity,
    "isQuantity": _is(_quantity),
    "semver": _semver,
    "isSemver": _is(_semver),
    "compareTo": _compare,
    "isGreaterThan": lambda left, right: _compare(left, right) > 0,
    "isLessThan": lambda left, right: _compare(left, right) < 0,
    "sign": lambda value: _compare(value, _quantity("0")),
    "asInteger": lambda value: int(Fraction(value.removeprefix(_QUANTITY))),
    "major": lambda value: _rank(value)[1],
    "minor": lambda value: _rank(value)[2],
    "patch": lambda value: _rank(value)[3],
    "lowerAscii": lambda text: text.lower(),
    "upperAscii": lambda text: text.upper(),
}


def _context() -> Any:
    found = cel.Context()
    cel.stdlib.add_stdlib_to_context(found)
    for name, function in _FUNCTIONS.items():
        found.add_function(name, function)
    return found
