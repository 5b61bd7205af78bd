"""The `arranger` command: one module per subcommand, each imported only when it is called."""
