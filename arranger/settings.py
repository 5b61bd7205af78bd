"""The settings of a process: declared once here, read from four sources with one precedence.

Defaults, then the TOML file (`--config` or `ARRANGER_CONFIG`), then environment variables `ARRANGER_<NAME>`, then
flags: the later wins. `--help`, `arranger settings` and the error messages show the description, range and allowed
values of each field below. A `UsageError` names an unusable setting, the source of its value, and what is allowed.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta, inspect

from arranger.errors import UsageError
from arranger.events.redis_urls import SCHEMES, check_address, without_passwords
from arranger.lifecycle.config import LifecycleConfig
from arranger.model.config import CycleConfig, StartBounds
from arranger.model.near_names import near_names
from arranger.model.provisioning import DEFAULT_CLASS, Provisioning
from arranger.model.queue import Preemption, PreemptionMode, ScheduledFailed
from arranger.setting_tables import KUBE_SCHEDULER, PREEMPTION, Modes, Setting, check_schedulers, names_in, table_of

_ENV_PREFIX = "ARRANGER_"
#: Variables that are no settings: the file with settings, the server whose log the reading commands read, and whether
#: long work says by lines of JSON how far it is.
CONFIG_VARIABLE = _ENV_PREFIX + "CONFIG"
SERVER_VARIABLE = _ENV_PREFIX + "SERVER"
PROGRESS_VARIABLE = _ENV_PREFIX + "PROGRESS_LINES"

#: Kubernetes sets such variables in pods for Services whose names begin with "arranger": they are not settings.
_SERVICE_LINK = re.compile(r"ARRANGER(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")
_SERVICE_LINK_VALUE = re.compile(r"(tcp|udp|sctp)://")

#: The size of the largest job: after this many pods placed in vain, a quorum waits for the next cycle.
TRIED_PODS = 10_000
#: Clusters of fewer nodes search longer (`CycleConfig.search_nodes`). On 20,000 random clusters of up to 12 nodes and
#: 12 pods (`tests/exhaustive.py`), 2 quorums were missed without it, and none with it.
SEARCH_NODES = 200

_WEEK_S = 604_800


def _about(text: str, least: float | None = None, most: float | None = None, **extra: str) -> Meta:
    """The purpose of a setting and its range; `extra` is what `Setting` can't derive from its name and type."""
    return Meta(description=text, ge=least, le=most, extra=extra)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting; a field's metadata is its documentation."""

    redis_url: Annotated[
        str,
        Meta(pattern=rf"^({'|'.join(map(re.escape, SCHEMES))})://."),
        _about(
            "Redis server that holds the log; password and TLS (rediss://) go into the URL; Sentinels: "
            "redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DATABASE",
            allowed="a URL that begins with redis://, rediss://, redis+sentinel://, rediss+sentinel:// or unix://, "
            "with ports up to 65535",
            flag="--redis",
        ),
    ] = "redis://127.0.0.1:6379/0"
    cluster: Annotated[
        str,
        Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"),
        _about(
            "name of the cluster and of its log in Redis, so several clusters can share one server",
            allowed="a DNS label: at most 63 of a-z, 0-9 and '-', not '-' at either end",
        ),
    ] = "default"
    log_key: Annotated[
        str,
        _about(
            "secret keys that sign the log, separated by commas: the first signs, all are accepted; file:PATH is read, "
            "none stands for no signature; empty: nothing is signed",
            allowed="keys of at least 32 letters, digits, dashes and underscores, or none, or file: and a path",
        ),
    ] = ""
    kubeconfig: Annotated[str, _about("kubeconfig file; empty: $KUBECONFIG, then in-cluster, then ~/.kube/config")] = ""
    context: Annotated[str, _about("context of the kubeconfig; empty: its current one")] = ""
    namespace: Annotated[
        str,
        Meta(pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$"),
        _about("the only namespace whose TYJobs and pods are watched; empty: all", allowed="a namespace, or nothing"),
    ] = ""
    http_host: Annotated[
        str,
        Meta(min_length=1),
        _about(
            "address of /healthz, /readyz and /metrics; 0.0.0.0 lets kubelets and Prometheus in",
            allowed="an IP address or host name of this machine",
        ),
    ] = "127.0.0.1"
    http_port: Annotated[
        int, _about("port of /healthz, /readyz and /metrics; 0: any free port, which a log line names", 0, 65535)
    ] = 8460
    pool_label: Annotated[
        str, _about("label of nodes that names their pool in metrics; empty: the labels that large providers set")
    ] = ""
    log_level: Annotated[Literal["debug", "info", "warning", "error"], _about("lowest severity that is logged")] = (
        "info"
    )
    log_format: Annotated[
        Literal["auto", "text", "json"], _about("form of the log lines; auto: text on a terminal, JSON otherwise")
    ] = "auto"
    cycle_period_s: Annotated[float, _about("seconds between scheduling cycles when nothing changes", 0.05, 3600)] = 1.0
    queue_policy: Annotated[
        str,
        _about("order among jobs whose spec names no jobQueuePolicy; `arranger policies` lists them", policies="queue"),
    ] = "Priority"
    pod_policy: Annotated[
        str,
        _about(
            "how nodes are chosen for jobs whose spec names no basicPolicy; `arranger policies` lists them",
            policies="pod",
        ),
    ] = "MostAllocated"
    weights: Annotated[
        dict[str, Annotated[int, Meta(ge=0, le=1000)]],
        _about(
            "weight of each resource in node scores; accelerators means every one, */gpu those whose name ends in /gpu",
            allowed="a table of resource names and whole numbers from 0 to 1000, such as cpu=1,memory=1,accelerators=5",
        ),
    ] = msgspec.field(default_factory=lambda: dict(CycleConfig().weights))
    filter_order: Annotated[
        str,
        _about(
            "filters that refuse nodes before all others, and count them; `arranger policies` lists all filters",
            policies="filters",
        ),
    ] = ""
    infeasible_grace_s: Annotated[
        int, _about("seconds before a job that doesn't fit even an empty cluster fails", 0, _WEEK_S)
    ] = 300
    scheduled_failed: Annotated[
        Literal["AfterGrace", "Never"],
        _about("whether jobs that don't fit even an empty cluster fail, or wait for good; if a queue doesn't say it"),
    ] = "AfterGrace"
    provisioning: Annotated[
        Literal["None", "Request", "Pending"],
        _about("how autoscalers learn of jobs that wait for nodes, for queues that don't say it"),
    ] = "None"
    provisioning_class: Annotated[
        str,
        Meta(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"),
        _about("class of the ProvisioningRequests", allowed="a DNS subdomain that the autoscaler knows"),
    ] = DEFAULT_CLASS
    lost_node_s: Annotated[
        int, _about("seconds that a node may be gone or not ready before its pods count as lost", 1, _WEEK_S)
    ] = 60
    refused_node_s: Annotated[
        int,
        _about(
            "seconds that a job, or a worker set, avoids a node that refused its pods or where they failed", 0, _WEEK_S
        ),
    ] = 60
    quorum_grace_s: Annotated[
        int,
        _about("seconds that a started job may lack a part of its quorum before it gives up all its nodes", 1, _WEEK_S),
    ] = 300
    start_grace_s: Annotated[
        int,
        _about(
            "seconds that pods of a quorum may be unable to start (image, configuration) before their job gives its "
            "nodes up, if startGraceSeconds doesn't say it",
            1,
            _WEEK_S,
        ),
    ] = 300
    ready_grace_s: Annotated[
        int,
        _about(
            "seconds from its start until a job's quorum has to be ready, before it gives its nodes up, if "
            "startGraceSeconds doesn't say it; 0: no limit",
            0,
            _WEEK_S,
        ),
    ] = 7200
    refused_grace_s: Annotated[
        int,
        _about(
            "seconds that the API server may refuse pods before their nodes are given up; pods are retried every 2 s",
            0,
            _WEEK_S,
        ),
    ] = 5
    reasons_a_second: Annotated[
        int,
        _about(
            "waiting jobs whose reason may be updated per second; each costs the API server a status update", 1, 10_000
        ),
    ] = 20
    search_steps: Annotated[
        int,
        _about(
            "limit of the complete search for a job's nodes, in steps of about a microsecond; 0: no complete search",
            0,
            1_000_000,
        ),
    ] = 20_000
    fair_share_half_life_s: Annotated[
        int,
        _about(
            "half-life in seconds of earlier use, which counts in the order of queues; 0: only present use counts",
            0,
            52 * _WEEK_S,
        ),
    ] = 0
    preemption: Annotated[
        Modes,
        _about(
            "how room may be taken back, if the queues allow it: surplus workers, by priority, by share of queues",
            allowed="Allowed or Never for all, or a table such as surplus=Allowed,priority=Never,reclaim=Never",
        ),
    ] = msgspec.field(default_factory=PREEMPTION.copy)
    preemption_bound_s: Annotated[
        int,
        _about("seconds for which room is kept for a job after the grace periods of the pods that leave it", 1, 86_400),
    ] = 60
    min_runtime_s: Annotated[
        int,
        _about(
            "seconds that jobs which took nodes from others keep their quorum, if their queue has no minRuntimeSeconds",
            0,
            _WEEK_S,
        ),
    ] = 120
    evict: Annotated[bool, _about("whether preempted pods are evicted, which honours PodDisruptionBudgets")] = False
    qos_order: Annotated[bool, _about("whether QoS classes decide the order of jobs of the same priority")] = False
    scheduler_names: Annotated[
        str,
        _about(
            "pods that no TYJob owns are placed if their schedulerName is one of these; empty: only TYJobs are placed",
            allowed=f"different names with commas between them, without {KUBE_SCHEDULER}, which is kube-scheduler's",
        ),
    ] = "arranger"
    volumes: Annotated[bool, _about("whether pods go only where their volumes can be reached; needs rights")] = False
    volume_timeout_s: Annotated[
        int, _about("seconds in which a claim must be bound on the node selected for it; 0: no limit", 0, _WEEK_S)
    ] = 600
    devices: Annotated[bool, _about("whether resource claims of pods get devices; needs rights")] = False
    backfill: Annotated[
        Literal["Guests", "Known", "Off"],
        _about(
            "how later jobs use reserved room: Guests leave as soon as the job with the reservation can start, or are "
            "ended before by their deadlines; Known: only those that are expected to end before; Off: no reservations"
        ),
    ] = "Guests"
    reservations: Annotated[int, _about("how many of the first waiting jobs get a reservation", 0, 100)] = 1
    reservation_refresh_s: Annotated[
        int,
        _about(
            "least time in seconds between two revisions of a reservation; at news of room it moves at once to an "
            "earlier start",
            1,
            86_400,
        ),
    ] = 30
    runtime_quantiles: Annotated[
        bool, _about("whether jobs without an expected end are expected to run as long as earlier ones of their kind")
    ] = True
    forecast_every_s: Annotated[
        int,
        _about(
            "least seconds between forecasts of when waiting jobs start, for their status, which take a twentieth of a "
            "processor at most; 0: none",
            0,
            86_400,
        ),
    ] = 10
    forecast_jobs: Annotated[
        int, _about("how many of the first waiting jobs are forecast; those behind them are left out", 1, 10_000)
    ] = 100
    clean_pod_policy: Annotated[
        Literal["All", "Running", "None"],
        _about("which pods of an ended job are deleted if it names no cleanPodPolicy; failed ones stay as it says"),
    ] = "All"
    image_grace_s: Annotated[
        int, _about("seconds that the leader's image may fail to pull before the job fails", 0, _WEEK_S)
    ] = 120
    lease_s: Annotated[
        int, _about("seconds after which another process takes over the leases of a silent one", 2, 600)
    ] = 15
    heartbeat_s: Annotated[
        float, _about("seconds between heartbeats; a process counts as gone after three missed ones", 0.1, 60)
    ] = 3.0
    clock_bound_s: Annotated[
        float,
        _about("seconds that a process's clock may differ from Redis's; beyond that it writes nothing", 0.5, 300),
    ] = 10.0
    api_in_flight: Annotated[int, _about("requests to the API server in flight at once, per process", 1, 1024)] = 64
    relist_s: Annotated[
        int,
        _about(
            "longest time in seconds between two comparisons of a listing with the projection; one "
            "runs each minute while listings are quick",
            10,
            _WEEK_S,
        ),
    ] = 3600
    snapshot_every_events: Annotated[
        int, _about("number of events after which a snapshot is stored", 100, 1_000_000_000)
    ] = 100_000
    snapshot_every_s: Annotated[
        int, _about("seconds after which a snapshot is stored if there was any event", 1, _WEEK_S)
    ] = 300
    upgrade_grace_s: Annotated[
        int,
        _about(
            "seconds without processes of an earlier release, after which nothing is kept any more that they need",
            0,
            86_400,
        ),
    ] = 1800
    keep_events: Annotated[
        int, _about("number of newest events that trimming always leaves in Redis", 0, 1_000_000_000)
    ] = 1_000_000
    archive_url: Annotated[
        str,
        _about(
            "folder or URL (s3://bucket/path, or any other that fsspec knows) that keeps trimmed events; "
            "empty: nothing is archived",
            flag="--archive",
            allowed="a path, or a URL of a scheme that fsspec and its packages know",
        ),
    ] = ""
    archive_every_events: Annotated[
        int, _about("number of new events after which they are archived, with a snapshot", 100, 10_000_000)
    ] = 100_000
    archive_every_s: Annotated[
        int, _about("seconds after which new events are archived, if there are any", 1, _WEEK_S)
    ] = 3600
    drain_s: Annotated[float, _about("seconds allowed for finishing work in flight after SIGTERM", 0, 600)] = 15.0

    def cycle_config(self, versions: tuple[tuple[str, int], ...] = ()) -> CycleConfig:
        """The part that determines a plan, which each cycle records; `versions` are those of the installed policies."""
        return CycleConfig(
            queue_policy=self.queue_policy,
            pod_policy=self.pod_policy,
            weights=tuple(sorted(self.weights.items())),
            infeasible_grace_ms=self.infeasible_grace_s * 1000,
            versions=versions,
            refusal_avoid_ms=self.refused_node_s * 1000,
            reasons_a_second=self.reasons_a_second,
            tried_pods=TRIED_PODS,
            search_steps=self.search_steps,
            search_nodes=SEARCH_NODES,
            half_life_ms=self.fair_share_half_life_s * 1000,
            preemption=Preemption(**{kind: PreemptionMode(mode) for kind, mode in self.preemption.items()}),
            reservations=self.reservations if self.backfill != "Off" else 0,
            reservation_refresh_ms=self.reservation_refresh_s * 1000,
            learned_runtimes=self.runtime_quantiles,
            room_bound_ms=self.preemption_bound_s * 1000,
            dry_run=True,
            scheduled_failed=ScheduledFailed(self.scheduled_failed),
            provisioning=Provisioning(self.provisioning),
            filter_order=names_in(self.filter_order),
            qos_order=self.qos_order,
            min_runtime_ms=self.min_runtime_s * 1000,
            guests=self.backfill == "Guests",
            starts=StartBounds(self.image_grace_s * 1000, self.start_grace_s * 1000, self.ready_grace_s * 1000),
            beside_limits=True,
        )

    @property
    def schedulers(self) -> tuple[str, ...]:
        """The schedulers whose pods Arranger places; none if only TYJobs are placed."""
        return names_in(self.scheduler_names)

    def lifecycle_config(self) -> LifecycleConfig:
        """The part that decides on the stages of jobs."""
        return LifecycleConfig(
            image_grace_ms=self.image_grace_s * 1000,
            node_lost_after_ms=self.lost_node_s * 1000,
            quorum_ms=self.quorum_grace_s * 1000,
            refused_ms=self.refused_grace_s * 1000,
            start_ms=self.start_grace_s * 1000,
            ready_ms=self.ready_grace_s * 1000,
            provisioning=Provisioning(self.provisioning),
            provisioning_class=self.provisioning_class,
        )


class Loaded(msgspec.Struct, frozen=True):
    """Settings, and for each field the source of its value: `default`, `file …`, a variable's or flag's name."""

    settings: Settings
    origins: dict[str, str]


_TYPES = get_type_hints(Settings, include_extras=True)


def _allowed(info: inspect.Type) -> str:
    if isinstance(info, inspect.IntType | inspect.FloatType):
        noun = "a whole number" if isinstance(info, inspect.IntType) else "a number"
        if info.ge is not None and info.le is not None:
            return f"{noun} from {info.ge:.12g} to {info.le:.12g}"
        return noun
    return "text"


def _declared() -> Iterator[Setting]:
    struct = inspect.type_info(Settings)
    assert isinstance(struct, inspect.StructType)
    for field in struct.fields:
        meta = field.type
        extra: dict[str, Any] = {}
        description = ""
        if isinstance(meta, inspect.Metadata):
            extra = meta.extra or {}
            description = (meta.extra_json_schema or {}).get("description", "")
            meta = meta.type
        # msgspec sorts a Literal's values; people should see them in the declared order.
        choices = get_args(get_args(_TYPES[field.name])[0]) if isinstance(meta, inspect.LiteralType) else ()
        choices = ("true", "false") if isinstance(meta, inspect.BoolType) else choices
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        yield Setting(
            name=field.name,
            description=description,
            env=_ENV_PREFIX + field.name.upper(),
            flag=extra.get("flag", "--" + field.name.replace("_", "-")),
            default=default,
            text=extra.get("allowed", _allowed(meta)),
            fixed=choices,
            policies=extra.get("policies", ""),
        )


#: Every setting by name, in the order of the fields.
SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in _declared()}

_BY_ENV = {setting.env: setting.name for setting in SETTINGS.values()}


def load(flags: Mapping[str, Any], environ: Mapping[str, str], *, called: Mapping[str, str] | None = None) -> Loaded:
    """Settings from all four sources. `flags` are by field name (`config` for the file); None: not given. `called` are
    the flags that a command names differently, by field name.

    Raises `UsageError` for an unknown name, a wrong type or a value out of range.
    """
    values: dict[str, Any] = {}
    origins = dict.fromkeys(SETTINGS, "default")
    for name, raw, origin in _given(flags, environ, called or {}):
        values[name] = _checked(name, raw, origin)
        origins[name] = origin
    settings = Settings(**values)
    if settings.lease_s <= settings.heartbeat_s:
        origin = origins["lease_s"] if origins["lease_s"] != "default" else origins["heartbeat_s"]
        raise UsageError(
            f"lease_s: {settings.lease_s} with heartbeat_s {settings.heartbeat_s:g}, from {origin}",
            hint="allowed: a lease_s longer than heartbeat_s",
        )
    return Loaded(settings, origins)


def load_settings(flags: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """As `load`, without the sources of the values."""
    return load(flags, environ).settings


def shown(name: str, value: Any) -> Any:
    """A setting's value for display: without keys, and without the passwords of a URL."""
    if name == "log_key":
        return "***" if value else value
    if name not in ("redis_url", "archive_url"):
        return value
    return without_passwords(value)


def _given(
    flags: Mapping[str, Any], environ: Mapping[str, str], called: Mapping[str, str]
) -> Iterator[tuple[str, Any, str]]:
    """Name, raw value and source of every given setting, in ascending precedence."""
    path, origin = flags.get("config"), "flag --config"
    if path is None:
        path, origin = environ.get(CONFIG_VARIABLE) or None, f"environment variable {CONFIG_VARIABLE}"
    if path is not None:
        yield from _from_file(Path(path), origin)
    yield from _from_environment(environ)
    for name, raw in flags.items():
        if raw is None or name == "config":
            continue
        if name not in SETTINGS:
            raise _unknown(name, "flags", list(SETTINGS))
        yield name, raw, f"flag {called.get(name, SETTINGS[name].flag)}"


def _from_file(path: Path, origin: str) -> Iterator[tuple[str, Any, str]]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise UsageError(
            f"config: can't read {path}, from {origin}: {problem.strerror}", hint="allowed: a TOML file"
        ) from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise UsageError(f"config: {path} is not valid TOML: {problem}", hint="allowed: a TOML file") from problem
    for name, raw in table.items():
        if name not in SETTINGS:
            raise _unknown(name, f"file {path}", list(SETTINGS))
        yield name, raw, f"file {path}"


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, Any, str]]:
    for variable in sorted(environ):
        if not variable.startswith(_ENV_PREFIX) or variable in (CONFIG_VARIABLE, SERVER_VARIABLE, PROGRESS_VARIABLE):
            continue
        raw = environ[variable]
        if _SERVICE_LINK.fullmatch(variable) or (variable.endswith("_PORT") and _SERVICE_LINK_VALUE.match(raw)):
            continue
        if variable not in _BY_ENV:
            raise _unknown(variable, "the environment", list(_BY_ENV))
        yield _BY_ENV[variable], raw, f"environment variable {variable}"


