"""Kueue's label on a TYJob or in its templates, and where users are told of it."""

import copy
from typing import Any

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.kube.translate import job_seen
from arranger.messages.faults import faults_text
from arranger.messages.readiness import labels_text, unset_text
from arranger.model.validation import warnings
from arranger.replay.reading.describe import message_of
from tests.unit.test_reporter import Scene
from tests.world import World

KEY = "kueue.x-k8s.io/queue-name"
LABELLED = {"metadata": {"labels": {KEY: "train"}}}


def tyjob(leader: dict[str, Any] | None = None, workers: dict[str, Any] | None = None) -> dict[str, Any]:
    pod = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    sets = [{"name": "w", "counts": 1, "template": {**pod, **(workers or {})}}]
    spec = {"leader": {"name": "l", "template": {**pod, **(leader or {})}}, "workerSets": sets}
    return {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "metadata": {"name": "j", "namespace": "n"}, "spec": spec}


def seen(job: dict[str, Any], last: k.JobSeen | None = None) -> k.JobSeen:
    return job_seen(copy.deepcopy(job), 1, with_status=False, last=last)


@pytest.mark.parametrize(
    ("job", "fields"),
    [
        (tyjob(), []),
        (tyjob() | {"metadata": {"name": "j", "labels": {KEY: "train"}}}, [f"metadata.labels.{KEY}"]),
        (tyjob(leader=LABELLED), [f"spec.leader.template.metadata.labels.{KEY}"]),
        (tyjob(workers=LABELLED), [f"spec.workerSets[0].template.metadata.labels.{KEY}"]),
        (tyjob(workers={"metadata": {"labels": None}}), []),
    ],
)
def test_the_label_is_found_wherever_it_stands(job: dict[str, Any], fields: list[str]) -> None:
    assert [of.field.replace('"', "") for of in warnings(job)] == fields


def test_a_label_that_comes_or_goes_without_a_new_generation_is_seen() -> None:
    job = tyjob()
    job["metadata"]["generation"] = 1
    first = seen(job)
    job["metadata"]["labels"] = {KEY: "train"}
    second = seen(job, first)
    assert (len(first.unset), len(second.unset)) == (0, 1)
    assert seen(job, second).unset is second.unset
    job["metadata"]["labels"] = {}
    assert seen(job, second).unset == ()


def test_the_answers_of_commands_and_an_event_say_what_to_do_once() -> None:
    world = World()
    world.node("n1")
    job = world.job("j")
    job.seen = msgspec.structs.replace(job.seen, unset=seen(tyjob(workers=LABELLED)).unset)
    assert "name the Queue in spec.queue" in message_of(world.state, job)
    assert (unset_text(job), labels_text(job)) == ("", faults_text(job.seen.unset))


async def test_an_event_says_it_once() -> None:
    scene = Scene()
    job = scene.world.job("j")
    job.seen = msgspec.structs.replace(job.seen, unset=seen(tyjob(workers=LABELLED)).unset)
    for _ in range(2):
        await scene.report(job)
    [event] = [of for of in scene.events() if of["reason"] == "KueueLabel"]
    assert (event["type"], event["count"]) == ("Warning", 1)
    assert "may gate pods with this label" in event["message"]
    assert not [of for of in scene.events() if of["reason"] == "UnsetVariable"]
