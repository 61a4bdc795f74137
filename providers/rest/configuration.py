"""Where the platform is and who asks: from the stack's configuration, or else from the environment."""

import os

import pulumi
from pulumi.dynamic import ConfigureRequest

from providers.rest.api import PlatformError

URL, KEY = "gpuplatform:url", "gpuplatform:key"
ENVIRONMENT = {URL: "GPU_PLATFORM_URL", KEY: "GPU_PLATFORM_KEY"}
"""The command line's variables, for what the stack's configuration does not say."""

COMMANDS = {URL: f"pulumi config set {URL} https://…", KEY: f"pulumi config set --secret {KEY}"}


def get_connection(req: ConfigureRequest) -> tuple[str, str]:
    """URL and key, or PlatformError with what is missing."""
    url, key = _get_setting(req, URL), _get_setting(req, KEY)
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise PlatformError(f"{KEY} holds characters that no key has: copy it again")
    return url, key


def refuse_open_key() -> None:
    """Pulumi writes a stack's configuration into its state: what is no secret there, in clear."""
    if pulumi.runtime.get_config(KEY) is not None and not pulumi.runtime.is_config_secret(KEY):
        raise pulumi.RunError(f"{KEY} stands in clear in the stack's configuration: run `{COMMANDS[KEY]}`")


def _get_setting(req: ConfigureRequest, name: str) -> str:
    variable = ENVIRONMENT[name]
    # A key that was read from a file often ends with the line's end.
    value = str(req.config.get(name) or os.environ.get(variable) or "").strip()
    if not value:
        raise PlatformError(f"{name} is not set: run `{COMMANDS[name]}`, or set {variable}")
    return value
