"""The role that observes the cluster: lists and watches of one kind, compared with the projection.

Imports `parts` and what stands below it.
"""
