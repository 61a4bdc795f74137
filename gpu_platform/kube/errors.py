"""What the API server said, as types. Nothing of `kubernetes` or `aiohttp` leaves this package.

KubeError(status, reason, message)
├─ NotFoundError        404
├─ AlreadyExistsError   409, reason AlreadyExists: the name is taken
├─ ConflictError        409, any other reason: modified concurrently, or a precondition failed
│  └─ QuotaBusyError    409 about a ResourceQuota: too many writers changed its counts
├─ GoneError            410: the resourceVersion is too old, list again
└─ UnreachableError     no answer in time, or no connection (status 0)
"""

from collections.abc import Mapping
from typing import Any

MESSAGE_LIMIT = 1_000
"""Characters of the server's words that we keep: enough to read, too few to flood a log."""

QUOTAS = "resourcequotas"
"""The object of a conflict that is not about what was to be written."""

OVER_QUOTA = "exceeded quota: "
"""The API server's words in a 403. Its reason, Forbidden, is that of missing rights, too."""


class KubeError(Exception):
    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message[:MESSAGE_LIMIT]}")
        self.status = status
        self.reason = reason
        self.message = message[:MESSAGE_LIMIT]

    @property
    def is_refusal(self) -> bool:
        """Whether nothing was written, and the API server answers the same until something changes: no such field, no
        right or no quota, against a rule."""
        return self.status in (400, 403, 422)

    @property
    def wrote_nothing(self) -> bool:
        """Whether this request wrote nothing for certain. An earlier try of the same creation may have: the API server
        looks at quotas before it looks at names."""
        return self.is_refusal or isinstance(self, AlreadyExistsError | ConflictError | NotFoundError)

    @property
    def is_about_quota(self) -> bool:
        """Whether a quota prevented a creation, before the API server looked whether the name is taken."""
        return isinstance(self, QuotaBusyError) or (self.status == 403 and OVER_QUOTA in self.message)


class NotFoundError(KubeError):
    pass


class AlreadyExistsError(KubeError):
    pass


class ConflictError(KubeError):
    pass


class QuotaBusyError(ConflictError):
    pass


class GoneError(KubeError):
    pass


class UnreachableError(KubeError):
    pass


def error_from_status(status: int, body: Mapping[str, Any]) -> KubeError:
    """Turn a `Status` object, or whatever a proxy answered instead of one, into the error it means."""
    reason = str(body.get("reason") or "Unknown")
    message = str(body.get("message") or "no message")
    match status:
        case 404:
            return NotFoundError(status, reason, message)
        case 409 if (body.get("details") or {}).get("kind") == QUOTAS:
            return QuotaBusyError(status, reason, message)
        case 409 if reason == "AlreadyExists":
            return AlreadyExistsError(status, reason, message)
        case 409:
            return ConflictError(status, reason, message)
        case 410:
            return GoneError(status, reason, message)
    return KubeError(status, reason, message)
