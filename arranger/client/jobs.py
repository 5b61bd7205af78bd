"""TYJobs and their pods as the client returns them, and TYJobs as users give them."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union

import msgspec
import yaml

from arranger.client import html
from arranger.errors import ArrangerError, UsageError
from arranger.kube.cluster import TYJOBS, Object
from arranger.messages.faults import faults_text, meant_text
from arranger.model.faults import FaultKind
from arranger.model.job import ENDED, Stage
from arranger.model.names import INDEX_LABEL, KIND, LEADER_ROLE, ROLE_LABEL, WORKER_SET_LABEL
from arranger.model.text import counted, one_line
from arranger.model.validation import unknown_metadata, validate

#: A TYJob as users give it: an object, YAML text, the path of a YAML file, or a job that the client returned.
Given = Union[Mapping[str, Any], str, Path, "Job"]
#: `kubectl apply` and the client note here what was applied last, so each removes what the other one gave.
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
#: What the API server sets: an object that it returned may be given again, with another name, say.
_OF_SERVER = frozenset(
    {
        *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields"),
        *("resourceVersion", "selfLink", "uid"),
    }
)


class JobEnded(ArrangerError):
    """A job has ended in another stage than those that were waited for. `job` is the job as it ended."""

    def __init__(self, job: "Job") -> None:
        super().__init__(f"{job.namespace}/{job.name} ended as {job.stage}: {job.message or 'no message'}")
        self.job = job


class JobGone(ArrangerError):
    """A job that was waited for was deleted, or another one has its name."""


class Condition(msgspec.Struct, frozen=True):
    """A condition of a TYJob's status. `since` is the time of its last transition, as Kubernetes writes it."""

    type: str
    status: str
    reason: str
    message: str
    since: str

    @property
    def holds(self) -> bool:
        return self.status == "True"


class JobPod(msgspec.Struct, frozen=True):
    """A pod of a job, one that failed and is kept for its log among them. `worker_set` is empty for the leader, and
    `node` for a pod without one."""

    name: str
    worker_set: str
    index: int
    node: str
    phase: str
    ready: bool

    @property
    def is_leader(self) -> bool:
        return not self.worker_set


