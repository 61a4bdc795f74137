"""The `gpu-platform` command, also as `python -m gpu_platform.cli`. Imports nothing of it before `main`."""

import signal


def main() -> None:
    """Runs the command. Ctrl-C ends it as it ends any program while Python loads or unloads its modules, and in between
    is a KeyboardInterrupt; a program that was started with it ignored ignores it."""
    handler = signal.getsignal(signal.SIGINT)
    is_heeded = handler is signal.default_int_handler
    if is_heeded:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from gpu_platform.cli.app import run

    try:
        if is_heeded:
            signal.signal(signal.SIGINT, handler)
        run()
    finally:
        if is_heeded:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
