"""The policies: how jobs are ordered and how a job's pods choose among the nodes that pass the filters."""
