"""The log in a process: where to begin, following and folding it, whose cluster it is, and its archive's writer.

Imports the wings `members` and `flow`.
"""
