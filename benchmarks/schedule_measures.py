"""What a schedule of jobs gives its users: waits, slowdowns, utilisation, and how fairly the GPUs were shared.

A schedule is the second at which each job of a workload started; each then held its GPUs for its duration. So the
measures are the same for Arranger's schedules and for simulated ones.

Entitlement: at each moment the cluster's GPUs are divided among the users equally, but none gets more than its running
and waiting jobs request (max-min fairness; Bertsekas and Gallager, Data Networks, 1992, section 6.5.2). Over a window
of time, a user is entitled to the integral of that, in GPU seconds, while all users together request more GPUs than
there are. When they request less, nobody is in another's way, so these times don't count.

Jain's index (Jain, Chiu and Hawe, DEC TR-301, 1984) of what users got / what they were entitled to in a window:
(sum of x)**2 / (n * sum of x**2). It is 1 if all got the same part, and 1/n if one got everything. The index of a
schedule is the mean over the windows, weighted with the time that counts in each.

Bounded slowdown (Feitelson et al., JSSPP 1997): (wait + duration) / max(duration, 10 s), at least 1.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

import msgspec

from benchmarks.trace_jobs import TraceJob, Workload

HOUR_S = 3600
DAY_S = 24 * HOUR_S
#: Of slowdowns: shorter jobs count as this long, in seconds.
_SHORT_S = 10
#: Jobs with at least as many GPUs are wide: they need half of a usual node.
WIDE_GPUS = 4


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule. Waits are in minutes; `utilisation_percent` is that of all GPUs up to the last submission,
    and `contended_percent` the part of that time in which users request more GPUs than there are.

    `large_wait_min` is the mean wait of the largest user's jobs, `small_wait_min` that of all other jobs, and
    `wide_wait_min` that of jobs with at least four GPUs. Without such jobs it is 0.
    """

    makespan_h: float
    utilisation_percent: float
    mean_wait_min: float
    p50_wait_min: float
    p99_wait_min: float
    jain_hour: float
    jain_day: float
    worst_slowdown: float
    worst_user: str
    large_wait_min: float
    small_wait_min: float
    wide_wait_min: float
    contended_percent: float


def measures(workload: Workload, starts_s: Mapping[str, int]) -> Measures:
    """The measures of a schedule. Raises KeyError for a job that never started."""
    jobs = workload.jobs
    waits_s = {job.name: starts_s[job.name] - job.submitted_s for job in jobs}
    last_s = max(jobs[-1].submitted_s, 1)
    used_s = sum(job.gpus * max(0, min(starts_s[job.name] + job.lasts_s, last_s) - starts_s[job.name]) for job in jobs)
    slowdowns = user_slowdowns(jobs, waits_s)
    worst = max(sorted(slowdowns), key=lambda user: slowdowns[user])
    large = workload.largest_user
    segments = list(_segments(workload, starts_s))
    contended_s = sum(max(0, min(end_s, last_s) - begin_s) for begin_s, end_s, *_ in segments)
    return Measures(
        makespan_h=max(starts_s[job.name] + job.lasts_s for job in jobs) / HOUR_S,
        utilisation_percent=100 * used_s / (workload.gpus * last_s),
        mean_wait_min=_mean_min(waits_s.values()),
        p50_wait_min=quantile(list(waits_s.values()), 0.5) / 60,
        p99_wait_min=quantile(list(waits_s.values()), 0.99) / 60,
        jain_hour=_jain_of_windows(segments, HOUR_S),
        jain_day=_jain_of_windows(segments, DAY_S),
        worst_slowdown=slowdowns[worst],
        worst_user=worst,
        large_wait_min=_mean_min(waits_s[job.name] for job in jobs if job.user == large),
        small_wait_min=_mean_min(waits_s[job.name] for job in jobs if job.user != large),
        wide_wait_min=_mean_min(waits_s[job.name] for job in jobs if job.gpus >= WIDE_GPUS),
        contended_percent=100 * contended_s / last_s,
    )


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest value that at least this part of all values doesn't exceed."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def user_slowdowns(jobs: Iterable[TraceJob], waits_s: Mapping[str, int]) -> dict[str, float]:
    """User → the mean bounded slowdown of its jobs."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for job in jobs:
        found[job.user].append(max(1.0, (waits_s[job.name] + job.lasts_s) / max(job.lasts_s, _SHORT_S)))
    return {user: fmean(slowdowns) for user, slowdowns in found.items()}


def jain(parts: Sequence[float]) -> float:
    """Jain's index; 1 for users that all got nothing."""
    squares = sum(part * part for part in parts)
    return sum(parts) ** 2 / (len(parts) * squares) if squares else 1.0


def entitled(demands: Mapping[str, int], gpus: int) -> dict[str, float]:
    """What each user is entitled to of these GPUs, by max-min fairness with equal weights."""
    left, users = float(gpus), len(demands)
    found: dict[str, float] = {}
    for user in sorted(demands, key=lambda user: demands[user]):
        found[user] = min(float(demands[user]), left / users)
        left -= found[user]
        users -= 1
    return found


#: Begin and end in seconds, and GPUs by user: entitled to, and used.
_Segment = tuple[int, int, dict[str, float], dict[str, int]]


def _segments(workload: Workload, starts_s: Mapping[str, int]) -> Iterator[_Segment]:
    """The times at which users together request more GPUs than there are, cut where anything changes."""
    changes: defaultdict[int, list[tuple[str, int, int]]] = defaultdict(list)
    for job in workload.jobs:
        start_s = starts_s[job.name]
        changes[job.submitted_s].append((job.user, job.gpus, 0))
        changes[start_s].append((job.user, 0, job.gpus))
        changes[start_s + job.lasts_s].append((job.user, -job.gpus, -job.gpus))
    demands: defaultdict[str, int] = defaultdict(int)
    used: defaultdict[str, int] = defaultdict(int)
    moments_s = sorted(changes)
    for begin_s, end_s in pairwise(moments_s):
        for user, more_demand, more_used in changes[begin_s]:
            demands[user] += more_demand
            used[user] += more_used
        wanting = {user: gpus for user, gpus in demands.items() if gpus}
        if sum(wanting.values()) > workload.gpus:
            yield begin_s, end_s, entitled(wanting, workload.gpus), dict(used)


def _jain_of_windows(segments: Iterable[_Segment], window_s: int) -> float:
    """The mean of the windows' indices, weighted with the time that counts; 1 if none does."""
    got: defaultdict[int, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    due: defaultdict[int, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    counted_s: defaultdict[int, int] = defaultdict(int)
    for begin_s, end_s, shares, used in segments:
        for window in range(begin_s // window_s, (end_s - 1) // window_s + 1):
            lasts_s = min(end_s, (window + 1) * window_s) - max(begin_s, window * window_s)
            counted_s[window] += lasts_s
            for user, share in shares.items():
                due[window][user] += share * lasts_s
                got[window][user] += used[user] * lasts_s
    whole_s = sum(counted_s.values())
    if not whole_s:
        return 1.0
    return sum(
        jain([got[window][user] / share for user, share in due[window].items()]) * lasts_s
        for window, lasts_s in counted_s.items()
    ) / whole_s  # fmt: skip


def _mean_min(waits_s: Iterable[int]) -> float:
    found = list(waits_s)
    return fmean(found) / 60 if found else 0.0
