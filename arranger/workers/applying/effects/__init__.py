"""How the cluster is changed: what is allowed, how many requests run at once, and what is known of a job meanwhile.

Its face is `job_writer`, on which the writers of the other wings are built; they call `creation` and `deletions`, which
check what is there.
"""
