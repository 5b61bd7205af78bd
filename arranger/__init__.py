"""Arranger: a batch scheduler for distributed reinforcement learning on Kubernetes.

Every fact that Arranger saw and every decision that it took is an event in one log, so any decision can be
replayed, explained, checked and taken again. `docs/architecture.md` follows one event through the packages.
"""

__version__ = "0.1.0"
