"""The running roles: watcher, controller, scheduler, applier and maintenance, around one warm projection."""
