"""From a pod's specification, as JSON, to what determines its node: effective requests and the rest of a `PodShape`.

Rules about other pods are read as kube-scheduler reads them: only required ones count, and `matchLabelKeys` and
`mismatchLabelKeys` become requirements on the pod's own values. The projection finds the namespaces that a
`namespaceSelector` selects.

The request of a pod follows Kubernetes ("Pod scheduling and resource quota": sidecar containers): the sum over
containers and restartable init containers, at least what each init container needs beside the sidecars started
before it, replaced by pod-level requests where given, plus overhead. A limit replaces a missing request.

All functions expect a well-typed specification: the API server's own, or one that passed `validation`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from arranger.model.job import DEFAULT_GRACE_S, MAX_GRACE_S, NO_QUOTA_TRAITS, QuotaTraits
from arranger.model.pod import (
    NO_DEFAULTS,
    OWN_NAMESPACE,
    ContainerNeeds,
    DeclaredNeeds,
    Ephemeral,
    HostPort,
    Labels,
    LimitDefaults,
    NodeTerms,
    PodClaims,
    PodRules,
    PodShape,
    PodTerm,
    Preference,
    QosClass,
    Requirement,
    RuntimeNeeds,
    Selector,
    SpreadRule,
    Toleration,
)
from arranger.model.quantity import MAX_AMOUNT, amount
from arranger.model.selectors import requirement_of, selector_of

Requests = tuple[tuple[str, int], ...]

#: The resources that make the QoS class of a pod.
_GUARANTEED = ("cpu", "memory")
#: Resources that `spec.resources` of a pod (pod-level resources) may name.
_POD_LEVEL = ("cpu", "memory", "hugepages-")

#: Results for longer texts aren't cached: a pod may be a megabyte, and the next one another.
REMEMBERED_BYTES = 8192

#: The address that represents all addresses of a node.
_ALL_ADDRESSES = "0.0.0.0"
_NO_RULES = PodRules()
_NO_CLAIMS = PodClaims()

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def pod_shape(
    spec: Mapping[str, Any], labels: Labels = (), *, known: Mapping[str, str] = MappingProxyType({}), name: str = ""
) -> PodShape:
    """The shape of pods with this PodSpec and these labels; `known` are labels that Arranger adds to all of them.
    `name` is that of the pod, if it is a single one."""
    affinity = spec.get("affinity") or {}
    own = {**dict(labels), **known}
    rules = PodRules(
        host_ports=host_ports(spec),
        affinity=pod_terms(affinity.get("podAffinity"), own),
        anti_affinity=pod_terms(affinity.get("podAntiAffinity"), own),
        spread=_spread(spec, own),
    )
    runtime_class = "" if name else spec.get("runtimeClassName") or ""  # a pod that is there has what it adds
    return PodShape(
        requests=effective_requests(spec),
        node_selector=tuple(sorted(present(spec.get("nodeSelector")).items())),
        tolerations=tuple(_toleration(entry) for entry in spec.get("tolerations") or ()),
        required_terms=_required_terms(affinity),
        labels=labels,
        preferred=_preferred(affinity),
        rules=None if rules == _NO_RULES else rules,
        claims=_claims(spec, name),
        runtime_class=runtime_class,
        overhead=overhead_of(spec) if runtime_class else (),
    )


def overhead_of(spec: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """The overhead that a PodSpec has, sorted."""
    return tuple(sorted((name, value) for name, value in _amounts(spec.get("overhead")).items() if value))


def runtime_needs(of_class: Mapping[str, Any]) -> RuntimeNeeds:
    """What a RuntimeClass adds to pods."""
    scheduling = of_class.get("scheduling") or {}
    return RuntimeNeeds(
        overhead_of({"overhead": (of_class.get("overhead") or {}).get("podFixed")}),
        tuple(sorted(present(scheduling.get("nodeSelector")).items())),
        tuple(_toleration(entry) for entry in scheduling.get("tolerations") or ()),
    )


def declared_needs(spec: Mapping[str, Any]) -> DeclaredNeeds:
    """What a PodSpec names, as the API server stores it before admission: where something is named for the whole pod,
    so are the sums of what its containers request."""
    init = spec.get("initContainers") or ()
    containers = tuple(
        [_container_needs(of) for of in spec.get("containers") or ()]
        + [_container_needs(of, init=True, sidecar=of.get("restartPolicy") == "Always") for of in init]
    )
    whole = spec.get("resources") or {}
    total: dict[str, int] = {}
    if present(whole.get("requests")) or present(whole.get("limits")):
        total = dict(effective_requests({**spec, "overhead": None}))
    return DeclaredNeeds(
        containers,
        _sorted({name: value for name, value in total.items() if name.startswith(_POD_LEVEL)}),
        _sorted({name: of for name, of in _amounts(whole.get("limits")).items() if name.startswith(_POD_LEVEL)}),
        overhead_of(spec),
    )


def _container_needs(container: Mapping[str, Any], *, init: bool = False, sidecar: bool = False) -> ContainerNeeds:
    resources = container.get("resources") or {}
    limits, requests = _amounts(resources.get("limits")), _amounts(resources.get("requests"))
    return ContainerNeeds(_sorted({**limits, **requests}), _sorted(limits), init, sidecar)


def limit_defaults(spec: Mapping[str, Any]) -> LimitDefaults:
    """What a LimitRange adds to containers. The API server stores the defaults that follow from each other."""
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    for of in spec.get("limits") or ():
        if of.get("type") == "Container":
            default = {**_amounts(of.get("max")), **_amounts(of.get("default"))}
            limits |= default
            requests |= {**_amounts(of.get("min")), **default, **_amounts(of.get("defaultRequest"))}
    return LimitDefaults(_sorted(requests), _sorted(limits))


def needs_with(declared: DeclaredNeeds, defaults: LimitDefaults) -> tuple[Requests, Requests]:
    """The effective requests and limits of a pod with these defaults, as `effective_requests` and `effective_limits`
    give them for the pod after admission."""
    sides = []
    for side, of_pod, added in (
        ("requests", declared.requests, defaults.requests), ("limits", declared.limits, defaults.limits),
    ):  # fmt: skip
        plain = [{**dict(added), **dict(getattr(of, side))} for of in declared.containers if not of.init]
        init = [({**dict(added), **dict(getattr(of, side))}, of.sidecar) for of in declared.containers if of.init]
        total = _together(plain, init) | dict(of_pod)
        _add(total, {name: value for name, value in declared.overhead if side == "requests" or total.get(name)})
        sides.append(_sorted({name: min(value, MAX_AMOUNT) for name, value in total.items() if value}))
    requests, limits = sides
    return tuple(of for of in requests if of[0] != "pods"), limits


def _sorted(amounts: Mapping[str, int]) -> Requests:
    return tuple(sorted(amounts.items()))


def claims_named(spec: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """The claims of the pod of this name, sorted. That of a generic ephemeral volume is named after pod and volume."""
    found: dict[str, None] = {}
    for volume in spec.get("volumes") or ():
        if claim := (volume.get("persistentVolumeClaim") or {}).get("claimName"):
            found[claim] = None
        elif name and volume.get("ephemeral"):
            found[f"{name}-{volume.get('name') or ''}"] = None
    return tuple(sorted(found))


def _claims(spec: Mapping[str, Any], name: str) -> PodClaims | None:
    volumes, entries = spec.get("volumes") or (), spec.get("resourceClaims") or ()
    if name:  # which resource claims such a pod has, its status says
        entries = ()
    if not volumes and not entries:
        return None
    ephemeral = [volume for volume in volumes if volume.get("ephemeral")] if not name else []
    found = PodClaims(
        claims_named(spec, name),
        tuple(map(_ephemeral, ephemeral)),
        tuple((of["name"], of["resourceClaimName"]) for of in entries if of.get("resourceClaimName")),
        tuple((of["name"], of["resourceClaimTemplateName"]) for of in entries if of.get("resourceClaimTemplateName")),
    )
    return found if found != _NO_CLAIMS else None


def _ephemeral(volume: Mapping[str, Any]) -> Ephemeral:
    claim = ((volume["ephemeral"].get("volumeClaimTemplate") or {}).get("spec")) or {}
    return Ephemeral(volume.get("name") or "", claim.get("storageClassName"))


def host_ports(spec: Mapping[str, Any]) -> tuple[HostPort, ...]:
    """The node ports that a pod's containers and sidecars use; with the host's network, all of their ports."""
    sidecars = [entry for entry in spec.get("initContainers") or () if entry.get("restartPolicy") == "Always"]
    ports = [port for entry in (*(spec.get("containers") or ()), *sidecars) for port in entry.get("ports") or ()]
    if not ports:
        return ()
    on_host = spec.get("hostNetwork") is True
    found = {
        HostPort(int(number), port.get("protocol") or "TCP", _address(port.get("hostIP") or ""))
        for port in ports
        if (number := port.get("hostPort") or (port.get("containerPort") if on_host else 0))
    }
    return tuple(sorted(found))


def _address(text: str) -> str:
    return "" if text == _ALL_ADDRESSES else text


class Held(NamedTuple):
    """What the status of a pod says that it holds. Where the kubelet has refused a resize of the pod for good
    (`infeasible`), that counts alone, and else the larger of it and the request, while the pod is being resized. A
    container that isn't here counts with its request."""

    #: The name of a container → lists of its resources; of the whole pod None if there are none.
    containers: Mapping[str | None, Sequence[Any]] = MappingProxyType({})
    pod: Sequence[Any] | None = None
    infeasible: bool = False


