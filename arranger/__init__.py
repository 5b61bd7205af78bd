"""Arranger: a batch scheduler for distributed reinforcement learning on Kubernetes.

Every observation and every decision of Arranger is an event in one log, so any decision can be replayed, explained,
checked and made again. `docs/architecture.md` follows one event through the packages.
"""

__version__ = "0.1.0"
