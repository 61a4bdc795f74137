"""What slow test modules cost, for the order of a parallel run: the slowest start first.

Seconds of the last measured run; `make test` prints them. Only the order depends on them, and only roughly.
"""

MODULE_SECONDS: dict[str, float] = {}
