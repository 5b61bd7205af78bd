"""The `arranger` command: one module per subcommand, each imported only when it is called."""

#: The name of the command as a plugin of kubectl.
PLUGIN = "kubectl arranger"
