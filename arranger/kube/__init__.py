"""Kubernetes at the edge: the only package that talks to an API server.

`cluster` is the interface that workers use, `client` implements it over HTTP with raw JSON (the typed client
takes 24 ms of CPU a call), `config` finds the API server and the credentials, `translate` turns objects into
observations.
"""
