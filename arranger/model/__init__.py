"""What things are: quantities, resource requests, nodes, pods and TYJobs, as small immutable records.

Nothing here knows the log, Kubernetes' wire format beyond the parts that it parses, or the time.
"""
