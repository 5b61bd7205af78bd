"""What commands are given: flags, logs, clusters described in files, traces."""
