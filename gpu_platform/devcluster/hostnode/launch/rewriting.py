"""Paths that point into a mount become paths of the directory behind it, for there is no mount namespace. Pure.

A path is recognised anywhere in a text (`--flag=/mnt/x:ro`, `sh -c 'cat </mnt/x'`, `unix:///mnt/x`), but only
as a whole: `/mnt/x` is neither part of `/srv/mnt/x` nor of `/mnt/xy` or `/mnt/x.bak`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

_PART_OF_A_LONGER_PATH_BEFORE = r"[\w.\-~/})\]*?\\]"
_PART_OF_A_LONGER_NAME_AFTER = r"[\w.\-~+@*?\[{$%]"


@dataclass(frozen=True)
class PathRewriter:
    directories: Mapping[str, str] = field(default_factory=dict)
    """From mount path to real path, both without a slash at the end."""

    def rewrite(self, text: str) -> str:
        """Rewrite once: real paths are never looked at again, also if a mount covers them."""
        if not self.directories:
            return text
        return self._pattern.sub(lambda match: self.directories[match[0]], text)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.directories, key=len, reverse=True)
        paths = "|".join(re.escape(path) for path in longest_first)
        return re.compile(
            rf"(?:(?<!{_PART_OF_A_LONGER_PATH_BEFORE})|(?<=://))(?:{paths})(?!{_PART_OF_A_LONGER_NAME_AFTER})"
        )
