"""The real parts of the embedded cluster: finds them, or builds them once and caches them."""

from gpu_platform.devcluster.parts.ensure import Executable, FromPath, Origin, Parts, ensure_parts
from gpu_platform.devcluster.parts.progress import Progress, shown_progress

__all__ = ["Executable", "FromPath", "Origin", "Parts", "Progress", "ensure_parts", "shown_progress"]
