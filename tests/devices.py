"""A world with devices: slices, classes and resource claims in one line each."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from arranger.events import devices as d
from arranger.events import kinds as k
from arranger.model.devices import (
    AllocatedDevice,
    Allocation,
    DeviceFacts,
    DeviceId,
    DeviceRequest,
    DeviceValue,
    ResourceClaimFacts,
    SliceFacts,
    on_node,
)
from arranger.model.names import own_claim_name
from arranger.model.pod import NodeTerms, PodClaims, PodOwner, PodShape
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord
from arranger.projections.observed.slot_devices import decided_for
from arranger.workers.deciding.device_matcher import matches
from tests.world import World, shape

DRIVER, CLASS = "gpu.example.com", "gpu"
#: The selector of the class `gpu`, and one for a device's model.
OF_DRIVER = f'device.driver == "{DRIVER}"'


def model(name: str) -> str:
    return f'device.attributes["{DRIVER}"].model == "{name}"'


def with_claims(*claims: str, of: PodShape | None = None) -> PodShape:
    """A pod of one core that names these resource claims; an empty one wasn't made from its template yet."""
    named = tuple((f"c{at}", claim) for at, claim in enumerate(claims))
    return msgspec.structs.replace(of or shape(cpu=1), claims=PodClaims(devices=named))


def on(pool: str, *devices: str, request: str = "gpus", terms: NodeTerms | None = None) -> Allocation:
    """These devices of a node's pool."""
    ids = tuple(AllocatedDevice(request, DeviceId(DRIVER, pool, device)) for device in devices)
    return Allocation(ids, terms if terms is not None else on_node(pool))


def with_own(*templates: str, claims: tuple[str, ...] = (), of: PodShape | None = None) -> PodShape:
    """A pod of a TYJob with a claim of its own from each of these ResourceClaimTemplates, which are its names for the
    claims too, and with these claims that others name as well."""
    named = PodClaims(devices=tuple((f"c{at}", one) for at, one in enumerate(claims)))
    own = msgspec.structs.replace(named, templates=tuple((name, name) for name in templates))
    return msgspec.structs.replace(of or shape(cpu=1), claims=own)


class DeviceWorld(World):
    """A world in which devices are allocated, with a class of all devices of one driver."""

    def __init__(self, *, matching: bool = True) -> None:
        super().__init__()
        self.with_devices()
        self._matching = matching
        self.device_class(CLASS, OF_DRIVER)

    def with_devices(self, *, on: bool = True) -> None:
        """Let a watcher with, or without, the setting `devices` claim the pods and list them."""
        pods = self.terms[k.Watched.POD] = self.say(k.claim(k.Watched.POD, "test", with_devices=on))
        for kind in (*k.OF_DEVICES, k.Watched.RESOURCE_CLAIM_TEMPLATE):
            self._watch(kind)
        self.say(k.ListingEnded(k.Watched.POD, pods, "1"))

    def device_class(self, name: str, *selectors: str) -> None:
        self.say(d.DeviceClassSeen(self.terms[k.Watched.DEVICE_CLASS], name, f"uid-{name}", self._version(), selectors))

    def devices(
        self,
        node: str,
        devices: Mapping[str, str] | Sequence[str],
        *,
        pool: str = "",
        terms: NodeTerms | None = None,
        slices: int = 1,
        generation: int = 1,
        part: str = "",
        whole: bool = True,
    ) -> None:
        """Observe a slice of a node's pool: devices by name with their models. Without a node, all those of `terms`
        reach it."""
        of = devices if isinstance(devices, Mapping) else dict.fromkeys(devices, "A100")
        found = tuple(
            DeviceFacts(name, (DeviceValue(f"{DRIVER}/model", "string", model),), whole) for name, model in of.items()
        )
        facts = SliceFacts(DRIVER, pool or node, generation, slices, node, terms, found)
        name = f"slice-{pool or node}{part}"
        self.say(d.ResourceSliceSeen(self.terms[k.Watched.RESOURCE_SLICE], name, f"uid-{name}", self._version(), facts))

    def resource_claim(
        self,
        name: str,
        *requests: DeviceRequest,
        count: int = 1,
        selectors: tuple[str, ...] = (),
        allocation: Allocation | None = None,
        reserved: tuple[str, ...] = (),
        beyond: str = "",
        deleting: bool = False,
        namespace: str = "default",
        uid: str = "",
        owner: PodOwner | None = None,
        entry: str = "",
    ) -> None:
        """Observe a claim, of so many devices of the class `gpu` unless it has other requests."""
        asked = requests or (DeviceRequest("gpus", CLASS, selectors, count),)
        facts = ResourceClaimFacts(asked, beyond, deleting, allocation, reserved, owner, entry)
        term = self.terms[k.Watched.RESOURCE_CLAIM]
        self.say(d.ResourceClaimSeen(term, namespace, name, uid or f"uid-{name}", self._version(), facts))

    def resource_claim_gone(self, name: str, *, uid: str = "") -> None:
        term = self.terms[k.Watched.RESOURCE_CLAIM]
        self.say(k.ObjectGone(k.Watched.RESOURCE_CLAIM, term, "default", name, uid or f"uid-{name}"))

    def template(
        self, name: str, *requests: DeviceRequest, count: int = 1, selectors: tuple[str, ...] = (), beyond: str = ""
    ) -> None:
        """Observe a ResourceClaimTemplate, the same way."""
        facts = ResourceClaimFacts(requests or (DeviceRequest("gpus", CLASS, selectors, count),), beyond)
        term = self.terms[k.Watched.RESOURCE_CLAIM_TEMPLATE]
        self.say(d.ResourceClaimTemplateSeen(term, "default", name, f"uid-{name}", self._version(), facts))

    def template_gone(self, name: str) -> None:
        term = self.terms[k.Watched.RESOURCE_CLAIM_TEMPLATE]
        self.say(k.ObjectGone(k.Watched.RESOURCE_CLAIM_TEMPLATE, term, "default", name, f"uid-{name}"))

    def own_claim(self, job: JobRecord, slot: SlotKey, entry: str, **facts: Any) -> str:
        """Observe the claim of a slot's pod, with the devices that were decided for it unless others are given; returns
        its name."""
        owner, name = job.owner_of(slot), own_claim_name(job.pod_name(slot), entry)
        decided = decided_for(self.state, job, slot, entry)
        facts = {"allocation": decided.allocation if decided is not None else None, **facts}
        self.resource_claim(name, owner=owner, entry=entry, uid=f"uid-{name}", **facts)
        return name

    def cycle(self) -> tuple[k.Event, ...]:
        if self._matching and (found := matches(self.state)):
            self.say(*found)
        return super().cycle()

    def claiming(self, name: str, *claims: str, **asked: object) -> JobRecord:
        """A pod to place that names these resource claims."""
        return self.pod_to_place(name, of=with_claims(*claims), **asked)  # type: ignore[arg-type]

    def decided(self, claim: str) -> Allocation | None:
        """The devices that were decided for a claim."""
        found = self.state.devices.decided.get(f"uid-{claim}")
        return found.decided.allocation if found is not None else None
