"""What a log says: the state at a point, its events with their verdicts, what changed, and whether its cycles hold."""
