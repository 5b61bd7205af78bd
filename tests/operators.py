"""Operators of others, unchanged, on a real API server that has their definitions."""

import contextlib
import fcntl
import http.client
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.build_servers import KUBERAY, TRAINING_OPERATOR, Operator
from tests.servers import Daemon, RealKube, free_port, operator_binary

_NAMESPACE = "default"
_SECRET = "training-operator-webhook-cert"
#: Where training-operator looks for its certificate when it starts, whatever TMPDIR is.
_CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")


def install_definitions(kube: RealKube, operator: Operator) -> None:
    """Install the definitions that came with the operator, and wait until they are served."""
    folder = operator_binary(operator).parent / Path(operator.definitions).name
    files = [f"--filename={path}" for path in sorted(folder.glob("*_*.yaml"))]
    kube.kubectl("create", *files)
    kube.kubectl("wait", "--for=condition=Established", "--timeout=120s", *files)


@contextlib.contextmanager
def kuberay(kube: RealKube, batch_scheduler: str = "") -> Iterator[None]:
    """KubeRay's operator, with the batch scheduler of this name if there is one."""
    flags = ["--metrics-addr=0", "--enable-leader-election=false"]
    flags += [f"--batch-scheduler={batch_scheduler}"] if batch_scheduler else []
    with _running(kube, KUBERAY, *flags) as daemon:
        daemon.start()
        yield


@contextlib.contextmanager
def training_operator(kube: RealKube, gang_scheduler: str = "") -> Iterator[None]:
    """training-operator, with the gang scheduler of this name if there is one. Nothing calls its webhook, because its
    configuration isn't installed; the operator doesn't start without certificates for it all the same."""
    # It fills the Secret, and expects to find that mounted.
    secrets = f"/api/v1/namespaces/{_NAMESPACE}/secrets"
    kube.request("POST", secrets, {"metadata": {"name": _SECRET}}, check=False)
    certificates = kube.home / "k8s-webhook-server" / "serving-certs"
    certificates.mkdir(parents=True, exist_ok=True)
    for name, mounted in (("server.crt", "tls.crt"), ("server.key", "tls.key")):
        shutil.copyfile(kube.home / name, certificates / mounted)
    flags = ["--metrics-bind-address=0", f"--webhook-server-port={free_port()}"]
    flags += [f"--gang-scheduler-name={gang_scheduler}"] if gang_scheduler else []
    with _running(kube, TRAINING_OPERATOR, *flags) as daemon:
        with _found_certificate():
            daemon.start()
        yield


@contextlib.contextmanager
def _running(kube: RealKube, operator: Operator, *flags: str) -> Iterator[Daemon]:
    """The process of an operator, to be started, and ended with the context."""
    probes = free_port()
    argv = ["env", f"TMPDIR={kube.home}", f"MY_POD_NAMESPACE={_NAMESPACE}", str(operator_binary(operator))]
    argv += [f"--kubeconfig={kube.kubeconfig}", f"--health-probe-bind-address=127.0.0.1:{probes}", *flags]
    daemon = Daemon(operator.name, argv, folder=kube.home, ready=partial(_ready, probes))
    try:
        yield daemon
    finally:
        daemon.stop(kill=True)


@contextlib.contextmanager
def _found_certificate() -> Iterator[None]:
    """An empty file where training-operator looks for its certificate; one of them starts at a time."""
    with operator_binary(TRAINING_OPERATOR).open("rb") as lock, contextlib.ExitStack() as stack:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for folder in (_CERTIFICATES.parent, _CERTIFICATES):
            if not folder.exists():
                folder.mkdir()
                stack.callback(folder.rmdir)
        file = _CERTIFICATES / "tls.crt"
        if not file.exists():
            file.touch()
            stack.callback(file.unlink)
        yield


def _ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    return False
