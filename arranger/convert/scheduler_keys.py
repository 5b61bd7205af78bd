"""Labels and annotations that schedulers read, of an object or of its pods: what a TYJob has in place of each.

A scheduler reads them whoever made the pods. So they mean something even to kinds whose controllers don't know them.
"""

import re

#: Whether pods give room to others. Volcano and YuniKorn read it as a truth value, per pod or for a whole job.
PREEMPTIBLE = (
    "volcano.sh/preemptable",
    "yunikorn.apache.org/allow-preemption",
    "quota.scheduling.koordinator.sh/preemptible",
)
_TRUE = ("1", "t", "T", "true", "TRUE", "True")

#: The longest time with nodes, which Kueue reads on its objects.
MOST_SECONDS = "kueue.x-k8s.io/max-exec-time-seconds"

_TOGETHER = "the TYJob itself says which pods get nodes together (minCount, minWorkersNum)"
_TOPOLOGY = "give the TYJob a topology, with the labels of nodes (docs/jobs.md, Topology)"
_QUEUE = "name the Queue in spec.queue of the TYJob (docs/queues.md)"
#: What to use in place of those without an equivalent, the first that matches.
_INSTEAD = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"kueue\.x-k8s\.io/priority-class",
         "a WorkloadPriorityClass of Kueue: give the TYJob a priority (1 to 10) or a priorityClassName"),
        (r"kueue\.x-k8s\.io/job-completions-equal-parallelism",
         "a TYJob has one number of pods for both: kubectl scale changes it"),
        (r"kueue\.x-k8s\.io/(pod-group-.*|job-min-parallelism)", _TOGETHER),
        (r"kueue\.x-k8s\.io/podset-.*", _TOPOLOGY),
        (r"provreq\.kueue\.x-k8s\.io/.*",
         "what an autoscaler is asked is in the settings (docs/operations.md, Autoscalers)"),
        (r"((scheduling\.)?volcano\.sh|scheduling\.k8s\.io)/group-(name|min-.*)", _TOGETHER),
        (r"pod-group\.scheduling\.sigs\.k8s\.io(/.*)?|scheduling\.x-k8s\.io/pod-group", _TOGETHER),
        (r"yunikorn\.apache\.org/(task-group.*|schedulingPolicyParameters)", _TOGETHER),
        (r"(scheduling\.)?volcano\.sh/queue-name|yunikorn\.apache\.org/queue", _QUEUE),
        (r"volcano\.sh/(network-topology-.*|task-topology-.*)", _TOPOLOGY),
        (r"volcano\.sh/cooldown-time",
         "the least time before a preemption is minRuntimeSeconds of the Queue (docs/queues.md)"),
        (r"volcano\.sh/jdb-(min-available|max-unavailable)",
         "preemption takes workers beyond minCount and minWorkersNum first, and none with preemptible: false"),
        (r"volcano\.sh/revocable-zone", "choose these nodes by nodeSelector or affinity, and tolerate their taints"),
        (r"(volcano\.sh/)?sla-waiting-time", "waiting raises no priority: give the TYJob a priority (1 to 10)"),
        (r"volcano\.sh/numa-topology-policy", "the NUMA policy of the kubelet counts"),
        (r"volcano\.sh/qos-level", "all pods share nodes alike: give the TYJob a priority (1 to 10)"),
    )
)  # fmt: skip


def keeps_room(value: str) -> bool:
    """Whether pods with this value of a key in `PREEMPTIBLE` give no room: what isn't a truth value counts as false."""
    return value not in _TRUE


def instead_of(name: str) -> str:
    """What to use in place of a label or annotation that a scheduler reads; empty for others."""
    return next((words for pattern, words in _INSTEAD if pattern.fullmatch(name)), "")
