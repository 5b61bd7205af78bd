"""ResourceSlices, DeviceClasses and ResourceClaims: what is read of them, what their selectors select, and how they
are watched."""

import time
from typing import Any

import msgspec
import pytest

from arranger.events import devices as d
from arranger.events import kinds as k
from arranger.kube.cluster import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource
from arranger.kube.devices import allocation_of, device_class_seen, resource_claim_seen, resource_slice_seen
from arranger.kube.translate import pod_seen
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
from arranger.projections.state import State
from arranger.replay.reading.describe import describe
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.store import Store
from arranger.workers.deciding.device_matcher import matches
from tests.device_objects import CONFIG, DRIVER, claim, claim_spec, device_class, slice_of
from tests.devices import CLASS, DeviceWorld, on
from tests.unit.test_pod_group_watcher import observations
from tests.unit.test_watcher import POD, watching
from tests.volumes import ZONE, within


def test_a_slice_has_its_pool_its_nodes_and_its_devices_with_full_names() -> None:
    facts = resource_slice_seen(slice_of("n1", "gpu-0"), 3).facts
    values = (
        DeviceValue(f"{DRIVER}/driverVersion", "version", "1.2.3"),
        DeviceValue(f"{DRIVER}/memory", "quantity", "80Gi"),
        DeviceValue(f"{DRIVER}/model", "string", "A100"),
    )
    assert facts == SliceFacts(DRIVER, "n1", 1, 1, "n1", None, (DeviceFacts("gpu-0", values),))
    everywhere = slice_of("n1", "gpu-0")
    del everywhere["spec"]["nodeName"]
    everywhere["spec"]["allNodes"] = True
    assert resource_slice_seen(everywhere, 3).facts.reached_from is None
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z1"]}]}
    everywhere["spec"] |= {"allNodes": None, "nodeSelector": {"nodeSelectorTerms": [term]}}
    assert resource_slice_seen(everywhere, 3).facts.reached_from == within(ZONE, "z1")


@pytest.mark.parametrize(
    "more",
    [
        {"consumesCounters": [{"counterSet": "c", "counters": {}}]},
        {"allowMultipleAllocations": True},
        {"bindsToNode": True},
        {"bindingConditions": ["ready"]},
        {"nodeName": "n2"},
        {"taints": [{"key": "broken", "effect": "NoSchedule"}]},
        {"taints": [{"key": "broken", "effect": "NoExecute"}]},
    ],
)
def test_a_device_that_cant_simply_be_given_to_one_claim_isnt_whole(more: dict[str, Any]) -> None:
    of = slice_of("n1", "gpu-0", "gpu-1")
    of["spec"]["devices"][1] |= more
    assert [device.whole for device in resource_slice_seen(of, 3).facts.devices] == [True, False]


def test_a_taint_that_only_informs_leaves_a_device_whole() -> None:
    of = slice_of("n1", "gpu-0")
    of["spec"]["devices"][0]["taints"] = [{"key": "hot", "effect": "None"}]
    assert resource_slice_seen(of, 3).facts.devices[0].whole


def test_a_class_has_its_selectors() -> None:
    assert device_class_seen(device_class(), 3).selectors == (f'device.driver == "{DRIVER}"',)


def test_a_claim_has_requests_and_later_its_devices_and_pods() -> None:
    made = claim("c", 2, expression="true")
    assert resource_claim_seen(made, 3).facts == ResourceClaimFacts((DeviceRequest("gpu", "gpu", ("true",), 2),))
    decided = on("n1", "gpu-0", request="gpu")
    made["status"] = {
        "allocation": allocation_of(decided, made, [device_class()]),
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    }
    facts = resource_claim_seen(made, 3).facts
    assert (facts.allocation, facts.reserved) == (decided, ("u",))


