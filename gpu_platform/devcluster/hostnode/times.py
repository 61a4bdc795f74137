"""Instants as Kubernetes writes them. The clock is read here and handed on as an argument."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    return datetime.now(UTC)


def format_time(at: datetime) -> str:
    """As `metav1.Time`: whole seconds."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(at: datetime) -> str:
    """As `metav1.MicroTime`: leases and log options use it."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
