"""Asks both sides which nodes they accept: kube-scheduler's filters through `main.go`, and Arranger's own."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arranger.events import kinds as k
from arranger.kube import devices, translate, volumes
from arranger.model.reasons import FITS
from arranger.projections.jobs.records import asked_record
from arranger.scheduling.cluster.neighbours import neighbour_of
from arranger.scheduling.filters.nodes import Filters
from arranger.scheduling.queues.registry import BUILT_IN
from arranger.scheduling.search.placer import Placer
from arranger.workers.deciding.device_matcher import matches
from tests.oracle.clusters import Object
from tests.world import World

_SEEN = {
    "Node": (k.Watched.NODE, translate.node_seen),
    "Namespace": (k.Watched.NAMESPACE, translate.namespace_seen),
    "PersistentVolumeClaim": (k.Watched.CLAIM, volumes.claim_seen),
    "PersistentVolume": (k.Watched.VOLUME, volumes.volume_seen),
    "StorageClass": (k.Watched.STORAGE_CLASS, volumes.storage_class_seen),
    "CSINode": (k.Watched.CSI_NODE, volumes.csi_node_seen),
    "ResourceSlice": (k.Watched.RESOURCE_SLICE, devices.resource_slice_seen),
    "DeviceClass": (k.Watched.DEVICE_CLASS, devices.device_class_seen),
    "ResourceClaim": (k.Watched.RESOURCE_CLAIM, devices.resource_claim_seen),
}


class Oracle:
    """kube-scheduler's filters, in a process that answers line by line."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def refused(self, objects: Sequence[Object]) -> dict[str, str]:
        """Why each node that is refused is, by its name. Raises `ValueError` if kube-scheduler can't judge."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(objects) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if answer.get("error"):
            raise ValueError(answer["error"])
        refused: dict[str, str] = answer["refused"]
        return refused


@contextmanager
def oracle(program: Path) -> Iterator[Oracle]:
    """kube-scheduler's filters while the context lasts."""
    with subprocess.Popen(
        [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        yield Oracle(process)


def refused_by_us(objects: Sequence[Object]) -> dict[str, str]:
    """The same by Arranger's filters, from what a watcher would observe of these objects."""
    world = World()
    pods = world.terms[k.Watched.POD] = world.say(k.claim(k.Watched.POD, "test", with_volumes=True, with_devices=True))
    for kind in (*k.OF_VOLUMES, *k.OF_DEVICES):
        world._watch(kind)
    world.say(k.ListingEnded(k.Watched.POD, pods, "1"))
    world.watch_namespaces()
    uid = ""
    for one in objects:
        if one["kind"] == "Pod":
            seen = translate.pod_seen(
                one, world.terms[k.Watched.POD], ("arranger",), with_volumes=True, with_devices=True
            )
            world.say(seen)
            uid = seen.uid
        else:
            kind, translated = _SEEN[one["kind"]]
            world.say(translated(one, world.terms[kind]))
    if matched := matches(world.state):
        world.say(*matched)
    job = world.state.jobs[asked_record(world.state.pods[uid])]
    group = len(job.valid_spec.groups) - 1  # behind the leader that it doesn't have
    view, shape = Placer(world.state, world.config, BUILT_IN).view, job.valid_spec.groups[group].shape
    filters, pod = Filters(view, BUILT_IN.filters), neighbour_of(job, group)
    found = {name: filters.refusal(shape, row, pod) for row, name in enumerate(view.names)}
    room = dict(zip(view.names, filters.room(shape, pod).tolist(), strict=True))
    assert all((room[name] > 0) == (reason == FITS) for name, reason in found.items())
    return {name: str(reason) for name, reason in found.items() if reason != FITS}


#: kube-scheduler refuses a node if it looks at a device for which a selector fails, and Arranger takes other devices
#: (docs/scope.md). At which devices it looks depends on their order.
_FAILED_SELECTOR = "CEL runtime error"


@dataclass(frozen=True)
class Compared:
    """What both sides say of a cluster. `differences` has by node why each side refuses it, empty if it accepts;
    `plugins` counts the nodes by the plugin of kube-scheduler that refuses them. `justified` are further nodes on which
    both differ as docs/scope.md says."""

    nodes: int
    plugins: Mapping[str, int]
    differences: Mapping[str, tuple[str, str]]
    justified: int


def compare(scheduler: Oracle, objects: Sequence[Object]) -> Compared:
    """Ask both sides. Raises `ValueError` if kube-scheduler can't judge."""
    theirs, ours = scheduler.refused(objects), refused_by_us(objects)
    names = [one["metadata"]["name"] for one in objects if one["kind"] == "Node"]
    differing = {
        name: (theirs.get(name, ""), ours.get(name, "")) for name in names if (name in theirs) != (name in ours)
    }
    justified = [name for name, (why, our_why) in differing.items() if _FAILED_SELECTOR in why and not our_why]
    rest = {name: why for name, why in differing.items() if name not in justified}
    return Compared(len(names), Counter(why.partition(":")[0] for why in theirs.values()), rest, len(justified))


def smaller(scheduler: Oracle, objects: Sequence[Object]) -> list[Object]:
    """As few of these objects as still differ, for people to read; the last one stays."""
    found = list(objects)
    for one in objects[:-1]:
        rest = [each for each in found if each is not one]
        if any(each["kind"] == "Node" for each in rest) and compare(scheduler, rest).differences:
            found = rest
    return found
