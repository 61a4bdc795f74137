"""Where the platform is and who asks: from the environment. The key comes only from there, so that no list of
processes and no shell history shows it."""

import os
from collections.abc import Mapping

from gpu_platform.cli.client import PlatformClient
from gpu_platform.cli.errors import NotConfiguredError

URL_VARIABLE = "GPU_PLATFORM_URL"
# Not GPU_PLATFORM_API_…: what begins so is a setting of the API's own process.
KEY_VARIABLE = "GPU_PLATFORM_KEY"


def connect(url: str | None, *, needs_key: bool = True) -> PlatformClient:
    """A client for this URL, or else the environment's. Close it, or use it in a `with`."""
    address, key = find_connection(os.environ, url, needs_key=needs_key)
    return PlatformClient(address, key)


def find_connection(environment: Mapping[str, str], url: str | None, *, needs_key: bool) -> tuple[str, str | None]:
    """URL and key, or NotConfiguredError with what is missing."""
    address = url or environment.get(URL_VARIABLE)
    # A key that was read from a file often ends with the line's end.
    key = environment.get(KEY_VARIABLE, "").strip() or None
    missing = [
        *([f"{URL_VARIABLE} (or --url)"] if not address else []),
        *([KEY_VARIABLE] if needs_key and not key else []),
    ]
    if missing or not address:
        raise NotConfiguredError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set: "
            'run  eval "$(gpu-platform dev env)"  for the embedded cluster, or set them yourself'
        )
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise NotConfiguredError(f"{KEY_VARIABLE} holds characters that no key has: copy it again")
    return address, key
