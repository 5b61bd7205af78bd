"""The facts in the sentences of `Waits` version 1. These phrases are those of the versions that wrote them and never
change; `arranger.messages` has the present wording.
"""

import re
from collections.abc import Callable

from arranger.events.facts import ShortageFacts
from arranger.model.node import Taint
from arranger.model.quantity import QuantityError, amount
from arranger.model.quota import QuotaLack
from arranger.model.reasons import FITS, Reason, ReasonCounts, ReasonKind, beyond_quota, most_frequent_first, other

_K = ReasonKind

#: Phrases without parameters.
_PLAIN = {
    "not ready": Reason(_K.NOT_READY),
    "cordoned": Reason(_K.CORDONED),
    "node selector doesn't match": Reason(_K.NODE_SELECTOR),
    "required node affinity doesn't match": Reason(_K.NODE_AFFINITY),
    "refused a pod of it recently": Reason(_K.REFUSED_RECENTLY),
    "not in the place where the quorum fits together": Reason(_K.OTHER_DOMAIN),
    "fit": FITS,
}

#: Phrases named a topology by the end of its label's key, which is unambiguous only for Kubernetes' own labels. For
#: others, the same cycle run again gives a more exact reason than the recorded one.
_TOPOLOGIES = {
    "node": "kubernetes.io/hostname",
    "zone": "topology.kubernetes.io/zone",
    "region": "topology.kubernetes.io/region",
}

_HEAD = re.compile(
    r"(\d+) of (\d+) (pods find room together|further pods placed); (?:no node for (.*?): \d+ nodes?: .*|quota .*)",
    re.DOTALL,
)


def shortage_of(
    message: str, reasons: tuple[tuple[str, int], ...], *, group: int, infeasible: bool, quota: QuotaLack | None
) -> ShortageFacts:
    """The facts of a sentence and its phrases. A sentence that Arranger didn't write is kept as it is."""
    head = _HEAD.fullmatch(message)
    if quota is not None:
        counts: ReasonCounts = ((beyond_quota(quota), 1),)
    else:
        counts = most_frequent_first({_reason(phrase): count for phrase, count in reasons})
    if head is None:
        return ShortageFacts(f"group {group}", 0, 0, infeasible=infeasible, reasons=counts, sentence=message)
    # A quota applies to all requested pods: the sentence named no worker set.
    found, asked, what, name = head.groups()
    return ShortageFacts(name or "", int(found), int(asked), what.startswith("further"), infeasible, counts, quota)


def _reason(phrase: str) -> Reason:
    if phrase in _PLAIN:
        return _PLAIN[phrase]
    for pattern, reason in _PATTERNS:
        match = pattern.fullmatch(phrase)
        if match is not None:
            try:
                return reason(match)
            except QuantityError:
                break
    return other(phrase)


def _taint(match: re.Match[str]) -> Reason:
    return Reason(_K.TAINT, taint=Taint(match[1], match[2] or "", match[3]))


def _insufficient(match: re.Match[str]) -> Reason:
    resource = match[1]
    return Reason(_K.INSUFFICIENT, resource, needed=amount(resource, match[2]), free=amount(resource, match[3]))


def _of_topology(kind: ReasonKind) -> Callable[[re.Match[str]], Reason]:
    return lambda match: Reason(kind, _TOPOLOGIES.get(match[1], match[1]))


def _spread(match: re.Match[str]) -> Reason:
    return Reason(_K.TOPOLOGY_SPREAD, _TOPOLOGIES.get(match[1], match[1]), needed=int(match[2]))


_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Reason]], ...] = (
    (re.compile(r"lack (\S+) \(need (\S+), most free (\S+)\)"), _insufficient),
    (re.compile(r"taint ([^=:]+)(?:=([^:]*))?:(\w+) not tolerated"), _taint),
    (
        re.compile(r"host port (\d+)(?:/(\w+))? taken"),
        lambda match: Reason(_K.HOST_PORT, match[2] or "TCP", needed=int(match[1])),
    ),
    (re.compile(r"no label (\S+) \(affinity\)"), lambda match: Reason(_K.NO_AFFINITY_LABEL, match[1])),
    (re.compile(r"no label (\S+) \(topology spread\)"), lambda match: Reason(_K.NO_SPREAD_LABEL, match[1])),
    (re.compile(r"not [io]n the same (\S+) as the pods it must join \(affinity\)"), _of_topology(_K.AFFINITY)),
    (re.compile(r"[io]n the same (\S+) as pods it must avoid \(anti-affinity\)"), _of_topology(_K.ANTI_AFFINITY)),
    (re.compile(r"[io]n the same (\S+) as pods that refuse it \(anti-affinity\)"), _of_topology(_K.AVOIDED)),
    (re.compile(r"topology spread: (\S+) would exceed maxSkew (\d+)"), _spread),
)
