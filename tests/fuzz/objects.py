"""Fuzzed TYJobs: what users, generators and broken clients might send, drawn from a seed.

Half begin as a row of the table of good jobs, half as a job whose templates are drawn from the schema of pods; all but
a few are then changed in one to four places. The envelope stays what every API server asks of any object.
"""

import copy
import json
import random
import re
from collections.abc import Callable
from typing import Any

from arranger.model.schema import definitions
from tests.unit.tyjob_table import GOOD, Object, template, tyjob

#: A text of this many characters fits into an API server's limit of a request, with room for the rest.
HUGE_TEXT = 1_400_000

_NAMES = ("a", "main", "data", "job", "learner", "actors", "x" * 63, "0", "a-b", "metadata", "spec", "name", "")
_JOB_NAMES = ("a.b", "0", "j" * 49, "j" * 50, "j" * 200, "a-b")
_TEXTS = (
    "", " ", "a", "A", "-", "a.b", "a/b", "a\n", "\u0000", "\u202eabc", "ß", "日本語", "🙂" * 20, "x" * 64, "x" * 254,
    "None", "null", "true", "5", "-1", "1e3", "0x10", "500m", "1Gi", "1.5", "'; drop table jobs; --", "${HOME}", "%s%n",
    "{{ .Values.x }}", "Always", "OnFailure", "cpu", "nvidia.com/gpu", "arranger.dev/job", "Exists", "In", "١٢",
)  # fmt: skip
_NUMBERS = (
    0, 1, -1, 2, 10, 11, 64, 255, 10_000, 10_001, 65_535, 65_536, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**53,
    2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**30, 0.5, 1.0, -0.0, 1e300, 5e-324, 2.5,
)  # fmt: skip


def fuzzed(chance: random.Random) -> Object:
    """One TYJob as JSON; most are wrong somewhere, some are right."""
    job = copy.deepcopy(chance.choice(GOOD).tyjob) if chance.random() < 0.5 else _drawn(chance)
    for _ in range(chance.choice((0, 1, 1, 1, 1, 2, 3, 4))):
        chance.choices(_CHANGES, _WEIGHTS)[0](chance, job)
    job["metadata"] = {"name": chance.choice(_JOB_NAMES) if chance.random() < 0.03 else "job"}
    if chance.random() < 0.002:
        _put(chance, job, "x" * HUGE_TEXT)
    return job


def as_stored(job: Object) -> Object:
    """A job with 2.0 written as 2, as an API server stores it, whatever its rules make of 2.0 on the way."""
    text = json.dumps(job)
    stored: Object = json.loads(text, parse_float=_number)
    return stored if _FRACTION.search(text) else job


#: What a float looks like, and some texts that are none.
_FRACTION = re.compile(r"\d(\.|e)")


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


def _drawn(chance: random.Random) -> Object:
    job = tyjob()
    spec = job["spec"]
    spec["leader"]["template"] = _template(chance)
    spec["workerSets"] = [
        {"name": f"set{number}", "counts": chance.choice((1, 1, 2, 5, 10_000)), "template": _template(chance)}
        for number in range(chance.choice((0, 1, 1, 2)))
    ]
    spec["minWorkersNum"] = chance.choice((0, 0, 1)) if spec["workerSets"] else 0
    if spec["workerSets"] and chance.random() < 0.3:
        spec["replicas"] = chance.choice((1, 3, 0, 10_000))
    if chance.random() < 0.1:
        spec["scaledSet"] = chance.choice(("set0", "set1"))
    if chance.random() < 0.5:
        spec["volumes"] = [like(chance, "Volume") for _ in range(chance.randrange(3))]
    return job


def _template(chance: random.Random) -> Object:
    drawn: Object = template(cpu="1")
    pod = like(chance, "PodSpec", chosen=chance.uniform(0.01, 0.12))
    if chance.random() < 0.7:  # else nearly all would be refused for their containers
        pod["containers"] = drawn["spec"]["containers"]
    if chance.random() < 0.9:
        pod |= {"nodeName": "", "schedulerName": ""}
    drawn["spec"] = pod
    if chance.random() < 0.3:
        drawn["metadata"] = like(chance, "ObjectMeta")
    return drawn


def like(chance: random.Random, definition: str, *, chosen: float = 0.3) -> Any:
    """A value that has the types of a definition, mostly; each optional field is there with the chance `chosen`."""
    return _of(chance, definitions()[definition], chosen, 0)


def _of(chance: random.Random, schema: Any, chosen: float, depth: int) -> Any:
    if "$ref" in schema:
        schema = definitions()[schema["$ref"]]
    if schema.get("x-kubernetes-int-or-string"):
        return chance.choice((1, "1", "500m", "1Gi", 8080, "web"))
    kind = schema["type"]
    if kind == "object" and "properties" in schema:
        required = schema.get("required", ())
        names = [name for name in schema["properties"] if name in required or chance.random() < chosen / (1 + depth)]
        most = schema.get("maxProperties", len(names))
        return {name: _of(chance, schema["properties"][name], chosen, depth + 1) for name in names[:most]}
    if kind == "object":
        names = chance.sample(("a", "b", "cpu", "memory"), chance.randrange(3))
        return {name: _of(chance, schema["additionalProperties"], chosen, depth + 1) for name in names}
    if kind == "array":
        return [_of(chance, schema["items"], chosen, depth + 1) for _ in range(chance.choice((0, 1, 1, 2)))]
    if kind == "integer":
        return chance.choice((schema.get("minimum", 0), 1, 30))
    if kind == "boolean":
        return chance.random() < 0.5
    return chance.choice(schema["enum"]) if "enum" in schema else chance.choice(("a", "b", "c", "d", "/a", ""))


