"""What the console shows: the cluster at any point of the log, and what a single pass over the log finds."""