def test_what_is_written_of_an_allocation_says_from_where_each_configuration_is() -> None:
    devices = (AllocatedDevice("gpu", DeviceId(DRIVER, "net", "nic-0")),)
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z1"]}]}]}
    written = allocation_of(Allocation(devices, within(ZONE, "z1")), claim("c"), [device_class()])
    assert written["nodeSelector"] == selector
    assert written["devices"]["config"] == [
        {**CONFIG, "source": "FromClass", "requests": ["gpu"]},
        {**CONFIG, "source": "FromClaim"},
    ]
    plain = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": []}}}
    assert allocation_of(Allocation(devices), plain, []) == {
        "devices": {"results": [{"request": "gpu", "driver": DRIVER, "pool": "net", "device": "nic-0"}]}
    }


@pytest.mark.parametrize(
    ("exactly", "more", "beyond"),
    [
        ({"allocationMode": "All"}, {}, ""),
        ({"adminAccess": True}, {}, "adminAccess"),
        ({"capacity": {"requests": {"memory": "1Gi"}}}, {}, "capacity"),
        ({"allocationMode": "Some"}, {}, "allocationMode Some"),
        ({"count": 33}, {}, "more than 32 devices"),
        ({}, {"constraints": [{"matchAttribute": "a/b"}]}, "constraints"),
    ],
)
def test_a_claim_names_the_first_field_beyond_what_is_allocated(
    exactly: dict[str, Any], more: dict[str, Any], beyond: str
) -> None:
    made = claim("c")
    made["spec"]["devices"] |= more
    made["spec"]["devices"]["requests"][0]["exactly"] |= exactly
    assert resource_claim_seen(made, 3).facts.beyond == beyond


def test_a_claim_with_alternatives_asks_for_more_than_is_allocated() -> None:
    made = claim("c")
    made["spec"]["devices"]["requests"] = [{"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "gpu"}]}]
    assert resource_claim_seen(made, 3).facts.beyond == "firstAvailable"


def test_a_pod_names_claims_and_those_that_were_made_for_it() -> None:
    entries = [
        {"name": "shared", "resourceClaimName": "one"},
        {"name": "own", "resourceClaimTemplateName": "t"},
        {"name": "late", "resourceClaimTemplateName": "t"},
        {"name": "needless", "resourceClaimTemplateName": "t"},
    ]
    made = [{"name": "own", "resourceClaimName": "web-own-x"}, {"name": "needless"}]
    pod = {
        "metadata": {"name": "web", "namespace": "default", "uid": "u"},
        "spec": {"schedulerName": "arranger", "containers": [{"name": "c"}], "resourceClaims": entries},
        "status": {"resourceClaimStatuses": made},
    }
    seen = pod_seen(pod, 1, ("arranger",), with_devices=True)
    assert seen.asks is not None and seen.asks.shape.claims is not None
    assert seen.asks.shape.claims.devices == (("shared", "one"), ("own", "web-own-x"), ("late", ""))
    assert not seen.asks.held_back
    seen = pod_seen(pod, 1, ("arranger",))
    assert seen.asks is not None and seen.asks.shape.claims is None and seen.asks.held_back


# --- selectors ----------------------------------------------------------------------------------------------------

DOMAIN = f'device.attributes["{DRIVER}"]'


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        ("true", True),
        (f'device.driver == "{DRIVER}"', True),
        ('device.driver == "other"', False),
        (f'{DOMAIN}.model == "A100"', True),
        (f'{DOMAIN}.model.lowerAscii().startsWith("a1")', True),
        (f'{DOMAIN}.model.matches("^H")', False),
        (f"{DOMAIN}.cores >= 8 && {DOMAIN}.healthy", True),
        (f"{DOMAIN}.cores > 8", False),
        (f'"model" in {DOMAIN} && !("serial" in {DOMAIN})', True),
        (f"has({DOMAIN}.serial)", False),
        (f'{DOMAIN}.serial == "1"', False),  # it fails
        ('has(device.attributes["other.example.com"].model)', False),
        ('device.attributes["other.example.com"].model == "x"', False),  # it fails
        (f'device.attributes["other.example.com"].model == "x" || {DOMAIN}.model == "A100"', True),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) == 0', True),
        (f'device.capacity["{DRIVER}"].memory == quantity("81920Mi")', True),
        (f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("100G"))', False),
        (f'device.capacity["{DRIVER}"].memory.isLessThan(quantity("81Gi"))', True),
        (f'{DOMAIN}.version.isGreaterThan(semver("1.9.0"))', True),
        (f'{DOMAIN}.version.compareTo(semver("1.10.0-rc.1")) > 0', True),
        (f'{DOMAIN}.version == semver("1.10.0") && {DOMAIN}.version.minor() == 10', True),
        (f'{DOMAIN}.version.compareTo(quantity("1")) > 0', False),  # it fails
        (f'["A100", "H100"].exists(one, one == {DOMAIN}.model)', True),
        (f"{DOMAIN}.cores", False),  # no truth
    ],
)
def test_what_a_selector_selects_of_a_device(selector: str, selects: bool) -> None:
    world = DeviceWorld()
    values = (
        DeviceValue(f"{DRIVER}/cores", "int", 8),
        DeviceValue(f"{DRIVER}/healthy", "bool", True),
        DeviceValue(f"{DRIVER}/memory", "quantity", "80Gi"),
        DeviceValue(f"{DRIVER}/model", "string", "A100"),
        DeviceValue(f"{DRIVER}/version", "version", "1.10.0"),
    )
    facts = SliceFacts(DRIVER, "n1", 1, 1, "n1", None, (DeviceFacts("gpu-0", values),))
    world.say(d.ResourceSliceSeen(world.terms[k.Watched.RESOURCE_SLICE], "s", "u", "1", facts))
    world.device_class(CLASS, selector)
    (found,) = matches(world.state)
    assert (found.selectors, found.slices, found.unread) == (
        (selector,),
        (d.SliceMatches("u", "1", ((0,) if selects else (),)),),
        (),
    )
    world.say(found)
    assert matches(world.state) == [], "each selector is evaluated once for each slice"


