"""Whether a decision in the log is valid at its own offset, by nothing but the events before it.

Imports `observed` and the wings below it.
"""
