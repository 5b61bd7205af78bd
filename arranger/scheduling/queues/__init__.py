"""Queues: whose job is next, what each queue is entitled to, and the limits that hold it.

`waiting` has the jobs that need nodes, `policies` the interface of queue policies, and `registry` the policies and
filters that a cycle can use. Imports the wings `policies`, `filters` and `cluster`.
"""
