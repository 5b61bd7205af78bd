"""Questions about the log as jobs: those who ask put them into a queue, and analysts answer them.

Other packages import `work_queue`, and the composition of a process `analyst`. Imports the wings `jobs` and `flow`.
"""
