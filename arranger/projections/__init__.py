"""The pure fold of the log into jobs, pods and node capacity, with its digest and snapshots."""
