"""The log in a process: where to begin, following and folding it, appending, whose cluster it is, and the archive's
writer.

Imports the wings `members` and `flow`.
"""
