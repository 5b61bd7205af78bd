"""All scenarios by row of the findings, with the arguments of their short versions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.depth import SOAK
from tests.trial.clocks import wrong_clocks
from tests.trial.crowds import waiting_crowd
from tests.trial.distances import api_gone, redis_far
from tests.trial.failing import failing_leaders
from tests.trial.flaky import flaky_api
from tests.trial.forged import forged_entries, forged_pods, forged_ticks
from tests.trial.guests import guests
from tests.trial.installs import two_installations
from tests.trial.needs import archive_unwritable, deaf_watch, redis_fills, redis_full
from tests.trial.pauses import everything_paused, job_watcher_paused, redis_stalled
from tests.trial.refused import refused_tenants
from tests.trial.strangers import another_cluster
from tests.trial.unsaid import unsaid
from tests.trial.upgrades import rolling_upgrade
from tests.trial.verdicts import Verdict

#: A process that is silent for two seconds loses its leases.
BRISK: Mapping[str, object] = {"lease_s": 2, "heartbeat_s": 0.5}


@dataclass(frozen=True)
class Scenario:
    """One scenario: its function, the arguments of its short version, and whether `make test` runs it. It runs neither
    scenarios that need minutes of silence nor those that another end-to-end test covers."""

    row: str
    run: Callable[..., Verdict]
    short: Mapping[str, Any] = field(default_factory=dict)
    in_suite: bool = True


_PAUSES = {"times": 2, "between_s": 1, "every_s": 0.25, "ttl_s": 1, "settings": BRISK}

ROWS = (
    Scenario(
        "A", refused_tenants,
        {"alone_s": 0.5, "beside_s": 5, "rounds": 1, "every_s": 0.5, "held_s": 45, "settings": BRISK, "timed": False},
    ),
    Scenario("B", everything_paused, {**_PAUSES, "pause_s": 5, "replicas": 1}),
    Scenario("B", redis_stalled, {**_PAUSES, "stall_s": 4, "replicas": 1}),
    Scenario(
        "C", wrong_clocks,
        {"roles": ("controller", "applier"), "shifts_s": (3600,), "alone_s": 3, "jobs": 2, "settings": {"lease_s": 2}},
        in_suite=SOAK,  # tests/e2e/test_wrong_clock.py covers it
    ),
    Scenario("D", another_cluster, {"jobs": 2, "stays_s": 8, "settings": BRISK}, in_suite=SOAK),  # test_other_cluster
    Scenario("E", forged_ticks, {"settings": BRISK}),
    Scenario("E", forged_entries, {"settings": BRISK, "wait_s": 7}),
    Scenario(
        "E1", two_installations, {"alone_s": 3, "beside_s": 12, "every_s": 1, "settings": BRISK, "timed": False},
        in_suite=SOAK,  # tests/e2e/test_one_log.py covers it
    ),
    Scenario("F", forged_pods, {"jobs": 2, "epochs": 1, "settings": BRISK, "wait_s": 6}),
    Scenario("G", job_watcher_paused, {**_PAUSES, "pause_s": 4}),
    Scenario("H", rolling_upgrade, {"replicas": 1, "between_s": 2, "settings": BRISK}),
    Scenario(
        "J", failing_leaders,
        {"jobs": 8, "alone_s": 1, "beside_s": 8, "every_s": 1, "settings": BRISK, "timed": False},
    ),
    Scenario("L", redis_full, {"settings": BRISK}),
    Scenario("L", archive_unwritable, {"settings": BRISK}, in_suite=False),
    Scenario("L", deaf_watch, {"settings": BRISK}, in_suite=False),
    Scenario("M", redis_far, {"one_way_s": 0.1, "jobs": 4, "every_s": 0.5, "settings": BRISK, "timed": False}),
    Scenario("M", api_gone, {"jobs": 10, "first_s": 6, "then_s": 10, "settings": BRISK}),
    Scenario("B1", guests, {"stays_s": 3, "settings": BRISK}),
    Scenario("E2", waiting_crowd, {"jobs": 60, "settings": BRISK, "timed": False}),
    Scenario("E3", flaky_api, {"lasts_s": 10, "settings": BRISK, "timed": False}),
    Scenario("E4", redis_fills, {"lasts_s": 10, "settings": BRISK}),
    Scenario("E5", unsaid, {"settings": BRISK}, in_suite=False),  # it deletes the definition
)  # fmt: skip
