"""Places in a resource's properties, written as Pulumi writes them: `metadata.labels["a/b"]`, `spec.ports[0].name`."""

import json
import re

from gpu_platform.pulumi_protocol.properties import Path

PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


def path_text(path: Path) -> str:
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif PLAIN.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step)}]"
    return text


def starts_with(path: Path, prefix: Path) -> bool:
    return path[: len(prefix)] == prefix
