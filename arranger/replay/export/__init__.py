"""Export a log: only the segment that concerns one job, or a log without names."""