NOT_HELD = Held()


def effective_requests(spec: Mapping[str, Any], held: Held = NOT_HELD) -> Requests:
    """The resources of a pod with this PodSpec on its node: sorted `(resource, amount)`, zero amounts left out, as
    kube-scheduler counts them. Results are cached by the encoded input, because most pods of a cluster have the same
    requests.
    """
    there = held.containers
    parts = [
        [[container.get("resources"), there.get(container.get("name"))] for container in spec.get("containers") or ()],
        [
            [container.get("resources"), there.get(container.get("name")), container.get("restartPolicy") == "Always"]
            for container in spec.get("initContainers") or ()
        ],
        [spec.get("resources"), held.pod],
        spec.get("overhead"),
        held.infeasible,
    ]
    encoded = _encode(parts)
    return _requests_of(encoded) if len(encoded) <= REMEMBERED_BYTES else _requests_of.__wrapped__(encoded)


@lru_cache(maxsize=8192)
def _requests_of(encoded: bytes) -> Requests:
    containers, init_containers, (for_pod, of_pod), overhead, infeasible = _decode(encoded)
    total = _together(
        (_declared(resources, held, infeasible) for resources, held in containers),
        (  # only sidecars can be resized
            (_declared(resources, held if sidecar else None, infeasible), sidecar)
            for resources, held, sidecar in init_containers
        ),
    )
    _set_for_pod(total, for_pod or {}, of_pod, infeasible)
    _add(total, _amounts(overhead))
    return tuple(sorted((name, min(value, MAX_AMOUNT)) for name, value in total.items() if value and name != "pods"))


