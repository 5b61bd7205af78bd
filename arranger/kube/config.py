"""Finds the API server and the credentials for it: a kubeconfig, or the service account of the pod we run in.

The `kubernetes` package reads both, including exec plugins, client certificates and token files. It is imported only
here and only when needed, because it takes a fifth of a process's start and some 20 MB. A kubeconfig that itself holds
a token and the authority needs none of that. The package's typed client isn't used.
"""

import asyncio
import base64
import ipaddress
import os
import ssl
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from arranger.errors import UsageError
from arranger.kube.cluster import ClusterUnavailable

#: How often a credential that can change by itself (a mounted token, a plugin's token with an expiry) is checked.
LOOK_AGAIN_S = 60.0
SERVICE_HOST = "KUBERNETES_SERVICE_HOST"
DEFAULT_NAMESPACE = "default"
#: A pod's own namespace.
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """The address of the API server and the credentials for it.

    `authorization` is the whole header, empty for none (a client certificate is in `tls`). `refresh` returns the
    header that is valid now; it may block, because it may read a file or run a plugin.
    """

    server: str
    authorization: str = ""
    tls: ssl.SSLContext | None = None
    tls_server_name: str | None = None
    proxy: str | None = None
    refresh: Callable[[], str] | None = None


class Access:
    """Credentials that stay valid: checked every minute, and loaded again when the server rejects them."""

    def __init__(
        self, load: Callable[[], Credentials], *, source: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.source = source
        self._load = load
        self._clock = clock
        self._credentials = load()
        self._look_again = clock() + LOOK_AGAIN_S
        self._renewing = asyncio.Lock()

    @property
    def server(self) -> str:
        """The API server's URL, without a trailing slash."""
        return self._credentials.server

    async def current(self) -> Credentials:
        refresh = self._credentials.refresh
        if refresh is None or self._clock() < self._look_again or self._renewing.locked():
            return self._credentials
        async with self._renewing:
            self._look_again = self._clock() + LOOK_AGAIN_S
            self._credentials = replace(
                self._credentials, authorization=await asyncio.to_thread(_or_unavailable, refresh)
            )
        return self._credentials

    async def renewed(self, rejected: Credentials) -> Credentials:
        """Credentials loaded again (a plugin is run again) after the server replied 401 to `rejected`.

        Of many requests that are rejected together, one loads them for all.
        """
        async with self._renewing:
            if self._credentials is rejected:
                self._credentials = await asyncio.to_thread(_or_unavailable, self._load)
                self._look_again = self._clock() + LOOK_AGAIN_S
        return self._credentials


def find_access(kubeconfig: str | Path | None = None, context: str | None = None) -> Access:
    """Access as requested: `kubeconfig`, else the files of KUBECONFIG, else ~/.kube/config, else the pod's own.

    Raises `UsageError` that names the unusable file, context or variable.
    """
    paths = _paths(kubeconfig)
    if not paths:
        if context is None and os.environ.get(SERVICE_HOST):
            return Access(_in_cluster, source="the pod's service account")
        raise UsageError(
            f"no Kubernetes cluster to work with: there is no {_home()}, and this isn't a pod",
            hint="give --kubeconfig FILE or set KUBECONFIG",
        )
    shown = f"kubeconfig {paths}" + (f", context {context}" if context else "")
    return Access(lambda: _from_kubeconfig(paths, context), source=shown)


def find_namespace(kubeconfig: str | Path | None = None, context: str | None = None) -> str:
    """The namespace in which kubectl would work with the same arguments: the context's, the pod's own, or `default`.
    No credentials are loaded for it. Raises `UsageError` that names the unusable file or context."""
    paths = _paths(kubeconfig)
    if paths:
        namespace = _namespace_of(paths, context)
    else:
        namespace = _pods_own() if context is None and os.environ.get(SERVICE_HOST) else ""
    return namespace or DEFAULT_NAMESPACE


def _namespace_of(paths: str, context: str | None) -> str:
    """The namespace of a context of kubeconfigs; empty for none."""
    try:
        files = [Path(path).expanduser() for path in paths.split(os.pathsep) if path]
        current, namespaces = _contexts([yaml.safe_load(file.read_text()) or {} for file in files if file.is_file()])
    except (LookupError, TypeError, AttributeError, ValueError, OSError, yaml.YAMLError) as error:
        raise UsageError(f"kubeconfig {paths} can't be used: {_one_line(error)}") from error
    if context and context not in namespaces:
        raise _no_context(paths, context, namespaces)
    return namespaces.get(context or current, "")


def _contexts(configs: list[dict[str, Any]]) -> tuple[str, dict[str, str]]:
    """The current context, and the namespace of each; empty for none. Of files that say the same, the first one
    holds."""
    current = ""
    namespaces: dict[str, str] = {}
    for config in configs:
        current = current or config.get("current-context") or ""
        for of in config.get("contexts") or ():
            namespaces.setdefault(of["name"], (of.get("context") or {}).get("namespace") or "")
    return current, namespaces


def _paths(kubeconfig: str | Path | None) -> str:
    """The kubeconfig's file, or several as in KUBECONFIG; empty for none."""
    given = str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG", "")
    return given or (str(_home()) if _home().exists() else "")


def _home() -> Path:
    return Path.home() / ".kube" / "config"


def _pods_own() -> str:
    """The namespace of the pod that we run in; empty if it has no mounted account."""
    try:
        return os.environ.get("POD_NAMESPACE") or _POD_NAMESPACE.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _no_context(paths: str, name: str, known: Iterable[object]) -> UsageError:
    names = ", ".join(sorted(str(of) for of in known)) or "none"
    problem = f"has no context {name!r}" if name else "has no current-context"
    return UsageError(f"kubeconfig {paths} {problem}", hint=f"give --context; it has: {names}")


def _plain(path: str, context: str | None) -> Credentials | None:
    """The credentials in a kubeconfig that itself holds all of them, a token and the server's authority. None for any
    other one, and for one with a fault: the `kubernetes` package reads these."""
    try:
        config = yaml.safe_load(Path(path).expanduser().read_text())
        chosen = _named(config["contexts"], context or config["current-context"])["context"]
        cluster, user = (_named(config[f"{kind}s"], chosen[kind])[kind] for kind in ("cluster", "user"))
        if cluster.keys() != {"server", "certificate-authority-data"} or user.keys() != {"token"}:
            return None
        server, token = cluster["server"].rstrip("/"), user["token"]
        if not server.startswith("https://") or not isinstance(token, str) or not token or urllib.request.getproxies():
            return None
        authority = base64.b64decode(cluster["certificate-authority-data"], validate=True).decode("ascii")
        return Credentials(server=server, authorization=f"Bearer {token}".strip(), tls=_verifying(cadata=authority))
    except (LookupError, TypeError, AttributeError, ValueError, OSError, yaml.YAMLError):
        return None


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The only entry of this name; raises `ValueError` if there isn't exactly one."""
    (found,) = [entry for entry in entries if entry["name"] == name]
    return found


def _from_kubeconfig(paths: str, context: str | None) -> Credentials:
    if plain := _plain(paths, context):
        return plain
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    # Like kubectl, tolerate missing files among several in KUBECONFIG.
    if not any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path):
        raise UsageError(f"there is no kubeconfig file {paths}", hint="give --kubeconfig FILE or set KUBECONFIG")
    configuration = Configuration()
    try:
        merged = KubeConfigMerger(paths).config  # type: ignore[no-untyped-call]
        plugin = _plugin(paths, merged.value, context)
        # Without a base path, paths within a kubeconfig are relative to the file that holds them.
        loader = KubeConfigLoader(  # type: ignore[no-untyped-call]
            config_dict=merged, active_context=context, config_base_path=None
        )
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, yaml.YAMLError, OSError, TypeError, AttributeError, ValueError) as error:
        raise UsageError(f"kubeconfig {paths} can't be used: {_one_line(error)}") from error
    credentials = _credentials(configuration, named=f"kubeconfig {paths}")
    if plugin and not credentials.authorization and not configuration.cert_file:
        raise UsageError(
            f"kubeconfig {paths}: the credential plugin `{plugin}` gave no credentials",
            hint="run it by hand to see why",
        )
    return credentials


