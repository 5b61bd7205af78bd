"""What can be said in the log (`kinds`), how it is written down (`codec`), and the log itself (`log`).

The log is a small interface with two homes: Redis (`redis_log`) and files (`file_log`). One contract suite holds both,
and the log in memory that the tests use, to the same behaviour.
"""
