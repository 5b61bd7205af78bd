"""A process's metrics for Prometheus: one registry, and one object with every metric, created once and passed on.

Gauges whose value is an age are computed when they are scraped, so that they grow while nothing happens.
"""

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from arranger.clock import Clock

_CYCLE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_WAIT_BUCKETS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0, 259200.0, 604800.0)
_ERROR_BUCKETS = (5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0)
_REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """All metrics of one process. Labels are few and bounded: never a job's, pod's or node's name, and the names of a
    bounded number of queues."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard_s: dict[str, float] = {}
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        self._heard_age = self._gauge(
            "watch_heard_age_seconds", "Seconds since the watch last received anything.", ["kind"]
        )
        self._measure_log()
        self._measure_roles()
        self._measure_room()
        self._measure_queues()
        self._measure_jobs()
        self._measure_gpus()
        self._measure_store()
        self._measure_feeds()

    def _measure_log(self) -> None:
        """Reading and writing the log, and observations."""
        self.lag_events = self._gauge("lag_events", "Events in the log that this reader has not folded.", ["reader"])
        self.lag_seconds = self._gauge(
            "lag_seconds", "Age in seconds of the oldest event that this reader has not folded.", ["reader"]
        )
        self.epoch = self._gauge("epoch", "Epoch of the log that this process reads.")
        self.offset = self._gauge("offset", "Offset of the last event folded.", ["reader"])
        self.forged = self._gauge(
            "forged_offset", "Offset of the entry at which the fold waits because it isn't authentic; 0: none."
        )
        self.events = self._counter("events_appended", "Events that this process appended, by kind.", ["kind"])
        self.appends = self._counter(
            "appends",
            "Batches that this process tried to append, by result: ok, duplicate, superseded (watch), lost (epoch), "
            "clock (it is off) or unavailable.",
            ["result"],
        )
        self.writes_refused = self._gauge(
            "writes_refused", "1 while Redis refuses the writes of this process because it is full or a replica."
        )
        self.append_seconds = self._histogram("append_seconds", "Seconds that one append took.", _CYCLE_BUCKETS)
        self.observations = self._counter("observations", "Observations from Kubernetes, by kind of object.", ["kind"])
        self.relists = self._counter("relists", "Full listings, by kind of object and reason.", ["kind", "reason"])
        self.missed_observations = self._counter(
            "missed_observations", "Objects whose changes the watch missed and a periodic comparison found.", ["kind"]
        )

    def _measure_roles(self) -> None:
        """Cycles, decisions, and effects on the cluster."""
        self.cycles = self._counter(
            "cycles", "Scheduling cycles, by result: taken, idle (nothing to decide) or superseded.", ["result"]
        )
        self.cycle_seconds = self._histogram("cycle_seconds", "Seconds that one scheduling cycle took.", _CYCLE_BUCKETS)
        self.decisions = self._counter(
            "decisions_folded", "Decisions folded by this process, by kind and verdict.", ["kind", "verdict"]
        )
        self.requests = self._counter(
            "api_requests", "Requests to the API server, by code; code 0: no response.", ["verb", "resource", "code"]
        )
        self.request_seconds = self._histogram(
            "api_request_seconds", "Seconds until the API server responded.", _REQUEST_BUCKETS, ["verb", "resource"]
        )
        self.look_seconds = self._counter(
            "look_seconds",
            "Seconds that looks at jobs waited or took, summed over them: its increase in a second is the mean number "
            "of jobs in work.",
            ["role"],
        )
        self.effects_in_flight = self._gauge("effects_in_flight", "Effects that the applier is carrying out now.")
        self.reports_dropped = self._counter("reports_dropped", "Jobs whose Events were dropped: too many waited.")
        self.effects = self._counter("effects", "Effects carried out, by effect and result.", ["effect", "result"])

    def _measure_room(self) -> None:
        """Preemptions and reservations, each counted by the process that decided on it."""
        self.preemptions = self._counter(
            "preemptions", "Jobs that gave room to another one, by kind: Surplus, Priority or Reclaim.", ["kind"]
        )
        self.preempted_gpu_seconds = self._counter(
            "preempted_gpu_seconds", "GPU seconds of work that was lost by giving room to other jobs."
        )
        self.preemption_gained_gpu_seconds = self._counter(
            "preemption_gained_gpu_seconds", "GPU seconds that jobs ran with room that others gave to them."
        )
        self.reservations = self._counter(
            "reservations", "Decisions on reservations, by result: made, moved (another start) or ended.", ["result"]
        )
        self.room_not_freed = self._counter(
            "room_not_freed", "Jobs that gave back nodes because others didn't leave them in time."
        )

    def _measure_queues(self) -> None:
        """Queues, each by the applier in whose share it is; `resource` is gpu (of all vendors) or cpu (in cores)."""
        labels = ["queue", "resource"]
        self.queue_used = self._gauge("queue_used", "What the placed pods of a queue's jobs request.", labels)
        self.queue_share = self._gauge("queue_share", "What a queue is entitled to now.", labels)
        self.queue_demand = self._gauge("queue_demand", "What a queue's jobs use and still request.", labels)
        self.queue_waiting = self._gauge("queue_waiting_jobs", "Jobs of a queue that wait for nodes.", ["queue"])
        self.queue_running = self._gauge("queue_running_jobs", "Jobs of a queue that have nodes.", ["queue"])

    def _measure_jobs(self) -> None:
        """Jobs. The gauges are those of one process of the cluster; the process that decided counts the rest."""
        self.jobs = self._gauge("jobs", "TYJobs, pods of others and pod groups by queue and stage.", ["queue", "stage"])
        self.waiting_jobs = self._gauge(
            "waiting_jobs",
            "Jobs that wait for nodes or to be started, by what they mainly wait for.",
            ["queue", "cause"],
        )
        self.job_wait_seconds = self._histogram(
            "job_wait_seconds",
            "Seconds that a job waited until it started, by its queue and the GPUs of all its pods.",
            _WAIT_BUCKETS,
            ["queue", "gpus"],
        )
        self.restarts = self._counter(
            "restarts", "Attempts of jobs, and workers, that started again, by reason.", ["of", "reason"]
        )
        self.forecast_error_seconds = self._histogram(
            "forecast_error_seconds",
            "Seconds between the start of a job and its last forecast, by how far away that was, and whether the job "
            "started earlier or later.",
            _ERROR_BUCKETS,
            ["horizon", "started"],
        )

    def _measure_gpus(self) -> None:
        """GPUs of all vendors by the pool of their nodes, measured by one process of the cluster."""
        self.gpus = self._gauge("gpus", "GPUs of the nodes of a pool.", ["pool"])
        self.gpus_used = self._gauge("gpus_used", "GPUs that pods request.", ["pool", "queue"])
        self.gpus_reserved = self._gauge("gpus_reserved", "GPUs that are kept for waiting jobs.", ["pool", "queue"])
        self.gpus_idle = self._gauge("gpus_idle", "GPUs that nothing uses, of nodes that take pods.", ["pool"])
        self.gpus_reserved_idle = self._gauge(
            "gpus_reserved_idle", "Idle GPUs that reservations of waiting jobs keep.", ["pool"]
        )
        self.gpus_fragmented = self._gauge("gpus_fragmented", "Idle GPUs that typical pods can't use.", ["pool"])
        self.measure_seconds = self._histogram(
            "measure_seconds", "Seconds that one measurement of jobs and GPUs took.", _CYCLE_BUCKETS
        )

    def _measure_store(self) -> None:
        """Snapshots, the archive, ticks, and the process itself."""
        self.snapshots = self._counter("snapshots", "Snapshots stored, by result.", ["result"])
        self.trimmed = self._counter("trimmed_entries", "Entries trimmed from the log.")
        self.archived = self._gauge("archived_offset", "Offset up to which the archive holds this epoch of the log.")
        self.archiving = self._counter("archiving", "Rounds of archiving, by result: ok or failed.", ["result"])
        self.archive_age = self._gauge(
            "archive_success_age_seconds",
            "Seconds since the last round of archiving that didn't fail; 0 without an archive.",
        )
        self.archived_bytes = self._counter("archived_bytes", "Bytes of the files put into the archive.")
        self.ticks = self._counter("ticks", "Ticks handled, by name and result.", ["tick", "result"])
        self.ticks_dropped = self._counter(
            "ticks_dropped", "Jobs dropped from rq's tick queues because they are not ticks, by queue.", ["tick"]
        )
        self.questions = self._counter(
            "questions", "Questions that an analyst worked on, by result: done, failed, cancelled or stopped.",
            ["kind", "result"],
        )  # fmt: skip
        self.question_seconds = self._histogram(
            "question_seconds", "Seconds that an analyst worked on a question.", _CYCLE_BUCKETS, ["kind"]
        )
        self.questions_waiting = self._gauge("questions_waiting", "Questions that wait for an analyst.", ["queue"])
        self.questions_running = self._gauge("questions_running", "Questions that analysts work on.", ["queue"])
        self.questions_retried = self._counter("questions_retried", "Questions put back: their analyst was killed.")
        self.questions_dropped = self._counter(
            "questions_dropped",
            "Jobs dropped from rq's queues of questions because they are none, by queue.",
            ["queue"],
        )
        self.clock_offset = self._gauge(
            "clock_offset_seconds", "Seconds that this process's clock is ahead of the log's server; negative: behind."
        )
        self.redis_memory = self._gauge(
            "redis_memory_bytes", "Memory of Redis: used, and its limit (0: none), by one process.", ["memory"]
        )
        self.certificate_expires = self._gauge(
            "certificate_expiration_timestamp_seconds",
            "When a certificate expires, in seconds since 1970: of redis, sentinel or api-server.",
            ["certificate"],
        )
        self.ready = self._gauge("ready", "1 if this process is ready.")
        self.check = self._gauge("check", "1 while this check of /readyz passes, else 0.", ["check"])

    def _measure_feeds(self) -> None:
        """What `arranger webhook` delivers."""
        self.webhook_events = self._counter(
            "webhook_events",
            "Events sent to the webhook, by result: delivered or failed (and tried again).",
            ["result"],
        )
        self.webhook_waiting = self._gauge("webhook_waiting_events", "Events that the webhook hasn't accepted yet.")
        self.webhook_age = self._gauge(
            "webhook_age_seconds", "Seconds for which the oldest event for the webhook has been waiting."
        )
        self.webhook_gaps = self._counter("webhook_gaps", "Gaps in what the webhook was told, its beginning included.")

    def _gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(f"arranger_{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(f"arranger_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], labels: Sequence[str] = ()) -> Histogram:
        return Histogram(f"arranger_{name}", text, labels, buckets=buckets, registry=self.registry)

    def lag(self, reader: str, *, events: int, seconds: float) -> None:
        """Record how far a reader is behind the end of the log."""
        self.lag_events.labels(reader).set(events)
        self.lag_seconds.labels(reader).set(seconds)

    def request(self, *, verb: str, resource: str, code: int, seconds: float) -> None:
        """Count a request to the API server: `verb` as in RBAC, `resource` plural, `code` 0 without a response."""
        self.requests.labels(verb, resource, str(code)).inc()
        self.request_seconds.labels(verb, resource).observe(seconds)

    def heard(self, kind: str) -> None:
        """The watch of this kind received something now, including bookmarks."""
        if kind not in self._heard_s:
            self.missed_observations.labels(kind)
            self._heard_age.labels(kind).set_function(lambda: self.heard_age_s(kind) or 0.0)
        self._heard_s[kind] = self._clock.monotonic_s()

    def expect_ticks(self, ticks: Iterable[str]) -> None:
        """Export counts of these ticks from 0 on: Prometheus sees no increase from nothing to 1."""
        for tick in ticks:
            self.ticks_dropped.labels(tick)
            for result in ("ok", "failed", "timeout"):
                self.ticks.labels(tick, result)

    def forget(self, kind: str) -> None:
        """Stop reporting an age for the kind, which this process no longer watches."""
        if self._heard_s.pop(kind, None) is not None:
            self._heard_age.remove(kind)

    def heard_age_s(self, kind: str) -> float | None:
        """Seconds since the watch last received anything; None if this process doesn't watch the kind."""
        heard_s = self._heard_s.get(kind)
        return None if heard_s is None else max(0.0, self._clock.monotonic_s() - heard_s)

    def forget_queues(self) -> None:
        """Stop reporting queues: they may be in another process's share now."""
        for gauge in (self.queue_used, self.queue_share, self.queue_demand, self.queue_waiting, self.queue_running):
            gauge.clear()

    def queue(
        self, name: str, amounts: Mapping[str, tuple[float, float, float]], *, waiting: int, running: int
    ) -> None:
        """Report a queue: resource → used, share, demand."""
        for resource, values in amounts.items():
            for gauge, value in zip((self.queue_used, self.queue_share, self.queue_demand), values, strict=True):
                gauge.labels(name, resource).set(value)
        self.queue_waiting.labels(name).set(waiting)
        self.queue_running.labels(name).set(running)

    def forget_cluster(self) -> None:
        """Stop reporting jobs and GPUs: another process measures them now."""
        for gauge in (self.jobs, self.waiting_jobs, self.gpus, self.gpus_used, self.gpus_reserved):
            gauge.clear()
        for gauge in (self.gpus_idle, self.gpus_reserved_idle, self.gpus_fragmented, self.redis_memory):
            gauge.clear()

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)
