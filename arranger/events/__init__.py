"""What can be said in the log (`kinds`), how it is written down (`codec`), and the log itself (`log`).

The log is a small interface with three homes: Redis (`redis_log`), memory (`memory_log`) and files
(`file_log`). One contract suite holds all three to the same behaviour.
"""
