"""What can be said in the log (`kinds`), how it is written down (`codec`), and the log itself (`log`).

The log is a small interface. Its home is Redis (`redis_log`); files that it is copied into (`file_log`) are only read.
One contract suite holds both, and the log in memory that the tests use, to the same behaviour.
"""
