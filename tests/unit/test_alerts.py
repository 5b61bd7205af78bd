"""Every alert of deploy/alerts fires for its cause and not for what is near it, and has a runbook."""

import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.servers import REPOSITORY
from tests.unit.test_operations_document import families

__all__ = ["families"]

RULES = yaml.safe_load((REPOSITORY / "deploy" / "alerts" / "rules.yaml").read_text(encoding="utf-8"))["spec"]
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
RUNBOOKS = (REPOSITORY / "docs" / "runbooks.md").read_text(encoding="utf-8")

Series = dict[str, str]


class Case(msgspec.Struct):
    """The series (a value each minute) with which an alert fires after some minutes, with these labels, and those with
    which it doesn't."""

    fires: Series
    quiet: Series
    minutes: int = 30
    labels: dict[str, str] = {}


def each(name: str, *values: str) -> Series:
    """Series of several processes."""
    brace, labels = ("{", name.partition("{")[2]) if "{" in name else ("{", "}")
    return {f'{name.partition("{")[0]}{brace}instance="i{n}",{labels}': value for n, value in enumerate(values)}


def requests(code: str, values: str) -> Series:
    return each(f'arranger_api_requests_total{{verb="create",resource="pods",code="{code}"}}', values)


def requests_took(instance: int, seconds: str) -> Series:
    """60 requests a minute that take so long in all."""
    labels = f'{{instance="i{instance}",verb="patch",resource="tyjobs"}}'
    name = "arranger_api_request_seconds"
    return {f"{name}_sum{labels}": seconds, f"{name}_count{labels}": "0+60x60"}


def queue(*, used: int, share: int, room: int, other: int = 0) -> Series:
    return {
        'arranger_waiting_jobs{queue="a",cause="Room"}': f"{room}x60",
        'arranger_waiting_jobs{queue="a",cause="Dependency"}': f"{other}x60",
        'arranger_queue_used{queue="a",resource="gpu"}': f"{used}x60",
        'arranger_queue_share{queue="a",resource="gpu"}': f"{share}x60",
    }


def churn(*, lost: int, gained: int) -> Series:
    """GPU seconds a minute, in all processes together."""
    return {
        **each("arranger_preempted_gpu_seconds_total", f"0+{lost}x120", "0x120"),
        **each("arranger_preemption_gained_gpu_seconds_total", f"0+{gained}x120", "0x120"),
    }


def memory(used: int, limit: int) -> Series:
    return {
        'arranger_redis_memory_bytes{memory="used"}': f"{used}x60",
        'arranger_redis_memory_bytes{memory="limit"}': f"{limit}x60",
    }


def heard(*kinds: str, age: str = "1x60") -> Series:
    return {f'arranger_watch_heard_age_seconds{{kind="{kind}"}}': age for kind in kinds}


CREATE = {"verb": "create", "resource": "pods"}
POD = {"kind": "pod"}
STORED, APPENDED = 'arranger_snapshots_total{result="stored"}', 'arranger_events_appended_total{kind="PodSeen"}'
MISSED = 'arranger_missed_observations_total{kind="pod"}'
EXPIRES = 'arranger_certificate_expiration_timestamp_seconds{certificate="redis"}'
REFUSED = 'arranger_effects_total{effect="create",result="refused"}'
IDLE, GPUS, BEHIND = (
    'arranger_gpus_reserved_idle{pool=""}',
    'arranger_gpus{pool=""}',
    'arranger_waiting_jobs{cause="Reservation"}',
)
FREE, PROMISED = 'arranger_gpus_idle{pool=""}', 'arranger_waiting_jobs{cause="Guarantees"}'

