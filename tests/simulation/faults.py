"""All faults, with their sites and rates: every fault has a name, and every occurrence is counted.

A seed draws the kinds of faults that it has at all (swarm testing: a run with few kinds explores each further). Then it
draws at every passage of a site whether a fault happens there.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence

#: Effects of the workers, during which a process can be killed or paused, and which can fail or lose their response.
WRITES = ("create pods", "delete pods", "patch tyjobs", "create events", "patch events", "patch configmaps")
READS = (
    "get namespaces",
    "get pods",
    "get tyjobs",
    "list nodes",
    "list pods",
    "list tyjobs",
    "watch nodes",
    "watch pods",
    "watch tyjobs",
)
KINDS = ("nodes", "pods", "tyjobs")

CRASHES = tuple(
    f"crash {when} {what}" for what in ("append", "snapshot", "trim", *WRITES[:3]) for when in ("before", "after")
)
PAUSES = (
    *(f"pause {when} {what}" for what in ("append", *WRITES[:3]) for when in ("before", "after")),
    "pause before patch configmaps",
)
LOG = (
    "append unavailable", "append answer lost", "read unavailable", "log away for a while", "log lost its tail",
    "log emptied", "lease unavailable",
)  # fmt: skip
API = (
    *(f"{what}: {how}" for what in WRITES for how in ("500 before", "time-out after", "429", "no connection")),
    "patch tyjobs: 409",
    "patch configmaps: 409",
    *(f"patch queues: {how}" for how in ("500 before", "time-out after", "409", "no connection")),
    "get queues: no connection",
    "create configmaps: 403",
    "create configmaps: no connection",
    "create services: 403",
    "create services: no connection",
    "get configmaps: no connection",
    "delete pods: 409",
    "create pods: 403",
    "create pods: 500 after",
    *(f"{what}: no connection" for what in READS),
    "API away for a while",
)
WATCH = tuple(
    f"watch {kind}: {how}"
    for kind in KINDS
    for how in ("410", "ended", "silent", "late", "dropped", "doubled", "broken")
) + tuple(f"list {kind}: 410" for kind in KINDS)
TICKS = ("tick lost", "tick doubled", "tick late")
TIME = ("clock differs", "clock jumps", "clock off by hours", "clock off by hours from the start")
#: In a run that is about this, queues limit jobs that can't be preempted to what they deserve, and there are many.
LIMITED = "a queue has room for few jobs"
SUBMITTERS = "the submitters of a queue take turns"
WITHIN_DESERVED = "a queue keeps jobs that can't be preempted from borrowing"
WORLD = (
    "user edits counts", "user scales", "user edits priority", "user edits minWorkersNum", "user edits minCount",
    "a priority class comes", "a priority class goes",
    "a limit range comes", "a limit range changes", "a limit range goes", "no right to read limit ranges",
    "a pod group comes", "a pod group changes", "a pod group goes",
    "a queue comes", "a queue changes", "a queue goes", "a namespace changes", "user moves a job to another queue",
    "a queue goes under running jobs", "a queue closes under running jobs", "a queue's name is used again at once",
    "a queue's limit falls below what is used", LIMITED, SUBMITTERS, WITHIN_DESERVED,
    "user edits whether a job can be preempted",
    "two writers: a job that can't use its queue", "two writers: more than a queue may have",
    "a job waits for others", "user edits for whom a job waits", "two writers: a job that waits for another",
    "a worker leaves a node on which it failed repeatedly", "a leader's restarts count within a window",
    "a job of equals", "a set starts after another group", "the end of workers ends a job",
    "user terminates", "user deletes a job", "user creates a job again", "user deletes a pod",
    "node cordoned", "node tainted", "node deleted",
    "node added again", "node flaps", "node lost", "node shrinks", "stranger's pod", "kubelets pause",
    "watch history compacted",
    "user deletes a job and its name is used again at once", "a stranger takes a pod's name",
)  # fmt: skip

BELONGINGS = (
    "user deletes a members file", "user edits a members file", "user deletes a Service",
    "a stranger takes a members file's or a Service's name",
)  # fmt: skip

ROGUE = tuple(
    f"two writers: {what}"
    for what in (
        "the failure of a success",
        "part of a quorum",
        "part of a worker group",
        "no room",
        "scattered pods",
        "a closed node",
        "an old term",
        "an old version",
        "a superseded cycle",
    )
)

FORGERIES = (
    "forged pod in another namespace", "forged pod under another name", "forged pod on another node",
    "forged observation: another namespace", "forged observation: left behind",
    "forged observation: an earlier attempt",
)  # fmt: skip

DENIALS = (
    "quota exceeded by a pod of a gang", "no right to create pods", "no right to write statuses", "webhook times out",
    "webhook denies a pod", "a whole namespace is refused",
    "namespace deleted", "namespace ends: create refused", "namespace created again",
)  # fmt: skip
QUOTAS = ("a quota comes", "a quota changes", "a quota goes", "quota controller stands still",
          "no right to read quotas", "watch resourcequotas: late", "watch resourcequotas: dropped",
          "watch resourcequotas: 410")  # fmt: skip
QUEUES = tuple(f"watch {kind}: {how}" for kind in ("queues", "namespaces") for how in ("late", "dropped", "410"))
KUBELETS = ("kubelet refuses: UnexpectedAdmissionError", "kubelet refuses: no room", "a stranger takes decided room",
            "node loses GPUs", "a container fails and restarts in place", "a pod fails for good")  # fmt: skip
LOG_TROUBLE = (
    "log out of memory",
    "log at its limit of memory",
    "log read-only",
    "log slow",
    "log slow: no answer in time",
)

#: Workers that stay on their nodes are rare while faults last. A trial has the second one, too.
STAYING = "a node closes while a replacement is on its way"
RACES = ("a node closes while a cycle is on its way", STAYING)

#: The second one is a race too, with a rate of its own.
TOPOLOGIES = ("a node is moved to another rack", "a node is moved while a cycle is on its way")
#: "room isn't free in time" and "two writers: too little room" take hundreds of seeds; fixed seeds need not hit them:
#: a pod hangs for longer than others wait for its room, or a second writer decides while nothing is reserved.
ROOM = (
    "preempted: surplus", "preempted: priority", "preempted: reclaim", "preempted: guest",
    "preempted: guestsurplus", "room is awaited, then free",
    "a job takes room for which another one waits",
    "a job that awaits room is deleted", "a job that awaits room is suspended",
    "a job that awaits room is edited", "a job that gave room is deleted while its pods leave",
    "a node closes while its room is awaited", "a node is deleted while its room is awaited",
    "a pod that gives room hangs", "the log is lost while room is awaited",
    "the log loses its tail while room is awaited",
    "kubelets refuse each pod of a job", "room is taken in vain", "room is taken once more after one kubelet's refusal",
    "a reserved job starts as promised", "a reserved job starts as promised after others behind it",
)  # fmt: skip
FORECASTS = ("a forecast is recorded", "a forecast of a job that changed meanwhile")
USERS = (
    "a TYJob that its schema refuses got in", "a TYJob of 1.4 MB", "user edits a template",
    "edit of a template refused", "a forbidden edit got in",
    "user suspends", "user resumes", "a ttl runs out", "a job ends shortly before its deadline",
)  # fmt: skip
#: Another cluster answers a process for a while, whose open watches go on or break.
ANSWERS = ("another cluster answers", "another cluster answers, and open watches break")
CLUSTERS = (
    *ANSWERS, "another cluster's process", "another cluster's process is refused", "another cluster's claim",
)  # fmt: skip
#: A second installation of Arranger, under another name and with a log of its own.
SECONDS = ("a second installation", "the ClusterLog is deleted")
STALLS = (
    "store stalled", "store stalled: a write is taken later", "all processes paused together",
    "append of an ousted writer lands after the claim", "process told to end",
)  # fmt: skip
#: A cancelled call of a gateway swallows the cancellation, as `asyncio.wait_for` of Python 3.11 can.
SWALLOWED = ("cancellation swallowed",)
IN_FLIGHT = ("append held in flight", "pause with news in hand")
UPGRADE = (
    "rolling upgrade",
    "an older TYJob definition",
    "an old version starts during the upgrade",
    "snapshot of another layout",
    "an event that an old version doesn't know",
)

#: A group is bound half-way if some of its bindings fail and others are done.
HALF_WAY = "a group is bound half-way"
NO_WAY_ON = "a node closes for the rest of a group"
BINDINGS = (
    HALF_WAY,
    NO_WAY_ON,
    *(f"bind pods: {how}" for how in ("500 before", "409", "403", "no connection", "time-out after", "the pod goes",
                                      "another pod has the name", "another scheduler takes the pod")),
)  # fmt: skip

#: In a run that is about this, most pods name claims.
WITH_CLAIMS = "a claim goes"
CLAIMS = (
    WITH_CLAIMS, "a claim in use goes", "a claim comes", "a volume goes", "a storage class goes",
    "a storage class comes", "a volume is made late", "a volume is made for another node",
    "a provisioner refuses a node", "a provisioner never answers",
)  # fmt: skip
#: Each of these is drawn at its place, in runs with claims alone.
CLAIM_FAULTS = (
    *(f"watch {kind}: {how}" for kind in ("persistentvolumeclaims", "persistentvolumes")
      for how in ("late", "dropped", "410")),
    *(f"patch persistentvolumeclaims: {how}" for how in ("500 before", "time-out after", "409", "403",
                                                         "no connection")),
)  # fmt: skip

#: In a run that is about this, jobs lack nodes, and an autoscaler is asked for them in the given way.
REQUESTS, PLACEHOLDERS = "a request is answered", "nodes come for placeholders"
AUTOSCALER = (
    REQUESTS, PLACEHOLDERS, "a request is answered late", "the answer to a request is lost", "a request fails",
    "a booking expires", "capacity is revoked", "only a part of the nodes comes", "a request is deleted by others",
    "a placeholder is deleted by others", "somebody binds a placeholder", "a provided node goes again",
    "a quorum waits beside a part of its nodes",
)  # fmt: skip
#: Each of these is drawn at its place, in runs with an autoscaler alone.
AUTOSCALER_FAULTS = (
    *(f"watch provisioningrequests: {how}" for how in ("late", "dropped", "410")),
    *(f"create provisioningrequests: {how}" for how in ("500 before", "time-out after", "403", "no connection")),
    *(f"create podtemplates: {how}" for how in ("500 before", "time-out after", "no connection")),
    *(f"delete provisioningrequests: {how}" for how in ("500 before", "time-out after", "409", "no connection")),
)

#: Pods that can't start, or don't end.
STARTS = ("a pod can't start for a while", "a pod hangs in Terminating", "a pod hangs on a lost node")

#: A worker fails and its leader succeeds, of which watches tell only later; and somebody deletes a worker whose end
#: restarts the others.
SUCCESS_UNSEEN = "a leader succeeds after its worker failed, unseen"
CUT = "a worker is deleted that ends the others"

#: Another job waits for the room of one that ends, and for that of a pod that never goes.
ENDS, STAYS = "a job ends whose room another awaits", "a pod never goes whose room a job awaits"
#: A job waits for a claim for longer than an infeasible job waits until it fails.
LACKS = "a claim doesn't come for long"

#: The API server is slow for a while, or fails some requests, and appliers owe statuses and pods.
SLOW, SOME_FAIL = "many jobs come while the API server is slow", "the first creations of a job's pods fail"

#: A lost node comes back before it counts as lost, and watches tell of it only later.
BACK_UNSEEN = "a lost node comes back in time, unseen"

#: Every named site; tests fail if the fixed seeds never hit one of them.
SITES = (*CRASHES, *PAUSES, *LOG, *API, *WATCH, *TICKS, *TIME, *WORLD, *BELONGINGS,
         *ROGUE, *FORGERIES, *DENIALS, *QUOTAS, *QUEUES,
         *KUBELETS, *LOG_TROUBLE, *RACES, *TOPOLOGIES, *ROOM, *FORECASTS, *USERS, *UPGRADE, *CLUSTERS,
         *SECONDS, *STALLS, *STARTS, BACK_UNSEEN, SUCCESS_UNSEEN, CUT, ENDS, STAYS, LACKS, SLOW, SOME_FAIL,
         *SWALLOWED, *IN_FLIGHT, *BINDINGS,
         *CLAIMS, *CLAIM_FAULTS, *AUTOSCALER, *AUTOSCALER_FAULTS)  # fmt: skip

_FAMILIES = {
    "crash": (CRASHES, 0.004),
    "pause": (PAUSES, 0.003),
    "log": (LOG[:3] + LOG[6:], 0.02),
    "log state": (LOG[3:6], 0.0),
    "api": (API[:-1], 0.02),
    "watch": (WATCH, 0.02),
    "watch of quotas": (QUOTAS[5:], 0.04),
    "ticks": (TICKS, 0.05),
    "kubelets": (KUBELETS[:1], 0.03),
    "races": (RACES, 0.05),
    "cancellations": (SWALLOWED, 0.3),
    "in flight": (IN_FLIGHT, 0.01),
    "watch of queues": (QUEUES, 0.04),
}


#: Parts of the names of sites that are passed so rarely that they need a higher rate to be hit at all: the factor.
_RARE = {
    "pause before patch configmaps": 24,
    "configmaps": 6, "create services": 6, "pause before delete pods": 24, "pause after delete pods": 72,
    "delete pods": 8, "snapshot": 8, "trim": 8,
    "a replacement is on its way": 40, "events: 429": 8, "events: time-out after": 8, "events: 500 before": 8,
}  # fmt: skip


def _more(site: str) -> int:
    """The factor between the rate of a site's family and its own."""
    return next((times for part, times in _RARE.items() if part in site), 1)


