"""What the GPUs themselves say, by an exporter: for health, for Prometheus, and for the tenants' units."""