CASES = {
    "ArrangerRedisAway": Case(
        each('arranger_check{check="log"}', "1x60", "1x20 0x40"),
        {**each('arranger_check{check="log"}', "1x60", "1x29 0 1x30"), **each('arranger_check{check="api"}', "0x60")},
    ),
    "ArrangerRedisRefusesWrites": Case(
        each("arranger_writes_refused", "0x60", "0x20 1x40"), each("arranger_writes_refused", "0x60", "0x29 1 0x30")
    ),
    "ArrangerRedisNearlyFull": Case(memory(86, 100), {**memory(84, 100), **each("arranger_ready", "1x60")}),
    "ArrangerForgedEntry": Case(
        each("arranger_forged_offset", "0x60", "0x29 17x30"), each("arranger_forged_offset", "0x60", "0x60")
    ),
    "ArrangerLogLost": Case(each("arranger_epoch", "7x20 8x40"), each("arranger_epoch", "7x60", "0x20 7x40")),
    "ArrangerProjectionLags": Case(
        each('arranger_lag_seconds{reader="applier"}', "0x60", "11x60"),
        each('arranger_lag_seconds{reader="applier"}', "0x28 30x2 0x30", "9x60"),
        labels={"reader": "applier"},
    ),
    "ArrangerArchiveFails": Case(
        each("arranger_archive_success_age_seconds", "0x60", "0+60x60"),
        each("arranger_archive_success_age_seconds", "0x60", "600x60"),
    ),
    "ArrangerNoSnapshots": Case(
        {STORED: "3x200", APPENDED: "0+10x200"}, {STORED: "0+1x200", APPENDED: "0+10x200"}, minutes=150
    ),
    "ArrangerForeignWriter": Case(
        each("arranger_ticks_dropped_total", "0x20 1x40"), each("arranger_ticks_dropped_total", "5x60")
    ),
    "ArrangerWatchDeaf": Case(heard("pod", age="0+10x60"), heard("pod", age="110x60"), labels=POD),
    "ArrangerWatchLacksLeader": Case(heard("node", "tyjob"), heard("node", "pod", "tyjob"), labels=POD),
    "ArrangerWatchMissesChanges": Case({MISSED: "0x20 3x40"}, {MISSED: "3x60"}, labels=POD),
    "ArrangerApiServerRefuses": Case(requests("403", "0+1x60"), requests("404", "0+9x60"), labels=CREATE),
    "ArrangerApiServerFails": Case(requests("503", "0+9x60"), requests("503", "0+5x60"), labels=CREATE),
    "ArrangerApplierSlow": Case(
        {**requests_took(0, "0+180x60"), **requests_took(1, "0+3x60")},
        requests_took(0, "0+90x60"),
        labels={"instance": "i0"},
    ),
    "ArrangerPodsRefused": Case({REFUSED: "0+1x60"}, {REFUSED: "7x60"}),
    "ArrangerNotReady": Case(
        each("arranger_ready", "1x60", "0x60"),
        each("arranger_ready", "1x60", "1x27 0x3 1x30"),
        labels={"instance": "i1"},
    ),
    "ArrangerClockOff": Case(
        each("arranger_clock_offset_seconds", "0x60", "-6x60"), each("arranger_clock_offset_seconds", "4x60", "-4x60")
    ),
    "ArrangerCertificateExpires": Case(
        {**each(EXPIRES, "900000x60", "600000x60"), **each(EXPIRES.replace("redis", "api-server"), "900000x60")},
        {**each(EXPIRES, "900000x60", "610000x60"), **each("arranger_ready", "1x60")},
        labels={"certificate": "redis"},
    ),
    "ArrangerCycleStopped": Case(
        each('arranger_cycles_total{result="idle"}', "9x60"), each('arranger_cycles_total{result="idle"}', "0+60x60")
    ),
    "ArrangerTickFails": Case(
        each('arranger_ticks_total{tick="cycle",result="timeout"}', "0x20 1x40"),
        each('arranger_ticks_total{tick="cycle",result="stopped"}', "0+1x60"),
        labels={"tick": "cycle"},
    ),
    "ArrangerQueueStarved": Case(
        queue(used=8, share=16, room=2), queue(used=15, share=16, room=2), minutes=40, labels={"queue": "a"}
    ),
    "ArrangerPreemptionChurn": Case(
        churn(lost=200, gained=300), churn(lost=200, gained=500), minutes=90
    ),
    "ArrangerReservedIdle": Case(
        {IDLE: "6x90", GPUS: "100x90", BEHIND: "1x90"}, {IDLE: "4x90", GPUS: "100x90", BEHIND: "1x90"}, minutes=60
    ),
    "ArrangerGuaranteedIdle": Case(
        {FREE: "32x90", GPUS: "32x90", PROMISED: "2x90"}, {FREE: "1x90", GPUS: "32x90", PROMISED: "2x90"}
    ),
    "ArrangerWebhookLate": Case(
        each("arranger_webhook_age_seconds", "0x60", "0+60x60"), each("arranger_webhook_age_seconds", "0x60", "590x60")
    ),
}  # fmt: skip

