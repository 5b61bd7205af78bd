"""Feeds: readers of the log that tell other systems what happened. None of them appends to the log."""
