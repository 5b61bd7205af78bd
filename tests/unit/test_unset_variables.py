"""References of templates to variables that the pods won't have are said: at apply, in plans, status and Events."""

import copy
from typing import Any

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.kube.cluster import Object
from arranger.kube.manifests import pod_manifest
from arranger.kube.translate import job_seen
from arranger.lifecycle.desired import desired_status
from arranger.messages.faults import faults_text
from arranger.model.validation import validate
from arranger.model.variables import ALWAYS, LEADER_ADDRESS, MEMBERS_FILE, RENDEZVOUS, unset_variables
from arranger.replay.reading.describe import message_of
from tests.unit.test_reporter import Scene
from tests.world import World

CONDITIONAL = (*RENDEZVOUS, MEMBERS_FILE, LEADER_ADDRESS)


def template(*args: str, env: dict[str, str] | None = None, **more: Any) -> Object:
    variables = [{"name": name, "value": value} for name, value in (env or {}).items()]
    return {"spec": {"containers": [{"name": "c", "image": "i", "args": list(args), "env": variables, **more}]}}


def tyjob(leader: Object | None, *sets: tuple[dict[str, Any] | None, Object], **spec: Any) -> Object:
    """A TYJob; each of the sets has a rendezvous or None, and a template."""
    parts = {"leader": {"name": "learner", "template": leader}} if leader is not None else {}
    made = [
        {
            "name": f"s{number}",
            "counts": 2,
            "template": of,
            **({} if rendezvous is None else {"rendezvous": rendezvous}),
        }
        for number, (rendezvous, of) in enumerate(sets)
    ]
    spec = {"minWorkersNum": 0, **spec} if leader is not None else spec
    metadata = {"name": "j", "namespace": "default", "uid": "u"}
    return {
        "apiVersion": "arranger.dev/v1", "kind": "TYJob", "metadata": metadata,
        "spec": {**parts, "workerSets": made, **spec},
    }  # fmt: skip


def said(job: Object) -> list[str]:
    assert validate(job) == []
    return faults_text(unset_variables(job["spec"])).split("; ") if unset_variables(job["spec"]) else []


FILE = {"membersFile": True}
ASKS = template(*(f"$({name})" for name in CONDITIONAL))
JOBS = [
    tyjob(ASKS, (None, ASKS)),
    tyjob(ASKS, ({}, ASKS), (None, ASKS)),
    tyjob(ASKS, ({"scope": "Job"}, ASKS), (None, ASKS)),
    tyjob(ASKS, ({"scope": "Job", **FILE}, ASKS), (FILE, ASKS)),
    tyjob(ASKS, ({"scope": "Set", **FILE}, ASKS), leaderService=True),
    tyjob(None, ({}, ASKS), (None, ASKS)),
    tyjob(None, ({"scope": "Job", **FILE}, ASKS)),
]


@pytest.mark.parametrize("job", JOBS)
def test_just_those_are_unset_that_the_pods_of_the_job_lack(job: Object) -> None:
    found = {(fault.field.partition(".template.")[0], fault.name) for fault in unset_variables(job["spec"])}
    has_leader = "leader" in job["spec"]
    groups = [*([(0, "spec.leader")] if has_leader else [])]
    groups += [(number + 1, f"spec.workerSets[{number}]") for number in range(len(job["spec"]["workerSets"]))]
    lacking: set[tuple[str, str]] = set()
    for group, path in groups:
        address = "10.0.0.1" if has_leader else None
        pod = pod_manifest(job, group=group, index=0, attempt=0, node="n", leader_address=address)
        names = {of["name"] for of in pod["spec"]["containers"][0]["env"]}
        assert set(ALWAYS) <= names <= {*ALWAYS, *CONDITIONAL}
        lacking |= {(path, name) for name in CONDITIONAL if name not in names}
    assert found == lacking


