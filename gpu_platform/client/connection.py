"""Where the platform is and with which key it is called: from arguments, or else from the environment. The command line
takes the key from the environment alone, so that no list of processes and no shell history shows it."""

import os
from collections.abc import Mapping

import httpx

from gpu_platform.client.errors import NotConfiguredError

URL_VARIABLE = "GPU_PLATFORM_URL"
KEY_VARIABLE = "GPU_PLATFORM_KEY"
"""Not GPU_PLATFORM_API_…: what begins so is a setting of the API's own process."""


def find_connection(
    url: str | None = None,
    key: str | None = None,
    *,
    needs_key: bool = True,
    environment: Mapping[str, str] = os.environ,
) -> tuple[str, str | None]:
    """URL and key, or NotConfiguredError with what is missing."""
    address = url or environment.get(URL_VARIABLE)
    # A key that was read from a file often ends with the line's end.
    key = (key or environment.get(KEY_VARIABLE, "")).strip() or None
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


def parse_url(text: str) -> httpx.URL:
    """The address of an API, or NotConfiguredError. The error does not show it: a wrong one may hold a password."""
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        url = httpx.URL("")
    is_http = url.scheme in ("http", "https") and bool(url.host) and (url.port or 1) <= 65_535
    if not is_http or url.userinfo or url.query:
        raise NotConfiguredError(
            "the platform's URL (GPU_PLATFORM_URL or --url) should look like http://127.0.0.1:8080, "
            "without a password in it"
        )
    return url
