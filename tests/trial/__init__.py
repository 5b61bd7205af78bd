"""An operator's trial: repeat on real servers the failures that were found in releases, with one verdict per row.

Real: kube-apiserver, etcd, a Redis server, and processes with the rights of `deploy/`. Simulated: only the kubelets.
The trial judges by its own watch (`tests.e2e.history`) and by the log in Redis. Each module has one row or a group of
rows of the findings; `scene`, `streams`, `faults` and `readings` are shared parts.
"""
