"""The processes of a cluster: their heartbeats, leases and shares, ticks among them, and their clocks.

Imports the wing `flow`.
"""
