"""Explain one job's life: the decisions about it, why it waits, and which changes would give it nodes."""
