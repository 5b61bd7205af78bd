"""Invalid TYJobs that exist nevertheless: they are older than a schema, or the server has none."""

import copy
import random
from typing import Any

from arranger.kube.cluster import Object

#: Values that replace valid ones.
JUNK: tuple[Any, ...] = (
    None, True, -1, 0, 3, 2**31, 10**18, 1.5, "", " ", "x" * 300, "Ünïcode\x00", "1Gi", "-5", "1e30", "0", [], {},
    [None], {"a": 1}, [[]], {"": ""}, ["x"], {"name": "c"}, "default", "learner",
)  # fmt: skip
#: Almost the largest size of an object.
LARGE_BYTES = 1_400_000


def wild(chance: random.Random, tyjob: Object) -> Object:
    """A TYJob in whose spec up to three values are missing, duplicated or replaced by junk."""
    for _ in range(chance.randrange(1, 4)):
        # Durations of simulated pods stay: a pod that takes 1e30 s to start would never settle.
        spots = [spot for spot in _spots(tyjob["spec"]) if not str(spot[1]).endswith("-seconds")]
        if not spots:
            break
        parent, key = chance.choice(spots)
        act = chance.randrange(4)
        if act == 0:
            del parent[key]
        elif act == 1 and isinstance(parent, list):
            parent.append(parent[key])
        elif act == 2 and isinstance(parent, dict):
            parent[f"{key}x"] = parent.pop(key)
        else:
            parent[key] = copy.deepcopy(chance.choice(JUNK))  # a copy: it may be changed in turn, and seeds share it
    return tyjob


def _spots(value: Any) -> Any:
    """Every (container, key) below a value."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _spots(value[key])


def large(tyjob: Object) -> Object:
    """A TYJob near the API server's size limit, most of it in the environment of the leader or of the first workers."""
    group = tyjob["spec"].get("leader") or tyjob["spec"]["workerSets"][0]
    container = group["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "BLOB", "value": "x" * LARGE_BYTES}]
    return tyjob
