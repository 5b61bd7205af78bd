"""The tree of the queues, and what their jobs use. Imports the wings `cluster` and `jobs`."""
