"""The role that brings the cluster in line with the accepted decisions.

`applier` looks at job by job. `statuses/` and `pods/` write what follows from the projection, `objects/` what pods
need, all by way of `effects/`, which asks whether a change is allowed. Imports `parts` and what stands below it.
"""