# --- changes -----------------------------------------------------------------------------------------------


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every (object or list, key or position) below a value."""
    if isinstance(value, dict):
        found += [(value, name) for name in value]
        for part in value.values():
            _places(part, found)
    elif isinstance(value, list):
        found += [(value, position) for position in range(len(value))]
        for part in value:
            _places(part, found)
    return found


def _place(chance: random.Random, job: Object) -> tuple[Any, Any]:
    places = _places(job.get("spec"), []) or [(job, "spec")]
    return chance.choice(places) if chance.random() < 0.99 else (job, "spec")


def _put(chance: random.Random, job: Object, value: Any) -> None:
    target, key = _place(chance, job)
    target[key] = value


def junk(chance: random.Random, depth: int = 0) -> Any:
    """Any JSON."""
    draw = chance.random()
    if draw < 0.15:
        return None
    if draw < 0.25:
        return chance.random() < 0.5
    if draw < 0.5:
        return chance.choice(_NUMBERS)
    if draw < 0.75 or depth > 3:
        return chance.choice(_TEXTS)
    if draw < 0.87:
        return [junk(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {chance.choice(_NAMES + _TEXTS): junk(chance, depth + 1) for _ in range(chance.randrange(4))}


def _replace(chance: random.Random, job: Object) -> None:
    _put(chance, job, junk(chance))


def _remove(chance: random.Random, job: Object) -> None:
    target, key = _place(chance, job)
    if isinstance(target, list) or key in target:
        del target[key]


def _add(chance: random.Random, job: Object) -> None:
    target, _ = _place(chance, job)
    if isinstance(target, dict):
        target[chance.choice(_NAMES + _TEXTS)] = junk(chance)
    else:
        target.append(junk(chance))


def _double(chance: random.Random, job: Object) -> None:
    target, key = _place(chance, job)
    if isinstance(target, list):
        target += [copy.deepcopy(target[key]) for _ in range(chance.choice((1, 1, 70)))]


def _move(chance: random.Random, job: Object) -> None:
    """A part of the job stands somewhere else too."""
    source, key = _place(chance, job)
    if isinstance(source, list) or key in source:
        _put(chance, job, copy.deepcopy(source[key]))


def _rename(chance: random.Random, job: Object) -> None:
    """A typing error in a field's name."""
    target, key = _place(chance, job)
    if isinstance(target, dict) and isinstance(key, str) and key in target:
        cut = chance.randrange(len(key)) if key else 0
        target[chance.choice((key[:cut] + key[cut + 1 :], key + "s", key.upper(), f" {key}"))] = target.pop(key)


def _retype(chance: random.Random, job: Object) -> None:
    """What a user writes for a value: quoted, unquoted, alone for a list."""
    target, key = _place(chance, job)
    value = target.get(key) if isinstance(target, dict) else target[key]
    target[key] = chance.choice((str(value)[:100], [value], {"value": value}, {"name": value}))


def _nest(chance: random.Random, job: Object) -> None:
    value: Any = junk(chance)
    for _ in range(chance.choice((3, 30, 100))):
        value = [value] if chance.random() < 0.5 else {chance.choice(_NAMES): value}
    _put(chance, job, value)


def _enlarge(chance: random.Random, job: Object) -> None:
    """Numbers of workers and sets at and beyond the bounds."""
    spec = job.get("spec")
    if not isinstance(spec, dict):
        return
    fields = (
        "minWorkersNum",
        "replicas",
        "restartLimit",
        "priority",
        "activeDeadlineSeconds",
        "expectedRuntimeSeconds",
    )
    spec[chance.choice(fields)] = chance.choice(_NUMBERS)
    sets = spec.get("workerSets")
    if isinstance(sets, list) and sets and isinstance(sets[0], dict):
        sets[0][chance.choice(("counts", "minCount", "groupSize"))] = chance.choice(
            (10_000, 10_001, 9_999, 0, -5, 2**31, 10**30)
        )
    for each in sets if isinstance(sets, list) else ():
        if isinstance(each, dict) and chance.random() < 0.3:
            each["rendezvous"] = {"scope": chance.choice(("Set", "Job", "Group")), "membersFile": True}
            each["rendezvous"] |= {"port": chance.choice((29500, 1, 0, 65536))} if chance.random() < 0.5 else {}
    for each in [spec, *sets] if isinstance(sets, list) else [spec]:
        if isinstance(each, dict) and chance.random() < 0.2:
            each["topology"] = {"levels": chance.choice((["a"], ["a.b/c", "d"], ["a", "a"], ["/"], []))}
            each["topology"] |= {"within": chance.choice(("Job", "Set", "Group", ""))} if chance.random() < 0.5 else {}


def _draw(chance: random.Random, job: Object) -> None:
    """A part drawn from the schema of pods, in any place."""
    _put(chance, job, like(chance, chance.choice(sorted(definitions())), chosen=0.4))


_CHANGES: tuple[Callable[[random.Random, Object], None], ...] = (
    _replace, _remove, _add, _double, _move, _rename, _retype, _nest, _enlarge, _draw,
)  # fmt: skip
_WEIGHTS = (6, 3, 3, 2, 2, 3, 3, 1, 2, 3)
