"""The reverse proxy to tenants' units."""