class Job(msgspec.Struct, frozen=True):
    """A TYJob as the API server shows it. `object` is all of it, as JSON."""

    object: Object

    def __repr__(self) -> str:
        return f"<Job {self.namespace}/{self.name}: {one_line(self._told)}>"

    def _repr_html_(self) -> str:
        conditions = [(of.type, of.status, of.reason, of.message, of.since) for of in self.conditions.values()]
        rows = (
            ("schedule", self.schedule_state or "-"),
            ("ready workers", self.ready_workers),
            ("GPUs", self.gpus),
            ("message", self.message or "-"),
        )
        return html.block(
            html.sentence(f"{self.namespace}/{self.name}: {self.stage}", strong=True),
            html.facts(rows),
            html.table(("condition", "status", "reason", "message", "since"), conditions, empty="no conditions yet"),
        )

    @property
    def _told(self) -> str:
        parts = [str(self.stage), f"{counted(self.ready_workers, 'worker')} ready", counted(self.gpus, "GPU")]
        return ", ".join(parts) + (f": {self.message}" if self.message else "")

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.object["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        return str(self.object["metadata"]["uid"])

    @property
    def status(self) -> Object:
        """The whole status, empty before Arranger has seen the job."""
        return self.object.get("status") or {}

    @property
    def stage(self) -> Stage:
        """The stage: Pending until Arranger has seen the job."""
        return Stage(self.status.get("stage") or Stage.PENDING)

    @property
    def ended(self) -> bool:
        return self.stage in ENDED

    @property
    def message(self) -> str:
        """What the job waits for, or why it is where it is, in words."""
        return str(self.status.get("message") or "")

    @property
    def schedule_state(self) -> str:
        return str(self.status.get("scheduleState") or "")

    @property
    def gpus(self) -> int:
        """The GPUs of the job's pods that have nodes."""
        return int(self.status.get("gpus") or 0)

    @property
    def ready_workers(self) -> int:
        return int(self.status.get("readyWorkers") or 0)

    @property
    def conditions(self) -> dict[str, Condition]:
        """The conditions by type."""
        found = self.status.get("conditions") or ()
        return {
            of["type"]: Condition(of["type"], of["status"], of["reason"], of["message"], of["lastTransitionTime"])
            for of in found
        }


def job_object(given: Given, namespace: str) -> Object:
    """The TYJob to send, in this namespace unless it names one, without what the API server sets. Raises
    `UsageError`."""
    if isinstance(given, Job):
        given = given.object
    elif isinstance(given, str | Path):
        given = _from_yaml(given)
    if not isinstance(given, Mapping):
        raise _no_tyjob(given)
    body = _as_json(given)
    body.pop("status", None)
    for name, value in (("kind", KIND), ("apiVersion", TYJOBS.api_version)):
        if body.get(name) != value:
            raise UsageError(f"{name} is {body.get(name)!r}", hint=meant(body) or f"{name}: {value}")
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        hint = meant(body) or "or metadata.generateName, for a name with a random end"
        raise UsageError("metadata.name is missing", hint=hint)
    return {**body, "metadata": {**_of_user(metadata), "namespace": metadata.get("namespace") or namespace}}


def _no_tyjob(given: object) -> UsageError:
    """What is said of a value that is no TYJob in any form."""
    shown = repr(given)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    hint = "give a dict, YAML text, the path of a .yaml or .yml file, or a Job that the client returned"
    return UsageError(f"this is no TYJob: {shown}", hint=hint)


def _of_user(metadata: Object) -> Object:
    kept = {name: value for name, value in metadata.items() if name not in _OF_SERVER}
    if isinstance(notes := kept.get("annotations"), dict):
        kept["annotations"] = {name: value for name, value in notes.items() if name != APPLIED}
    return kept


def meant(body: Object) -> str:
    """For each unknown field of a TYJob the one that was meant, as far as one has a similar name; empty for none."""
    return meant_text([*validate(body), *unknown_metadata(body)])


def of_wrong_type(body: Object) -> str:
    """The fields of a TYJob that have values of another type, such as 2.5 for a whole number; empty for none."""
    return faults_text([one for one in validate(body) if one.kind == FaultKind.WRONG_TYPE])


def _as_json(given: Mapping[str, Any]) -> Object:
    """A copy with the types of JSON: tuples are lists in it, and numbers of numpy are numbers. Raises `UsageError`."""
    if (path := _endless(given)) is not None:
        raise UsageError(f"{path[1:]} is no number that JSON has", hint="it is infinite or not a number")
    try:
        copied: Object = _whole(msgspec.json.decode(msgspec.json.encode(given, enc_hook=_number), type=Object))
        return copied
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise UsageError(f"the TYJob can't be written as JSON: {error}") from error


def _whole(value: Any) -> Any:
    """With 3.0 as 3: JSON has one kind of number, and the rules of the definition have two."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _endless(value: Any) -> str | None:
    """The path to a number that JSON would drop, each part after a dot: infinity, or what isn't a number."""
    if isinstance(value, float) and not math.isfinite(value):
        return ""
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, item in items:
        if (path := _endless(_number(item) if hasattr(item, "item") else item)) is not None:
            return f".{key}{path}"
    return None


def _number(value: Any) -> Any:
    if callable(item := getattr(value, "item", None)):
        return item()
    raise TypeError(f"{value!r} is a {type(value).__name__}")


def _from_yaml(given: str | Path) -> Mapping[str, Any]:
    """The only object of a YAML text or file. A text of one line that ends in .yaml is the path of a file."""
    is_path = isinstance(given, Path) or ("\n" not in given and given.endswith((".yaml", ".yml")))
    try:
        text = Path(given).expanduser().read_text() if is_path else str(given)
        documents = [of for of in yaml.safe_load_all(text) if of is not None]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"can't read the TYJob: {error}") from error
    if not all(isinstance(of, dict) for of in documents):
        raise _no_tyjob(given)
    if len(documents) != 1:
        raise UsageError(f"a TYJob is one object, and this is {len(documents)}", hint="submit one after the other")
    found: Mapping[str, Any] = documents[0]
    return found


def job_pod(pod: Object) -> JobPod:
    """A pod of a job, from what the API server shows of it."""
    labels, status = pod["metadata"].get("labels") or {}, pod.get("status") or {}
    conditions = {of["type"]: of["status"] for of in status.get("conditions") or ()}
    worker_set = "" if labels.get(ROLE_LABEL) == LEADER_ROLE else labels.get(WORKER_SET_LABEL, "")
    return JobPod(
        name=pod["metadata"]["name"],
        worker_set=worker_set,
        index=int(labels.get(INDEX_LABEL) or 0),
        node=str(pod.get("spec", {}).get("nodeName") or ""),
        phase=str(status.get("phase") or "Pending"),
        ready=conditions.get("Ready") == "True",
    )
