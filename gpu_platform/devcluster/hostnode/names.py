"""The names by which others know this node, its pods and their processes. Data only."""

NODE_NAME = "host"

POD_ADDRESS_ANNOTATION = "runtime.lokiwager.io/host-address"
"""The pod's real address, 127.A.b.c; its status shows 10.A.b.c because EndpointSlices refuse loopback."""

HOST_NODE_TAINT = "runtime.lokiwager.io/host-node"

CLUSTER_VARIABLE = "GPU_PLATFORM_DEV_CLUSTER"
"""Marks every process of one embedded cluster, so that whoever cleans up finds it by its environment."""

POD_VARIABLE = "GPU_PLATFORM_DEV_POD"
"""Marks every process of a pod with the pod's uid: a child that left its process group is found by this."""

CONTAINER_VARIABLE = "GPU_PLATFORM_DEV_CONTAINER"
