"""Accounts of a whole log: for what its jobs waited, and what preemptions cost and gained."""
