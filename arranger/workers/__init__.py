"""The running roles: watcher, controller, scheduler, applier and maintenance, around one warm projection.

From the ground up: `flow` is how work waits and is repeated, `members` are the processes of a cluster, `log` is how a
process follows the log. The roles (`watching`, `deciding`, `applying`, `maintaining`) share `parts`, and don't import
each other. `health` is what operators see; `roles` and `process` put everything together.
"""