@pytest.mark.parametrize(
    "selector",
    [
        f"{DOMAIN}.?model.orValue('') == 'A100'",
        f"cel.bind(one, {DOMAIN}, one.model == 'A100')",
        "device.driver.unheard()",
        "true &&",
    ],
)
def test_a_selector_that_cant_be_read_selects_nothing_and_is_known_as_such(selector: str) -> None:
    world = DeviceWorld()
    world.devices("n1", ["gpu-0"])
    world.device_class(CLASS, "true", selector)
    (found,) = matches(world.state)
    assert [found.selectors[at] for at in found.unread] == [selector]
    world.say(found)
    assert [*world.state.devices.unread] == [selector]
    world.device_class(CLASS, "true")
    world.devices("n1", ["gpu-0", "gpu-1"])
    world.say(*matches(world.state))
    assert not world.state.devices.unread, "nobody asks for it any more"


def test_a_changed_slice_is_evaluated_again_and_nothing_without_the_setting() -> None:
    world = DeviceWorld()
    world.devices("n1", ["gpu-0"])
    first = matches(world.state)
    world.devices("n1", ["gpu-0", "gpu-1"])
    world.say(*first)
    assert not world.state.devices.matches, "what was evaluated is no longer the slice"
    (found,) = matches(world.state)
    assert found.slices[0].devices == ((0, 1),)
    world.with_devices(on=False)
    assert matches(world.state) == []


# --- observations -------------------------------------------------------------------------------------------------

