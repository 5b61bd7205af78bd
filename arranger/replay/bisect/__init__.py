"""Find the event at which a condition starts to hold."""
