"""How work flows in a process: queues of work, turns among namespaces, the pace, delays after failures, cancelling.

It knows neither the log nor roles, and imports no other wing.
"""
