"""Pod policies: how a job's pods choose among the nodes that pass the filters.

`base` is their interface, and `consent` that of group checks and permits. `closed_form` places equal pods together, and
`ranking` keeps the scores of one shape of pods. Imports the wings `filters` and `cluster`.
"""
