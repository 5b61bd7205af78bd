"""The event at which a condition starts to hold."""
