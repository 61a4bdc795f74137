"""What ends a whole restore, as one sentence with the way out."""


class RestoreFailedError(Exception):
    """Nothing can be restored like this."""


class MisusedError(RestoreFailedError):
    """The person who asked has to ask for something else."""
