"""A certificate that is about to expire, in a real run: the alert on it fires, and names it alone."""

import copy
from pathlib import Path

import pytest

from arranger.sandbox.nodes import NodeTemplate
from tests.conftest import _required
from tests.e2e.harness import eventually, fleet, kubelets
from tests.e2e.test_board import address
from tests.prometheus import real_prometheus
from tests.servers import Certificates, RealKube, RealRedis, TlsFront, free_port
from tests.unit.test_alerts import ALERTS, RULES

ALERT = "ArrangerCertificateExpires"
#: The rules, but the alert doesn't wait for ten minutes.
AT_ONCE = copy.deepcopy(RULES)
(_RULE,) = [rule for group in AT_ONCE["groups"] for rule in group["rules"] if rule["alert"] == ALERT]
_RULE["for"] = "0m"

pytestmark = pytest.mark.real


def test_the_alert_fires_for_the_certificate_of_redis_that_expires_in_three_days(
    kube: RealKube, redis: RealRedis, tmp_path: Path
) -> None:
    certificates = Certificates(tmp_path, days=3)
    front = TlsFront(certificates, port=free_port(), target_port=redis.port)
    url = f"rediss://127.0.0.1:{front.port}/0?ssl_ca_certs={certificates.ca_file}"
    try:
        with kubelets(kube, NodeTemplate("n1", cpu="4")), fleet(redis_url=url, kube=kube, folder=tmp_path) as workers:
            (worker,) = workers.start()
            with _required(), real_prometheus([address(worker)], AT_ONCE) as prometheus:
                expr = ALERTS[ALERT]["expr"]
                found = eventually("it is measured", lambda: prometheus.values(expr))
                assert list(found) == ["certificate=redis"]
                assert found["certificate=redis"] / 86_400 == pytest.approx(3, abs=0.1)
                all_of = prometheus.values(expr.partition(" < ")[0])
                assert set(all_of) == {"certificate=redis", "certificate=api-server"}, "that of the API server is good"
                (alert,) = eventually("it fires", lambda: prometheus.values('ALERTS{alertstate="firing"}'))
                assert f"alertname={ALERT}," in alert and "certificate=redis," in alert
    finally:
        front.close()
