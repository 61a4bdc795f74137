"""Drift: where an object, its stack and what was accepted for it differ."""
