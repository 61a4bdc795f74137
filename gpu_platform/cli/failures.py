"""Tells an error as sentences: the fact, its details, and what to do about it."""

from rich.console import Console
from rich.text import Text

from gpu_platform.cli.errors import ApiError, PlatformError

HINTS = {
    "unauthenticated": 'set GPU_PLATFORM_KEY to a valid key, or run: eval "$(gpu-platform dev env)"',
    "forbidden": "ask an operator for a key with another role, or for a larger quota",
    "insufficient_capacity": "see `gpu-platform stock list`, or ask an operator for more stock",
    "precondition_failed": "it was changed meanwhile; look at it and try again",
    "gpuunit_not_found": "see `gpu-platform units list`",
    "stockunit_not_found": "see `gpu-platform stock list`",
    "stockpool_not_found": "see `gpu-platform pools list`",
    "gpu_metrics_not_configured": "an operator can say where they are: nvidiaMetricsEndpoint of the API",
    "spec_not_found": "see `gpu-platform specs list`",
    "job_not_found": "see `gpu-platform ops list`",
    "not_found": "the API does not know this route; is it older than this command?",
}
LATER = frozenset({"operation_in_progress", "service_unavailable", "too_many_requests"})


def print_error(error: Exception) -> None:
    console = Console(stderr=True, soft_wrap=True)
    console.print(Text.assemble(("error:", "bold red"), f" {error}"))
    for line in build_explanation(error):
        console.print(Text(f"  {line}"))


def build_explanation(error: Exception) -> tuple[str, ...]:
    """What follows the error's own sentence, a line each."""
    lines: list[str] = []
    if isinstance(error, ApiError):
        details = [f"{detail.field}: {detail.message}" if detail.field else detail.message for detail in error.details]
        # A single detail is often the whole message.
        lines += [detail for detail in details if detail != str(error)]
        lines += [hint] if (hint := _find_hint(error)) else []
        lines += [f"request {error.request_id}"] if error.status >= 500 and error.request_id else []
    if isinstance(error, PlatformError):
        lines += getattr(error, "__notes__", [])
    return tuple(lines)


def _find_hint(error: ApiError) -> str | None:
    if error.code in LATER:
        after = error.retry_after_seconds
        return f"try again in {after} s" if after else "try again in a moment"
    return HINTS.get(error.code)
