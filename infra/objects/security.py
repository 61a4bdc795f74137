"""The security contexts of the platform's own pods: what the `restricted` profile wants, and more."""

NONROOT = 65_532
"""The user of images without a root."""

POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": NONROOT,
    "runAsGroup": NONROOT,
    "fsGroup": NONROOT,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