def test_what_would_set_the_variable_is_named() -> None:
    [of_leader, of_set] = said(tyjob(template("$(MASTER_ADDR)"), (None, template(command=["--n=$(NNODES)"]))))
    assert of_leader == (
        "spec.leader.template.spec.containers[0].args[0]: $(MASTER_ADDR) stays as it is: the pod has no such variable "
        "(spec.workerSets[].rendezvous.scope: Job sets it)"
    )
    assert of_set == (
        "spec.workerSets[0].template.spec.containers[0].command[0]: $(NNODES) stays as it is: the pod has no such "
        "variable (spec.workerSets[0].rendezvous sets it)"
    )


def test_a_misspelt_variable_of_arranger_is_named_with_the_nearest_one() -> None:
    [misspelt] = said(tyjob(template("$(TYJOB_RNAK)")))
    assert misspelt.endswith("the pod has no such variable, did you mean $(TYJOB_RANK)?")


@pytest.mark.parametrize(
    "leader",
    [
        template("$$(MASTER_ADDR)", "$MASTER_ADDR", "${MASTER_ADDR}", "$(OTHER)", "$(TYJOB_NAME)"),
        template("$(MASTER_ADDR)", env={"MASTER_ADDR": "a"}),
        template("$(MASTER_ADDR)", envFrom=[{"configMapRef": {"name": "all"}}]),
    ],
)
def test_what_is_no_reference_or_is_set_by_the_template_is_no_news(leader: Object) -> None:
    assert said(tyjob(leader)) == []


def test_references_in_variables_and_in_init_containers_count_and_each_variable_is_said_once() -> None:
    leader = template("$(MASTER_ADDR)", "$(MASTER_ADDR)", "$$$(NNODES)", env={"PORT": "$(MASTER_PORT)"})
    leader["spec"]["initContainers"] = [{"name": "i", "image": "i", "command": ["$(NODE_RANK)"]}]
    fields = [fault.field.partition(".spec.")[2] for fault in unset_variables(tyjob(leader)["spec"])]
    assert fields == [
        "initContainers[0].command[0]", "containers[0].args[0]", "containers[0].args[2]", "containers[0].env[0].value",
    ]  # fmt: skip


# --- where it is said -------------------------------------------------------------------------------------------


def seen(job: Object) -> k.JobSeen:
    return job_seen(copy.deepcopy(job), 1, with_status=False)


def test_an_observation_has_them_and_keeps_them_for_the_same_generation() -> None:
    job = tyjob(template("$(MASTER_ADDR)"))
    job["metadata"]["generation"] = 1
    first = seen(job)
    assert [of.name for of in first.unset] == ["MASTER_ADDR"] and first.spec is not None
    assert job_seen(job, 1, with_status=False, last=first).unset == first.unset
    assert seen(tyjob(template())).unset == () and seen({**job, "spec": {}}).unset == ()


def test_an_observation_of_an_earlier_version_has_none() -> None:
    encoded = msgspec.msgpack.decode(msgspec.msgpack.encode(seen(tyjob(template("$(MASTER_ADDR)")))))
    assert msgspec.convert(encoded[:-1], k.JobSeen).unset == ()


def test_the_status_and_the_answers_of_commands_say_it() -> None:
    world = World()
    world.node("n1")
    job = world.job("j")
    warned = seen(tyjob(template("$(MASTER_ADDR)"))).unset
    for _ in range(3):
        assert not [one for one in desired_status(world.state, job)["conditions"] if one["type"] == "UnsetVariables"]
        job.seen = msgspec.structs.replace(job.seen, unset=warned)
        [condition] = [one for one in desired_status(world.state, job)["conditions"] if one["type"] == "UnsetVariables"]
        assert condition["status"] == "True" and condition["message"] == faults_text(warned)
        assert message_of(world.state, job).endswith(faults_text(warned))
        job.seen = msgspec.structs.replace(job.seen, unset=())
        world.cycle()
        world.control()
        world.apply()


async def test_an_event_says_it_once() -> None:
    scene = Scene()
    job = scene.world.job("j")
    job.seen = msgspec.structs.replace(job.seen, unset=seen(tyjob(template("$(MASTER_ADDR)"))).unset)
    for _ in range(2):
        await scene.report(job)
    [event] = [of for of in scene.events() if of["reason"] == "UnsetVariable"]
    assert (event["type"], event["count"]) == ("Warning", 1)
    assert "$(MASTER_ADDR) stays as it is" in event["message"]
