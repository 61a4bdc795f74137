"""The page at `/docs`: Swagger UI out of an installed package, under a policy that lets nothing else run.

No script is inline, so that the policy needs no exception for scripts. The page loads nothing from another host: it is
where callers paste their keys.
"""

from importlib.resources import files
from pathlib import Path

ASSETS_PATH = "/docs/assets"
START = "start.js"

PAGE_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        # Swagger UI sets `style` attributes; a style cannot run anything.
        "style-src 'self' 'unsafe-inline'",
        # Its icons are data URLs in its style sheet.
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)

CACHED = "public, max-age=3600"
"""The same files for every caller. An hour, so that an upgrade is seen soon."""


MEDIA_TYPES = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon.png": "image/png",
}
"""Of the files that are served, and of no other one."""

STATIC = Path(str(files("fastapi_offline"))) / "static"


def build_page(title: str) -> str:
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="{ASSETS_PATH}/favicon.png">
<link rel="stylesheet" href="{ASSETS_PATH}/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="{ASSETS_PATH}/swagger-ui-bundle.js"></script>
<script src="{ASSETS_PATH}/{START}"></script>
</body>
</html>
"""


def build_start(description: str) -> str:
    """The script that shows the description at this path."""
    return f"""SwaggerUIBundle({{
  url: "{description}",
  dom_id: "#swagger-ui",
  deepLinking: true,
}});
"""
