"""The pure fold of the log into jobs, pods and node capacity, with its digest and snapshots.

From the ground up: `formats` of snapshots, the records of `jobs`, the `cluster` and the `queues` are what the `state`
is made of. `derived` is what follows from it, `observed` what objects mean for pods, `verdicts` judge decisions, and
`folding` is how entries change the records. `fold` takes them together, and `snapshot` writes and reads a state.
"""
