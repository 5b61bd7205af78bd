"""The basic records: quantities, resource requests, nodes, pods and TYJobs, small and immutable.

They are independent of the log, of the time, and of Kubernetes' wire format beyond the parts that they parse.
"""
