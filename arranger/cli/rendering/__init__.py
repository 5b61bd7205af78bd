"""The output of commands: pages, tables, plots and the pager."""
