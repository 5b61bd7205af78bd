"""Pods on nodes: what a job still needs, where its pods go and what else limits them, within one cycle.

`pods` places and undoes, `topology` and `areas` keep pods within domains, and `kept` has what a process keeps from one
cycle to the next. Imports the wings `queues`, `policies`, `filters` and `cluster`.
"""
