"""What nodes have and who is on them, as one cycle sees it: columns, devices, volumes, neighbours, and what is idle.

The ground of scheduling: it imports no other wing.
"""
