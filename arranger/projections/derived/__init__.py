"""What follows from a state: indexes and counts that are kept with it, and times and amounts that are computed.

It knows the state, but neither the objects of single kinds nor decisions. Imports `state` and the wings below it.
"""