def _unknown(name: str, source: str, names: list[str]) -> UsageError:
    close = near_names(name, names)
    hint = f"did you mean {close[0]}?" if close else "`arranger settings` lists them all"
    return UsageError(f"unknown setting {name} in {source}", hint=hint)


def _checked(name: str, raw: Any, origin: str) -> Any:
    """The value in its type. Text from variables and flags is parsed; TOML has types."""
    typed = origin.startswith("file ")
    try:
        value = msgspec.convert(table_of(name, raw) if isinstance(raw, str) else raw, _TYPES[name], strict=typed)
        if name == "preemption":
            value = PREEMPTION | value
        if name == "redis_url":
            check_address(value)
        if name == "scheduler_names":
            check_schedulers(value)
        if name == "log_key":
            from arranger.events.key_source import parsed_keys  # imports the kinds of events; few set a key

            parsed_keys(value)
        SETTINGS[name].check_names(value)
    except (msgspec.ValidationError, ValueError) as problem:
        told = shown(name, raw) if isinstance(raw, str) else raw
        meant = [one for one in SETTINGS[name].choices if one.casefold() == str(raw).casefold() and one != raw]
        hint = "".join(f"did you mean {one}? " for one in meant) + f"allowed: {SETTINGS[name].allowed}"
        raise UsageError(f"{name}: {told!r} can't be used, from {origin}", hint=hint) from problem
    return value
