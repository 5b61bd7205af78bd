"""What leaves the house: the part of a log that concerns one job, and logs without names."""
