"""Which nodes take a pod, and the first reason against each other one.

By the facts of nodes (`nodes`), by the pods there (`pods`), by devices and volumes, and by what kubelets refused
(`refusals`). Imports the wing `cluster`.
"""
