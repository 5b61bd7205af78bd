"""Benchmarks: what the product promises in speed and memory, measured by one command on real parts.

`python -m benchmarks [NAME...]` runs them, prints a table and writes JSON. Where a promise is a ratio, what it is
compared with is measured in the same run, alternately, so that a slow or busy machine slows both.
"""