def _together(
    containers: Iterable[dict[str, int]], init_containers: Iterable[tuple[dict[str, int], bool]]
) -> dict[str, int]:
    """The total of containers: the sum of those that run at once, at least what each init container needs beside the
    sidecars started before it. Each init container is paired with whether it is a sidecar."""
    total: dict[str, int] = {}
    for declared in containers:
        _add(total, declared)
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for declared, is_sidecar in init_containers:
        if is_sidecar:
            _add(total, declared)
            _add(sidecars, declared)
            _raise_to(starting, sidecars)
        else:
            _add(declared, sidecars)
            _raise_to(starting, declared)
    _raise_to(total, starting)
    return total


def _declared(
    resources: Mapping[str, Any] | None, held: Sequence[Mapping[str, Any]] | None, infeasible: bool
) -> dict[str, int]:
    """The requests of one container, with limits for missing ones, and what it holds as `Held` says."""
    declared: dict[str, int] = {}
    if resources and not (infeasible and held is not None):
        declared = _amounts({**present(resources.get("limits")), **present(resources.get("requests"))})
    for quantities in held or ():
        _raise_to(declared, _amounts(quantities))
    return declared


def effective_limits(spec: Mapping[str, Any]) -> Requests:
    """The total limits of the containers of a pod with this PodSpec, as a quota counts them; sorted, zeros left out.

    As in a quota, a container without a limit counts as zero.
    """
    total = _together(
        (_limits(container) for container in spec.get("containers") or ()),
        (
            (_limits(container), container.get("restartPolicy") == "Always")
            for container in spec.get("initContainers") or ()
        ),
    )
    for_pod = _amounts((spec.get("resources") or {}).get("limits"))
    total |= {name: value for name, value in for_pod.items() if name.startswith(_POD_LEVEL)}
    overhead = _amounts(spec.get("overhead"))
    _add(total, {name: value for name, value in overhead.items() if total.get(name)})
    return tuple(sorted((name, min(value, MAX_AMOUNT)) for name, value in total.items() if value))


