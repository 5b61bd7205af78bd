"""Jobs of rq that run nothing but functions of a table, the worker that runs them, and the thread that it runs in.

Ticks are such jobs, and questions for analysts. Imports the wing `flow`.
"""
