"""Arranger's filters accept the nodes that kube-scheduler's accept; `python -m tests.oracle` compares many more."""

from collections import Counter

from tests.oracle.clusters import cluster
from tests.oracle.judging import Oracle, compare

_CLUSTERS = 400


def test_both_accept_the_same_nodes_of_random_clusters(scheduler_oracle: Oracle) -> None:
    plugins: Counter[str] = Counter()
    accepted = 0
    for seed in range(_CLUSTERS):
        compared = compare(scheduler_oracle, cluster(seed))
        assert compared.differences == {}, f"seed {seed}: run `python -m tests.oracle --seed {seed} --clusters 1`"
        plugins.update(compared.plugins)
        accepted += compared.nodes - sum(compared.plugins.values())
    assert accepted > _CLUSTERS / 2
    assert {
        "DynamicResources", "InterPodAffinity", "NodeAffinity", "NodePorts", "NodeResourcesFit", "NodeUnschedulable",
        "NodeVolumeLimits", "PodTopologySpread", "TaintToleration", "VolumeBinding", "VolumeRestrictions", "VolumeZone",
    } <= plugins.keys()  # fmt: skip
