"""The pods: created, bound, deleted or evicted, tried by a dry run, and the nodes that are asked for them. Its face is
`job_pods`."""
