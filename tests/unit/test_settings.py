"""One precedence for settings, and errors that say what, where and what instead."""

from pathlib import Path

import msgspec
import pytest

from arranger.errors import UsageError
from arranger.model.config import CycleConfig, StartBounds
from arranger.model.queue import Preemption, PreemptionMode
from arranger.settings import SETTINGS, Settings, load, load_settings, shown


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "arranger.toml"
    path.write_text('http_port = 1001\nlog_level = "error"\nlease_s = 20\n[weights]\ncpu = 2\n')
    return path


def test_defaults_stand_when_nothing_is_given() -> None:
    assert load_settings({}, {}) == Settings()


def test_flags_beat_environment_beats_file_beats_defaults(file: Path) -> None:
    environ = {"ARRANGER_CONFIG": str(file), "ARRANGER_HTTP_PORT": "1002", "ARRANGER_LOG_LEVEL": "debug"}
    loaded = load({"http_port": "1003", "log_level": None}, environ)
    settings, origins = loaded.settings, loaded.origins
    assert (settings.http_port, origins["http_port"]) == (1003, "flag --http-port")
    assert (settings.log_level, origins["log_level"]) == ("debug", "environment variable ARRANGER_LOG_LEVEL")
    assert (settings.lease_s, origins["lease_s"]) == (20, f"file {file}")
    assert (settings.api_in_flight, origins["api_in_flight"]) == (64, "default")


