"""The record of one job: what was observed of it, the decisions about it, and the nodes of its pods.

It imports no other wing.
"""