WORDS: dict[k.Event, str] = {
    d.ResourceSliceSeen(1, "s", "u", "1", SliceFacts("d", "p", 3, 1, "n1", None, (DeviceFacts("a"),))): (
        "1 device of d, pool p, generation 3, node n1"
    ),
    d.ResourceSliceSeen(
        1, "s", "u", "1",
        SliceFacts("d", "p", 1, 1, "", within(ZONE, "a"), (DeviceFacts("a"), DeviceFacts("b", (), False))),
    ): f"2 devices of d, pool p, 1 of them not to be allocated, generation 1, nodes with {ZONE} In a",
    d.ResourceSliceSeen(1, "s", "u", "1", SliceFacts("d", "p", 1, 1)): "0 devices of d, pool p, generation 1, any node",
    d.DeviceClassSeen(1, "c", "u", "1", ("a", "b")): "a and b",
    d.DeviceClassSeen(1, "c", "u", "1", ()): "every device",
    d.ResourceClaimSeen(1, "n", "c", "u", "1", ResourceClaimFacts((DeviceRequest("r", "gpu", (), 0),), "more")): (
        "r: all of gpu, with more, no devices yet"
    ),
    d.ResourceClaimSeen(
        1, "n", "c", "u", "1", ResourceClaimFacts((), "", True, on("n1", "gpu-0", "gpu-1"), ("u1",))
    ): f"devices gpu-0 of {DRIVER} (pool n1), gpu-1 of {DRIVER} (pool n1), reserved for 1 pod, being deleted",
    d.DevicesMatched(("a",), ()): "1 selector evaluated for 0 slices",
    k.ObjectGone(k.Watched.RESOURCE_CLAIM, 1, "n", "c", "u"): "gone",
}  # fmt: skip


@pytest.mark.parametrize("event", WORDS)
def test_an_observation_in_words(event: k.Event) -> None:
    assert describe(event, State()) == WORDS[event]


CHANGED = msgspec.json.decode(msgspec.json.encode(slice_of("n1", "gpu-0", "gpu-1")["spec"]))
OBJECTS: dict[k.Watched, tuple[Resource, dict[str, Any], dict[str, Any]]] = {
    k.Watched.RESOURCE_SLICE: (RESOURCE_SLICES, {"spec": slice_of("n1", "gpu-0")["spec"]}, {"spec": CHANGED}),
    k.Watched.DEVICE_CLASS: (DEVICE_CLASSES, {"spec": device_class()["spec"]}, {"spec": {"selectors": None}}),
    k.Watched.RESOURCE_CLAIM: (RESOURCE_CLAIMS, {"spec": claim_spec()}, {"spec": claim_spec(2)}),
}


@pytest.mark.parametrize("kind", OBJECTS)
async def test_objects_come_change_and_go_and_what_decides_nothing_makes_no_event(kind: k.Watched) -> None:
    resource, made, change = OBJECTS[kind]
    namespace = "default" if resource.namespaced else None
    async with watching(kind, DirectCluster(Store(now=time.time))) as scene:
        there = scene.follower.state.devices

        def known() -> int:
            return sum(map(len, (there.slices, there.classes, there.claims)))

        await scene.cluster.create(resource, namespace, {"metadata": {"name": "one"}, **made})
        await scene.until(lambda: known() == 1)
        await scene.cluster.patch(resource, namespace, "one", {"metadata": {"labels": {"a": "b"}}})
        await scene.cluster.patch(resource, namespace, "one", change)
        await scene.cluster.delete(resource, namespace, "one")
        await scene.until(lambda: known() == 0)
        seen = [k.kind_of(event) for event in await observations(scene) if k.watch_of(event) == kind]
        name = seen[0].removesuffix("Seen")
        # The version of a claim is the precondition of what an applier writes to it.
        versions = [f"{name}Seen"] if kind == k.Watched.RESOURCE_CLAIM else []
        assert seen == [f"{name}Seen", *versions, f"{name}Seen", f"{name}Gone"]


async def test_without_the_setting_a_pod_with_claims_is_held_back() -> None:
    async with watching(k.Watched.POD) as scene:
        claims = [{"name": "gpu", "resourceClaimName": "c"}]
        spec = {**POD["spec"], "schedulerName": "arranger", "resourceClaims": claims}
        await scene.cluster.create(PODS, "default", {**POD, "metadata": {"name": "web"}, "spec": spec})
        await scene.until(lambda: scene.names() == ["web"])
        (pod,) = scene.follower.state.pods.values()
        assert not scene.follower.state.with_devices
        assert pod.asks is not None and pod.asks.claims == ("gpu",) and pod.asks.shape.claims is None


def test_a_node_named_in_terms_is_that_node_alone() -> None:
    assert on_node("n1")[0][0].field
