"""Answers from memory: only once the memory is complete."""

from gpu_platform.kube.informer import ObjectCache
from platform_api.http.errors import unavailable


def require_listed(*caches: ObjectCache) -> None:
    """A 503 rather than an answer that lacks what was not listed yet."""
    missing = [cache.name for cache in caches if not cache.is_synced]
    if missing:
        raise unavailable(f"not listed yet: {', '.join(missing)}")
