"""What would have been: cycles taken with something otherwise, and what would have come of it."""
