"""Why a container cannot be started yet, in the words that its status shows."""


class CannotStartError(Exception):
    """The container waits with this reason and message, and is tried again later."""

    def __init__(self, message: str, reason: str = "CreateContainerConfigError") -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
