"""An operator's trial: what broke a release on real servers, done again, with a verdict for each row of what was found.

Real: kube-apiserver, etcd, a Redis server, and processes with the rights of `deploy/`. Simulated: the kubelets alone.
The judges are a watch that the trial keeps itself (`tests.e2e.history`), and the log as it stands in Redis. One module
a row or group of rows; `scene`, `streams`, `faults` and `readings` are what they are built of.
"""
