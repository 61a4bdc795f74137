"""The time. Decisions get it as an argument; this is where processes take it from."""

from datetime import UTC, datetime


def now_utc() -> datetime:
    return datetime.now(UTC)