def _limits(container: Mapping[str, Any]) -> dict[str, int]:
    return _amounts((container.get("resources") or {}).get("limits"))


def grace_of(spec: Mapping[str, Any]) -> int:
    """The grace period of pods with this PodSpec, in seconds."""
    grace_s = spec.get("terminationGracePeriodSeconds")
    return DEFAULT_GRACE_S if grace_s is None else min(max(int(grace_s), 0), MAX_GRACE_S)


def qos_class(spec: Mapping[str, Any]) -> QosClass:
    """The QoS class of a pod with this spec."""
    return qos_with(declared_needs(spec), NO_DEFAULTS)


def qos_with(declared: DeclaredNeeds, defaults: LimitDefaults) -> QosClass:
    """The QoS class of a pod with these defaults, by its CPU and memory as Kubernetes finds it: by those of the whole
    pod if it has some, else by those of its containers."""
    whole = [(dict(declared.requests), dict(declared.limits))] if declared.requests or declared.limits else []
    found = whole or [
        (dict(defaults.requests) | dict(of.requests), dict(defaults.limits) | dict(of.limits))
        for of in declared.containers
    ]
    sides = [(_of_qos(requests), _of_qos(limits)) for requests, limits in found]
    if not any(requests or limits for requests, limits in sides):
        return QosClass.BEST_EFFORT
    full = all(len(limits) == len(_GUARANTEED) and requests == limits for requests, limits in sides)
    return QosClass.GUARANTEED if full else QosClass.BURSTABLE


def _of_qos(amounts: Mapping[str, int]) -> dict[str, int]:
    """The amounts that make a QoS class, without zeros."""
    return {name: amount for name, amount in amounts.items() if amount and name in _GUARANTEED}


def quota_traits(spec: Mapping[str, Any]) -> QuotaTraits:
    deadline = spec.get("activeDeadlineSeconds")
    traits = QuotaTraits(
        limits=effective_limits(spec),
        has_deadline=deadline is not None and int(deadline) >= 0,
        priority_class=spec.get("priorityClassName") or "",
        looks_elsewhere=any(
            term.get("namespaces") or term.get("namespaceSelector") is not None for term in _terms(spec)
        ),
    )
    return NO_QUOTA_TRAITS if traits == NO_QUOTA_TRAITS else traits


