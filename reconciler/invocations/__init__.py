"""Calls that nobody else brings to their end: queued again, expired, or cancelled with their function."""
