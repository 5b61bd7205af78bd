"""One of each for Arranger, found through the entry points in pyproject: a queue and a pod policy, a filter, a group
check and a permit."""
