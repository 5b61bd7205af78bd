"""The role that keeps the log: snapshots, trimming and archiving. Imports `parts` and what stands below it."""
