"""The host node: a Kubernetes node whose pods are local process groups. For development only.

`python -m gpu_platform.devcluster.hostnode` runs it; the embedded cluster starts it. It enforces no isolation
and no limits, so it refuses an API server that is not on this machine.
"""
