"""The REST API: accept, check, record, answer."""