def _plugin(paths: str, merged: dict[str, Any], context: str | None) -> str:
    """The exec plugin of the context's user, if any; raises `UsageError` if the context or its parts don't exist."""

    def named(kind: str, name: str) -> Any:
        return next((node.value for node in merged.get(kind) or [] if node.value.get("name") == name), None)

    name = context or merged.get("current-context") or ""
    chosen = named("contexts", name)
    if chosen is None:
        raise _no_context(paths, name, (node.value.get("name") for node in merged.get("contexts") or []))
    parts = chosen.get("context") or {}
    cluster = named("clusters", parts.get("cluster", ""))
    if not (cluster and (cluster.get("cluster") or {}).get("server")):
        raise UsageError(f"kubeconfig {paths}: context {name!r} names no cluster with a server")
    user = named("users", parts.get("user", "")) or {}
    command: str = ((user.get("user") or {}).get("exec") or {}).get("command", "")
    return command


def _in_cluster() -> Credentials:
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException, load_incluster_config

    configuration = Configuration()
    try:
        load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as error:
        raise UsageError(
            f"{SERVICE_HOST} is set, but this pod's service account can't be used: {_one_line(error)}",
            hint="set automountServiceAccountToken: true, or give --kubeconfig FILE",
        ) from error
    return _credentials(configuration, named="the pod's service account")


def _credentials(configuration: Any, *, named: str) -> Credentials:
    def authorization() -> str:
        return str(configuration.api_key.get("BearerToken", "")).strip()

    def refresh() -> str:
        configuration.refresh_api_key_hook(configuration)
        return authorization()

    server = str(configuration.host).rstrip("/")
    if urllib.parse.urlsplit(server).scheme not in ("http", "https"):
        raise UsageError(f"{named}: the server {server!r} is neither an http:// nor an https:// URL")
    return Credentials(
        server=server,
        authorization=authorization(),
        tls=_tls(configuration, named=named) if server.startswith("https") else None,
        tls_server_name=getattr(configuration, "tls_server_name", None),
        proxy=_proxy(configuration.proxy, server),
        refresh=refresh if configuration.refresh_api_key_hook else None,
    )


def _tls(configuration: Any, *, named: str) -> ssl.SSLContext:
    try:
        context = _verifying(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"{named}: its certificates can't be used: {_one_line(error)}") from error
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _verifying(*, cafile: str | None = None, cadata: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=cafile, cadata=cadata)
    # Authorities that clusters create for themselves often fail the strict mode of Python 3.13.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _proxy(proxy: str | None, server: str) -> str | None:
    """The proxy to use: the kubeconfig's, or the environment's unless that excludes this server."""
    if not proxy:
        return None
    address = urllib.parse.urlsplit(server)
    from_environment = urllib.request.getproxies().get(address.scheme) == proxy
    if from_environment and (_is_loopback(address.hostname or "") or urllib.request.proxy_bypass(address.netloc)):
        return None
    return proxy


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _or_unavailable(read: Callable[[], _T]) -> _T:
    """Raise `ClusterUnavailable`: credentials that were usable at the start may become usable again."""
    try:
        return read()
    except Exception as error:
        raise ClusterUnavailable(f"the credentials for the API server can't be renewed: {_one_line(error)}") from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
