"""The same cluster as in the integration tests, started for this session."""

from tests.integration.conftest import cluster, kube

__all__ = ["cluster", "kube"]
