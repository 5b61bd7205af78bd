"""What operators see of a process and of all: health and metrics over HTTP, checks, and the status.

Imports every other wing; the composition (`process`, `roles`, `health_report`) imports it.
"""
