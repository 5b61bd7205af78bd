"""Kubernetes at the edge: the only package that talks to an API server.

`cluster` is the interface that workers use, `client` carries it out over HTTP with raw JSON (the typed client
costs 24 ms of CPU a call), `config` finds the API server and the credentials, `translate` turns objects into
observations.
"""
