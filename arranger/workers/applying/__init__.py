"""The role that brings the cluster in line with the accepted decisions.

`applier` looks at job by job; each writer keeps one kind of objects as the projection has it, by way of `effects`,
which asks whether a change is allowed. Imports `parts` and what stands below it.
"""
