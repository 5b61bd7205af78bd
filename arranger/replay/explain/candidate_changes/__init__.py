"""Candidate changes: what could be different around a waiting job, each only supposed here. `remedies` tries them."""
