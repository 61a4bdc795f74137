"""The tenants' Pulumi resources over the REST API: kinds, their lifecycle, and the connection."""
