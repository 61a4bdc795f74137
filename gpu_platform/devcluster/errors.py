"""What can keep the embedded cluster from working, in words for the person who started it."""


class DevClusterError(Exception):
    """One clear sentence: what is wrong and what to do next. The command line prints it and exits with 2."""
