"""How fast one key may ask: a bucket of tokens per key, in this process."""

from dataclasses import dataclass


@dataclass
class _Bucket:
    tokens: float
    at: float


class RateLimit:
    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._buckets: dict[str, _Bucket] = {}

    def take(self, key_id: str, now: float) -> bool:
        """Whether this request may pass; `now` in seconds of a clock that never goes back."""
        bucket = self._buckets.setdefault(key_id, _Bucket(self._burst, now))
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.at) * self._per_second)
        bucket.at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True