class Faults:
    """Draws faults. `on` is False in the quiet end of a run; sites in `often` have the rates given there."""

    def __init__(self, chance: random.Random, often: Mapping[str, float]) -> None:
        self._chance = chance
        self._often = often
        self.on = True
        self.hits: Counter[str] = Counter()
        self.rates: dict[str, float] = {}
        for family, (sites, rate) in _FAMILIES.items():
            if chance.random() < 0.25:
                continue
            intensity = chance.choice((0.3, 1.0, 1.0, 2.5))
            for site in sites:
                if chance.random() < 0.8:
                    self.rates[site] = rate * intensity * _more(site)
            if family == "log state":
                self.rates |= {site: 1.0 for site in sites if chance.random() < 0.5}
        self.rates |= often

    def more(self, sites: Sequence[str], chance: random.Random, rate: float = 0.15) -> None:
        """Add faults that only some worlds have. Their `chance` is their own, so that other worlds stay as they are."""
        self.rates |= {site: rate for site in sites if chance.random() < 0.9}

    def at(self, site: str) -> bool:
        """Whether this fault happens now, here."""
        rate = self.rates.get(site, 0.0)
        if not self.on or not rate or self._chance.random() >= rate:
            return False
        self.hits[site] += 1
        return True

    def has(self, site: str) -> bool:
        """Whether this run has this fault at all."""
        return self.on and site in self.rates

    def often(self, *sites: str) -> bool:
        """Whether this run is about one of these faults: who causes it does so in any case, and often."""
        return not self._often.keys().isdisjoint(sites)

    def hit(self, site: str) -> None:
        """Count a fault that another part of the simulation decided on."""
        self.hits[site] += 1
