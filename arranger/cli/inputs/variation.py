"""The variation that the user of `arranger what-if` requests: jobs, nodes and queues by name, and manifests in files.

A manifest of an existing object is an edit of that object, and the output reports it as an edit.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from arranger.cli.inputs.cluster_files import STDIN, read_objects
from arranger.cli.inputs.cluster_input import described, say_left_out
from arranger.cli.inputs.job_edit import JobEdit
from arranger.cli.inputs.reading import NotFound, unknown_node
from arranger.errors import UsageError
from arranger.events import kinds as k
from arranger.messages.faults import faults_text
from arranger.model.names import KIND
from arranger.model.near_names import did_you_mean, near_names
from arranger.model.node import NodeFacts
from arranger.model.queue import DEFAULT_QUEUE, QUEUE_KIND
from arranger.model.validation import tyjob_checks
from arranger.plugins import inventory
from arranger.projections.state import State
from arranger.replay.explain.answer import jobs_named
from arranger.replay.reading.describe import label
from arranger.replay.what_if.hypothesis import node_copies
from arranger.replay.what_if.one_cycle import Variation, edit_text
from arranger.replay.what_if.overrides import Overrides
from arranger.replay.what_if.quota_account import as_counted


class Otherwise(msgspec.Struct, frozen=True):
    """The requested changes: another configuration, files of manifests, jobs, nodes and queues to leave out, nodes to
    copy, and an edit of one job."""

    other: Overrides
    manifests: Sequence[str]
    jobs: Sequence[str]
    nodes: Sequence[str]
    queues: Sequence[str] = ()
    copies: Sequence[str] = ()
    #: Pods in the files that name one of these schedulers are to be placed.
    schedulers: tuple[str, ...] = ()
    edit: JobEdit | None = None

    def words(self, state: State) -> str:
        """The changes in words, of which no job is unknown: jobs have their namespaces, however they were asked for."""
        parts = [self.other.text] if self.other else []
        parts += [f"with {'standard input' if name == STDIN else name}" for name in self.manifests]
        parts += [f"{self.changed_job(state)} {self.edit.words}"] if self.edit is not None else []
        parts += [f"with a copy of node {name}" for name in self.copies]
        parts += [f"without {_label(state, name)}" for name in self.jobs]
        parts += [f"without node {name}" for name in self.nodes]
        parts += [f"without queue {name}" for name in self.queues]
        return ", ".join(parts) or "nothing"

    def variation(self, state: State, time_ms: int, edits: list[str]) -> Variation:
        """The variation for a state at `time_ms`. Edits are added to `edits`, in words.

        Raises `NotFound` for an unknown job, node or queue, and `UsageError` for a faulty manifest.
        """
        for name in (*self.nodes, *self.copies):
            if not state.nodes.has(name):
                raise unknown_node(name, state)
        added = (*self._added(state, time_ms, edits), *node_copies(state, self.copies))
        jobs = tuple(_job(state, name) for name in self.jobs)
        for name in self.queues:
            if name not in state.queues:
                raise unknown_queue(name, state)
        if self.edit is not None:
            added = (*added, self._edited_job(self.edit, state, {*jobs, *map(_uid, added)}, edits))
        return Variation(self.other, added, jobs, tuple(self.nodes), tuple(self.queues))

    def changed_job(self, state: State) -> str:
        """The namespace/name of the job that is changed by name; empty for none."""
        return _label(state, self.edit.job) if self.edit is not None else ""

    def _edited_job(self, edit: JobEdit, state: State, taken: set[str], edits: list[str]) -> k.Event:
        """The observation of the job after its edit. `taken` are UIDs of the jobs that other options change."""
        if (uid := _job(state, edit.job)) in taken:
            raise UsageError(f"--job {edit.job}: --with or --without changes this job too")
        if edit.queue not in (None, DEFAULT_QUEUE, *state.queues):
            raise unknown_queue(str(edit.queue), state)
        seen, words = edit.seen(state.jobs[uid])
        edits.append(words)
        return seen

    def _added(self, state: State, time_ms: int, edits: list[str]) -> list[k.Event]:
        """The observations of the objects in the files. Those of existing objects are edits, described in `edits`."""
        if not self.manifests:
            return []
        # Rounded up, so that a new job counts as created after all existing ones.
        created = datetime.fromtimestamp(-(-time_ms // 1000), UTC).isoformat()
        objects, nodes = [], {}
        for found in read_objects(self.manifests):
            metadata = found.item.get("metadata")
            if found.kind in (KIND, "Pod") and isinstance(metadata, dict) and not metadata.get("creationTimestamp"):
                item = {**found.item, "metadata": {**metadata, "creationTimestamp": created}}
                found = msgspec.structs.replace(found, item=item)  # noqa: PLW2901
            if found.kind == "Node" and isinstance(metadata, dict) and not metadata.get("uid"):
                nodes[str(metadata.get("name"))] = found.item
            objects.append(found)
        classes = {of.name: {"value": of.value} for of in state.priority_classes.values()}
        checks = tyjob_checks(inventory().names)
        cluster = described(objects, checks, schedulers=self.schedulers, priorities=classes)
        say_left_out(cluster.left_out)
        added = [_as_edit(event, state, nodes) for event in cluster.observations]
        edits += [edit for event in added if (edit := edit_text(event, state))]
        return added


def job_edit(options: Mapping[str, Any]) -> JobEdit | None:
    """The edit of one job by the options. Raises `UsageError` for a job or a change alone."""
    given = {name: options[name] for name in ("priority", "queue", "gpus") if options[name] is not None}
    if options["job"] is None:
        if given:
            raise UsageError(f"--{next(iter(given))} needs --job")
        return None
    if not given:
        raise UsageError("--job needs --priority, --queue or --gpus")
    return JobEdit(options["job"], **given)


def queues_in(manifests: Sequence[str]) -> tuple[k.QueueSeen, ...]:
    """The Queues in the files. Raises `UsageError` for another kind of object, and for an invalid Queue."""
    objects = list(read_objects(manifests))
    if other := next((of for of in objects if of.kind != QUEUE_KIND), None):
        hint = "arranger what-if takes other objects too"
        raise UsageError(f"{other.where}: this is a {other.kind}, and only Queues can be used here", hint=hint)
    found = described(objects, tyjob_checks(inventory().names))
    say_left_out(found.left_out)
    return tuple(_valid(event) for event in found.observations if isinstance(event, k.QueueSeen))


def unknown_queue(name: str, state: State) -> NotFound:
    hint = did_you_mean(near_names(name, state.queues, most=3, digits=True), "arranger queue lists the queues")
    return NotFound(f"there is no queue {name!r} at offset {state.offset}", hint=hint)


def _valid(event: k.QueueSeen) -> k.QueueSeen:
    if event.faults:
        raise UsageError(f"Queue {event.name} is invalid: {faults_text(event.faults)}")
    return event


def _uid(event: k.Event) -> str:
    return event.uid if isinstance(event, k.JobSeen) else ""


def _job(state: State, asked: str) -> str:
    namespace, _, name = asked.rpartition("/")
    found = jobs_named(state, name, namespace or None)
    if len(found) > 1:
        labels = ", ".join(f"{job.seen.namespace}/{name}" for job in found)
        raise UsageError(f"there are several jobs {name!r}: {labels}", hint="use NAMESPACE/NAME")
    if not found:
        known = {job.seen.name for job in state.jobs.values()}
        hint = did_you_mean(near_names(name, known, most=3), "arranger replay lists the jobs")
        raise NotFound(f"there is no job {asked!r} at offset {state.offset}", hint=hint)
    return found[0].uid


def _label(state: State, asked: str) -> str:
    return label(state.jobs[_job(state, asked)])


def _as_edit(event: k.Event, state: State, nodes: Mapping[str, Mapping[str, Any]]) -> k.Event:
    if isinstance(event, k.JobSeen):
        if event.faults:
            raise UsageError(f"TYJob {event.namespace}/{event.name} is invalid: {faults_text(event.faults)}")
        job = state.find_job(event.namespace, event.name)
        if job is not None and not job.ended:
            return msgspec.structs.replace(
                job.seen, spec=event.spec, faults=(), generation=job.seen.generation + 1, status=None
            )
    if isinstance(event, k.QueueSeen):
        same_queue = state.queues.get(event.name)
        return msgspec.structs.replace(_valid(event), uid=same_queue.uid if same_queue is not None else event.uid)
    if isinstance(event, k.NamespaceSeen) and event.name in state.namespaces:
        return msgspec.structs.replace(event, uid=state.namespaces[event.name].uid)
    if isinstance(event, k.NodeSeen) and state.nodes.has(event.name):
        row = state.nodes.rows[event.name]
        facts = event.facts
        if event.name in nodes:
            facts = _edited(state.nodes.facts[row], facts, nodes[event.name])
        return msgspec.structs.replace(event, uid=state.nodes.uids[row], facts=facts)
    if isinstance(event, k.QuotaSeen):
        there = state.quotas.get(event.namespace, {}).get(event.name)
        if there is not None:
            return msgspec.structs.replace(as_counted(event, there), uid=there.uid)
    if isinstance(event, k.PodSeen):
        same = [pod for pod in state.pods.values() if (pod.namespace, pod.name) == (event.namespace, event.name)]
        if same:
            return msgspec.structs.replace(event, uid=same[0].uid)
    return event


def _edited(had: NodeFacts, given: NodeFacts, manifest: Mapping[str, Any]) -> NodeFacts:
    """A node's facts after an edit by a manifest written by hand. Fields that it leaves out stay."""
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    amounts = dict(had.allocatable)
    written = status.get("allocatable") or status.get("capacity") or {}
    # The number of pods has a default, so only amounts in the manifest count.
    amounts |= {name: amount for name, amount in given.allocatable if name in written}
    return NodeFacts(
        allocatable=tuple(sorted(amounts.items())),
        ready=given.ready if status.get("conditions") else had.ready,
        cordoned=given.cordoned if "unschedulable" in spec else had.cordoned,
        labels=tuple(sorted((dict(had.labels) | dict(given.labels)).items())),
        taints=given.taints if "taints" in spec else had.taints,
    )
