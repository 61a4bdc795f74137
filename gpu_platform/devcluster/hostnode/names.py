"""The names by which others know this node, its pods and their processes. Data only."""

NODE_NAME = "host"

POD_ADDRESS_ANNOTATION = "runtime.lokiwager.io/host-address"
"""The pod's real address, 127.A.b.c; its status shows 10.A.b.c because EndpointSlices refuse loopback."""

HOST_NODE_TAINT = "runtime.lokiwager.io/host-node"

HOST_NODE_MARK = "GPU_PLATFORM_DEV_HOST_NODE"
"""Environment variable of every process of every pod: its value is the cluster's id."""

POD_MARK = "GPU_PLATFORM_DEV_POD"
"""The same for one pod: its uid."""

CONTAINER_MARK = "GPU_PLATFORM_DEV_CONTAINER"
"""The same for one container: the pod's uid, a slash, the container's name."""
