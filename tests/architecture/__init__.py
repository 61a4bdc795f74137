"""The rules of the repository, as tests. Each rule also proves on a made-up example that it can fail."""
