"""Calls that are passed on to what tenants run."""
