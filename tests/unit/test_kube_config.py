"""Finding the API server: kubeconfigs and service accounts, good and bad."""

import base64
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from arranger.errors import UsageError
from arranger.kube import config
from arranger.kube.config import LOOK_AGAIN_S, Access, Credentials, find_access, find_namespace
from tests.servers import Certificates


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the user's kubeconfig nor their proxies."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", *(n for n in os.environ if n.lower().endswith("_proxy"))):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def kubeconfig(path: Path, *, user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None) -> Path:
    """A kubeconfig with the contexts `one` (current) and `two`."""
    contexts = [{"name": name, "context": {"cluster": name, "user": "someone"}} for name in ("one", "two")]
    clusters = [
        {"name": name, "cluster": cluster or {"server": f"http://{name}.example:8080/"}} for name in ("one", "two")
    ]
    users = [{"name": "someone", "user": user or {"token": "secret"}}]
    document = {"contexts": contexts, "clusters": clusters, "users": users, "current-context": "one"}
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **document}))
    return path


def script(path: Path, text: str) -> str:
    """An executable shell script."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def plugin(command: str) -> dict[str, Any]:
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": command,
            "interactiveMode": "Never",
        }
    }


async def test_the_current_context_gives_server_and_token(tmp_path: Path) -> None:
    credentials = await find_access(kubeconfig(tmp_path / "config")).current()
    assert (credentials.server, credentials.authorization) == ("http://one.example:8080", "Bearer secret")


@pytest.mark.parametrize(
    ("user", "cluster", "plain"),
    [
        ({}, {}, True),
        ({}, {"server": "https://one.example:6443/"}, True),
        ({"token": " spaced "}, {}, True),
        ({"token": ""}, {}, False),
        ({"username": "me"}, {}, False),
        ({"exec": {"command": "true"}}, {}, False),
        ({}, {"insecure-skip-tls-verify": True}, False),
        ({}, {"tls-server-name": "other"}, False),
        ({}, {"server": "http://one.example:8080"}, False),
    ],
)
async def test_a_plain_kubeconfig_gives_what_the_kubernetes_package_reads_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: dict[str, Any], cluster: dict[str, Any], plain: bool
) -> None:
    authority = base64.b64encode(Certificates(tmp_path).ca_file.read_bytes()).decode()
    whole = {"server": "https://one.example", "certificate-authority-data": authority} | cluster
    path = kubeconfig(tmp_path / "config", user={"token": "secret"} | user, cluster=whole)
    assert (config._plain(str(path), None) is not None) == plain
    found = await find_access(path).current()
    monkeypatch.setattr(config, "_plain", lambda *_: None)
    read = await find_access(path).current()
    assert (found.server, found.authorization) == (read.server, read.authorization)
    assert (found.tls_server_name, found.proxy) == (read.tls_server_name, read.proxy)
    checks = [tls and (tls.get_ca_certs(), tls.verify_mode, tls.verify_flags) for tls in (found.tls, read.tls)]
    assert checks[0] == checks[1]


def test_a_named_context_is_taken(tmp_path: Path) -> None:
    assert find_access(kubeconfig(tmp_path / "config"), "two").server == "http://two.example:8080"


def test_a_named_file_goes_before_the_variable_and_the_variable_before_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home" / ".kube"
    home.mkdir(parents=True)
    kubeconfig(home / "config", cluster={"server": "http://home"})
    assert find_access().server == "http://home"
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "b", cluster={"server": "http://variable"})))
    assert find_access().server == "http://variable"
    assert find_access(kubeconfig(tmp_path / "c", cluster={"server": "http://named"})).server == "http://named"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("{", "can't be used"),
        ("just words", "can't be used"),
        ("contexts: []", "has no current-context"),
        ("current-context: gone", "has no context 'gone'"),
        ("{current-context: a, contexts: [{name: a, context: {cluster: b}}]}", "names no cluster with a server"),
    ],
)
def test_a_broken_kubeconfig_is_named_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        find_access(path)
    assert str(path) in caught.value.message
    assert said in caught.value.message
    assert "\n" not in str(caught.value)


def test_an_unknown_context_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no context 'three' \(give --context; it has: one, two\)"):
        find_access(kubeconfig(tmp_path / "config"), "three")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no kubeconfig file .*absent"):
        find_access(tmp_path / "absent")


def test_nothing_to_work_with_says_what_to_give() -> None:
    with pytest.raises(UsageError, match="--kubeconfig"):
        find_access()


def test_a_server_that_is_no_url_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'ftp://x' is neither"):
        find_access(kubeconfig(tmp_path / "config", cluster={"server": "ftp://x"}))


def test_an_authority_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("nonsense")
    cluster = {"server": "https://x", "certificate-authority": "ca.crt"}
    with pytest.raises(UsageError, match="certificates can't be used"):
        find_access(kubeconfig(tmp_path / "config", cluster=cluster))


async def test_a_plugin_is_run_again_when_its_token_was_rejected(tmp_path: Path) -> None:
    counter = tmp_path / "count"
    command = script(
        tmp_path / "plugin",
        f"echo x >> {counter}\n"
        f'echo "{{\\"apiVersion\\": \\"client.authentication.k8s.io/v1\\", \\"kind\\": \\"ExecCredential\\",'
        f' \\"status\\": {{\\"token\\": \\"token-$(wc -l < {counter} | tr -d " ")\\"}}}}"',
    )
    access = find_access(kubeconfig(tmp_path / "config", user=plugin(command)))
    first = await access.current()
    assert first.authorization == "Bearer token-1"
    assert (await access.renewed(first)).authorization == "Bearer token-2"
    assert (await access.renewed(first)).authorization == "Bearer token-2"


def test_a_plugin_that_fails_is_named(tmp_path: Path) -> None:
    command = script(tmp_path / "plugin", "exit 1")
    with pytest.raises(UsageError, match=f"plugin `{command}` gave no credentials"):
        find_access(kubeconfig(tmp_path / "config", user=plugin(command)))


async def test_a_token_that_changes_by_itself_is_looked_at_every_minute() -> None:
    now_s = 0.0
    tokens = ["Bearer 2", "Bearer 3"]
    credentials = Credentials(server="http://x", authorization="Bearer 1", refresh=lambda: tokens.pop(0))
    access = Access(lambda: credentials, source="test", clock=lambda: now_s)
    assert (await access.current()).authorization == "Bearer 1"
    now_s = LOOK_AGAIN_S
    assert (await access.current()).authorization == "Bearer 2"
    assert (await access.current()).authorization == "Bearer 2"
    now_s = 2 * LOOK_AGAIN_S
    assert (await access.current()).authorization == "Bearer 3"


def test_a_pod_without_a_service_account_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(UsageError, match="automountServiceAccountToken"):
        find_access()


def test_the_environments_proxy_is_used_but_never_for_loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    far = find_access(kubeconfig(tmp_path / "far"))
    near = find_access(kubeconfig(tmp_path / "near", cluster={"server": "http://127.0.0.1:8080"}))
    assert far._credentials.proxy == "http://proxy.example:3128"
    assert near._credentials.proxy is None


async def test_a_pods_service_account_gives_server_token_and_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubernetes.config import incluster_config

    authority = Certificates(tmp_path).ca_file
    token = tmp_path / "token"
    token.write_text("first\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority))
    access = find_access()
    first = await access.current()
    assert (first.server, first.authorization.lower()) == ("https://[fd00::1]:443", "bearer first")
    assert first.tls is not None and first.tls.cert_store_stats()["x509_ca"] == 1
    token.write_text("second\n")
    assert (await access.renewed(first)).authorization.lower() == "bearer second"


# --- the namespace --------------------------------------------------------------------------------------------------


def with_namespaces(path: Path, current: str = "", **namespaces: str) -> Path:
    contexts = [{"name": name, "context": {"namespace": of} if of else {}} for name, of in namespaces.items()]
    path.write_text(yaml.safe_dump({"contexts": contexts, **({"current-context": current} if current else {})}))
    return path


def test_the_namespace_is_the_contexts_or_default(tmp_path: Path) -> None:
    path = with_namespaces(tmp_path / "config", "one", one="team-a", two="team-b", three="")
    found = [find_namespace(path, of) for of in (None, "one", "two", "three")]
    assert found == ["team-a", "team-a", "team-b", "default"]
    with pytest.raises(UsageError, match=r"no context 'four'.*it has: one, three, two"):
        find_namespace(path, "four")


def test_of_several_kubeconfigs_the_first_one_that_says_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = (
        with_namespaces(tmp_path / "a", one="first"),
        tmp_path / "missing",
        with_namespaces(tmp_path / "b", "one", one="second", two="team-b"),
    )
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(str(file) for file in files))
    assert [find_namespace(), find_namespace(None, "two")] == ["first", "team-b"]


def test_without_a_kubeconfig_or_a_current_context_the_namespace_is_default(tmp_path: Path) -> None:
    assert find_namespace() == "default"
    assert find_namespace(with_namespaces(tmp_path / "config", one="team-a")) == "default"
    (tmp_path / "empty").touch()
    assert find_namespace(tmp_path / "empty") == "default"


def test_a_pods_namespace_is_that_of_its_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setattr(config, "_POD_NAMESPACE", tmp_path / "namespace")
    assert find_namespace() == "default"
    (tmp_path / "namespace").write_text("team-a\n")
    assert find_namespace() == "team-a"
    monkeypatch.setenv("POD_NAMESPACE", "team-b")
    assert find_namespace() == "team-b", "as kubectl does in a pod"
    assert find_namespace(with_namespaces(tmp_path / "config", "one", one="team-c")) == "team-c"


@pytest.mark.parametrize("text", ["{", "- 1", "contexts: 3\ncurrent-context: x", "contexts: [3]\ncurrent-context: x"])
def test_a_kubeconfig_whose_namespace_cannot_be_read_is_named_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(UsageError, match="config can't be used") as refused:
        find_namespace(path)
    assert "\n" not in str(refused.value)