def _terms(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every term of pod affinity and anti-affinity, required and preferred."""
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = (spec.get("affinity") or {}).get(kind) or {}
        yield from affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for preferred in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield preferred.get("podAffinityTerm") or {}


def _set_for_pod(
    total: dict[str, int], pod_level: Mapping[str, Any], held: Sequence[Mapping[str, Any]] | None, infeasible: bool
) -> None:
    """Pod-level requests, and what the pod holds as `Held` says, replace the sum; a pod-level limit replaces a request
    that neither has."""
    requests = _amounts(pod_level.get("requests"))
    if requests and held is not None:
        requests = {} if infeasible else requests
        for quantities in held:
            _raise_to(requests, _amounts(quantities))
    asked = {**_amounts(pod_level.get("limits")), **{name: value for name, value in total.items() if value}, **requests}
    total |= {name: value for name, value in asked.items() if name.startswith(_POD_LEVEL)}


def _amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    return {name: amount(name, quantity) for name, quantity in present(quantities).items()}


def worker_sets(spec: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """The worker sets of a TYJob's spec: none in that of a leader alone, which is stored as an empty list."""
    return spec.get("workerSets") or ()


def present(fields: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The fields with a value other than null."""
    return {name: value for name, value in fields.items() if value is not None} if fields else {}


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise_to(total: dict[str, int], least: Mapping[str, int]) -> None:
    for name, value in least.items():
        if value > total.get(name, 0):
            total[name] = value


def pod_terms(affinity: Mapping[str, Any] | None, own: Mapping[str, str]) -> tuple[PodTerm, ...]:
    """The required terms of a pod's affinity or anti-affinity to other pods; `own` are its labels."""
    required = (affinity or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    return tuple(
        PodTerm(term.get("topologyKey") or "", _selector(term, own), *_namespaces(term)) for term in required or ()
    )


def _namespaces(term: Mapping[str, Any]) -> tuple[tuple[str, ...] | None, Selector]:
    """The named namespaces, and the selector of others; the pod's own if the term has neither, and None for all."""
    named = tuple(sorted(set(term.get("namespaces") or ())))
    selector = term.get("namespaceSelector")
    if selector is None:
        return named or (OWN_NAMESPACE,), None
    requirements = selector_of(selector)
    return (named, requirements) if requirements else (None, None)


def _selector(term: Mapping[str, Any], own: Mapping[str, str]) -> Selector:
    """The requirements of the term's labelSelector, with the pod's own values of the keys that must match or differ."""
    selector = term.get("labelSelector")
    if selector is None:
        return None
    keys = tuple(
        Requirement(key, operator, (own[key],))
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(field) or ()
        if key in own
    )
    return selector_of(selector) + keys


def _spread(spec: Mapping[str, Any], own: Mapping[str, str]) -> tuple[SpreadRule, ...]:
    return tuple(
        SpreadRule(
            topology_key=entry.get("topologyKey") or "",
            max_skew=int(entry.get("maxSkew") or 1),
            selector=_selector(entry, own),
            min_domains=int(entry.get("minDomains") or 1),
            honor_affinity=entry.get("nodeAffinityPolicy") != "Ignore",
            honor_taints=entry.get("nodeTaintsPolicy") == "Honor",
        )
        for entry in spec.get("topologySpreadConstraints") or ()
        if entry.get("whenUnsatisfiable") == "DoNotSchedule"
    )


def _preferred(affinity: Mapping[str, Any]) -> tuple[Preference, ...]:
    preferred = (affinity.get("nodeAffinity") or {}).get("preferredDuringSchedulingIgnoredDuringExecution")
    return tuple(
        Preference(int(entry.get("weight") or 0), _node_term(entry.get("preference") or {}))
        for entry in preferred or ()
    )


def _toleration(entry: Mapping[str, Any]) -> Toleration:
    return Toleration(
        key=entry.get("key") or "",
        operator=entry.get("operator") or "Equal",
        value=entry.get("value") or "",
        effect=entry.get("effect") or "",
    )


def _required_terms(affinity: Mapping[str, Any] | None) -> NodeTerms | None:
    node_affinity = (affinity or {}).get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else node_terms(required)


def node_terms(selector: Mapping[str, Any]) -> NodeTerms:
    """The terms of a NodeSelector."""
    return tuple(map(_node_term, selector.get("nodeSelectorTerms") or ()))


def _node_term(term: Mapping[str, Any]) -> tuple[Requirement, ...]:
    expressions = tuple(requirement_of(entry) for entry in term.get("matchExpressions") or ())
    return expressions + tuple(requirement_of(entry, field=True) for entry in term.get("matchFields") or ())