def test_the_config_flag_beats_the_config_variable(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("http_port = 1009\n")
    assert load_settings({"config": str(other)}, {"ARRANGER_CONFIG": str(file)}).http_port == 1009


def test_weights_come_from_a_table_or_from_text(file: Path) -> None:
    assert load_settings({"config": str(file)}, {}).weights == {"cpu": 2}
    assert load_settings({"weights": "cpu=1, */gpu=7"}, {}).weights == {"cpu": 1, "*/gpu": 7}


def test_the_recorded_configuration_is_the_same_however_weights_were_ordered() -> None:
    one = load_settings({"weights": "memory=1,cpu=1,accelerators=5"}, {}).cycle_config()
    assert (
        one
        == Settings().cycle_config()
        == CycleConfig(
            refusal_avoid_ms=60_000,
            reasons_a_second=20,
            tried_pods=10_000,
            search_steps=20_000,
            search_nodes=200,
            preemption=Preemption(),
            reservations=1,
            reservation_refresh_ms=30_000,
            min_runtime_ms=120_000,
            dry_run=True,
            learned_runtimes=True,
            guests=True,
            room_bound_ms=60_000,
            starts=StartBounds(120_000, 300_000, 7_200_000),
            beside_limits=True,
        )
    )


@pytest.mark.parametrize(
    ("text", "recorded"),
    [
        ("Never", Preemption(PreemptionMode.NEVER, PreemptionMode.NEVER, PreemptionMode.NEVER)),
        ("Allowed", Preemption()),
        ("priority=Never", Preemption(priority=PreemptionMode.NEVER)),
        ("surplus=Allowed, reclaim=Never", Preemption(reclaim=PreemptionMode.NEVER)),
    ],
)
def test_each_way_to_take_room_back_can_be_switched_off(tmp_path: Path, text: str, recorded: Preemption) -> None:
    assert load_settings({"preemption": text}, {}).cycle_config().preemption == recorded
    assert load_settings({}, {"ARRANGER_PREEMPTION": text}).cycle_config().preemption == recorded
    file = tmp_path / "a.toml"
    modes = [f'{kind} = "{mode}"\n' for kind, mode in msgspec.structs.asdict(recorded).items() if mode == "Never"]
    file.write_text("[preemption]\n" + "".join(modes))
    assert load_settings({"config": file}, {}).cycle_config().preemption == recorded
    assert set(load_settings({"config": file}, {}).preemption) == {"surplus", "priority", "reclaim"}


@pytest.mark.parametrize("text", ["Off", "", "surplus", "surplus=never", "everything=Never", "=Never"])
def test_an_unknown_way_to_take_room_back_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^preemption: .* \(allowed: Allowed or Never for all, or a table such as"):
        load_settings({"preemption": text}, {})


def test_without_backfill_there_are_no_reservations() -> None:
    settings = load_settings({"backfill": "Off", "reservations": "3"}, {})
    assert (settings.reservations, settings.cycle_config().reservations) == (3, 0)
    assert load_settings({"reservations": "3"}, {}).cycle_config().reservations == 3


def test_switches_are_true_or_false() -> None:
    settings = load_settings({"evict": "true"}, {"ARRANGER_RUNTIME_QUANTILES": "false"})
    assert (settings.evict, settings.runtime_quantiles, settings.cycle_config().learned_runtimes) == (
        True,
        False,
        False,
    )
    with pytest.raises(UsageError, match=r"^evict: 'maybe' can't be used, .* \(allowed: one of true, false\)$"):
        load_settings({"evict": "maybe"}, {})


def test_a_cycle_of_an_older_log_takes_no_room_back_and_keeps_none() -> None:
    older = msgspec.msgpack.encode(CycleConfig())
    assert msgspec.msgpack.decode(older, type=CycleConfig) == CycleConfig()
    fields = msgspec.msgpack.decode(older)[: CycleConfig.__struct_fields__.index("preemption")]
    config = msgspec.convert(fields, CycleConfig)
    assert (config.preemption, config.reservations, config.learned_runtimes, config.room_bound_ms) == (
        None,
        0,
        False,
        0,
    )


@pytest.mark.parametrize(
    ("flags", "environ", "said"),
    [
        (
            {"http_port": "70000"},
            {},
            "http_port: '70000' can't be used, from flag --http-port (allowed: a whole number from 0 to 65535)",
        ),
        (
            {},
            {"ARRANGER_CYCLE_PERIOD_S": "soon"},
            "cycle_period_s: 'soon' can't be used, from environment variable ARRANGER_CYCLE_PERIOD_S"
            " (allowed: a number from 0.05 to 3600)",
        ),
        (
            {},
            {"ARRANGER_CYCLE_PERIOD_S": "nan"},
            "cycle_period_s: 'nan' can't be used, from environment variable ARRANGER_CYCLE_PERIOD_S"
            " (allowed: a number from 0.05 to 3600)",
        ),
        (
            {"backfill": "On"},
            {},
            "backfill: 'On' can't be used, from flag --backfill (allowed: one of Guests, Known, Off)",
        ),
        (
            {"log_level": "loud"},
            {},
            "log_level: 'loud' can't be used, from flag --log-level (allowed: one of debug, info, warning, error)",
        ),
        (
            {"redis_url": "http://localhost"},
            {},
            "redis_url: 'http://localhost' can't be used, from flag --redis"
            " (allowed: a URL that begins with redis://, rediss://, redis+sentinel://, rediss+sentinel:// or unix://, "
            "with ports up to 65535)",
        ),
        (
            {},
            {"ARRANGER_HTP_PORT": "1"},
            "unknown setting ARRANGER_HTP_PORT in the environment (did you mean ARRANGER_HTTP_PORT?)",
        ),
        (
            {"lease_s": "3"},
            {},
            "lease_s: 3 with heartbeat_s 3, from flag --lease-s (allowed: a lease_s longer than heartbeat_s)",
        ),
        (
            {"config": "/nowhere/a.toml"},
            {},
            "config: can't read /nowhere/a.toml, from flag --config: No such file or directory (allowed: a TOML file)",
        ),
    ],
)
def test_bad_settings_are_one_line_that_says_what_to_do(
    flags: dict[str, str], environ: dict[str, str], said: str
) -> None:
    with pytest.raises(UsageError) as error:
        load(flags, environ)
    assert str(error.value) == said
    assert error.value.exit_status == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("http_port = '80'", "http_port: '80' can't be used, from file {path} (allowed: a whole number"),
        ("http_prot = 80", "unknown setting http_prot in file {path} (did you mean http_port?)"),
        ("[weights]\ncpu = -1", "weights: {{'cpu': -1}} can't be used, from file {path} (allowed: a table of"),
        ("http_port = ", "config: {path} is not valid TOML"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text(content)
    with pytest.raises(UsageError) as error:
        load({"config": path}, {})
    assert str(error.value).startswith(said.format(path=path))
    assert "\n" not in str(error.value)


def test_variables_that_kubernetes_sets_for_services_are_not_settings() -> None:
    environ = {
        "ARRANGER_SERVICE_HOST": "10.0.0.1",
        "ARRANGER_SERVICE_PORT_METRICS": "8460",
        "ARRANGER_PORT": "tcp://10.0.0.1:8460",
        "ARRANGER_PORT_8460_TCP_ADDR": "10.0.0.1",
        "ARRANGER_HTTP_PORT": "tcp://10.0.0.2:80",
        "ARRANGER_HTTP_PORT_80_TCP": "tcp://10.0.0.2:80",
    }
    assert load_settings({}, environ) == Settings()


def test_several_schedulers_may_be_arrangers_but_kube_schedulers_is_not() -> None:
    """Each cluster has a scheduler of that name: both would place the same pods."""
    several = load_settings({"scheduler_names": "arranger, volcano"}, {})
    assert several.schedulers == ("arranger", "volcano")
    assert load_settings({"scheduler_names": ""}, {}).schedulers == ()
    for text in ("arranger,default-scheduler", "arranger,arranger"):
        with pytest.raises(UsageError) as refused:
            load_settings({"scheduler_names": text}, {})
        assert "without default-scheduler, which is kube-scheduler's" in refused.value.hint


def test_a_password_is_never_shown() -> None:
    url = "rediss://me:s3cret@redis.example:6380/1"
    assert shown("redis_url", url) == "rediss://me:***@redis.example:6380/1"
    with pytest.raises(UsageError) as error:
        load({"redis_url": "http://me:s3cret@redis.example"}, {})
    assert "s3cret" not in str(error.value)


def test_every_setting_says_what_it_is_and_what_is_allowed() -> None:
    assert list(SETTINGS) == list(Settings.__struct_fields__)
    assert [name for name, setting in SETTINGS.items() if not setting.description or not setting.allowed] == []
