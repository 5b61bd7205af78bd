"""`arranger hand-over`: show which log holds the Kubernetes cluster, and have it hand the cluster over to another."""

import asyncio
from collections.abc import Sequence

import click
import msgspec

from arranger.cli.inputs.flags import with_settings
from arranger.cli.rendering.output import output_option, print_json, print_table, say
from arranger.errors import ArrangerError
from arranger.kube.client import HttpCluster
from arranger.kube.cluster import CLUSTER_LOGS, ApiError, Cluster
from arranger.kube.cluster_logs import NAME, LogHolder, holders, with_holders
from arranger.kube.config import find_access
from arranger.settings import Settings

#: How long the next log may take to say that it is there, in seconds: its watcher looks every ten seconds.
_ANSWER_S = 30.0
#: How often the ClusterLog is read meanwhile, in seconds.
_LOOK_S = 1.0


class _Refused(ArrangerError):
    """The cluster can't be handed over so."""


@click.command()
@with_settings("kubeconfig", "context")
@click.option(
    "--to", metavar="LOG", help="The log that is to hold the cluster, as the /readyz of its processes names it."
)
@click.option("--namespace", metavar="NAME", help="Of logs that hold a namespace each, the one of this namespace.")
@output_option
def command(settings: Settings, to: str | None, namespace: str | None, output: str) -> None:
    r"""Show which log holds this Kubernetes cluster; with --to, have it hand the cluster over.

    On a cluster only one log works at a time: the first one, until it hands the cluster over. Once a process of the
    other log has said that it is there, those of the holder write nothing any more, and the others begin half a minute
    later, with all jobs as they are. If the holder has no processes any more, that takes a few seconds longer. If no
    process of the other log is there within half a minute, nothing changes.

    \b
      arranger hand-over                                       who holds the cluster, and since when
      arranger hand-over --to arranger-canary/default          to an installation in another namespace
      arranger hand-over --to default@1764121435123            to another log of the same name
    """
    held = asyncio.run(_asked(settings, to, namespace))
    if output == "json":
        print_json({"holders": [msgspec.to_builtins(one) for one in held]})
    elif to is not None and any(one.hand_over_to for one in held):
        say(f"{to} takes the cluster over within a minute: arranger hand-over shows when it has")
    elif to is not None:
        say(f"{to} holds the cluster, and hands it over to nobody")
    elif not held:
        say("no log holds this cluster yet: the first one whose watcher runs takes it")
    else:
        rows = [_row(one) for one in held]
        print_table(("LOG", "NAMESPACE", "SINCE", "RENEWED", "HANDS OVER TO"), rows)


def _row(holder: LogHolder) -> tuple[str, ...]:
    awaited = " (isn't there yet)" if holder.hand_over_to and not holder.next_ready else ""
    return (
        *(str(holder.log_id), holder.namespace or "all", holder.since),
        *(holder.renewed or "not yet", (holder.hand_over_to or "-") + awaited),
    )


async def _asked(settings: Settings, to: str | None, namespace: str | None) -> tuple[LogHolder, ...]:
    cluster = HttpCluster(find_access(settings.kubeconfig or None, settings.context or None))
    try:
        if to is None:
            return await _held(cluster)
        await _ask(cluster, to, namespace)
        return await _answered(cluster, to, namespace)
    except ApiError as refused:
        raise _refusal(refused) from refused
    finally:
        await cluster.close()


async def _held(cluster: Cluster) -> tuple[LogHolder, ...]:
    try:
        return holders(await cluster.get(CLUSTER_LOGS, None, NAME))
    except ApiError as refused:
        if _is_absent(refused):
            return ()
        raise


async def _ask(cluster: Cluster, to: str, namespace: str | None, *, tries: int = 3) -> None:
    """Write the request into the ClusterLog, by comparison of its version. Nobody is the next log if `to` is empty or
    the holder itself."""
    stored = await cluster.get(CLUSTER_LOGS, None, NAME)
    found = holders(stored)
    holder = _of_namespace(found, namespace)
    itself = to in (holder.log, str(holder.log_id))
    if itself and not holder.hand_over_to:
        raise _Refused(f"hand-over: {to} holds the cluster already", hint="see /readyz of the processes that should")
    asked = msgspec.structs.replace(holder, hand_over_to="" if itself else to, next_ready=False)
    body = with_holders([asked if one is holder else one for one in found])
    version = {name: stored["metadata"][name] for name in ("uid", "resourceVersion")}
    try:
        await cluster.patch(CLUSTER_LOGS, None, NAME, {"metadata": version, **body})
    except ApiError as refused:
        if refused.code != 409 or not tries:
            raise
        await _ask(cluster, to, namespace, tries=tries - 1)  # the holder has just renewed its entry


def _of_namespace(found: Sequence[LogHolder], namespace: str | None) -> LogHolder:
    chosen = [one for one in found if namespace is None or one.namespace == namespace]
    if len(chosen) != 1:
        names = ", ".join(one.namespace or "all" for one in found) or "none"
        raise _Refused(f"hand-over: {len(chosen)} logs fit", hint=f"give --namespace; there are: {names}")
    return chosen[0]


async def _answered(cluster: Cluster, to: str, namespace: str | None) -> tuple[LogHolder, ...]:
    """The holders once the next log is there, or holds the cluster. Raises `_Refused` if it isn't there in time."""
    for _ in range(round(_ANSWER_S / _LOOK_S)):
        found = await _held(cluster)
        if all(one.next_ready or one.hand_over_to != to for one in found):
            return found
        await asyncio.sleep(_LOOK_S)
    await _ask(cluster, "", namespace)
    raise _Refused(
        f"hand-over: no process of {to} has said that it is there, so nothing changes",
        hint="the log's name is the one that /readyz of its processes gives; they must run, and watch this cluster",
    )


def _refusal(refused: ApiError) -> _Refused:
    if refused.code == 403:
        hint = "this needs the right to get and patch clusterlogs, which administrators of the cluster have"
        return _Refused(f"you may not do that: {refused.detail}", hint=hint)
    if _is_absent(refused):
        return _Refused("no log holds this cluster yet", hint="the first one whose watcher runs takes it")
    if refused.code == 404:
        return _Refused("the API server has no ClusterLogs", hint="arranger crd | kubectl apply -f - defines them")
    if refused.code == 409:
        return _Refused("somebody else has just changed the ClusterLog", hint="run the command again")
    return _Refused(f"the API server refuses it: {refused.detail}")


def _is_absent(refused: ApiError) -> bool:
    """Whether the API server has the kind, and not the object."""
    return refused.code == 404 and f'"{NAME}" not found' in refused.detail
