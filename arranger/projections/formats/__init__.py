"""Formats of snapshots: the layouts that this program reads, and pods by columns. It imports no other wing."""
