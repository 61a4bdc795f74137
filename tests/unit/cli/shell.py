"""Commands as a person with the environment set up would run them."""

from typer.testing import CliRunner, Result

from gpu_platform.cli.app import app

KEY = "gk_tenant01_0123456789012345678901234567890123456789012"


def unwrapped(text: str) -> str:
    """A usage error, which stands in a frame as wide as the terminal, in one line."""
    return " ".join(text.replace("│", " ").split())


class Shell:
    def __init__(self, url: str) -> None:
        self.environment: dict[str, str | None] = {"GPU_PLATFORM_URL": url, "GPU_PLATFORM_KEY": KEY}

    def run(self, *words: str, stdin: str | None = None, **environment: str | None) -> Result:
        result = CliRunner().invoke(app, list(words), input=stdin, env={**self.environment, **environment})
        assert KEY not in result.output, "the key must never be shown"
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result
