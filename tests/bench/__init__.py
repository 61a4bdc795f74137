"""The figures of the platform against bare baselines: `make bench`. Not right or wrong, but how much."""
