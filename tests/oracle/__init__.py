"""kube-scheduler as the oracle of Arranger's filters: on random clusters both must accept the same nodes for a pod.

`main.go` links kube-scheduler's own plugins, and `tests.build_servers` builds it. `clusters` makes clusters as
Kubernetes objects from a seed, `judging` asks both sides, and `python -m tests.oracle --clusters 2000` compares many.
"""
