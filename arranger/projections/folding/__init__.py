"""How entries change the records: the lives of jobs and their slots, pods and groups of others, requests for nodes.

Only `fold`, above it, decides what is called for which event. Imports `verdicts` and the wings below it.
"""
