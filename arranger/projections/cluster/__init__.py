"""The cluster: nodes as columns, devices, claims and volumes as observed, and which nodes take new pods.

Imports the wing `jobs`.
"""
