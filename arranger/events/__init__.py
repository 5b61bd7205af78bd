"""The events of the log (`kinds`), their encoding (`codec`), and the log itself (`log`).

The log is a small interface. It is stored in Redis (`redis_log`); copies of it in files (`file_log`) are only read. One
contract suite checks that both, and the log in memory that the tests use, behave alike.
"""
