"""The fixtures of the integration tests."""

from tests.support.fixtures import api, cluster, kube, namespace

__all__ = ["api", "cluster", "kube", "namespace"]
