"""The inputs of commands: flags, logs, files that describe clusters, and traces."""
