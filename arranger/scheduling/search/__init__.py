"""A quorum's search: all of its pods get nodes, or none does.

`placer` takes job by job, and `quorum_search` tries the ways to place a quorum, `complete_search` last. Imports
`placing` and the wings below it.
"""
