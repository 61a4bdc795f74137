"""Invocations: calls of functions, from their acceptance to their results."""
