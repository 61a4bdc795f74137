"""The embedded default: gets the real parts and runs them on one machine. For development only."""


class DevClusterError(Exception):
    """One clear sentence: what is wrong and what to do next. The command line prints it and exits with 2."""
