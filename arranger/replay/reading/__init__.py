"""Read a log: the state at a point, the events with their verdicts, differences, and the verification of cycles."""