#: Further series with which an alert must not fire.
ALSO_QUIET = {
    "ArrangerQueueStarved": queue(used=0, share=16, room=0, other=3),
    "ArrangerRedisNearlyFull": memory(900, 0),
    "ArrangerPreemptionChurn": churn(lost=20, gained=0),
    "ArrangerReservedIdle": {IDLE: "50x90", GPUS: "100x90", BEHIND: "0x90"},
    "ArrangerGuaranteedIdle": {FREE: "32x90", GPUS: "32x90", PROMISED: "0x90"},
}


def told(rule: dict[str, Any], labels: dict[str, str]) -> dict[str, str]:
    """The annotations of an alert with these labels."""
    return {
        name: re.sub(r"{{ \$labels\.(\w+) }}", lambda match: labels[match[1]], text)
        for name, text in rule["annotations"].items()
    }


def trial(name: str, series: Series, minutes: int, labels: dict[str, str] | None) -> dict[str, Any]:
    """One test of promtool: the alert fires with these labels, or with None it doesn't."""
    rule = ALERTS[name]
    fired = [] if labels is None else [{"exp_labels": labels | rule["labels"], "exp_annotations": told(rule, labels)}]
    return {
        "name": f"{name} {'fires' if fired else 'is quiet'}",
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in series.items()],
        "alert_rule_test": [{"eval_time": f"{minutes}m", "alertname": name, "exp_alerts": fired}],
    }


@pytest.mark.slow
def test_every_alert_fires_for_its_cause_and_for_nothing_else(promtool: Path, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES))
    trials = [
        one
        for name, case in CASES.items()
        for one in (
            trial(name, case.fires, case.minutes, case.labels),
            trial(name, case.quiet, case.minutes, None),
        )
    ]
    trials += [trial(name, series, CASES[name].minutes, None) for name, series in ALSO_QUIET.items()]
    (tmp_path / "trials.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": trials}))
    for arguments in (["check", "rules", "rules.yaml"], ["test", "rules", "trials.yaml"]):
        done = subprocess.run(
            [str(promtool), *arguments], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tried() -> None:
    assert list(CASES) == list(ALERTS)
    assert all(rule["labels"]["severity"] in ("critical", "warning") for rule in ALERTS.values())


def test_alerts_ask_for_metrics_that_exist(families: dict[str, list[str]]) -> None:
    for name, rule in ALERTS.items():
        for metric, labels in re.findall(r"\b(arranger_\w+)(?:{([^}]*)})?", rule["expr"]):
            family = re.sub(r"_(sum|count)$", "", metric)  # of a histogram
            assert family in families, name
            assert set(re.findall(r"(\w+)=", labels)) <= set(families[family]), name


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    sections = dict(re.findall(r"^## (Arranger\w+)\n(.*?)(?=^## |\Z)", RUNBOOKS, re.MULTILINE | re.DOTALL))
    assert list(sections) == list(ALERTS)
    for name, text in sections.items():
        parts = re.findall(r"^\*\*(.*?)\*\*", text, re.MULTILINE)
        assert parts == ["What users notice.", "How to confirm.", "What to do.", "When it is over."], name
        assert "`" in text.partition("**How to confirm.**")[2].partition("**What to do.**")[0], f"{name}: no command"
        assert ALERTS[name]["annotations"]["runbook_url"] == f"docs/runbooks.md#{name.lower()}"
