"""The GPU platform: the rules, the adapters, the embedded cluster and the command line."""
