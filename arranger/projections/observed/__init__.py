"""Objects as they were observed last, and what they mean for the pods of jobs.

`objects` is the table of where the state has each kind. The other modules keep what pods and jobs have of them up to
date: priorities, overheads, devices, volumes, the namespaces that a term selects. Imports `derived` and below.
"""
