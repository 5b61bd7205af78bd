"""A namespaceSelector selects namespaces by their labels, as they are now."""

from typing import Any

import pytest

from arranger.events import kinds as k
from arranger.kube.translate import pod_seen
from arranger.model.pod import PodRules, PodTerm, PodTraits, Requirement
from arranger.model.template import pod_shape
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from arranger.projections.verdicts.ownership import attributed
from tests.unit.replay_worlds import verified
from tests.unit.test_pseudonyms import renamed
from tests.world import Edited, World, shape

HOST = "kubernetes.io/hostname"
APP = (Requirement("app", "In", ("store",)),)
TEAM = (Requirement("team", "In", ("rl",)),)
STORE = PodTraits((("app", "store"),))


def term(*named: str) -> PodTerm:
    return PodTerm(HOST, APP, named, TEAM)


def world() -> World:
    """Two nodes; a pod of the app in the namespace `research` runs on the first."""
    made = World()
    for name in ("n1", "n2"):
        made.node(name, cpu=8, labels={HOST: name})
    made.watch_namespaces()
    made.pod("store", "n1", namespace="research", traits=STORE)
    return made


def apart(there: World, *named: str) -> JobRecord:
    return there.job("apart", leader=shape(cpu=1, rules=PodRules(anti_affinity=(term(*named),))))


def beside(there: World, *named: str) -> JobRecord:
    return there.job("beside", leader=shape(cpu=1, rules=PodRules(affinity=(term(*named),))))


def nodes(there: World, job: JobRecord) -> set[str]:
    there.cycle()
    return set(job.placements.values())


def test_affinity_joins_pods_of_selected_namespaces_once_they_have_the_labels() -> None:
    there = world()
    job = beside(there)
    assert nodes(there, job) == set()
    there.namespace("research", team="vision")
    assert nodes(there, job) == set()
    there.namespace("research", team="rl")
    assert nodes(there, job) == {"n1"}


def test_named_namespaces_count_beside_selected_ones() -> None:
    there = world()
    assert nodes(there, beside(there, "research")) == {"n1"}


def test_anti_affinity_avoids_pods_of_selected_namespaces() -> None:
    there = world()
    there.namespace("research", team="rl")
    there.node("n2", cpu=8, cordoned=True, labels={HOST: "n2"})
    job = apart(there)
    assert nodes(there, job) == set()
    there.namespace("research", team="vision")
    assert nodes(there, job) == {"n1"}


def test_a_pod_on_a_node_keeps_pods_of_selected_namespaces_away() -> None:
    there = world()
    there.pod("jealous", "n2", namespace="other", traits=PodTraits((), (), (term(),)))
    job = there.job("j", leader=shape(cpu=1, labels={"app": "store"}), namespace="research")
    there.node("n1", cpu=8, cordoned=True, labels={HOST: "n1"})
    there.namespace("research", team="rl")
    assert nodes(there, job) == set()
    there.namespace_gone("research")
    assert nodes(there, job) == {"n2"}


def selected(there: World) -> list[tuple[str, ...]]:
    spec = there.state.jobs["uid-apart"].valid_spec
    assert spec.groups[0].shape.rules is not None
    (of_pod,) = there.state.pods["uid-jealous"].traits.anti_affinity
    assert there.state.repelling["uid-jealous"] is there.state.pods["uid-jealous"]
    return [spec.groups[0].shape.rules.anti_affinity[0].selected, of_pod.selected]


def test_the_terms_of_jobs_and_pods_follow_every_change_of_namespaces() -> None:
    there = world()
    there.pod("jealous", "n2", traits=PodTraits((), (), (term(),)))
    apart(there)
    assert selected(there) == [(), ()]
    there.namespace("research", team="rl")
    there.namespace("robots", team="rl")
    assert selected(there) == [("research", "robots")] * 2
    there.namespace("research")
    assert selected(there) == [("robots",)] * 2
    apart(there)
    there.pod("jealous", "n2", traits=PodTraits((), (), (term(),)))
    assert selected(there) == [("robots",)] * 2
    validate(there.state)
    assert snapshot.digest(snapshot.restore(snapshot.encode(there.state))) == snapshot.digest(there.state)
    there.say(k.WatchRefused(k.Watched.NAMESPACE, there.watch_namespaces(), 403))
    assert selected(there) == [(), ()]


def test_a_first_listing_selects_at_its_end() -> None:
    there = World()
    there.pod("jealous", traits=PodTraits((), (), (term(),)))
    apart(there)
    claimed = there.say(k.WatchClaimed(k.Watched.NAMESPACE, "test"))
    labels = (("team", "rl"),)
    there.say(*(k.NamespaceSeen(claimed, name, f"uid-{name}", "1", labels, "") for name in ("b", "a")))
    there.say(k.ListingEnded(k.Watched.NAMESPACE, claimed, "1"))
    assert selected(there) == [("a", "b")] * 2


def test_a_pod_that_was_observed_is_known_when_it_is_observed_again() -> None:
    there = world()
    there.namespace("research", team="rl")
    there.pod("jealous", "n2", traits=PodTraits((), (), (term(),)))
    again = there.entries[-1].batch.events[0]
    assert isinstance(again, k.PodSeen) and again.traits.anti_affinity[0].selected == ()
    assert attributed(there.state, again) == there.state.pods["uid-jealous"]


def test_a_started_job_may_be_edited_after_its_namespaces_have_changed() -> None:
    there = world()
    edited = Edited(there, leader=shape(cpu=1, rules=PodRules(anti_affinity=(term(),))), priority=3)
    there.settle()
    there.namespace("research", team="rl")
    edited.edit(priority=4)
    assert not edited.job.refused and edited.job.valid_spec.priority == 4


def test_a_log_without_names_gives_the_same_plans() -> None:
    there = world()
    there.namespace("research", team="rl")
    beside(there)
    there.cycle()
    assert there.state.jobs["uid-beside"].placements
    before, report = verified(there.entries), verified(renamed(there.entries))
    assert before.different == report.different == 0 and report.identical == before.identical > 0


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_the_selector_of_a_template_is_read(kind: str) -> None:
    selector = {"matchLabels": {"team": "rl"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}
    given = {"topologyKey": HOST, "labelSelector": {}, "namespaceSelector": selector, "namespaces": ["b"]}
    spec: dict[str, Any] = {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [given]}}}
    rules = pod_shape(spec).rules
    assert rules is not None
    (found,) = rules.affinity + rules.anti_affinity
    assert (found.namespaces, found.namespace_selector) == (("b",), (*TEAM, Requirement("a", "Exists", ())))
    seen = pod_seen({"metadata": {"name": "p", "uid": "u", "namespace": "n"}, "spec": spec}, 1)
    assert [of.namespace_selector for of in seen.traits.anti_affinity] == (
        [found.namespace_selector] * (kind == "podAntiAffinity")
    )
