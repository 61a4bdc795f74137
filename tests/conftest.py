"""What holds for all tests."""

import signal


def pytest_configure() -> None:
    """A shell that starts us in the background lets us ignore Ctrl-C, and with us whomever we start. Tests press it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
