"""The members file of a job: who is in it now, for programs that must know more than a fixed number of ranks.

The file is written as a whole into a ConfigMap, whose content is at most 1 MiB. So it has columns instead of an object
for each pod: the entry at position `i` of each list is that of the pod with index `i`. A host name is given without the
job's domain, which all of them share. The longest possible names and addresses of 10,000 workers just fit.
"""

from typing import Any

import msgspec

from arranger.model.job import LEADER_GROUP, Stage
from arranger.model.names import LEADER_ROLE, WORKER_ROLE, domain, hostname
from arranger.model.pod import TERMINAL
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State


def has_members_file(job: JobRecord) -> bool:
    """Whether the job's members file is to be kept up to date: pods that read it may exist."""
    of_job = job.spec is not None and job.spec.has_members_file
    return of_job and job.stage in (Stage.STARTING, Stage.RUNNING) and not job.seen.deleting


def members_text(state: State, job: JobRecord) -> str:
    """The content of the members file, as JSON; it changes only if what it shows changes."""
    spec, ranks, sets = job.valid_spec, 0, []
    for number, group in enumerate(spec.groups):
        if number == LEADER_GROUP and not spec.has_leader:
            continue
        sets.append(
            {
                "name": group.name,
                "role": LEADER_ROLE if number == LEADER_GROUP else WORKER_ROLE,
                "count": group.count,
                "minCount": group.min_count,
                "groupSize": group.group_size,
                "firstRank": ranks,
                "hostnames": [hostname(group.name, index) for index in range(group.count)],
                **_columns(state, job, number, group.count),
            }
        )
        ranks += group.count
    head = {"job": job.seen.name, "namespace": job.seen.namespace, "attempt": job.attempt}
    found = {**head, "domain": domain(job.seen.name, job.seen.namespace), "sets": sets}
    return msgspec.json.encode(found).decode()


def _columns(state: State, job: JobRecord, group: int, count: int) -> dict[str, list[Any]]:
    """For each index: the address of its pod ("" for none that runs), and 1 where it has a node, or is ready."""
    addresses, placed, ready = [""] * count, [0] * count, [0] * count
    for index in range(count):
        slot = (group, index)
        placed[index] = int(slot in job.placements)
        uid = job.bound.get(slot)
        pod = state.pods[uid] if uid is not None else None
        if pod is not None and pod.phase not in TERMINAL and not pod.deleting:
            addresses[index] = pod.ip
            ready[index] = int(pod.ready)
    return {"addresses": addresses, "placed": placed, "ready": ready}
