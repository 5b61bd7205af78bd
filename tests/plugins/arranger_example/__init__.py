"""One of each: a queue policy, a pod policy and a filter for Arranger, found through the entry points in pyproject."""
