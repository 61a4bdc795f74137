"""GPUUnits: hand-off from stock, NetworkPolicy, Service, Deployment, status."""
