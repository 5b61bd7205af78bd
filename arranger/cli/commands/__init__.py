"""The subcommands of `arranger`, one module each."""
