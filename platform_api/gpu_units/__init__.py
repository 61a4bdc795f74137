"""GPU units: what tenants rent."""
