"""The roles that decide: the controller on the stages of jobs, the scheduler on nodes, and forecasts.

Imports `parts` and what stands below it.
"""
