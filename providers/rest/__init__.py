"""The platform's REST API as `providers/dynamic.py` uses it: what a tenant wishes, and how that comes about."""
